"""A job's events: its append-only history."""

import threading
from datetime import datetime

from everspot_core.clock import Clock
from everspot_core.jobs.records import Event, EventKind
from pydantic import JsonValue

from everspot_store.errors import BadDocument, KeyTaken, StoreUnavailable
from everspot_store.table import Table

_TRIES = 8
"""The most numbers that are tried for one event. A second number is free, unless another process writes, too."""


def event_id(event: Event) -> str:
    """Return the id of an event's document, below `events/`."""
    return f"{event.job_id}/{event.epoch:06d}-{event.writer}-{event.seq:06d}"


def ordered(events: list[Event]) -> list[Event]:
    """Return events in the order of their writers' time stamps."""
    return sorted(events, key=lambda event: (event.at, event.epoch, event.writer, event.seq))


def append(table: Table[Event], event: Event) -> None:
    """Write an event that has its number already. Writing the same event again does nothing.

    Raises:
        KeyTaken: if another event has that number.
    """
    key = event_id(event)
    if table.create(key, event) is None:
        try:
            existing = table.get(key)
        except BadDocument:  # written by another release, so another event
            existing = None
        if existing is None or existing.value != event:
            raise KeyTaken(table.key(key))


class EventWriter:
    """Writes events of one (job, epoch, writer) and numbers them. Thread-safe.

    A writer that starts again under the same name continues after its last number.
    """

    def __init__(
        self, table: Table[Event], clock: Clock, job_id: str, epoch: int, writer: str, instance_id: str | None
    ) -> None:
        self._table = table
        self._clock = clock
        self._first = Event(
            job_id=job_id, kind=EventKind.SUBMITTED, at=clock.now(), epoch=epoch, writer=writer, instance_id=instance_id
        )
        self._seq = 0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return the time stamp that `emit` would set now, for an event that is written later."""
        return self._clock.now()

    def emit(self, kind: EventKind, happened: datetime | None = None, /, **data: JsonValue) -> Event:
        """Write one event, stamped with the market's time when it happened, by default now.

        Raises:
            StoreUnavailable: if the store did not answer. The event may have been written; the next event gets another
                number.
        """
        with self._lock:
            event = self._first.model_copy(update={"kind": kind, "at": happened or self._clock.now(), "data": data})
            for _ in range(_TRIES):
                event = event.model_copy(update={"seq": self._seq})
                self._seq += 1
                if self._table.create(event_id(event), event) is not None:
                    return event
                self._seq = max(self._seq, self._find_newest() + 1)
        raise StoreUnavailable(f"no free number for events of {event.writer} in job {event.job_id}")

    def _find_newest(self) -> int:
        """Return the highest number of this writer's events."""
        place = event_id(self._first).rpartition("-")[0] + "-"
        ids = self._table.etags(f"{self._first.job_id}/")
        numbers = [id.removeprefix(place) for id in ids if id.startswith(place)]
        return max((int(number) for number in numbers if number.isdigit()), default=0)
