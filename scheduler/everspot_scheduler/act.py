"""Carries actions out. Each is one or two conditional writes on exactly what was observed.

To lose a race is normal: then another scheduler, or the job's owner, has done the same or something newer.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import assert_never

from everspot_core import lease, seats
from everspot_core.records import Assignment, EventKind, JobRecord, JobState, Order, Reason
from everspot_core.schedule import (
    Assign,
    Clear,
    Complete,
    Cordon,
    DropDrills,
    Expire,
    Finish,
    Hold,
    Leave,
    Refuse,
    Release,
    Restore,
    StandingAction,
    Stay,
    Stop,
    Void,
    Why,
    say,
)
from everspot_core.schedule.words import because
from everspot_store import Store, StoreDenied

from everspot_scheduler.faults import Faults
from everspot_scheduler.history import History
from everspot_scheduler.observe import Observation
from everspot_scheduler.together import side_by_side

Deed = StandingAction | Release | Stay | Refuse
"""The actions that are writes to the store. The launcher carries out launches."""
_log = logging.getLogger(__name__)


class ActionResult(Enum):
    """The result of an action. IDLE: there was nothing to write."""

    DONE = "done"
    IDLE = "idle"
    LOST = "lost"


class Actor:
    """Writes what the plan asks for. Every method raises the store's errors; what was written until then stands."""

    def __init__(self, store: Store, history: History, faults: Faults) -> None:
        self._store, self._history, self._faults = store, history, faults
        self._dropped: set[str] = set()

    def forget_dropped(self, seen: Observation) -> None:
        """Remove from `seen` the drills that this scheduler has carried out already."""
        self._dropped &= set(seen.drills)
        for name in self._dropped:
            del seen.drills[name]

    def carry_out(self, action: Deed, seen: Observation) -> ActionResult:
        """Carry the action out if everything still is as it was observed. The new versions go into `seen`."""
        outcome = self._do(action, seen)
        if outcome is ActionResult.DONE:
            _log.info("%s", say(action))
        elif outcome is ActionResult.LOST:
            _log.info("overtaken: %s", say(action))
        return outcome

    def carry_out_all(self, actions: Sequence[Deed], seen: Observation) -> list[ActionResult]:
        """Carry out all actions and return their results in order.

        Actions on different instances run in parallel, those on one instance one after the other. Jobs that are put
        beside each other are named by one write.
        """
        by_instance: dict[str, list[int]] = defaultdict(list)
        for n, action in enumerate(actions):
            by_instance[getattr(action, "instance_id", "") or f"-{n}"].append(n)
        groups = list(by_instance.values())
        done = side_by_side(lambda group: self._carry_out_group([actions[n] for n in group], seen), groups)
        results = {
            n: result for group, of in zip(groups, done, strict=True) for n, result in zip(group, of, strict=True)
        }
        return [results[n] for n in range(len(actions))]

    def _carry_out_group(self, actions: list[Deed], seen: Observation) -> list[ActionResult]:
        placed = [a for a in actions if isinstance(a, Assign)]
        lost = len(placed) > 1 and not self._write_orders(placed, seen)
        return [ActionResult.LOST if lost and a in placed else self.carry_out(a, seen) for a in actions]

    def _do(self, action: Deed, seen: Observation) -> ActionResult:
        match action:
            case Assign():
                return self._assign(action, seen)
            case Complete():
                return self._second_half(action.job_id, action.instance_id, seen)
            case Void():
                return self._void(action, seen)
            case Clear():
                return self._clear(action, seen)
            case Restore():
                return self._restore(action, seen)
            case Stop():
                return self._stop(action, seen)
            case Cordon():
                return self._cordon(action, seen)
            case Leave():
                return self._leave(action, seen)
            case Expire():
                return self._expire(action, seen)
            case Finish():
                return self._finish(action, seen)
            case DropDrills():
                return self._drop_drills(action.job_id, action.drills, seen)
            case Release():
                return self._release(action, seen)
            case Refuse():
                return self._refuse(action, seen)
            case Hold() | Stay():
                return ActionResult.IDLE  # `waiting` writes down why a job waits
            case _:
                assert_never(action)

    def _assign(self, action: Assign, seen: Observation) -> ActionResult:
        found = seen.assignments.get(action.instance_id)
        given = found.value.of(action.job_id) if found is not None else None
        written = given is not None and given.epoch == action.epoch  # with those that it was put beside
        if not written and not self._write_orders([action], seen):
            return ActionResult.LOST
        return self._second_half(action.job_id, action.instance_id, seen)

    def _write_orders(self, actions: Sequence[Assign | Restore], seen: Observation) -> bool:
        """Name the jobs in the assignment of their instance, all by one write."""
        found = seen.assignments.get(actions[0].instance_id)
        old = given = found.value if found is not None else None
        now = self._store.clock.now()
        for action in actions:
            given = self._named(action, given, seen, now)
            if isinstance(action, Restore):
                given = seats.restored(given, old, action.job_id, action.epoch)
            if given is None:
                return False
        return given is not None and self._write_assignment(given, seen)

    @staticmethod
    def _named(action: Assign | Restore, old: Assignment | None, seen: Observation, now: datetime) -> Assignment | None:
        """The assignment with the job added; None if there is no room for it."""
        if not action.beside:
            return seats.give(old, action.instance_id, action.job_id, action.epoch, now)
        there, job = seen.instances.get(action.instance_id), seen.jobs.get(action.job_id)
        if there is None or job is None:
            return None
        return seats.seat(old, there.value, action.job_id, action.epoch, job.value.spec.resources, now)

    def _second_half(self, job_id: str, instance_id: str, seen: Observation) -> ActionResult:
        old = seen.records.get(job_id)
        record = lease.assign(old.value if old else None, job_id, instance_id, self._store.clock.now())
        if not self.write_record(record, seen):
            return ActionResult.LOST
        there = seen.instances.get(instance_id)
        self._history.assigned(record, seen.assignments[instance_id].value, there.value if there else None)
        return ActionResult.DONE

    def _void(self, action: Void, seen: Observation) -> ActionResult:
        now = self._store.clock.now()
        old = seen.records.get(action.job_id)
        record = old.value if old else lease.pending(action.job_id, now)
        spent = record.model_copy(update={"epoch": action.epoch, "beat": 0, "changed_at": now})
        return _result(self.write_record(spent, seen))

    def _clear(self, action: Clear, seen: Observation) -> ActionResult:
        old = seen.assignments[action.instance_id].value
        without = seats.strike(old, action.job_id, action.epoch, self._store.clock.now())
        return _result(self._write_assignment(without, seen))

    def _restore(self, action: Restore, seen: Observation) -> ActionResult:
        """Name the job again. An order to leave stays, and on a cordoned instance the job is told to stop at once."""
        return _result(self._write_orders([action], seen))

    def _stop(self, action: Stop, seen: Observation) -> ActionResult:
        old, now = seen.assignments[action.instance_id].value, self._store.clock.now()
        told = seats.stop(old, action.job_id, action.epoch, action.reason, action.deadline, now)
        if not self._write_assignment(told, seen):
            return ActionResult.LOST
        self._drop_drills(action.job_id, action.drills, seen)
        return ActionResult.DONE

    def _cordon(self, action: Cordon, seen: Observation) -> ActionResult:
        found, now = seen.assignments.get(action.instance_id), self._store.clock.now()
        told = seats.cordon(found.value if found else None, action.instance_id, action.deadline, now)
        return _result(self._write_assignment(told, seen))

    def _leave(self, action: Leave, seen: Observation) -> ActionResult:
        """Write the fault first, because the record of an instance that has left does not say why."""
        if action.fault is not None:
            self._faults.note(seen.instances[action.instance_id].value, action.fault, because(action))
        found, now = seen.assignments.get(action.instance_id), self._store.clock.now()
        told = seats.leave(found.value if found else None, action.instance_id, action.reason, now)
        return _result(self._write_assignment(told, seen))

    def _release(self, action: Release, seen: Observation) -> ActionResult:
        """Write the order to leave, on the assignment that was seen without a job. The releaser ends the instance
        then."""
        found, now = seen.assignments.get(action.instance_id), self._store.clock.now()
        old = found.value if found else None
        if old is not None and (old.order is Order.LEAVE or old.jobs):
            return ActionResult.IDLE
        told = seats.leave(old, action.instance_id, Reason.RELEASE, now)
        return _result(self._write_assignment(told, seen))

    def _refuse(self, action: Refuse, seen: Observation) -> ActionResult:
        return self._close(action.job_id, action.epoch, EventKind.FAILED, Reason.INFEASIBLE, because(action), seen)

    def _expire(self, action: Expire, seen: Observation) -> ActionResult:
        held = seen.records[action.job_id].value
        ended, now = action.why is Why.INSTANCE_GONE, self._store.clock.now()
        record = lease.expire(held, now, f"lost on {action.instance_id}: {because(action)}", ended=ended)
        if not self.write_record(record, seen):
            return ActionResult.LOST
        cause = "terminated" if ended else "expired"
        self._history.lost(record, action.epoch, cause)
        return ActionResult.DONE

    def _finish(self, action: Finish, seen: Observation) -> ActionResult:
        kind = EventKind.CANCELLED if action.state is JobState.CANCELLED else EventKind.FAILED
        return self._close(action.job_id, action.epoch, kind, action.reason, because(action), seen)

    def _close(
        self, job_id: str, epoch: int, kind: EventKind, reason: Reason, detail: str, seen: Observation
    ) -> ActionResult:
        """End a waiting job. The event comes first: its reason stays true, whoever carries the end out."""
        now = self._store.clock.now()
        self._history.tell(kind, job_id, epoch, now, None, reason=reason.value, message=detail)
        old = seen.records.get(job_id)
        record = lease.close(old.value if old else None, job_id, reason, now, detail)
        return _result(self.write_record(record, seen))

    def _drop_drills(self, job_id: str, drills: tuple[str, ...], seen: Observation) -> ActionResult:
        """Delete fulfilled requests. If the store refuses that, at least this scheduler does not repeat them."""
        for name in (f"{job_id}/{drill_id}" for drill_id in drills):
            self._dropped.add(name)
            seen.drills.pop(name, None)
            try:
                self._store.drills.delete(name)
            except StoreDenied as error:
                _log.critical("drill %s cannot be taken away: this role must be allowed to: %s", name, error)
        return ActionResult.DONE if drills else ActionResult.IDLE

    def write_record(self, record: JobRecord, seen: Observation) -> bool:
        """Write a record if it still is as it was observed. The new version goes into `seen`."""
        name, table = record.job_id, self._store.records
        old = seen.records.get(name)
        written = table.create(name, record) if old is None else table.replace(name, old, record)
        if written is None:
            return False
        seen.records[name] = written
        seen.written.add(name)
        return True

    def _write_assignment(self, given: Assignment, seen: Observation) -> bool:
        name, table = given.instance_id, self._store.assignments
        old = seen.assignments.get(name)
        written = table.create(name, given) if old is None else table.replace(name, old, given)
        if written is None:
            return False
        seen.assignments[name] = written
        return True


def _result(written: bool) -> ActionResult:
    return ActionResult.DONE if written else ActionResult.LOST
