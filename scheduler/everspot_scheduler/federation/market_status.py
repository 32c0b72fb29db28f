"""Notes the published pools of peers in the own store, for people who cannot read the peers' stores."""

import logging
from collections.abc import Mapping
from datetime import timedelta

from everspot_store import PeerMarket, Store, StoreError

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.federation.peers import News

WRITE_EVERY = timedelta(minutes=5)
"""Real time between two notes of a peer at the least."""
_log = logging.getLogger(__name__)


class MarketStatusWriter:
    """A note for each peer. It costs one write in five minutes at most, and none while nothing changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._backoffs: dict[str, Backoff] = {}
        self._written: dict[str, PeerMarket] = {}

    def write(self, news: Mapping[str, News]) -> None:
        """Note the new figures of the peers that could be read. A failed write is tried again with later news."""
        now = self._store.clock.monotonic()
        for name, heard in news.items():
            if heard.error or heard.fleet is None or heard.manifest is None:
                continue
            market = PeerMarket(fleet=heard.fleet, instance_types=heard.manifest.instance_types)
            if market == self._written.get(name) or not self._backoffs.setdefault(name, Backoff(WRITE_EVERY)).take(now):
                continue
            try:
                self._store.notes.peers.put(name, market)
                self._written[name] = market
            except StoreError as error:  # a note for people
                _log.error("what peer %s publishes is not noted, and is tried again later: %s", name, error)
