"""The datasets of jobs that may move, and how many of their bytes each peer has already.

Peers are asked beside the scheduler's loop, which only reads the last answers.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from threading import Lock

from everspot_core.federation.data_locality import Inputs
from everspot_store import Dataset, Store, StoreError
from everspot_store.errors import DatasetMissing

ANSWER_TTL = timedelta(minutes=5)
"""Real time for which the answer of a peer counts."""
PATIENCE = timedelta(minutes=1)
"""Real time for which a job waits for the first answer about its datasets. After that all their bytes count as
missing."""
_log = logging.getLogger(__name__)

DatasetIds = tuple[str, ...]
"""The datasets of a job, each as `name@digest`."""


class DataPresence:
    """The answers of the peers. Thread-safe: `look` and `forget` run in other threads than the other methods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._wanted_since: dict[DatasetIds, timedelta] = {}
        self._asked_at: dict[tuple[str, DatasetIds], timedelta] = {}
        self._inputs: dict[str, dict[DatasetIds, Inputs]] = {}
        self._copies = Counter[str]()
        self._unread: dict[str, str] = {}

    def want(self, datasets: Iterable[DatasetIds]) -> None:
        """Set the datasets of the jobs that may move. Answers about others are forgotten."""
        now, needed = self._store.clock.monotonic(), {ids for ids in datasets if ids}
        with self._lock:
            self._wanted_since = {ids: self._wanted_since.get(ids, now) for ids in needed}
            self._asked_at = {(peer, ids): at for (peer, ids), at in self._asked_at.items() if ids in needed}
            self._inputs = {
                peer: {ids: inputs for ids, inputs in answers.items() if ids in needed}
                for peer, answers in self._inputs.items()
            }

    def due(self, peers: Iterable[str]) -> bool:
        """Return whether there are datasets about which one of these peers has to be asked."""
        return any(self._due_ids(peer) for peer in peers)

    def is_known(self, ids: DatasetIds, peers: Iterable[str]) -> bool:
        """Return whether these peers were asked about the datasets, or have had time enough to answer."""
        since = self._wanted_since.get(ids)
        late = since is not None and self._store.clock.monotonic() - since >= PATIENCE
        return not ids or late or all((peer, ids) in self._asked_at for peer in peers)

    def at(self, peer: str) -> Mapping[DatasetIds, Inputs]:
        """Return the last answers of a peer. Datasets without an answer are absent."""
        return self._inputs.get(peer, {})

    def forget(self, peer: str) -> None:
        """Forget the answers of a peer to which files were copied, also one that is on its way."""
        with self._lock:
            self._copies[peer] += 1
            self._inputs.pop(peer, None)
            self._asked_at = {key: at for key, at in self._asked_at.items() if key[0] != peer}

    def look(self, hosts: Mapping[str, Store]) -> None:
        """Ask the peers. A peer that cannot be read keeps its last answers. `hosts`: the stores of the peers, by name.

        Raises:
            StoreError: if the own store failed.
        """
        for peer, host in hosts.items():
            for ids in self._due_ids(peer):
                now, copies = self._store.clock.monotonic(), self._copies[peer]
                own = self._find(ids)
                inputs = self._query(peer, host, own) if own is not None else None
                with self._lock:
                    if ids in self._wanted_since and self._copies[peer] == copies:
                        self._asked_at[peer, ids] = now
                        if inputs is not None:
                            self._inputs.setdefault(peer, {})[ids] = inputs

    def _due_ids(self, peer: str) -> list[DatasetIds]:
        now = self._store.clock.monotonic()
        with self._lock:
            return [
                ids
                for ids in self._wanted_since
                if (at := self._asked_at.get((peer, ids))) is None or now - at >= ANSWER_TTL
            ]

    def _find(self, ids: DatasetIds) -> list[Dataset] | None:
        """Return the datasets; None if one is gone. A job without its data moves nowhere."""
        try:
            return [self._store.datasets.find_reference(id) for id in ids]
        except DatasetMissing:
            return None

    def _query(self, peer: str, host: Store, own: list[Dataset]) -> Inputs | None:
        """Return what the peer has; None if it cannot be read."""
        try:
            inputs = host.datasets.measure(own)
        except (StoreError, OSError) as error:
            if self._unread.get(peer) != str(error):
                self._unread[peer] = str(error)
                _log.warning("which data peer %s has cannot be read: all of it counts as missing: %s", peer, error)
            return None
        self._unread.pop(peer, None)
        return inputs
