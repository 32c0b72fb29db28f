"""The plan: who runs where, who must stop, and what has to be repaired.

The order of the passes is the order of importance: dead owners, half-done and finished assignments, what the cloud
takes away, what users want stopped, what can be ended, what can be started on what stands, and last what must be
launched or can be let go.

There are two entry points. `plan_standing` is for the driver of declared fleets, whose capacity the cloud keeps up: it
never launches and never releases, and its actions say so by their type. `plan` is for a driver that also launches
instances, in the pools of the view, and releases them.
"""

from datetime import datetime

from everspot_core.records import Assignment, JobState, Order, Reason
from everspot_core.schedule.actions import (
    Action,
    Assign,
    Clear,
    Complete,
    Cordon,
    DropDrills,
    Expire,
    Figures,
    Finish,
    Hold,
    Restore,
    StandingAction,
    Stop,
    Void,
    Why,
)
from everspot_core.schedule.admission import Admission
from everspot_core.schedule.conditions import not_now, outside_window, reckoned
from everspot_core.schedule.jobs import end_of_waiting, spent_budget
from everspot_core.schedule.placement.place import place
from everspot_core.schedule.provisioning.leaving import leave
from everspot_core.schedule.provisioning.provision import provision
from everspot_core.schedule.view import ClusterView, InstanceView, JobView


def plan_standing(view: ClusterView, now: datetime) -> list[StandingAction]:
    """What to do next on declared fleets. Pure: it depends on the view and on `now` (market time) alone.

    At most one action changes each job, and each instance or each seat of it. The order of `view.jobs` and
    `view.instances` is of no consequence.
    """
    decided, placed = _decide(reckoned(view, now), now)
    return [*decided.actions, *placed]


def plan(view: ClusterView, now: datetime) -> list[Action]:
    """What to do next where instances can be launched, too: in the pools of the view. Else as `plan_standing`."""
    view = reckoned(view, now)
    decided, placed = _decide(view, now)
    if view.pools or any(i.launched_for is not None for i in view.instances):
        cordoned = {a.instance_id for a in decided.actions if isinstance(a, Cordon)}
        provisioned = provision(placed, view, now, decided.touched_jobs, decided.touched_instances, cordoned)
        return [*decided.actions, *provisioned]
    return [*decided.actions, *placed]


def _decide(view: ClusterView, now: datetime) -> tuple["_Planning", list[Assign | Hold]]:
    """What is decided before anything is launched, and where the jobs that wait go or what they wait for."""
    desk = _Planning(view, now)
    desk.expire_dead_owners()
    desk.repair_assignments()
    desk.restore_assignments()
    desk.cordon_instances()
    desk.stop_owners()
    desk.settle_drills()
    desk.end_waiting_jobs()
    desk.let_go()
    placed = place(
        jobs=[j for j in desk.jobs.values() if j.state is JobState.PENDING and j.job_id not in desk.touched_jobs],
        instances=[i for i in desk.instances.values() if i.instance_id not in desk.touched_instances],
        view=view,
        now=now,
    )
    return desk, placed


class _Planning:
    """A plan that is being made: what was seen, in a fixed order, and what has been decided so far."""

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self.view, self.now = view, now
        self.admission = Admission(view, now)
        self.jobs = {j.job_id: j for j in sorted(view.jobs, key=lambda j: j.job_id)}
        self.instances = {i.instance_id: i for i in sorted(view.instances, key=lambda i: i.instance_id)}
        self.actions: list[StandingAction] = []
        self.touched_jobs: set[str] = set()
        self.touched_instances: set[str] = set()

    def _do(self, action: StandingAction, *, job: str | None = None, instance: str | None = None) -> None:
        self.actions.append(action)
        if job is not None:
            self.touched_jobs.add(job)
        if instance is not None:
            self.touched_instances.add(instance)

    def _busy(self, instance: InstanceView | None, name: str, job_id: str) -> bool:
        """Whether what has been decided leaves nothing to decide of the job on the instance of this name in this plan.
        Jobs that share one do not get in each other's way."""
        if instance is not None and instance.seated:
            return job_id in self.touched_jobs
        return name in self.touched_instances

    def expire_dead_owners(self) -> None:
        """A lease that stands still, or whose instance is gone, is taken back."""
        ttl = self.view.limits.lease_ttl.total_seconds()
        for job in self.jobs.values():
            record = job.record
            if record is None or not record.state.owned or record.owner is None:
                continue
            owner = self.instances.get(record.owner)
            if self._busy(owner, record.owner, job.job_id):
                continue
            if owner is not None and owner.gone:
                why, figures = Why.INSTANCE_GONE, {"step": record.progress.step}
            elif job.stale:
                why, figures = Why.LEASE_EXPIRED, {"step": record.progress.step, "lease_ttl_seconds": int(ttl)}
            else:
                continue
            expire = Expire(
                job_id=job.job_id, instance_id=record.owner, epoch=record.epoch, why=why, figures=dict(figures)
            )
            self._do(expire, job=job.job_id, instance=record.owner)

    def repair_assignments(self) -> None:
        """Assignments whose lease is over are cleared; half-done ones are completed or given up."""
        for instance in self.instances.values():
            for given in instance.assignment.held if instance.assignment is not None else ():
                if not self._busy(instance, instance.instance_id, given.job_id or ""):
                    self._repair(instance, given)

    def _repair(self, instance: InstanceView, given: Assignment) -> None:
        job = self.jobs.get(given.job_id or "")
        if job is not None and job.owned_by(given):
            return
        if job is not None and job.state is JobState.PENDING and given.epoch == job.epoch + 1:
            self._repair_half(instance, job, given)
        else:
            self._clear(instance, given, Why.OWNER_LEFT if job is not None else Why.UNKNOWN_JOB)

    def _repair_half(self, instance: InstanceView, job: JobView, given: Assignment) -> None:
        if job.job_id in self.touched_jobs:  # another instance has the other half; this one is cleared once that stands
            self.touched_instances.add(instance.instance_id)
            return
        wanted = (
            instance.healthy
            and given.order is Order.RUN
            and not self.view.draining
            and not _backing_off(job, self.now)
            and end_of_waiting(job, self.now) is None
            and self.admission.used_up(job) is None
            and not_now(job, self.now) is None
        )
        common = {"job_id": job.job_id, "instance_id": instance.instance_id, "epoch": given.epoch}
        action: StandingAction = (
            Complete(**common, why=Why.HALF_DONE)  # type: ignore[arg-type]
            if wanted
            else Void(**common, why=Why.UNWANTED)  # type: ignore[arg-type]
        )
        self._do(action, job=job.job_id, instance=instance.instance_id)

    def _clear(self, instance: InstanceView, given: Assignment, why: Why) -> None:
        clear = Clear(instance_id=instance.instance_id, job_id=given.job_id or "", epoch=given.epoch, why=why)
        self._do(clear, instance=instance.instance_id)

    def restore_assignments(self) -> None:
        """Owners whose assignment names no job took back what was lost with them: they are to hear of it again."""
        for job in self.jobs.values():
            record = job.record
            if record is None or not record.state.owned or job.stale or job.job_id in self.touched_jobs:
                continue
            owner = self.instances.get(record.owner or "")
            if owner is None or self._busy(owner, owner.instance_id, job.job_id):
                continue
            if not owner.idle and (not owner.seated or not job.shares or owner.told(job.job_id) is not None):
                continue
            restore = Restore(
                job_id=job.job_id,
                instance_id=owner.instance_id,
                epoch=record.epoch,
                beside=job.shares and (self.view.shared or owner.seated),
                why=Why.TAKEN_BACK,
            )
            self._do(restore, job=job.job_id, instance=owner.instance_id)

    def cordon_instances(self) -> None:
        """What the cloud is going to take is marked, and what runs there is told to stop, in one write."""
        for instance in self.instances.values():
            given = instance.assignment
            if not instance.ending or instance.gone:
                continue
            if instance.instance_id in self.touched_instances and not instance.seated:
                continue
            held = given.held if given is not None else ()
            known = given is not None and given.cordoned
            later = instance.deadline is not None and any(h.deadline is None for h in held)
            if known and not later:
                continue
            cordon = Cordon(instance_id=instance.instance_id, deadline=instance.deadline, why=Why.INTERRUPTION)
            self._do(cordon, instance=instance.instance_id)
            self.touched_jobs |= {h.job_id for h in held if h.job_id is not None}

    def stop_owners(self) -> None:
        """Owners of jobs that are cancelled, out of budget, drained or drilled are told to give them back; so are those
        whose team, or the environment, has spent what it may, and those whose hours are over."""
        for job in self.jobs.values():
            record = job.record
            if record is None or not record.state.owned or job.job_id in self.touched_jobs:
                continue
            owner = self.instances.get(record.owner or "")
            given = owner.told(job.job_id) if owner is not None else None
            if owner is None or self._busy(owner, owner.instance_id, job.job_id):
                continue
            if given is None or not job.owned_by(given) or owner.stops(job.job_id):
                continue
            stop = self._stop(job, owner)
            if stop is not None:
                self._do(stop, job=job.job_id, instance=owner.instance_id)

    def _stop(self, job: JobView, owner: InstanceView) -> Stop | None:
        budget = spent_budget(job, self.now)
        drills: tuple[str, ...] = ()
        figures: Figures = {}
        if job.cancel:
            why, reason = Why.CANCEL, Reason.CANCEL
        elif budget is not None:
            (why, figures), reason = budget, Reason.BUDGET
        elif (used_up := self.admission.used_up(job)) is not None:
            (why, figures), reason = used_up, Reason.CAP
        elif (outside := outside_window(job, self.now)) is not None:
            (why, figures), reason = outside, Reason.WINDOW
        elif self.view.draining:
            why, reason = Why.DRAIN, Reason.DRAIN
        elif job.drills:
            why, reason = Why.DRILL, Reason.DRILL
            drills = tuple(sorted(d.drill_id for d in job.drills))
        else:
            return None
        return Stop(
            job_id=job.job_id,
            instance_id=owner.instance_id,
            epoch=job.epoch,
            reason=reason,
            drills=drills,
            why=why,
            figures=figures,
        )

    def settle_drills(self) -> None:
        """Drills of jobs that are stopping, stopped by a drill already, or over, are done with.

        A drill of a job that waits is kept until the job runs.
        """
        stopping = {a.job_id for a in self.actions if isinstance(a, Stop) and a.reason is Reason.DRILL}
        for job in self.jobs.values():
            if not job.drills or job.job_id in stopping:
                continue
            done = [d.drill_id for d in job.drills if self._fulfilled(job, d.at)]
            if done:
                drop = DropDrills(job_id=job.job_id, drills=tuple(sorted(done)), why=Why.ALREADY_STOPPING)
                self.actions.append(drop)

    def _fulfilled(self, job: JobView, at: datetime) -> bool:
        record = job.record
        if record is None:
            return False
        if record.state.final:
            return True
        if record.state.owned:
            owner = self.instances.get(record.owner or "")
            return owner is not None and owner.stops(job.job_id)
        return record.last_reason is Reason.DRILL and record.changed_at >= at

    def let_go(self) -> None:
        """Instances of the standing fleets that are broken, too many or old."""
        untouched = [i for i in self.instances.values() if i.instance_id not in self.touched_instances]
        for action in leave(untouched, self.view, self.now):
            given = self.instances[action.instance_id].assignment
            held = set(given.jobs) if given is not None else set[str]()
            if held & self.touched_jobs:
                continue  # the instance goes in the next plan, when what was decided of its jobs stands
            self._do(action, instance=action.instance_id)
            self.touched_jobs |= held

    def end_waiting_jobs(self) -> None:
        """Waiting jobs that are cancelled or out of budget are ended."""
        for job in self.jobs.values():
            if job.state is not JobState.PENDING or job.job_id in self.touched_jobs:
                continue
            end = end_of_waiting(job, self.now)
            if end is not None:
                state, reason, why, figures = end
                finish = Finish(
                    job_id=job.job_id, epoch=job.epoch, state=state, reason=reason, why=why, figures=figures
                )
                self._do(finish, job=job.job_id)


def _backing_off(job: JobView, now: datetime) -> bool:
    record = job.record
    return record is not None and record.not_before is not None and record.not_before > now
