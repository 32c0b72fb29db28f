"""The peers of a cluster as its scheduler knows them: their stores, and what they publish of themselves."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.manifest import Manifest
from everspot_core.peers import Peer
from everspot_store import FleetState, Store

from everspot_scheduler.declaration import Declaration

_log = logging.getLogger(__name__)

SILENT = timedelta(minutes=5)
"""Real time after which a scheduler without a heartbeat is no more. It writes one every 20 s."""
Opener = Callable[[Peer], Store]
"""Opens the store of a peer. It raises the store's errors, or the cloud's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What a peer publishes: its manifest, its pools, and whether a scheduler there lives, by its heartbeat.

    `heard_at`: by the monotonic clock of this machine. `error`: why nothing newer could be read; empty: it was.
    """

    peer: Peer
    manifest: Manifest | None
    fleet: FleetState | None
    alive: bool
    heard_at: timedelta
    error: str = ""


class Peers:
    """The peers that the manifest names. Thread-safe, because each method reads or replaces whole values."""

    def __init__(self, declaration: Declaration, opener: Opener, clock: Clock) -> None:
        self._declaration, self._opener, self._clock = declaration, opener, clock
        self._stores: dict[Peer, Store] = {}
        self._news: Mapping[str, News] = {}

    @property
    def all(self) -> tuple[Peer, ...]:
        """The peers, as declared now."""
        return self._declaration.manifest.federation

    @property
    def home(self) -> str:
        """The name of the own cluster."""
        return self._declaration.manifest.cluster

    def named(self, name: str) -> Peer | None:
        """The peer of this name; None: there is none."""
        return next((peer for peer in self.all if peer.name == name), None)

    def store(self, peer: Peer) -> Store:
        """The peer's store, opened once."""
        if peer not in self._stores:
            self._stores[peer] = self._opener(peer)
        return self._stores[peer]

    def news(self) -> Mapping[str, News]:
        """What was last heard of the peers that are declared now, by name."""
        known = self._news
        return {peer.name: known[peer.name] for peer in self.all if peer.name in known}

    def listen(self) -> None:
        """Read what the peers publish. A peer that cannot be read keeps what was known of it, with the error."""
        self._news = {peer.name: self._heard(peer) for peer in self.all}

    def _heard(self, peer: Peer) -> News:
        now, before = self._clock.monotonic(), self._news.get(peer.name)
        try:
            store = self.store(peer)
            found = store.read_manifest()
            fleet = store.notes.fleet()
            beats = [beat.value.updated_at for beat in store.schedulers.scan().values()]
        except Exception as error:  # of the network, the store or its cloud: none may stop another peer's news
            if before is None or not before.error:
                _log.warning("peer %s cannot be read: %s", peer.name, error)
            known = before or News(peer=peer, manifest=None, fleet=None, alive=False, heard_at=now)
            return News(
                peer=peer, manifest=known.manifest, fleet=known.fleet, alive=known.alive,
                heard_at=known.heard_at, error=str(error) or type(error).__name__,
            )  # fmt: skip
        manifest = found.value if found is not None else None
        wrong = peer.mistaken(manifest.cluster if manifest is not None else None)
        silent = self._clock.to_real(self._clock.now() - max(beats)) if beats else None
        alive = silent is not None and silent < SILENT
        if wrong:
            _log.error("peer %s: %s", peer.name, wrong)
        return News(peer=peer, manifest=manifest, fleet=fleet, alive=alive, heard_at=now, error=wrong)
