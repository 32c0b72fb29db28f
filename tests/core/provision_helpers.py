"""Short constructors for one or two jobs with their own pools: times in hours, one instance type by default."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec, JobSubmission, Priority, Resources
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Order,
    Reason,
    Role,
)
from everspot_core.schedule import (
    Action,
    Assign,
    Behaviour,
    ClearAssignment,
    Cordon,
    Finish,
    Hold,
    InstanceView,
    JobView,
    Launch,
    Outlook,
    PoolView,
    Refuse,
    Release,
    Stay,
    Stop,
    describe_action,
    plan,
)
from everspot_core.schedule.market.failover import PREEMPTIONS, WINDOW
from view_helpers import cluster_view, instance_view, job_view, outlook_view, pool_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta(minutes=1)
TYPE = InstanceType(name="t", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
SMALL = InstanceType(name="small", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=16)
NEED = Resources(vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
SPOT, ON_DEMAND = Market.SPOT, Market.ON_DEMAND

STEADY = Behaviour(up=True, since=NOW - 200 * HOUR, first=NOW - 900 * HOUR, ups=(50.0,) * 12, downs=(0.05,) * 12)
"""Spot that is there to stay: whatever the constants are, it pays to go back to it."""
AWAY = Behaviour(up=False, since=NOW, first=NOW - 900 * HOUR, ups=(4.0,) * 12, downs=(1.0,) * 12)
"""Spot that has just gone, and comes back within the hour or so."""


def outlook(remaining=10.0, upper=None, changeover=0.1, changeover_upper=0.25, changing=0.0) -> Outlook:
    """Hours. `upper`: as expected, if nothing is said."""
    hours = (remaining, remaining if upper is None else upper, changeover, changeover_upper, changing)
    return outlook_view(
        **dict(
            zip(
                ("remaining", "remaining_upper", "changeover", "changeover_upper", "changing"),
                (h * HOUR for h in hours),
                strict=True,
            )
        )
    )


def job(name="j", *, due=None, work=None, record=None, ago=0.0, critical=False, resources=NEED, **more) -> JobView:
    """`due`: hours from now; `work`: its outlook; `ago`: submitted so long ago."""
    spec = {k: more.pop(k) for k in ("expected_duration", "tags", "window") if k in more}
    priority = Priority.CRITICAL if critical else Priority.NORMAL
    spec = JobSpec(name=name, recipe="r", resources=resources, priority=priority, **spec)
    deadline = None if due is None else NOW + due * HOUR
    submission = JobSubmission(job_id=name, spec=spec, submitted_at=NOW - ago * HOUR, deadline_at=deadline)
    return job_view(submission=submission, record=record, outlook=work, **more)


def pool(market=SPOT, zone="a", usd=None, kind=TYPE, behaviour=None, **more) -> PoolView:
    """Spot at $1, on-demand at $3."""
    price = (1.0 if market is SPOT else 3.0) if usd is None else usd
    pool_behaviour = (STEADY if market is SPOT else Behaviour()) if behaviour is None else behaviour
    return pool_view(instance_type=kind, zone=zone, market=market, usd_per_hour=price, behaviour=pool_behaviour, **more)


def dry(zone="a", **more) -> PoolView:
    """A spot pool that has just gone."""
    return pool(zone=zone, available=0, behaviour=AWAY, **more)


def instance(name, market=SPOT, *, zone="a", kind=TYPE, launched_for="j", ago=0.0, ready=True, **more) -> InstanceView:
    """Launched so many hours ago. `launched_for` None: of the standing fleet. Not `ready`: it boots."""
    key = pool(market, zone, kind=kind).key
    state = more.pop("state", InstanceState.READY)
    record = InstanceRecord(
        instance_id=name,
        cluster="c",
        role=Role.AGENT,
        instance_type=kind.name,
        zone=zone,
        market=market,
        vcpus=kind.vcpus,
        memory_gib=kind.memory_gib,
        gpus=kind.gpus,
        gpu_memory_gib=kind.gpu_memory_gib,
        state=state,
        booted_at=NOW,
        updated_at=NOW,
    )
    return instance_view(
        instance_id=name,
        record=record if ready else None,
        launched_for=launched_for,
        launched_at=NOW - ago * HOUR,
        pool=key,
        **more,
    )


def holding(view: JobView, *instances: InstanceView, epoch=1, order=Order.RUN) -> tuple[JobView, list[InstanceView]]:
    """Return the job, running on these instances, and the instances. The first one owns its lease."""
    record = JobRecord(
        job_id=view.job_id, state=JobState.RUNNING, epoch=epoch, owner=instances[0].instance_id, changed_at=NOW
    )
    assigned_instances = [
        replace(
            i,
            assignment=Assignment(
                instance_id=i.instance_id, job_id=view.job_id, epoch=epoch, order=order, changed_at=NOW
            ),
        )
        for i in instances
    ]
    return replace(view, record=record), assigned_instances


def lost(reason=Reason.NOTICE, owner="i-0", epoch=1, **more) -> JobRecord:
    """The record of a job that has just left its instance."""
    return JobRecord(
        job_id="j", state=JobState.PENDING, epoch=epoch, last_owner=owner, last_reason=reason, changed_at=NOW, **more
    )


def decide(jobs, instances=(), pools=(), now=NOW, **more) -> list[Action]:
    """One plan. Whatever it says can be put into words."""
    jobs = (jobs,) if isinstance(jobs, JobView) else tuple(jobs)
    view = cluster_view(jobs=jobs, instances=tuple(instances), pools=tuple(pools), **{"tick": TICK, **more})
    actions = plan(view, now)
    for action in actions:
        words = describe_action(action)
        assert "{" not in words
        assert "}" not in words
    return actions


class World:
    """Carries out the plan's actions at a fixed moment. Launched instances boot until the test changes that."""

    def __init__(self, jobs, instances=(), pools=(), **more) -> None:
        self.jobs = {j.job_id: j for j in jobs}
        self.instances = {i.instance_id: i for i in instances}
        self.pools, self.more, self.now, self.count = tuple(pools), more, NOW, 0
        self.changes: list[Action] = []

    def round(self) -> list[Action]:
        """One plan, carried out. What it changes."""
        actions = decide(self.jobs.values(), self.instances.values(), self.pools, self.now, **self.more)
        changes = [a for a in actions if not isinstance(a, Hold | Stay)]
        for action in changes:
            self._do(action)
        self.changes += changes
        return changes

    def settle(self, rounds=8) -> int:
        """Plans until nothing changes; in how many rounds that was."""
        for count in range(rounds):
            if not self.round():
                return count
        raise AssertionError(f"it never settles: {self.changes[-6:]}")

    def boot(self) -> None:
        """All that has been launched is ready."""
        for name, i in self.instances.items():
            if i.record is None:
                ready = instance(name, i.pool.market, zone=i.pool.zone).record
                self.instances[name] = replace(i, record=ready)

    def lose(self, name) -> None:
        """The cloud takes an instance; a job that it holds, alone or with others, waits again."""
        lost_instance = self.instances.pop(name)
        assignment = lost_instance.assignment
        if assignment is not None and assignment.job_id is not None and self.jobs[assignment.job_id].state.owned:
            view = self.jobs[assignment.job_id]
            record = lease.release(view.record, Reason.NOTICE, self.now, view.submission.spec)
            self.jobs[assignment.job_id] = replace(view, record=record)

    def notice(self, name, minutes=2) -> None:
        """The cloud says that it takes an instance so soon."""
        self.instances[name] = replace(self.instances[name], ending=True, deadline=self.now + minutes * TICK)

    def give_back(self, name) -> None:
        """The job has saved, and is back."""
        view = self.jobs[name]
        record = lease.release(view.record, Reason.NOTICE, self.now, view.submission.spec)
        self.jobs[name] = replace(view, record=record)

    def _do(self, action: Action) -> None:
        match action:
            case Launch():
                for _ in range(action.count):
                    self.count += 1
                    name = f"n-{self.count}"
                    new = instance(name, action.market, zone=action.zone, launched_for=action.job_id, ready=False)
                    self.instances[name] = replace(new, launched_at=self.now)
            case Assign():
                view = self.jobs[action.job_id]
                record = lease.assign(view.record, action.job_id, action.instance_id, self.now)
                self.jobs[action.job_id] = replace(view, record=record)
                for name in (action.instance_id, *action.gang):
                    self._write_assignment(name, job_id=action.job_id, epoch=action.epoch)
            case Stop():
                view = self.jobs[action.job_id]
                reason = Reason.CANCEL if view.cancel else action.reason
                record = lease.release(view.record, reason, self.now, view.submission.spec)
                self.jobs[action.job_id] = replace(view, record=record)
            case ClearAssignment():
                assignment = self.instances[action.instance_id].assignment
                self._write_assignment(action.instance_id, cordoned=assignment is not None and assignment.cordoned)
            case Release():
                assert self.instances[action.instance_id].launched_for is not None
                assert self.instances.pop(action.instance_id).idle
            case Cordon():
                assignment = self.instances[action.instance_id].assignment
                stop_fields = (
                    {"job_id": assignment.job_id, "epoch": assignment.epoch, "order": Order.STOP} if assignment else {}
                )
                self._write_assignment(action.instance_id, cordoned=True, deadline=action.deadline, **stop_fields)
            case Finish() | Refuse():
                view = self.jobs[action.job_id]
                record = view.record or lease.pending(action.job_id, self.now)
                self.jobs[action.job_id] = replace(view, record=record.model_copy(update={"state": JobState.FAILED}))
            case _:
                raise AssertionError(f"not foreseen: {action}")

    def _write_assignment(self, name, **fields) -> None:
        assignment = Assignment(instance_id=name, changed_at=self.now, **fields)
        self.instances[name] = replace(self.instances[name], assignment=assignment)


def names(actions, kind) -> list[str]:
    """The instances that actions of this kind speak of."""
    return sorted(a.instance_id for a in actions if isinstance(a, kind))


WORK = outlook(10.0)
"""10 h of work, 0.25 h for a changeover at most."""
LATEST = 10.25 + TICK / HOUR + 0.1
"""The least hours to the deadline with which there is time for spot: for a changeover to it, and for one back."""
OFTEN = tuple(NOW - n * WINDOW / (PREEMPTIONS + 1) for n in range(PREEMPTIONS, 0, -1))
"""Lost often enough to fail over."""


def only_action(actions, kind):
    """The only action, which is of this kind."""
    (action,) = actions
    assert isinstance(action, kind), action
    return action
