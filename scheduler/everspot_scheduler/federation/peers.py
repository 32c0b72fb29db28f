"""The peers of a cluster as its scheduler knows them: their stores, and their published documents."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.peers import Peer
from everspot_core.documents import format_duration
from everspot_core.federation.data_locality import Inputs
from everspot_core.federation.liveness import Liveness, update_liveness
from everspot_store import FleetState, PeerSight, Store, StoreMissing, StoreUnavailable

from everspot_scheduler.federation.data_presence import DataPresence, DatasetIds
from everspot_scheduler.manifest_watch import ManifestWatch

_log = logging.getLogger(__name__)

_WORDS = 400
"""The most characters of an error that are written down."""
Opener = Callable[[Peer], Store]
"""Opens the store of a peer. It raises the store's errors, or the cloud's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """The published documents of a peer: its manifest, its pools, and whether a scheduler there lives, by its
    heartbeat.

    Attributes:
        heard: its heartbeats as of the last look that succeeded; None: there was none.
        sight: the same for people.
        error: why it gets no jobs: nothing newer could be read, or it is not the declared cluster; empty: it may get
            some.
        data: the bytes of jobs' datasets, and how many of them are there, by the datasets of a job.
    """

    peer: Peer
    manifest: Manifest | None
    fleet: FleetState | None
    alive: bool
    heard: Liveness | None
    sight: PeerSight
    error: str = ""
    data: Mapping[DatasetIds, Inputs] = field(default_factory=dict)


class Peers:
    """The peers that the manifest names. Thread-safe, because each method reads or replaces whole values."""

    def __init__(self, manifest_watch: ManifestWatch, opener: Opener, clock: Clock, data: DataPresence) -> None:
        self._manifest_watch, self._opener, self._clock, self._data = manifest_watch, opener, clock, data
        self._stores: dict[Peer, Store] = {}
        self._news: Mapping[str, News] = {}

    @property
    def all(self) -> tuple[Peer, ...]:
        """The peers, as declared now."""
        return self._manifest_watch.manifest.federation

    @property
    def home(self) -> str:
        """The name of the own cluster."""
        return self._manifest_watch.manifest.cluster

    def find(self, name: str) -> Peer | None:
        """Return the peer of this name; None if there is no such peer."""
        return next((peer for peer in self.all if peer.name == name), None)

    def store(self, peer: Peer) -> Store:
        """Return the peer's store, opened once."""
        if peer not in self._stores:
            self._stores[peer] = self._opener(peer)
        return self._stores[peer]

    def news(self) -> Mapping[str, News]:
        """Return the last news of the peers that are declared now, by name."""
        news = self._news
        names = [peer.name for peer in self.all if peer.name in news]
        return {name: replace(news[name], data=self._data.at(name)) for name in names}

    def listen(self) -> None:
        """Read the published documents of the peers. A peer that cannot be read keeps its last news, with the error."""
        self._news = {peer.name: self._heard(peer) for peer in self.all}

    def readable(self) -> list[str]:
        """Return the names of the peers that get jobs, as they were last seen."""
        return [name for name, news in self.news().items() if not news.error]

    def look_for_data(self) -> None:
        """Ask the peers that get jobs which files of jobs' datasets they have.

        Raises:
            StoreError: if the own store failed.
        """
        self._data.look({name: self.store(self._news[name].peer) for name in self.readable()})

    def forget_data(self, peer: Peer) -> None:
        """Forget what a peer has, because files were copied there."""
        self._data.forget(peer.name)

    def sights(self) -> list[PeerSight]:
        """Return the peers that are declared now, as they were last seen."""
        return [heard.sight for heard in self.news().values()]

    def _heard(self, peer: Peer) -> News:
        before, now = self._news.get(peer.name), self._clock.now()
        try:
            store = self.store(peer)
            manifest_document = store.read_manifest()
            fleet = store.notes.fleet.read()
            beats = {name: beat.value.updated_at for name, beat in store.schedulers.scan().items()}
        except Exception as error:  # of the network, the store or its cloud: none may stop another peer's news
            down = isinstance(error, StoreUnavailable | StoreMissing)
            return self._unread(peer, before, str(error) or type(error).__name__, down=down)
        lease, to_real = self._manifest_watch.limits.lease_ttl, self._clock.to_real
        last = before.heard if before is not None else None
        heard = update_liveness(last, beats, now, self._clock.monotonic(), lease, to_real)
        alive = heard.newest is not None and heard.alive(to_real(now - heard.newest))
        manifest = manifest_document.value if manifest_document is not None else None
        wrong = self._wrong(peer, manifest, heard)
        if wrong and (before is None or not before.error):
            _log.error("peer %s: %s", peer.name, wrong)
        sight = PeerSight(
            name=peer.name, seen_at=now, heard_at=now, beat_at=heard.newest, alive=alive,
            clock_apart_seconds=heard.apart.total_seconds() if heard.apart is not None else None,
            down=not (wrong or alive), problem=wrong or ("" if alive else _silent(heard)),
        )  # fmt: skip
        return News(peer=peer, manifest=manifest, fleet=fleet, alive=alive, heard=heard, sight=sight, error=wrong)

    def _unread(self, peer: Peer, before: News | None, error: str, *, down: bool) -> News:
        """Return the news of a peer that could not be read. `down`: it does not answer, or is gone."""
        if before is None or before.error != error:
            _log.warning("peer %s cannot be read: %s", peer.name, error)
        now, problem = self._clock.now(), f"it cannot be read: {error[:_WORDS]}"
        last_news = before or News(
            peer=peer, manifest=None, fleet=None, alive=False, heard=None, sight=PeerSight(name=peer.name, seen_at=now)
        )
        sight = last_news.sight.model_copy(update={"seen_at": now, "problem": problem, "alive": False, "down": down})
        return replace(last_news, sight=sight, error=error)

    def _wrong(self, peer: Peer, manifest: Manifest | None, heard: Liveness) -> str:
        """Return why no jobs are exchanged with a peer that can be read; empty: they are."""
        mistaken = peer.mistaken(manifest.cluster if manifest is not None else None)
        if mistaken or manifest is None:
            return mistaken
        if self.home not in {back.name for back in manifest.federation}:
            return f"it does not name {self.home} as its peer, and refuses its jobs"
        if heard.apart is None:
            return ""
        span, way = abs(heard.apart), "ahead of" if heard.apart > timedelta(0) else "behind"
        words = format_duration(timedelta(seconds=round(span.total_seconds())))
        return f"its clock is {words} {way} this cluster's: deadlines and the ages of offers mean other moments there"


def _silent(heard: Liveness) -> str:
    if heard.silent_since is None:
        return "no scheduler there has ever written a heartbeat"
    return f"its scheduler has been silent since {heard.silent_since:%Y-%m-%d %H:%M:%S} UTC"
