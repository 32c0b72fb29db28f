"""Polls the instance's assignment from the store, and notices from the metadata service."""

import logging
import threading
from dataclasses import dataclass
from datetime import timedelta

from everspot_clouds.base import Metadata, MetadataError
from everspot_core.clock import Clock
from everspot_core.jobs.records import Assignment, Notice, NoticeKind, Order, Reason
from everspot_store import Store, StoreError

from everspot_train.agent.metadata import SOURCE, read_interruption, read_rebalance

_log = logging.getLogger(__name__)

SOURCES_VARIABLE = "EVERSPOT_NOTICE_SOURCES"
QUEUE = "queue"
ALL_SOURCES = frozenset((SOURCE, QUEUE))
_WITHOUT_NOTICE = {"order": Order.RUN, "reason": None, "deadline": None}


class Contact:
    """Records when an outside service last answered. It logs only changes, not every attempt."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._last_success = clock.monotonic()
        self._failing = False

    @property
    def last_success(self) -> timedelta:
        """The monotonic time of the last success, or of the start."""
        return self._last_success

    def reached(self) -> None:
        """Record that the service answered."""
        with self._lock:
            self._last_success = self._clock.monotonic()
            if self._failing:
                _log.info("%s answers again", self._name)
            self._failing = False

    def failed(self, error: Exception) -> None:
        """Record that the service did not answer."""
        with self._lock:
            if not self._failing:
                _log.warning("%s fails: %s", self._name, error)
            self._failing = True


@dataclass(frozen=True)
class Observed:
    """The assignment and the notices that were received so far."""

    assignment: Assignment | None = None
    interruption: Notice | None = None
    rebalance: Notice | None = None


class NoticeWatcher:
    """Polls the sources. After a failure the last answer of a source stays. An announced interruption is never
    withdrawn."""

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        instance_id: str,
        clock: Clock,
        *,
        sources: frozenset[str] = ALL_SOURCES,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._instance_id = instance_id
        self._clock = clock
        self._sources = sources
        self.store_contact = Contact("the store", clock)
        self.metadata_contact = Contact("the metadata service", clock)
        self._assignment: Assignment | None = None
        self._interruption: Notice | None = None
        self._rebalance: Notice | None = None

    def observe(self) -> Observed:
        """Return the assignment and the notices so far."""
        return Observed(self._assignment, self._interruption, self._rebalance)

    @property
    def notice(self) -> Notice | None:
        """The most severe notice so far, from either source, for the instance's record."""
        return self._interruption or self._queued_notice() or self._rebalance

    def poll_assignment(self) -> None:
        """Read this instance's assignment."""
        try:
            document = self._store.assignments.get(self._instance_id)
        except StoreError as error:
            self.store_contact.failed(error)
            return
        self.store_contact.reached()
        assignment = document.value if document is not None else None
        if assignment is not None and QUEUE not in self._sources and assignment.seats and assignment.cordoned:
            seats = (s.model_copy(update=_WITHOUT_NOTICE) if s.reason is Reason.NOTICE else s for s in assignment.seats)
            assignment = assignment.model_copy(update={"seats": tuple(seats), "cordoned": False})
        elif assignment is not None and QUEUE not in self._sources and assignment.reason is Reason.NOTICE:
            assignment = assignment.model_copy(update={**_WITHOUT_NOTICE, "cordoned": False})
        self._assignment = assignment

    def poll_notices(self) -> None:
        """Ask the metadata service for notices."""
        if SOURCE not in self._sources:
            return
        try:
            interruption = read_interruption(self._metadata, self._clock)
            if interruption is not None and self._interruption is None:  # even if the next request fails
                _log.warning("this instance will be interrupted at %s", interruption.action_at)
                self._interruption = interruption
            rebalance = read_rebalance(self._metadata, self._clock)
        except MetadataError as error:
            self.metadata_contact.failed(error)
            return
        self.metadata_contact.reached()
        if rebalance is not None and (self._rebalance is None or self._rebalance.action_at != rebalance.action_at):
            _log.warning("the cloud recommends a rebalance")
            self._rebalance = rebalance

    def _queued_notice(self) -> Notice | None:
        order = self._assignment
        if order is None or not order.cordoned:
            return None
        by = min((h.deadline for h in order.seat_assignments if h.deadline is not None), default=order.deadline)
        return Notice(kind=NoticeKind.INTERRUPTION, source=QUEUE, seen_at=order.changed_at, action_at=by)


def sources_from(text: str | None) -> frozenset[str]:
    """Return the notice sources in a comma-separated list; all of them if it is empty.

    Raises:
        ValueError: if one of them does not exist.
    """
    if not text:
        return ALL_SOURCES
    chosen = frozenset(part.strip() for part in text.split(",") if part.strip())
    if chosen - ALL_SOURCES:
        raise ValueError(f"{SOURCES_VARIABLE}={text!r}: known sources are {', '.join(sorted(ALL_SOURCES))}")
    return chosen
