"""Writes the scheduler's events of jobs. Each is written exactly once, by whichever scheduler comes first.

The scheduler writes each of its events at most once for an epoch. So each has a fixed number under one writer's name
that all schedulers share. A second write, after a crash or by another scheduler, finds the number taken, which is fine.
"""

from contextlib import suppress
from datetime import datetime

from everspot_core.records import Assignment, Event, EventKind, InstanceRecord, JobRecord, JobState, Reason
from everspot_core.visits import Trip
from everspot_store import Store
from everspot_store.errors import KeyTaken
from pydantic import JsonValue

from everspot_scheduler.observe import Observation
from everspot_scheduler.together import side_by_side

WRITER = "scheduler"
_NUMBER = {EventKind.ASSIGNED: 0, EventKind.LOST: 1, EventKind.FAILED: 2, EventKind.CANCELLED: 2}
_NUMBER |= {EventKind.FINISHED: 2, EventKind.DEPARTED: 3, EventKind.RETURNED: 4}  # of a job that was away


class History:
    """Writes the scheduler's events, also those that a crash has swallowed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: set[tuple[str, int, EventKind]] = set()

    def tell(
        self, kind: EventKind, job_id: str, epoch: int, at: datetime, instance_id: str | None, **data: JsonValue
    ) -> None:
        """Write an event unless it has been written.

        Raises:
            StoreError: if the store could not be asked. `make_up` comes back to it.
        """
        key = (job_id, epoch, kind)
        if key in self._told:
            return
        event = Event(
            job_id=job_id,
            kind=kind,
            at=at,
            epoch=epoch,
            writer=WRITER,
            seq=_NUMBER[kind],
            instance_id=instance_id,
            data=data,
        )
        with suppress(KeyTaken):
            self._store.append_event(event)
        self._told.add(key)

    def assigned(self, record: JobRecord, given: Assignment | None, instance: InstanceRecord | None) -> None:
        """Write that the job was given to `record.owner` under `record.epoch`. The moment is the assignment's if it
        still names that epoch."""
        told = given.of(record.job_id) if given is not None else None
        at = told.changed_at if told is not None and told.epoch == record.epoch else record.changed_at
        data: dict[str, JsonValue] = {}
        if instance is not None:
            data = {
                "instance_type": instance.instance_type,
                "zone": instance.zone,
                "market": instance.market.value,
            }
        for seat in given.seats if given is not None else ():
            if (seat.job_id, seat.epoch) == (record.job_id, record.epoch):
                data |= {"share": seat.share, "gpus": len(seat.gpus)}
        self.tell(EventKind.ASSIGNED, record.job_id, record.epoch, at, record.owner, **data)

    def lost(self, record: JobRecord, epoch: int, cause: str) -> None:
        """Write that the job was taken from `record.last_owner`."""
        step = record.progress.step
        at = record.changed_at
        self.tell(EventKind.LOST, record.job_id, epoch, at, record.last_owner, cause=cause, step=step)

    def departed(self, record: JobRecord) -> None:
        """Write that the job was sent to another cluster. `record`: as long as it is away."""
        away = record.away
        if away is not None:
            data: dict[str, JsonValue] = {"cluster": away.cluster, "visit": away.visit, "message": away.why}
            self.tell(EventKind.DEPARTED, record.job_id, record.epoch, away.since, None, **data)

    def returned(self, record: JobRecord, trip: Trip) -> None:
        """Write that a trip of the job has ended. `record`: while the job is away."""
        data: dict[str, JsonValue] = {
            "cluster": trip.cluster, "visit": trip.visit, "end": trip.end.value, "message": trip.why, "step": trip.step,
            "usd": trip.usd, "egress_usd": round(trip.egress_usd, 6),
        }  # fmt: skip
        self.tell(EventKind.RETURNED, record.job_id, record.epoch, trip.until, None, **data)

    def make_up(self, seen: Observation) -> None:
        """Write the events that the records imply and that this scheduler has not written itself."""
        records = [found.value for found in seen.records.values()]
        self._told = {told for told in self._told if told[0] in seen.records}
        begun = [r for r in records if r.state.owned and (r.job_id, r.epoch, EventKind.ASSIGNED) not in self._told]
        side_by_side(lambda record: self._make_up_assigned(record, seen), begun)
        # An epoch that was spent without an owner has had no beat, and lost nothing.
        lost = [r for r in records if r.state is JobState.PENDING and r.last_reason is Reason.LOST and r.beat > 0]
        side_by_side(
            lambda record: self.lost(record, record.epoch, "expired"),
            [r for r in lost if (r.job_id, r.epoch, EventKind.LOST) not in self._told],
        )

    def _make_up_assigned(self, record: JobRecord, seen: Observation) -> None:
        given, there = seen.assignments.get(record.owner or ""), seen.instances.get(record.owner or "")
        self.assigned(record, given.value if given is not None else None, there.value if there is not None else None)
