"""A queue of a job's events that wait to be written, so that who reports an event never waits for the store."""

import threading
from dataclasses import dataclass
from datetime import datetime

from everspot_core.records import EventKind
from everspot_store import EventWriter
from pydantic import JsonValue


@dataclass(frozen=True)
class _Pending:
    kind: EventKind
    at: datetime
    data: dict[str, JsonValue]


class Outbox:
    """Thread-safe, but one thread at a time may `write`."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._waiting: list[_Pending] = []
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The moment that an event which happens now is stamped with."""
        return self._writer.now()

    def say(self, kind: EventKind, **data: JsonValue) -> None:
        """Put in what happens now."""
        self.put(kind, self.now(), data)

    def put(self, kind: EventKind, at: datetime, data: dict[str, JsonValue]) -> None:
        """Put in what happened at a moment."""
        with self._lock:
            self._waiting.append(_Pending(kind, at, data))

    def write(self) -> None:
        """Write what waits, in order. Raises `StoreError`; what was not written waits on."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                first = self._waiting[0]
            self._writer.emit(first.kind, first.at, **first.data)
            with self._lock:
                del self._waiting[0]
