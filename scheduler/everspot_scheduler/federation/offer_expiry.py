"""Removes offers that are over for long, so that the hosts' listings stay short."""

import logging
from datetime import timedelta

from everspot_core.jobs.visit_records import visit_prefix
from everspot_store import Store

from everspot_scheduler.federation.inbound import OFFER_LIFE
from everspot_scheduler.federation.peers import Peers

KEPT = timedelta(days=1)
"""How long an offer stays after it is over. Until then nobody can make it again. A program that was stopped for longer,
and then wrote it late, is refused by the host, for which an offer is too old after `OFFER_LIFE`."""
assert KEPT > 2 * OFFER_LIFE  # noqa: S101 - else there could be a moment at which neither rule holds
_log = logging.getLogger(__name__)


def sweep_offers(store: Store, peers: Peers) -> None:
    """Delete this home's offers that ended long ago, except those that a job which is away still needs.

    Raises:
        StoreError: if a store failed.
    """
    now, own = store.clock.now(), visit_prefix(peers.home)
    for peer in peers.all:
        host = peers.store(peer)
        for visit, document in host.visits.scan(include=lambda id: id.startswith(own)).items():
            offer = document.value
            if offer.home != peers.home or not offer.state.over or now - offer.changed_at < KEPT:
                continue
            record = store.records.get(offer.submission.visit.job_id) if offer.submission.visit is not None else None
            away = record.value.away if record is not None else None
            if away is None or away.visit != visit:
                host.visits.delete(visit)
                _log.info("the offer of %s to %s is deleted", visit, peer.name)
