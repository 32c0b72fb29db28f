"""Uploads the agent's own log, so that it can be read after the instance is gone."""

import logging
import threading
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_store import Store, StoreError, StoreUnavailable, WriteOutcome

from everspot_train.agent.threads import DueTimer

SPACING = timedelta(seconds=60)
MOST_BYTES = 256 * 1024
"""The most bytes that are kept while the store does not answer. Older lines are dropped, which the next piece says."""
MOST_PIECES = 10_000
_DROPPED = b"[older lines were dropped]\n"


class OwnLog(logging.Handler):
    """Collects lines until a store is known, then writes them as `agents/{instance}/{seq:06d}.log` in the data bucket:
    at most a piece a minute, and the last lines at the end. Pieces are written once; a later agent continues their
    numbers."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._lines = bytearray()
        self._lines_lock = threading.Lock()
        self._ship_lock = threading.Lock()
        self._store: Store | None = None
        self._schedule: DueTimer | None = None
        self._instance_id = ""
        self._seq = 0

    def to(self, store: Store, instance_id: str, clock: Clock) -> None:
        """Upload to this store from now on."""
        self._store, self._instance_id = store, instance_id
        self._schedule = DueTimer(SPACING, clock)

    def emit(self, record: logging.LogRecord) -> None:
        """Add a line to the next piece."""
        line = f"{self.format(record)}\n".encode(errors="replace")
        with self._lines_lock:
            self._lines += line
            if len(self._lines) > MOST_BYTES:
                self._lines[: -MOST_BYTES // 2] = _DROPPED

    def ship_if_due(self) -> None:
        """Upload a piece if the last upload is long enough ago and there are new lines."""
        if self._schedule is not None and self._lines and self._schedule.due():
            self.ship()

    def ship(self) -> None:
        """Upload all lines as one piece. If the store fails, they go with the next piece."""
        store = self._store
        if store is None:
            return
        with self._ship_lock:
            with self._lines_lock:
                piece = bytes(self._lines)
                self._lines.clear()
            try:
                if piece:
                    self._write(store, piece)
            except StoreError:
                with self._lines_lock:
                    self._lines[:0] = piece

    def _write(self, store: Store, piece: bytes) -> None:
        """Write a piece under the next free number. After a lost answer the piece may exist twice: the agent has no
        permission to read and compare."""
        for _ in range(MOST_PIECES):
            written = store.data.create(f"agents/{self._instance_id}/{self._seq:06d}.log", piece)
            if written.outcome is WriteOutcome.LOST:
                self._seq += 1
                continue
            if written.outcome is not WriteOutcome.DONE:
                raise StoreUnavailable("a piece of the agent's log may not have been written")
            self._seq += 1
            return
