"""Decides which instances leave: broken and old ones and, of the standing fleets, excess ones.

An instance that leaves gives back its job and powers itself off; the fleet replaces it only while the fleet is below
its target, and a launched one is replaced only for a job. So the present size of the fleet limits all departures:

- *Broken* instances go first. Of the standing fleets no more than CORDONS of a kind and type go at the same time: if
  each new machine is broken like the last, the image or the type is at fault, and replacing machines would never end.
  Launched ones all go, because `suspension` ends their replacement.
- *Excess* instances go only while they are idle, only if the remaining units, without those recommended away, still
  make the target, and only once everything that the fleet was last asked for has had time to arrive.
- *Old* instances (of another generation than `cluster.json` names) go a share at a time: the next share waits until the
  last one is replaced. Idle ones go by themselves; busy ones when their job leaves them, or immediately in a roll.
  Launched ones that are idle all go, because the next job launches its own; in a roll a share is replaced when the jobs
  of the last one run again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from math import ceil

from everspot_core.cluster.manifest import Standing
from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs.records import InstanceRecord, InstanceState, JobState, Market, Reason, Role
from everspot_core.schedule.actions import Leave, Why
from everspot_core.schedule.placement.capacity import is_free
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.provisioning.suspension import fault_kind
from everspot_core.schedule.view import InstanceView, JobView

SHARE = 4
"""A share is this fraction of the instances, one over SHARE, but at least one."""
YOUNG = timedelta(minutes=5)
"""Market time before which an instance does not leave as excess: the declaration may still be on its way."""
CORDONS = 2
"""The most broken instances of the standing fleets, of one kind of fault and one type, that leave within
CORDON_WINDOW."""
CORDON_WINDOW = timedelta(hours=1)
JOBS_TO_CORDON = 2
"""The number of different jobs that must have failed on an instance, and done well elsewhere, for it to be at fault."""


def choose_leaving(state: PlanState) -> list[Leave]:
    """Return the departures of instances that nothing else is decided about, with their reasons. At most one action
    each."""
    departures = _Departures(state)
    return [*departures.broken(), *departures.excess(), *departures.old()]


class _Departures:
    """One round of departures. `leaving_ids` names the instances that leave so far."""

    def __init__(self, state: PlanState) -> None:
        self.view, self.now, self.records = state.view, state.now, state.records
        self.here = [i for i in state.untouched_instances() if _agent(i) is not None and _stays(i)]
        self.standing_instances = [i for i in self.here if i.launched_for is None]
        self.leaving_ids: set[str] = set()

    def _send(
        self, instance: InstanceView, reason: Reason, cause: Why, fault: FaultKind | None, **figures: str
    ) -> Leave:
        self.leaving_ids.add(instance.instance_id)
        assignment = instance.assignment
        return Leave(
            instance_id=instance.instance_id,
            job_id=assignment.job_id if assignment is not None else None,
            epoch=assignment.epoch if assignment is not None else 0,
            reason=reason,
            fault=fault,
            cause=cause,
            figures=dict(figures),
        )

    def broken(self) -> Iterator[Leave]:
        """Yield the instances that reported themselves unfit and the instances where several jobs failed, launched ones
        included."""
        # The fault is written before the order to leave. After a crash between the two the instance is still here.
        here = {i.instance_id for i in self.here}
        faults = [f for f in self.view.faults if self.now - f.at < CORDON_WINDOW and f.instance_id not in here]
        sent = Counter((f.kind, f.instance_type) for f in faults if f.kind.cordons)
        failed = _failed_on(self.view.jobs)
        for instance in self.here:
            record = _agent(instance)
            assert record is not None  # noqa: S101 - by the choice of `here`
            jobs = failed.get(instance.instance_id, [])
            if record.state is InstanceState.CORDONED:
                fault, cause, figures = fault_kind(record), Why.UNFIT, {"detail": record.detail or "it says no more"}
            elif len(jobs) >= JOBS_TO_CORDON:
                fault, cause, figures = FaultKind.JOBS, Why.JOBS_FAILED, {"jobs": ", ".join(jobs)}
            else:
                continue
            if instance.launched_for is not None or sent[fault, record.instance_type] < CORDONS:
                sent[fault, record.instance_type] += 1
                yield self._send(instance, Reason.CORDON, cause, fault, **figures)

    def excess(self) -> Iterator[Leave]:
        """Yield the idle instances without which a market still has its target, the least worth first (`_worth`)."""
        standing = self.view.standing
        if standing is None:
            return
        for market, target in ((Market.ON_DEMAND, standing.on_demand_units), (Market.SPOT, standing.spot_units)):
            counted = [i for i in self.standing_instances if self._counts(i, market)]
            # An instance that is recommended away is being replaced: it does not count, and may leave itself.
            units = sum(weight(standing, i) for i in counted if not i.recommended_away)
            for instance in sorted(counted, key=self._worth):
                size = weight(standing, instance)
                units_left = units if instance.recommended_away else units - size
                if units_left < target or not self._idle(instance) or self._young(instance):
                    continue
                yield self._send(
                    instance, Reason.RELEASE, Why.EXCESS, None, units=f"{units_left + size:g}", target=f"{target:g}"
                )
                units = units_left

    def old(self) -> Iterator[Leave]:
        """Yield a share of the instances of another generation, as far as the last share has been replaced."""
        if not self.view.generation:
            return
        yield from self._old_launched()
        replaceable = [i for i in self.standing_instances if i.instance_id not in self.leaving_ids and i.reports]
        budget = max(1, len(replaceable) // SHARE) - self._on_the_move(replaceable)
        aged = [i for i in replaceable if _is_old(i, self.view.generation)]
        # Idle instances leave before those that have to give their job back.
        for instance in sorted(aged, key=lambda i: (not self._idle(i), _booted(i), i.instance_id)):
            if budget < 1 or not (self._idle(instance) or self.view.rolling):
                return
            budget -= 1
            yield self._replace(instance)

    def _old_launched(self) -> Iterator[Leave]:
        """Yield the launched instances of another generation that are idle, and in a roll a share of the busy ones."""
        launched = [i for i in self.here if i.launched_for is not None and i.reports]
        aged = [i for i in launched if _is_old(i, self.view.generation) and i.instance_id not in self.leaving_ids]
        for instance in aged:
            if self._idle(instance):
                yield self._replace(instance)
        if not self.view.rolling:
            return
        busy = sorted((i for i in aged if not self._idle(i)), key=lambda i: (_booted(i), i.instance_id))
        coming = sum(i.launched and (i.leaving or i.record is None) for i in self.view.instances)
        budget = max(1, len(launched) // SHARE) - coming - sum(map(_waits_for_roll, self.view.jobs))
        for instance in busy[: max(0, budget)]:
            yield self._replace(instance)

    def _replace(self, instance: InstanceView) -> Leave:
        cause = Why.OLD_GENERATION if self._idle(instance) else Why.ROLL
        record = _agent(instance)
        was = record.generation if record is not None else ""
        return self._send(instance, Reason.ROLL, cause, None, was=was, now=self.view.generation)

    def _on_the_move(self, replaceable: list[InstanceView]) -> int:
        """Return how many instances are being replaced: leaving, missing from the fleets, or not reported yet."""
        leaving = sum(1 for i in self.view.instances if i.leaving and not i.is_gone) + len(self.leaving_ids)
        standing = self.view.standing
        if standing is None:
            return leaving + self.view.booting
        missing = 0
        for market, target in ((Market.ON_DEMAND, standing.on_demand_units), (Market.SPOT, standing.spot_units)):
            weights = [weight(standing, i) for i in replaceable if self._counts(i, market)]
            missing += max(0, ceil((target - sum(weights)) / min(weights, default=1.0)))
        return max(leaving, missing, self.view.booting)

    def _counts(self, instance: InstanceView, market: Market) -> bool:
        """Return whether the instance counts for the market's fleet: it reports, and does not leave."""
        record = _agent(instance)
        here = instance.reports and instance.instance_id not in self.leaving_ids
        return here and record is not None and record.market is market

    def _idle(self, instance: InstanceView) -> bool:
        """Return whether the instance has no job according to the store; its own record may be as old as its
        heartbeat."""
        record = _agent(instance)
        busy = record is None or record.state is InstanceState.BUSY
        return instance.idle and (not busy or is_free(instance, self.records))

    def _young(self, instance: InstanceView) -> bool:
        return self.now - (instance.launched_at or _booted(instance)) < YOUNG

    def _worth(self, instance: InstanceView) -> tuple[bool, bool, bool, float, str]:
        """Return a sort key, least worth first: takes no jobs, recommended away, old, small."""
        record = _agent(instance)
        idle = record is not None and record.state is InstanceState.READY
        standing = self.view.standing
        size = weight(standing, instance) if standing is not None else 1.0
        old = _is_old(instance, self.view.generation)
        return idle, not instance.recommended_away, not old, size, instance.instance_id


def weight(standing: Standing, instance: InstanceView) -> float:
    """Return the units for which the instance counts in its fleet."""
    record = instance.record
    return standing.weights.get(record.instance_type, 1.0) if record is not None else 1.0


def _agent(instance: InstanceView) -> InstanceRecord | None:
    record = instance.record
    return record if record is not None and record.role is Role.AGENT else None


def _stays(instance: InstanceView) -> bool:
    """Return whether the instance lives and nothing is about to end it."""
    is_ending = (
        instance.ending or (instance.assignment is not None and instance.assignment.cordoned) or instance.notified
    )
    return not (instance.is_gone or is_ending or instance.leaving)


def _is_old(instance: InstanceView, generation: str) -> bool:
    """Return whether the instance is of another generation. An instance that names none is never old."""
    record = instance.record
    return bool(generation) and record is not None and record.generation not in ("", generation)


def _waits_for_roll(job: JobView) -> bool:
    """Return whether a job waits because its instance was replaced."""
    record = job.record
    return record is not None and record.state is JobState.PENDING and record.last_reason is Reason.ROLL


def _booted(instance: InstanceView) -> datetime:
    record = _agent(instance)
    assert record is not None  # noqa: S101 - asked of agents that have reported only
    return record.booted_at


def _failed_on(jobs: Iterable[JobView]) -> dict[str, list[str]]:
    """Return, by instance, the jobs that failed there and have come further elsewhere since, so that the instance is
    suspect. A job that fails on every instance says nothing against any of them."""
    failed: dict[str, list[str]] = defaultdict(list)
    for job in sorted(jobs, key=lambda j: j.job_id):
        record = job.record
        if record is None or len(record.failed_on) != 1:
            continue
        well = record.state is JobState.SUCCEEDED or (
            record.state is JobState.RUNNING and record.progress.step > record.failed_step
        )
        elsewhere = record.owner or record.last_owner
        if well and elsewhere not in record.failed_on:
            failed[record.failed_on[0]].append(job.job_id)
    return failed
