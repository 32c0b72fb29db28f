"""Capacity of its own for each job that needs it: launch, move, stay, wait, release.

What stands already has been handed out when this begins. Each job then follows its course, in the order in which jobs
choose; what one is promised of a pool the next one cannot have.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from everspot_core.records import Market, Reason
from everspot_core.schedule.actions import Action, Assign, Figures, Hold, Launch, Refuse, Release, Stay, Stop, Why
from everspot_core.schedule.course import Course, Mode, Need, course, is_safe
from everspot_core.schedule.failover import PREEMPTIONS, failed_over
from everspot_core.schedule.outlook import outlook_of
from everspot_core.schedule.prospects import (
    HOUR,
    Prospects,
    held_of,
    need_of,
    pool_of,
    prospects,
    spot_of,
)
from everspot_core.schedule.queue import critical, queue_order
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, Outlook

_HELD_BACK = frozenset({Why.BACK_OFF, Why.DRAIN})


def stretch(
    placed: Iterable[Action], view: ClusterView, now: datetime, busy_jobs: set[str], busy_instances: set[str]
) -> list[Action]:
    """`placed`, where a job that would have to wait now follows its course; and what launched instances shall do.

    `busy_jobs`, `busy_instances`: of which something else has been decided in this plan.
    """
    desk = _Desk(view, now, busy_instances)
    actions, waiting = [], dict[str, Hold]()
    for action in placed:
        if isinstance(action, Hold) and action.why not in _HELD_BACK:
            waiting[action.job_id] = action
            continue
        actions.append(action)
        if isinstance(action, Assign):
            desk.taken |= {action.instance_id, *action.gang}
            desk.seated.add(action.job_id)
    if not view.draining:
        for job in sorted(view.jobs, key=queue_order):
            if job.job_id in waiting or (job.state.owned and job.job_id not in busy_jobs):
                actions += desk.decide(job, waiting.get(job.job_id))
    return actions + desk.release()


class _Desk:
    """One round in the making."""

    def __init__(self, view: ClusterView, now: datetime, busy: set[str]) -> None:
        self.view, self.now = view, now
        self.taken, self.seated = set(busy), set[str]()
        self._offers = list(view.pools)
        self._instances = {i.instance_id: i for i in view.instances}
        self._launched: dict[str, list[InstanceView]] = defaultdict(list)
        for instance in sorted(view.instances, key=lambda i: i.instance_id):
            if instance.launched_for is not None and not instance.gone:
                self._launched[instance.launched_for].append(instance)
        self._kept: set[str] = set()
        self._decided: set[str] = set()

    def decide(self, job: JobView, hold: Hold | None) -> list[Action]:
        """What the job does now. `hold`: why it found no place on what stands; None if it runs."""
        owner = self._owner(job)
        coming = self._coming(job, owner)
        self._kept |= {i.instance_id for i in self._launched[job.job_id] if not i.idle}
        if owner is not None and (owner.stopping or owner.instance_id in self.taken):
            return []
        self._decided.add(job.job_id)
        if owner is not None and owner.launched_for is None and _market(owner) is Market.ON_DEMAND:
            return [_stay(job, owner, Course(mode=Mode.ON_DEMAND, why=Why.RUNS_WELL, figures={"market": "on-demand"}))]
        outlet = prospects(job, self._offers, self.now)
        if not outlet.spot_pools and not outlet.on_demand_pools:
            return [hold] if hold is not None else []
        refusal = self._refusal(job, outlet) if job.epoch == 0 and owner is None and not coming else None
        if refusal is not None:
            return [refusal]
        if owner is not None:
            return self._running(job, owner, coming, outlet)
        return self._waiting(job, coming, outlet)

    def _waiting(self, job: JobView, coming: list[InstanceView], outlet: Prospects) -> list[Action]:
        """Nothing is held, or something is on its way."""
        to = self._steer(job, coming[0] if coming else None, outlet, moving=False)
        if coming and to.mode is _mode(coming[0]):
            self._kept |= {i.instance_id for i in coming}
            return [Hold(job_id=job.job_id, why=to.why, figures=to.figures)]
        launch = self._launch(job, to, outlet)
        if launch is not None:
            return [launch]
        if to.mode is Mode.ON_DEMAND and outlet.spot:  # on-demand has run dry: what there is is better than nothing
            launch = self._launch(job, replace(to, mode=Mode.SPOT), outlet)
            return [launch] if launch is not None else []
        if to.mode is Mode.WAIT:
            return [Hold(job_id=job.job_id, why=to.why, figures=to.figures)]
        return [self._risk(job, outlet)]

    def _running(
        self, job: JobView, owner: InstanceView, coming: list[InstanceView], outlet: Prospects
    ) -> list[Action]:
        """It trains, and may be better off elsewhere."""
        if coming and _market(coming[0]) is Market.SPOT and not self._is_safe(job, outlet):
            coming = []  # the time for adventures is over: what was on its way is released
        if coming:
            self._kept |= {i.instance_id for i in coming}
            return self._move(job, owner, coming)
        to = self._steer(job, owner, outlet, moving=True)
        if to.mode is not Mode.WAIT and to.mode is not _mode(owner):
            launch = self._launch(job, to, outlet)
            if launch is not None:
                return [launch]
        return [_stay(job, owner, to)]

    def _move(self, job: JobView, owner: InstanceView, coming: list[InstanceView]) -> list[Action]:
        if len(coming) < job.nodes or not all(i.healthy for i in coming):
            why = Course(mode=_mode(coming[0]), why=Why.ON_ITS_WAY, figures={"instances": len(coming)})
            return [_stay(job, owner, why)]
        market = _market(coming[0]).value
        return [
            Stop(
                job_id=job.job_id,
                instance_id=owner.instance_id,
                epoch=job.epoch,
                reason=Reason.MOVE,
                why=Why.MOVE,
                figures={"market": market},
            )
        ]

    def _steer(self, job: JobView, on: InstanceView | None, outlet: Prospects, *, moving: bool) -> Course:
        """The job's course, by its deadline if it has one."""
        market = _market(on) if on is not None else None
        if critical(job):
            return Course(mode=Mode.ON_DEMAND, why=Why.CRITICAL, figures={"market": Market.ON_DEMAND.value})
        deadline, work = job.submission.deadline_at, outlook_of(job)
        spot = spot_of(job, self.view, outlet, self.now)
        if deadline is not None and work is None:
            up = spot is not None and spot.up
            there = _mode(on) if on is not None else Mode.SPOT if up else Mode.ON_DEMAND
            return Course(mode=there, why=Why.UNKNOWN_LENGTH)
        if deadline is not None and work is not None:
            need = self._need(job, work, deadline, outlet)
            held = None
            if on is not None and market is not None:
                changing = work.changing if moving else self._changing(on, work)
                held = held_of(job, market, _type(on), changing, outlet)
            to = course(need, held, spot)
        else:
            since = on.launched_at if on is not None and market is Market.ON_DEMAND else None
            verdict = failed_over(job, self._offers, self.now, since)
            mode = Mode.ON_DEMAND if verdict.prefer is Market.ON_DEMAND else Mode.SPOT
            if mode is Mode.SPOT and (spot is None or not spot.up) and on is None:
                mode = Mode.ON_DEMAND if spot is None else Mode.WAIT
            to = Course(mode=mode, why=verdict.why, figures=verdict.figures)
        if to.mode is Mode.SPOT and outlet.smaller is not None:
            lost: Figures = {"preemptions": PREEMPTIONS}
            return replace(to, why=Why.SMALLER_TYPE, figures=lost)
        return to

    def _need(self, job: JobView, work: Outlook, deadline: datetime, outlet: Prospects) -> Need:
        return need_of(work, deadline, outlet, self.view.tick, self.now)

    def _is_safe(self, job: JobView, outlet: Prospects) -> bool:
        deadline, work = job.submission.deadline_at, outlook_of(job)
        return deadline is None or work is None or is_safe(self._need(job, work, deadline, outlet))

    def _changing(self, instance: InstanceView, work: Outlook) -> timedelta:
        """What may remain until the instance that is on its way works."""
        begun = instance.launched_at or self.now
        return work.changeover_upper - (self.now - begun)

    def _launch(self, job: JobView, to: Course, outlet: Prospects) -> Launch | None:
        """Instances of the pool that suits best; None if none has enough."""
        choice = [r.pool for r in outlet.spot] if to.mode is Mode.SPOT else list(outlet.on_demand)
        if not choice or to.mode is Mode.WAIT:
            return None
        pool = choice[0]
        if pool.available is not None:
            at = next(n for n, p in enumerate(self._offers) if p.key == pool.key)
            self._offers[at] = replace(pool, available=pool.available - job.nodes)
        return Launch(
            job_id=job.job_id,
            instance_type=pool.instance_type.name,
            zone=pool.zone,
            market=pool.market,
            count=job.nodes,
            why=to.why,
            figures=to.figures,
        )

    def _risk(self, job: JobView, outlet: Prospects) -> Hold:
        deadline, work = job.submission.deadline_at, outlook_of(job)
        if deadline is None or work is None:
            tried = len(outlet.spot_pools) + len(outlet.on_demand_pools)
            return Hold(job_id=job.job_id, why=Why.NO_CAPACITY, figures={"tried": tried})
        need = self._need(job, work, deadline, outlet)
        return Hold(
            job_id=job.job_id,
            why=Why.AT_RISK,
            figures={"left_hours": need.left_upper, "time_hours": need.time},
        )

    def _refusal(self, job: JobView, outlet: Prospects) -> Refuse | None:
        """A deadline that could not be kept even by going on-demand now."""
        deadline, work = job.submission.deadline_at, outlook_of(job)
        if deadline is None or work is None or not outlet.on_demand_pools:
            return None
        least = work.changeover_upper + work.left_upper / outlet.fastest
        if self.now + least <= deadline:
            return None
        dearest = [p for p in outlet.on_demand_pools if job.speeds.get(p.instance_type.name, 1.0) == outlet.fastest]
        usd = min(p.usd_per_hour for p in dearest) * job.nodes * (least / HOUR)
        earliest = self.now + least
        figures: Figures = {"earliest": earliest.isoformat(timespec="minutes"), "usd": round(usd, 2)}
        return Refuse(
            job_id=job.job_id,
            epoch=job.epoch,
            earliest=earliest,
            usd=round(usd, 2),
            why=Why.INFEASIBLE,
            figures=figures,
        )

    def _owner(self, job: JobView) -> InstanceView | None:
        record = job.record
        if record is None or not record.state.owned or record.owner is None:
            return None
        return self._instances.get(record.owner)

    def _coming(self, job: JobView, owner: InstanceView | None) -> list[InstanceView]:
        """What was launched for the job last and has not had it yet."""
        record = job.record
        left = record.last_owner if record is not None and record.last_reason is Reason.MOVE else None
        begun = owner.launched_at if owner is not None else None
        fresh = [
            i
            for i in self._launched[job.job_id]
            if i.idle
            and i.instance_id != left
            and i.instance_id not in self.taken
            and not (i.doomed or i.stale or i.notified)
            and (begun is None or (i.launched_at is not None and i.launched_at > begun))
        ]
        last = max((i.launched_at for i in fresh if i.launched_at is not None), default=None)
        return [i for i in fresh if i.launched_at == last]

    def release(self) -> list[Action]:
        """End what was launched and is needed no more."""
        alive = {j.job_id for j in self.view.jobs if not j.state.final}
        actions: list[Action] = []
        for job_id, launched in sorted(self._launched.items()):
            for instance in launched:
                undecided = job_id in alive and job_id not in self._decided | self.seated
                needed = undecided or (job_id in alive and instance.instance_id in self._kept)
                if not needed and instance.idle and instance.instance_id not in self.taken:
                    actions.append(Release(instance_id=instance.instance_id, why=Why.NEEDED_NO_MORE))
        return actions


def _market(instance: InstanceView) -> Market:
    kind = pool_of(instance)
    return kind.market if kind is not None else Market.ON_DEMAND


def _type(instance: InstanceView) -> str:
    kind = pool_of(instance)
    return kind.instance_type if kind is not None else ""


def _mode(instance: InstanceView) -> Mode:
    return Mode.SPOT if _market(instance) is Market.SPOT else Mode.ON_DEMAND


def _stay(job: JobView, owner: InstanceView, to: Course) -> Stay:
    return Stay(job_id=job.job_id, instance_id=owner.instance_id, why=to.why, figures=to.figures)
