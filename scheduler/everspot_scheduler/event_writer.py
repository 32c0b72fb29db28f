"""Writes the scheduler's events of jobs. Each is written exactly once, by whichever scheduler comes first.

The scheduler writes each of its events at most once for an epoch. So each has a fixed number under one writer's name
that all schedulers share. A second write, after a crash or by another scheduler, finds the number taken, which is fine.
"""

from contextlib import suppress
from datetime import datetime

from everspot_core.jobs.records import Assignment, Event, EventKind, InstanceRecord, JobRecord, JobState, Reason
from everspot_core.jobs.shard_traffic import SHARD_TRAFFIC
from everspot_core.jobs.utilization import UTILIZATION
from everspot_core.jobs.visit_records import Trip
from everspot_store import Store
from everspot_store.errors import KeyTaken
from pydantic import JsonValue

from everspot_scheduler.observer import Observation
from everspot_scheduler.parallel import run_parallel

WRITER = "scheduler"
_NUMBER = {EventKind.ASSIGNED: 0, EventKind.LOST: 1, EventKind.FAILED: 2, EventKind.CANCELLED: 2, EventKind.NOT_RUN: 2}
_NUMBER |= {EventKind.FINISHED: 2, EventKind.DEPARTED: 3, EventKind.RETURNED: 4}  # of a job that was away


class History:
    """Writes the scheduler's events, including events that were lost in a crash."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: set[tuple[str, int, EventKind]] = set()

    def write(
        self, kind: EventKind, job_id: str, epoch: int, at: datetime, instance_id: str | None, **data: JsonValue
    ) -> None:
        """Write an event unless it has been written.

        Raises:
            StoreError: if the store could not be asked. `make_up` comes back to it.
        """
        key = (job_id, epoch, kind)
        if key in self._written:
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
        self._written.add(key)

    def assigned(self, record: JobRecord, assignment: Assignment | None, instance: InstanceRecord | None) -> None:
        """Write that the job was given to `record.owner` under `record.epoch`. The moment is the assignment's if it
        still names that epoch."""
        seat_order = assignment.for_job(record.job_id) if assignment is not None else None
        at = seat_order.changed_at if seat_order is not None and seat_order.epoch == record.epoch else record.changed_at
        data: dict[str, JsonValue] = {}
        if instance is not None:
            data = {
                "instance_type": instance.instance_type,
                "zone": instance.zone,
                "market": instance.market.value,
            }
        for seat in assignment.seats if assignment is not None else ():
            if (seat.job_id, seat.epoch) == (record.job_id, record.epoch):
                data |= {"share": seat.share, "gpus": len(seat.gpus)}
        self.write(EventKind.ASSIGNED, record.job_id, record.epoch, at, record.owner, **data)

    def lost(self, record: JobRecord, epoch: int, cause: str) -> None:
        """Write that the job was taken from `record.last_owner`."""
        data: dict[str, JsonValue] = {"cause": cause, "step": record.progress.step}
        if record.progress.attempt_use is not None:
            data[UTILIZATION] = record.progress.attempt_use.model_dump(mode="json", exclude_none=True)
        if record.progress.shard_traffic is not None:
            data[SHARD_TRAFFIC] = record.progress.shard_traffic.model_dump(mode="json")
        self.write(EventKind.LOST, record.job_id, epoch, record.changed_at, record.last_owner, **data)

    def departed(self, record: JobRecord) -> None:
        """Write that the job was sent to another cluster. `record`: of a job that is away."""
        away = record.away
        if away is not None:
            data: dict[str, JsonValue] = {"cluster": away.cluster, "visit": away.visit, "message": away.why}
            self.write(EventKind.DEPARTED, record.job_id, record.epoch, away.since, None, **data)

    def returned(self, record: JobRecord, trip: Trip) -> None:
        """Write that a trip of the job has ended. `record`: while the job is away."""
        data: dict[str, JsonValue] = {
            "cluster": trip.cluster, "visit": trip.visit, "end": trip.end.value, "message": trip.why, "step": trip.step,
            "usd": trip.usd, "egress_usd": round(trip.egress_usd, 6),
        }  # fmt: skip
        self.write(EventKind.RETURNED, record.job_id, record.epoch, trip.until, None, **data)

    def make_up(self, observation: Observation) -> None:
        """Write the events that the records imply and that this scheduler has not written itself."""
        records = [document.value for document in observation.records.values()]
        self._written = {key for key in self._written if key[0] in observation.records}
        begun = [r for r in records if r.state.owned and (r.job_id, r.epoch, EventKind.ASSIGNED) not in self._written]
        run_parallel(lambda record: self._make_up_assigned(record, observation), begun)
        # An epoch that was spent without an owner has had no beat, and lost nothing.
        lost = [r for r in records if r.state is JobState.PENDING and r.last_reason is Reason.LOST and r.beat > 0]
        run_parallel(
            lambda record: self.lost(record, record.epoch, "expired"),
            [r for r in lost if (r.job_id, r.epoch, EventKind.LOST) not in self._written],
        )

    def _make_up_assigned(self, record: JobRecord, observation: Observation) -> None:
        assignment, instance = (
            observation.assignments.get(record.owner or ""),
            observation.instances.get(record.owner or ""),
        )
        self.assigned(
            record,
            assignment.value if assignment is not None else None,
            instance.value if instance is not None else None,
        )
