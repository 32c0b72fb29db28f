"""The datasets of jobs that may move, and how many of their bytes each peer has already.

Peers are asked beside the scheduler's loop, which only reads the last answers.
"""

import logging
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
    """The answers of the peers. Thread-safe: `look` runs in another thread than the other methods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._wanted_since: dict[DatasetIds, timedelta] = {}
        self._asked_at: dict[DatasetIds, timedelta] = {}
        self._inputs: dict[str, dict[DatasetIds, Inputs]] = {}
        self._unread: dict[str, str] = {}

    def want(self, datasets: Iterable[DatasetIds]) -> None:
        """Set the datasets of the jobs that may move. Answers about others are forgotten."""
        now, needed = self._store.clock.monotonic(), {ids for ids in datasets if ids}
        with self._lock:
            self._wanted_since = {ids: self._wanted_since.get(ids, now) for ids in needed}
            self._asked_at = {ids: at for ids, at in self._asked_at.items() if ids in needed}
            self._inputs = {
                peer: {ids: inputs for ids, inputs in answers.items() if ids in needed}
                for peer, answers in self._inputs.items()
            }

    def due(self) -> bool:
        """Return whether there are datasets about which the peers have to be asked."""
        return bool(self._due_ids())

    def is_known(self, ids: DatasetIds) -> bool:
        """Return whether the peers were asked about these datasets, or have had time enough to answer."""
        since = self._wanted_since.get(ids)
        late = since is not None and self._store.clock.monotonic() - since >= PATIENCE
        return not ids or ids in self._asked_at or late

    def at(self, peer: str) -> Mapping[DatasetIds, Inputs]:
        """Return the last answers of a peer. Datasets without an answer are absent."""
        return self._inputs.get(peer, {})

    def look(self, hosts: Mapping[str, Store]) -> None:
        """Ask the peers. A peer that cannot be read keeps its last answers. `hosts`: the stores of the peers, by name.

        Raises:
            StoreError: if the own store failed.
        """
        now = self._store.clock.monotonic()
        for ids in self._due_ids() if hosts else ():
            own = self._find(ids)
            for peer, host in hosts.items():
                if own is not None:
                    self._query(peer, host, ids, own)
            with self._lock:
                if ids in self._wanted_since:
                    self._asked_at[ids] = now

    def _due_ids(self) -> list[DatasetIds]:
        now = self._store.clock.monotonic()
        with self._lock:
            return [
                ids
                for ids in self._wanted_since
                if ids not in self._asked_at or now - self._asked_at[ids] >= ANSWER_TTL
            ]

    def _find(self, ids: DatasetIds) -> list[Dataset] | None:
        """Return the datasets; None if one is gone. A job without its data moves nowhere."""
        try:
            return [self._store.datasets.find_reference(id) for id in ids]
        except DatasetMissing:
            return None

    def _query(self, peer: str, host: Store, ids: DatasetIds, own: list[Dataset]) -> None:
        try:
            inputs = host.datasets.measure(own)
        except (StoreError, OSError) as error:
            if self._unread.get(peer) != str(error):
                self._unread[peer] = str(error)
                _log.warning("which data peer %s has cannot be read: all of it counts as missing: %s", peer, error)
            return
        self._unread.pop(peer, None)
        with self._lock:
            if ids in self._wanted_since:
                self._inputs.setdefault(peer, {})[ids] = inputs
