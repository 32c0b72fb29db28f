"""Decides which waiting job goes to which present instance.

Jobs choose in turn, in the order of `queue`. Each takes the smallest free instance that is large enough, of the market
that it prefers; rather than wait, it takes the other market. A job may not take three kinds of instances: a free
on-demand instance that a critical job in back-off could use, an instance that was launched for another job, and an
instance that is promised to a job ahead.
"""

from collections import defaultdict
from datetime import datetime, timedelta

from everspot_core.jobs.fit import Shape, fits, lacking
from everspot_core.jobs.records import JobRecord, JobState, Market, Reason, Role
from everspot_core.jobs.sharing import largest_share
from everspot_core.schedule.actions import Assign, Hold, ReasonFigures, Why
from everspot_core.schedule.admission import Admission
from everspot_core.schedule.awaited_instances import awaited, is_going
from everspot_core.schedule.conditions import start_blocker
from everspot_core.schedule.jobs import critical, end_of_waiting, job_outlook
from everspot_core.schedule.market.failover import Preference, failed_over
from everspot_core.schedule.market.offers import build_need
from everspot_core.schedule.market.policy import is_safe, last_moment
from everspot_core.schedule.market.steering import instance_market
from everspot_core.schedule.placement.capacity import Capacity, SeatRequest, Want, instance_kind, is_free
from everspot_core.schedule.placement.exclusive import ExclusiveCapacity
from everspot_core.schedule.placement.gangs import instance_record, pick
from everspot_core.schedule.placement.packing import SharedCapacity
from everspot_core.schedule.placement.queue import Queue, queue_order
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.view import ClusterView, InstanceView, JobView

__all__ = ["place", "queue_order"]


def place(state: PlanState) -> list[Assign | Hold]:
    """Return an `Assign` for each waiting job that finds an instance, and a `Hold` for each that does not.

    Jobs and instances that the plan has decided something else about are left out.
    """
    jobs = [job for job in state.untouched_jobs() if job.state is JobState.PENDING]
    if not jobs:
        return []
    placement = _Placement(state, jobs)
    for rank, job in enumerate(placement.queue):
        placement.place_job(rank, job)
    return placement.actions


class _Placement:
    """One round in which jobs choose, and what has been decided in it so far."""

    def __init__(self, state: PlanState, jobs: list[JobView]) -> None:
        view, now, instances = state.view, state.now, state.untouched_instances()
        self.view, self.now = view, now
        self.actions: list[Assign | Hold] = []
        self._rates, self._reuse, self._admission = state.rates, state.reuse, Admission(state.budgets)
        self.queue = Queue(jobs, view, now, self._rates)
        self._assigned_jobs = {job for i in view.instances if i.assignment is not None for job in i.assignment.jobs}
        self._own, common = _launched(instances, state)
        self._idle: list[InstanceView] = []
        if view.idle_limit:
            self._own, common, self._idle = _split_idle(instances, state)
        self._expecting = {i.launched_for for i in view.instances if i.launched}
        self._capacity: Capacity = (SharedCapacity if view.shared else ExclusiveCapacity)(common, view, now)
        self._shapes = _type_shapes(view)
        self._present = _present(view)
        self._large_enough: dict[Want, int] = {}
        self._held_back: list[SeatRequest] = []

    def place_job(self, rank: int, job: JobView) -> None:
        """Place the next job, or hold it."""
        if end_of_waiting(job, self.now) is not None or job.job_id in self._assigned_jobs:
            return
        early = start_blocker(job, self.now)
        if early is not None:
            self.actions.append(Hold(job_id=job.job_id, cause=early[0], figures=early[1]))
            return
        preference = _preferred_market(job, self.view, self.now)
        request = _seat_request(job, preference.market)
        hold = self._early_hold(job, request.want) or self._admission.hold(job)
        if hold is not None:
            self.actions.append(hold)
            if hold.cause in (Why.BACK_OFF, Why.DENIED) and request.critical:
                self._held_back.append(request)
            return
        if not request.critical:
            while self._held_back:
                self._capacity.set_aside(self._held_back.pop(0))
        chosen = self._its_own(job) or self._capacity.seat(request) or self._of_another(job, preference.market)
        if chosen:
            shares = self.view.shared and job.shares
            part = largest_share(job.submission.spec.resources, instance_record(chosen[0])) if shares else 1.0
            self.queue.charge(job, part * sum(self._rates.rate(instance_record(i)) for i in chosen))
            self._admission.charge_instances(job, map(instance_record, chosen), part)
            self.actions.append(_assign(job, chosen, rank, preference, shares=shares))
            return
        self.actions.append(self._no_room(request))
        if job.job_id not in self._expecting:
            self._capacity.promise(request)

    def _its_own(self, job: JobView) -> list[InstanceView]:
        """Return the instances that were launched for the job last. Their size was checked at the launch.

        The instance that the job was ordered to leave is never among them.
        """
        record = job.record
        left_instance = record.last_owner if record is not None and record.last_reason is Reason.MOVE else None
        own = [i for i in self._own.get(job.job_id, ()) if i.instance_id != left_instance]
        last = max((i.launched_at for i in own if i.launched_at is not None), default=None)
        batch = [i for i in own if i.launched_at == last]
        return batch[: job.nodes] if len(batch) >= job.nodes else []

    def _of_another(self, job: JobView, prefer: Market) -> list[InstanceView]:
        """Return an idle instance that was launched for another job: the cheapest, and of equals the one used last."""
        able = [i for i in self._idle if self._reuse.suits(job, i)]
        if len(able) < job.nodes:
            return []
        able.sort(key=lambda i: (self._reuse.usd(job, i), i.idle_since is None, _age(i, self.now), i.instance_id))
        chosen = able[:1]
        if job.nodes > 1:
            kinds = sorted({instance_kind(instance_record(i)) for i in able})
            gangs = (
                pick([i for i in able if instance_kind(instance_record(i)) == k], job.nodes, prefer, frozenset())
                for k in kinds
            )
            chosen = next((gang for gang in gangs if gang), [])
        self._idle = [i for i in self._idle if i not in chosen]
        return chosen

    def _early_hold(self, job: JobView, want: Want) -> Hold | None:
        record, need = job.record, job.submission.spec.resources
        if not self._shapes:
            return Hold(job_id=job.job_id, cause=Why.NOTHING_SEEN)
        if want not in self._large_enough:
            able = any(fits(need, s) for s in self._shapes.values())
            count = sum(count for shape, count in self._present if fits(need, shape))
            self._large_enough[want] = count if able else -1
        if self._large_enough[want] < 0 and job.job_id not in self._own:
            return Hold(job_id=job.job_id, cause=Why.NO_TYPE_FITS, figures=_shortfall(job, self._shapes))
        if self.view.draining:
            return Hold(job_id=job.job_id, cause=Why.DRAIN)
        if record is not None and record.not_before is not None and record.not_before > self.now:
            if record.last_reason is Reason.DENIED:
                until, detail = f"{record.not_before:%Y-%m-%d %H:%M} UTC", record.detail.partition("\n")[0]
                figures: ReasonFigures = {"times": len(record.unstarted), "until": until, "detail": detail}
                return Hold(job_id=job.job_id, cause=Why.DENIED, figures=figures)
            seconds = round((record.not_before - self.now).total_seconds(), 3)
            return Hold(job_id=job.job_id, cause=Why.BACK_OFF, figures={"seconds": seconds})
        return None

    def _no_room(self, request: SeatRequest) -> Hold:
        if not request.critical and self._capacity.is_aside(request):
            return Hold(job_id=request.job_id, cause=Why.KEPT_FOR_CRITICAL)
        ahead = self._capacity.promised(request)
        if ahead is not None:
            return Hold(job_id=request.job_id, cause=Why.KEPT_FOR_GANG, figures={"ahead": ahead})
        figures: ReasonFigures = {"present": max(self._large_enough[request.want], 0)}
        if request.nodes > 1:
            return Hold(job_id=request.job_id, cause=Why.TOO_FEW_FREE, figures={"nodes": request.nodes, **figures})
        return Hold(job_id=request.job_id, cause=Why.NO_FREE_INSTANCE, figures=figures)


def _preferred_market(job: JobView, view: ClusterView, now: datetime) -> Preference:
    """Return the market that the job prefers. It is on-demand once the loss of a spot instance would cost the
    deadline."""
    work, deadline = job_outlook(job), job.submission.deadline_at
    if work is not None and deadline is not None and not critical(job):
        need = build_need(work, deadline, view.tick, now)
        if need.remaining <= need.time and not is_safe(need):
            to = last_moment(need)
            return Preference(Market.ON_DEMAND, to.cause, to.figures)
    return failed_over(job, view.pools, now, None)


def _seat_request(job: JobView, prefer: Market) -> SeatRequest:
    return SeatRequest(job=job, critical=critical(job), prefer=prefer, avoid=_avoided(job))


def _avoided(job: JobView) -> frozenset[str]:
    record = job.record
    if record is None:
        return frozenset()
    if record.last_reason is Reason.DENIED:
        return frozenset(record.failed_on)  # what the store refuses one instance, it refuses all of them
    avoided = {*record.failed_on, *record.unstarted}
    if record.last_owner is not None and record.last_reason is not None and record.last_reason.preemption:
        avoided.add(record.last_owner)
    return frozenset(avoided)


def _launched(
    instances: list[InstanceView], state: PlanState
) -> tuple[dict[str, list[InstanceView]], list[InstanceView]]:
    """Return the free instances by the job that they were launched for, and those that all jobs may take.

    All jobs may take an instance whose job is over, until it is released, and one that jobs share. Under the cap nobody
    takes the one that a job has given back to move: it makes room for the one that the job moves to.
    """
    view, records = state.view, state.records
    moved = {r.last_owner for r in records.values() if r is not None and _waits_to_move(r)} if view.cap else set()
    alive = {j.job_id for j in view.jobs if not j.state.final and j.state is not JobState.AWAY}
    own: dict[str, list[InstanceView]] = defaultdict(list)
    common = []
    for instance in sorted(instances, key=lambda i: i.instance_id):
        if instance.launched_for not in alive or (view.shared and instance.residents):
            if instance.launched_for is None or instance.instance_id not in moved:
                common.append(instance)
        elif instance.launched_for is not None and is_free(instance, records):
            own[instance.launched_for].append(instance)
    return own, common


def _waits_to_move(record: JobRecord) -> bool:
    return record.state is JobState.PENDING and record.last_reason is Reason.MOVE


def _split_idle(
    instances: list[InstanceView], state: PlanState
) -> tuple[dict[str, list[InstanceView]], list[InstanceView], list[InstanceView]]:
    """Return the instances where idle ones are kept for a while, in three groups: free ones by the job that waits for
    them; those that all jobs may take (standing ones, and shared ones that jobs run on); and idle launched ones."""
    view, records, by_name = state.view, state.records, state.instances
    by_job: dict[str, list[InstanceView]] = defaultdict(list)
    for instance in view.instances:
        if instance.launched_for is not None and not instance.is_gone:
            by_job[instance.launched_for].append(instance)
    waited: set[str] = set()
    for job in view.jobs:
        if job.job_id in by_job and job.may_need_instance:
            owner = by_name.get(job.record.owner) if job.record is not None and job.record.owner is not None else None
            waited |= {i.instance_id for i in awaited(job, owner, by_job[job.job_id]) if _is_another(i, owner)}
    own: dict[str, list[InstanceView]] = defaultdict(list)
    common, idle = list[InstanceView](), list[InstanceView]()
    for instance in sorted(instances, key=lambda i: i.instance_id):
        if instance.launched_for is None or (view.shared and not instance.idle):
            common.append(instance)
        elif is_free(instance, records):
            group = own[instance.launched_for] if instance.instance_id in waited else idle
            group.append(instance)
    return own, common, idle


def _is_another(instance: InstanceView, owner: InstanceView | None) -> bool:
    """Return whether the job may still move there from its owner: to another market, or because the cloud takes the
    owner."""
    if owner is None or is_going(owner):
        return True
    return instance_market(instance) is not instance_market(owner)


def _age(instance: InstanceView, now: datetime) -> timedelta:
    """Return how long the instance has been idle."""
    return now - instance.idle_since if instance.idle_since is not None else timedelta(0)


def _present(view: ClusterView) -> list[tuple[Shape, int]]:
    """Return how many healthy instances have at least this; those count together that differ by some memory alone."""
    alike: dict[tuple[str, Shape], list[Shape]] = defaultdict(list)
    for instance in view.instances:
        if instance.healthy and instance.record is not None:
            alike[instance_kind(instance.record)].append(Shape.from_machine(instance.record))
    return [(min(shapes), len(shapes)) for shapes in alike.values()]


def _type_shapes(view: ClusterView) -> dict[str, Shape]:
    """By type. An instance reports a little less memory than its type's sheet says: the largest report counts."""
    shapes = {t.name: Shape.from_machine(t) for t in view.types}
    for instance in view.instances:
        record = instance.record
        if record is not None and record.role is Role.AGENT:
            shape = Shape.from_machine(record)
            shapes[record.instance_type] = max(shapes.get(record.instance_type, shape), shape)
    return shapes


def _shortfall(job: JobView, shapes: dict[str, Shape]) -> ReasonFigures:
    """Return the type that comes nearest, and the resources that it lacks."""
    need = job.submission.spec.resources
    name = min(shapes, key=lambda n: (len(lacking(need, shapes[n])), n))
    return {"types": len(shapes), "nearest": name, "lacks": ", ".join(lacking(need, shapes[name]))}


def _assign(job: JobView, chosen: list[InstanceView], rank: int, preference: Preference, *, shares: bool) -> Assign:
    first, *others = chosen
    record = instance_record(first)
    cause, figures = Why.OTHER_MARKET, ReasonFigures(rank=rank, market=record.market.value)
    if record.market is preference.market:
        cause = Why.PREFERRED_MARKET
        if preference.cause in (Why.FAILED_OVER, Why.LAST_SAFE_MOMENT):
            cause, figures = preference.cause, preference.figures
    return Assign(
        job_id=job.job_id,
        instance_id=first.instance_id,
        epoch=job.epoch + 1,
        instance_type=record.instance_type,
        zone=record.zone,
        market=record.market,
        gang=tuple(i.instance_id for i in others),
        shares=shares,
        cause=cause,
        figures=figures,
    )
