"""Carries actions out. Each is one or two conditional writes on exactly the documents that were observed.

To lose a race is normal: then another scheduler, or the job's owner, has done the same or something newer.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import assert_never

from everspot_core.capacity.market import PoolKey
from everspot_core.costs.pool_history import expected_hours
from everspot_core.jobs import lease, sharing
from everspot_core.jobs.final_metrics import final_metrics
from everspot_core.jobs.records import Assignment, EventKind, JobRecord, JobState, Order, Reason
from everspot_core.schedule import (
    Assign,
    ClearAssignment,
    CompleteAssignment,
    Cordon,
    DropDrills,
    Expire,
    Finish,
    Hold,
    Leave,
    Refuse,
    Release,
    RestoreAssignment,
    StandingAction,
    Stay,
    Stop,
    VoidAssignment,
    Why,
    describe_action,
)
from everspot_core.schedule.messages import because
from everspot_store import Store, StoreDenied

from everspot_scheduler.event_writer import History
from everspot_scheduler.faults import Faults
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.observer import Observation
from everspot_scheduler.parallel import run_parallel

StoreAction = StandingAction | Release | Stay | Refuse
"""The actions that are writes to the store. The launcher carries out launches."""
_END_EVENTS = {
    JobState.CANCELLED: EventKind.CANCELLED,
    JobState.FAILED: EventKind.FAILED,
    JobState.SKIPPED: EventKind.NOT_RUN,
}
_log = logging.getLogger(__name__)


class ActionResult(Enum):
    """The result of an action. IDLE: there was nothing to write."""

    DONE = "done"
    IDLE = "idle"
    LOST = "lost"


class Actor:
    """Carries out the actions of a plan. Every method raises the store's errors; the documents written until then
    remain."""

    def __init__(self, store: Store, history: History, faults: Faults, ledger: Ledger) -> None:
        self._store, self._history, self._faults, self._ledger = store, history, faults, ledger
        self._dropped: set[str] = set()

    def forget_dropped(self, observation: Observation) -> None:
        """Remove from `observation` the drills that this scheduler has carried out already."""
        self._dropped &= set(observation.drills)
        for name in self._dropped:
            del observation.drills[name]

    def carry_out(self, action: StoreAction, observation: Observation) -> ActionResult:
        """Carry the action out if everything still is as it was observed. The new versions go into `observation`."""
        outcome = self._do(action, observation)
        if outcome is ActionResult.DONE:
            _log.info("%s", describe_action(action))
        elif outcome is ActionResult.LOST:
            _log.info("overtaken: %s", describe_action(action))
        return outcome

    def carry_out_all(self, actions: Sequence[StoreAction], observation: Observation) -> list[ActionResult]:
        """Carry out all actions and return their results in order.

        Actions on different instances run in parallel, those on one instance one after the other. Jobs that are put
        beside each other are named by one write.
        """
        by_instance: dict[str, list[int]] = defaultdict(list)
        for n, action in enumerate(actions):
            by_instance[getattr(action, "instance_id", "") or f"-{n}"].append(n)
        groups = list(by_instance.values())
        done = run_parallel(lambda group: self._carry_out_group([actions[n] for n in group], observation), groups)
        results = {
            n: result
            for group, group_results in zip(groups, done, strict=True)
            for n, result in zip(group, group_results, strict=True)
        }
        return [results[n] for n in range(len(actions))]

    def _carry_out_group(self, actions: list[StoreAction], observation: Observation) -> list[ActionResult]:
        placed = [a for a in actions if isinstance(a, Assign)]
        lost = len(placed) > 1 and not self._write_orders(placed, observation)
        return [ActionResult.LOST if lost and a in placed else self.carry_out(a, observation) for a in actions]

    def _do(self, action: StoreAction, observation: Observation) -> ActionResult:
        match action:
            case Assign():
                return self._assign(action, observation)
            case CompleteAssignment():
                return self._complete_assignment(action.job_id, action.instance_id, observation)
            case VoidAssignment():
                return self._void(action, observation)
            case ClearAssignment():
                return self._clear(action, observation)
            case RestoreAssignment():
                return self._restore(action, observation)
            case Stop():
                return self._stop(action, observation)
            case Cordon():
                return self._cordon(action, observation)
            case Leave():
                return self._leave(action, observation)
            case Expire():
                return self._expire(action, observation)
            case Finish():
                return self._finish(action, observation)
            case DropDrills():
                return self._drop_drills(action.job_id, action.drills, observation)
            case Release():
                return self._release(action, observation)
            case Refuse():
                return self._refuse(action, observation)
            case Hold() | Stay():
                return ActionResult.IDLE  # `waiting.py` publishes the reason
            case _:
                assert_never(action)

    def _assign(self, action: Assign, observation: Observation) -> ActionResult:
        document = observation.assignments.get(action.instance_id)
        seat = document.value.for_job(action.job_id) if document is not None else None
        written = seat is not None and seat.epoch == action.epoch  # with the orders of the jobs that share the instance
        if not written and not self._write_orders([action], observation):
            return ActionResult.LOST
        return self._complete_assignment(action.job_id, action.instance_id, observation)

    def _write_orders(self, actions: Sequence[Assign | RestoreAssignment], observation: Observation) -> bool:
        """Name the jobs in the assignment of their instance, all by one write."""
        document = observation.assignments.get(actions[0].instance_id)
        old = assignment = document.value if document is not None else None
        now = self._store.clock.now()
        for action in actions:
            assignment = self._with_job(action, assignment, observation, now)
            if isinstance(action, RestoreAssignment):
                assignment = sharing.restored(assignment, old, action.job_id, action.epoch)
            if assignment is None:
                return False
        if assignment is None:
            return False
        instance = observation.instances.get(assignment.instance_id)
        if instance is not None:
            record = instance.value
            pool = PoolKey(record.instance_type, record.zone, record.market)
            hours = expected_hours(self._ledger.pool_history(pool, now), record.market)
            assignment = assignment.model_copy(update={"hours_between_interruptions": hours})
        return self._write_assignment(assignment, observation)

    @staticmethod
    def _with_job(
        action: Assign | RestoreAssignment, old: Assignment | None, observation: Observation, now: datetime
    ) -> Assignment | None:
        """Return the assignment with the job added; None if there is no room for it."""
        if not action.shares:
            return sharing.assign_alone(old, action.instance_id, action.job_id, action.epoch, now)
        instance, job = observation.instances.get(action.instance_id), observation.jobs.get(action.job_id)
        if instance is None or job is None:
            return None
        return sharing.seat(old, instance.value, action.job_id, action.epoch, job.value.spec.resources, now)

    def _complete_assignment(self, job_id: str, instance_id: str, observation: Observation) -> ActionResult:
        old = observation.records.get(job_id)
        record = lease.assign(old.value if old else None, job_id, instance_id, self._store.clock.now())
        if not self.write_record(record, observation):
            return ActionResult.LOST
        instance = observation.instances.get(instance_id)
        self._history.assigned(record, observation.assignments[instance_id].value, instance.value if instance else None)
        return ActionResult.DONE

    def _void(self, action: VoidAssignment, observation: Observation) -> ActionResult:
        now = self._store.clock.now()
        old = observation.records.get(action.job_id)
        record = old.value if old else lease.pending(action.job_id, now)
        spent = record.model_copy(update={"epoch": action.epoch, "beat": 0, "changed_at": now})
        return _result(self.write_record(spent, observation))

    def _clear(self, action: ClearAssignment, observation: Observation) -> ActionResult:
        old = observation.assignments[action.instance_id].value
        without = sharing.remove_job(old, action.job_id, action.epoch, self._store.clock.now())
        return _result(self._write_assignment(without, observation))

    def _restore(self, action: RestoreAssignment, observation: Observation) -> ActionResult:
        """Name the job again, and return the result. An order to leave stays, and on a cordoned instance the job is
        told to stop immediately."""
        return _result(self._write_orders([action], observation))

    def _stop(self, action: Stop, observation: Observation) -> ActionResult:
        old, now = observation.assignments[action.instance_id].value, self._store.clock.now()
        assignment = sharing.stop(old, action.job_id, action.epoch, action.reason, action.deadline, now)
        if not self._write_assignment(assignment, observation):
            return ActionResult.LOST
        self._drop_drills(action.job_id, action.drills, observation)
        return ActionResult.DONE

    def _cordon(self, action: Cordon, observation: Observation) -> ActionResult:
        document, now = observation.assignments.get(action.instance_id), self._store.clock.now()
        assignment = sharing.cordon(document.value if document else None, action.instance_id, action.deadline, now)
        return _result(self._write_assignment(assignment, observation))

    def _leave(self, action: Leave, observation: Observation) -> ActionResult:
        """Write the fault first, because the record of an instance that has left does not say why."""
        if action.fault is not None:
            self._faults.note(observation.instances[action.instance_id].value, action.fault, because(action))
        document, now = observation.assignments.get(action.instance_id), self._store.clock.now()
        assignment = sharing.leave(document.value if document else None, action.instance_id, action.reason, now)
        return _result(self._write_assignment(assignment, observation))

    def _release(self, action: Release, observation: Observation) -> ActionResult:
        """Write the order to leave, on the assignment that was seen without a job. The releaser ends the instance
        then."""
        document, now = observation.assignments.get(action.instance_id), self._store.clock.now()
        old = document.value if document else None
        if old is not None and (old.order is Order.LEAVE or old.jobs):
            return ActionResult.IDLE
        assignment = sharing.leave(old, action.instance_id, Reason.RELEASE, now)
        return _result(self._write_assignment(assignment, observation))

    def _refuse(self, action: Refuse, observation: Observation) -> ActionResult:
        return self._end_waiting_job(
            action.job_id, action.epoch, EventKind.FAILED, Reason.INFEASIBLE, because(action), observation
        )

    def _expire(self, action: Expire, observation: Observation) -> ActionResult:
        lost_record = observation.records[action.job_id].value
        ended, now = action.cause is Why.INSTANCE_GONE, self._store.clock.now()
        record = lease.expire(lost_record, now, f"lost on {action.instance_id}: {because(action)}", ended=ended)
        if not self.write_record(record, observation):
            return ActionResult.LOST
        cause = "terminated" if ended else "expired"
        self._history.lost(record, action.epoch, cause)
        return ActionResult.DONE

    def _finish(self, action: Finish, observation: Observation) -> ActionResult:
        if action.state is JobState.SUCCEEDED:
            return self._reuse(action, observation)
        kind = _END_EVENTS[action.state]
        return self._end_waiting_job(
            action.job_id, action.epoch, kind, action.reason, because(action), observation, state=action.state
        )

    def _reuse(self, action: Finish, observation: Observation) -> ActionResult:
        """End a waiting job with the outputs and metrics of the job that has computed the same stage."""
        producer, now = str(action.figures["job"]), self._store.clock.now()
        dossier = self._store.dossier(producer, brief=True)
        if dossier is None or dossier.record is None:
            return ActionResult.LOST
        metrics = final_metrics(dossier.record, dossier.events)
        progress = dossier.record.progress.model_copy(update={"metrics": metrics})
        old = observation.records.get(action.job_id)
        record = lease.reuse(old.value if old else None, action.job_id, producer, progress, now)
        self._history.write(
            EventKind.FINISHED, action.job_id, action.epoch, now, None, step=progress.step, metrics=dict(metrics),
            message=record.detail, reused_from=producer,
        )  # fmt: skip
        return _result(self.write_record(record, observation))

    def _end_waiting_job(
        self,
        job_id: str,
        epoch: int,
        kind: EventKind,
        reason: Reason,
        detail: str,
        observation: Observation,
        state: JobState | None = None,
    ) -> ActionResult:
        """End a waiting job. The event comes first: its reason stays true, whichever scheduler ends the job."""
        now = self._store.clock.now()
        self._history.write(kind, job_id, epoch, now, None, reason=reason.value, message=detail)
        old = observation.records.get(job_id)
        record = lease.close(old.value if old else None, job_id, reason, now, detail, state)
        return _result(self.write_record(record, observation))

    def _drop_drills(self, job_id: str, drills: tuple[str, ...], observation: Observation) -> ActionResult:
        """Delete fulfilled requests. If the store refuses that, at least this scheduler does not repeat them."""
        for name in (f"{job_id}/{drill_id}" for drill_id in drills):
            self._dropped.add(name)
            observation.drills.pop(name, None)
            try:
                self._store.drills.delete(name)
            except StoreDenied as error:
                _log.critical("drill %s cannot be taken away: this role must be allowed to: %s", name, error)
        return ActionResult.DONE if drills else ActionResult.IDLE

    def write_record(self, record: JobRecord, observation: Observation) -> bool:
        """Write a record if it still is as it was observed. The new version goes into `observation`."""
        name, table = record.job_id, self._store.records
        old = observation.records.get(name)
        written = table.create(name, record) if old is None else table.replace(name, old, record)
        if written is None:
            return False
        observation.records[name] = written
        observation.written.add(name)
        return True

    def _write_assignment(self, assignment: Assignment, observation: Observation) -> bool:
        name, table = assignment.instance_id, self._store.assignments
        old = observation.assignments.get(name)
        written = table.create(name, assignment) if old is None else table.replace(name, old, assignment)
        if written is None:
            return False
        observation.assignments[name] = written
        return True


def _result(written: bool) -> ActionResult:
    return ActionResult.DONE if written else ActionResult.LOST
