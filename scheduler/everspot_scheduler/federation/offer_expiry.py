"""The end of offers: ended ones are deleted after a while."""

import logging
from datetime import timedelta

from everspot_core.jobs.visit_records import visit_prefix
from everspot_store import Store

from everspot_scheduler.federation.inbound import OFFER_LIFE
from everspot_scheduler.federation.peers import Peers

OFFER_RETENTION = timedelta(days=1)
"""Time for which an ended offer is kept, so that a delayed writer cannot create the offer again. A writer that is later
than that is refused, because the host takes no offer that is older than `OFFER_LIFE`."""
assert OFFER_RETENTION > 2 * OFFER_LIFE  # noqa: S101 - else there could be a moment at which neither rule holds
_log = logging.getLogger(__name__)


def delete_ended_offers(store: Store, peers: Peers) -> None:
    """Delete this home's offers that ended long ago, unless a job that is away still needs them.

    Raises:
        StoreError: if a store failed.
    """
    now, own = store.clock.now(), visit_prefix(peers.home)
    for peer in peers.all:
        host = peers.store(peer)
        for visit, document in host.visits.scan(include=lambda id: id.startswith(own)).items():
            offer = document.value
            if offer.home != peers.home or not offer.state.over or now - offer.changed_at < OFFER_RETENTION:
                continue
            record = store.records.get(offer.submission.visit.job_id) if offer.submission.visit is not None else None
            away = record.value.away if record is not None else None
            if away is None or away.visit != visit:
                host.visits.delete(visit)
                _log.info("the offer of %s to %s is deleted", visit, peer.name)
