"""A queue of a job's events, so that code that reports an event never waits for the store."""

import threading
from dataclasses import dataclass
from datetime import datetime

from everspot_core.jobs.records import EventKind
from everspot_store import EventWriter
from pydantic import JsonValue


@dataclass(frozen=True)
class _Pending:
    kind: EventKind
    at: datetime
    data: dict[str, JsonValue]


class Outbox:
    """The queue. Thread-safe, but only one thread at a time may `write`."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._waiting: list[_Pending] = []
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return the time stamp of an event that happens now."""
        return self._writer.now()

    def emit(self, kind: EventKind, **data: JsonValue) -> None:
        """Add an event that happens now."""
        self.put(kind, self.now(), data)

    def put(self, kind: EventKind, at: datetime, data: dict[str, JsonValue]) -> None:
        """Add an event that happened at a moment."""
        with self._lock:
            self._waiting.append(_Pending(kind, at, data))

    def write(self) -> None:
        """Write the waiting events in order. Raises `StoreError`; the remaining events stay in the queue."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                first = self._waiting[0]
            self._writer.emit(first.kind, first.at, **first.data)
            with self._lock:
                del self._waiting[0]
