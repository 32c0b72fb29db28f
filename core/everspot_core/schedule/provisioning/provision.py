"""Launches instances for the jobs that need them, moves running jobs, and releases instances that nobody needs.

`placement` has assigned present instances before. The other jobs follow the market policy, in the order in which jobs
choose. Capacity that a pool gives to one job does not count for the next one.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.records import Market, Reason
from everspot_core.jobs.sharing import largest_share
from everspot_core.schedule.actions import (
    WITHHELD,
    Action,
    Assign,
    Cordon,
    Hold,
    ReasonFigures,
    Refuse,
    Release,
    Stay,
    Stop,
    Why,
)
from everspot_core.schedule.admission import Admission
from everspot_core.schedule.awaited_instances import is_going
from everspot_core.schedule.jobs import CHANGEOVER_UPPER, end_of_waiting, job_outlook
from everspot_core.schedule.market.offers import Offers, build_need
from everspot_core.schedule.market.policy import MarketChoice, is_safe
from everspot_core.schedule.market.steering import NO_TIME, Steering, instance_market, runs_well
from everspot_core.schedule.placement.capacity import is_free
from everspot_core.schedule.placement.gangs import instance_record
from everspot_core.schedule.placement.queue import hopeless, is_aged, precedence, queue_order, slack
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.provisioning.inflight import FreeSlot, InFlight
from everspot_core.schedule.provisioning.pending_launches import Launches
from everspot_core.schedule.provisioning.pool_chooser import PoolChooser
from everspot_core.schedule.provisioning.shared_capacity import SharedRoom
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, PoolKey, instance_pool

_Press = tuple[int, timedelta]
_NONE = timedelta(0)


class _Spares:
    """The free instances that this plan gives to no job, for jobs that are about to lose theirs. Each serves one job; a
    launched one only a job that it suits."""

    def __init__(self, state: PlanState) -> None:
        self._view, self._reuse, self._records = state.view, state.reuse, state.records
        self._alive = {name for name, job in state.jobs.items() if not job.state.final}
        self._free: list[InstanceView] | None = None

    def claim(self, job: JobView, busy: set[str]) -> bool:
        """Return whether enough are spare for the job; it then claims them. `busy`: instances that are given away."""
        if self._free is None:
            self._free = [
                i for i in self._view.instances if is_free(i, self._records) and i.launched_for not in self._alive
            ]
        able = [i for i in self._free if i.instance_id not in busy and self._suits(job, i)]
        if len(able) < job.nodes:
            return False
        claimed = sorted(able, key=lambda i: (i.launched_for is not None, i.instance_id))[: job.nodes]
        self._free = [i for i in self._free if i not in claimed]
        return True

    def _suits(self, job: JobView, instance: InstanceView) -> bool:
        if instance.launched_for is not None:
            return bool(self._view.idle_limit) and self._reuse.suits(job, instance)
        return fits(job.submission.spec.resources, Shape.from_machine(instance_record(instance)))


def provision(state: PlanState, placed: Iterable[Assign | Hold]) -> list[Action]:
    """Return the assignments of `placed`, launches for the jobs that would otherwise wait, and then releases."""
    view, jobs = state.view, state.jobs
    provisioning = _Provisioning(state)
    actions, waiting = list[Action](), dict[str, Hold]()
    for action in placed:
        if isinstance(action, Assign):
            refused = provisioning.refused(jobs[action.job_id])
            if refused is not None:
                actions.append(refused)
                continue
            provisioning.seat(jobs[action.job_id], action)
        elif isinstance(action, Hold) and not view.draining:
            if action.cause in WITHHELD:
                provisioning.launches.mark_decided(action.job_id)
            elif provisioning.not_before(jobs[action.job_id]) is None:
                waiting[action.job_id] = action
                continue
            else:
                provisioning.back_off(jobs[action.job_id])
        actions.append(action)
    if not view.draining:
        owners = {j.job_id: j.record.owner for j in view.jobs if j.record is not None and j.state.owned}
        # A cordoned instance was changed by its Cordon alone, so its job may still be moved.
        cordoned = {a.instance_id for a in state.actions if isinstance(a, Cordon)}
        running = [
            j
            for j in view.jobs
            if j.job_id in owners and (j.job_id not in state.touched_jobs or owners[j.job_id] in cordoned)
        ]
        # Running jobs come first, because they may have to leave spot now; then waiting jobs in their order.
        turns = [*sorted(running, key=queue_order), *(jobs[name] for name in waiting)]
        provisioning.open_rooms(jobs[name] for name in waiting)
        for job in turns if view.cap is None else _sort_by_urgency(turns, view, state.now):
            actions += provisioning.provision_job(job, waiting.get(job.job_id))
    return actions + provisioning.release()


class _Provisioning:
    """One round of provisioning, with its decisions so far."""

    def __init__(self, state: PlanState) -> None:
        view, now = self.view, self.now = state.view, state.now
        self.launches, self.admission = Launches(view, now, state.touched_instances), Admission(state.budgets)
        self._launching = PoolChooser(view, now, self.launches, self.admission)
        self._steering, self._reuse = Steering(view, now), state.reuse
        self._shared_capacity = SharedRoom(view)
        self._spares = _Spares(state)
        self._in_flight = InFlight(view, now, self._reuse)
        self._instances = state.instances

    def seat(self, job: JobView, action: Assign) -> None:
        """Record the job's instance. Other launches for the job are released, unless the job would still move to
        them."""
        coming = self.launches.coming(job, None)
        instance = self._instances[action.instance_id]
        if action.shares and instance.launched_for == job.job_id:
            self._shared_capacity.add(job, instance_pool(instance))
        self.launches.busy |= {action.instance_id, *action.gang}
        self._in_flight.assign(job, (action.instance_id, *action.gang))
        self.launches.mark_decided(job.job_id)
        records = [instance_record(self._instances[i]) for i in (action.instance_id, *action.gang)]
        part = largest_share(job.submission.spec.resources, records[0]) if action.shares else 1.0
        self.admission.charge_instances(job, records, part)
        others = [i for i in coming if i.instance_id not in self.launches.busy]
        if others and self._should_still_move(job, self._instances[action.instance_id], others):
            self.launches.keep(others)

    def refused(self, job: JobView) -> Refuse | None:
        """Return the refusal of a job that has not begun and whose deadline was infeasible, even if an instance is
        free."""
        if job.epoch > 0 or job.submission.deadline_at is None:
            return None
        return self._launching.refusal(job, self._launching.offers(job))

    def not_before(self, job: JobView) -> datetime | None:
        """Return the end of the job's back-off after an error; None if it may begin."""
        not_before = job.record.not_before if job.record is not None else None
        return not_before if not_before is not None and not_before > self.now else None

    def back_off(self, job: JobView) -> None:
        """Release the instances of a job in back-off if it lasts longer than a new launch may take and that is safe."""
        until, work, offers = self.not_before(job), job_outlook(job), self._launching.offers(job)
        changeover = work.changeover_upper if work is not None else CHANGEOVER_UPPER
        if until is not None and until - self.now > changeover and self._steering.is_safe(job, offers):
            self.launches.mark_decided(job.job_id)
        if not self.launches.coming(job, None):
            self._reserve(job, offers)

    def open_rooms(self, waiting: Iterable[JobView]) -> None:
        """Offer the room on instances that are on their way to waiting jobs, before any job's turn."""
        for job in waiting if self.view.shared else ():
            coming = self.launches.coming(job, None)
            self._shared_capacity.add(job, instance_pool(coming[0]) if coming and not coming[0].healthy else None)

    def release(self) -> list[Release]:
        """Return the releases of instances that nobody needs any longer."""
        return self.launches.release(self._reuse, pressed=self._launching.pressed)

    def provision_job(self, job: JobView, hold: Hold | None) -> list[Action]:
        """Return the actions for the job. `hold`: why it got no present instance; None if the job runs."""
        owner = self._owner(job)
        if owner is not None and is_going(owner):
            return self._replace(job, owner)
        if job.state.owned and (owner is None or owner.stopping or owner.instance_id in self.launches.busy):
            return []
        coming = self.launches.coming(job, owner)
        self.launches.mark_decided(job.job_id)
        if owner is not None and owner.launched_for is None and instance_market(owner) is Market.ON_DEMAND:
            return [_stay(job, owner, runs_well(Market.ON_DEMAND))]
        offers = self._launching.offers(job)
        if not offers.spot_pools and not offers.on_demand_pools:
            self.launches.keep(coming)
            return [self._launching.hold_for_suspension(job) or hold] if hold is not None else []
        if job.epoch == 0 and owner is None and not coming:
            refused = self._launching.refusal(job, offers)
            if refused is not None:
                return [refused]
        if owner is not None:
            return self._running(job, owner, coming, offers)
        return self._waiting(job, coming, offers)

    def _replace(self, job: JobView, owner: InstanceView) -> list[Action]:
        """Launch the replacement for a job whose instance the cloud takes: at the notice, before the job is back.

        Nothing is launched if a launch is on its way to the job already, or if there is a free instance for it.
        """
        coming = self.launches.coming(job, owner)
        self.launches.mark_decided(job.job_id)
        self.launches.keep(coming)
        if coming or end_of_waiting(job, self.now) is not None or self._spares.claim(job, self.launches.busy):
            return []
        offers = self._launching.offers(job)
        to = self._steering.steer(job, None, offers, moving=False)
        if to.market is None:
            self._reserve(job, offers)
        if to.market is None or self.admission.hold(job) is not None:
            return []
        launch = self._launching.launch(job, to, offers)
        return [launch] if launch is not None else []

    def _waiting(self, job: JobView, coming: list[InstanceView], offers: Offers) -> list[Action]:
        """Return the actions for a job without an instance; one may be on its way to it."""
        to = self._steering.steer(job, coming[0] if coming else None, offers, moving=False)
        if coming and to.market is instance_market(coming[0]):
            self.launches.keep(coming)
            on_its_way = MarketChoice(market=to.market, cause=Why.ON_ITS_WAY, figures={"instances": len(coming)})
            return [self._hold(job, on_its_way, offers, instance_pool(coming[0]))]
        if to.market is None:
            self._reserve(job, offers)
            return [self._hold(job, to, offers, offers.stock.cheapest_pool(Market.SPOT))]
        if (
            budget_hold := self.admission.hold(job)
        ) is not None:  # a budget, counting what this plan launched for others
            return [budget_hold]
        if not coming and (pool := self._shared_capacity.find_pool(job, to)) is not None:
            on_its_way = MarketChoice(market=to.market, cause=Why.ON_ITS_WAY, figures={"instances": 1})
            return [self._hold(job, on_its_way, offers, pool)]
        if not coming and (slot := self._in_flight.take(job, to)) is not None:
            return [self._wait_for(job, slot, offers)]
        launch = self._launching.launch(job, to, offers)
        if launch is not None:
            self._shared_capacity.add(job, launch.ranked[0])
            self._in_flight.launch(job, launch.ranked[0])
            return [launch]
        risk = self._launching.at_cap(job) or self._steering.risk(job, offers)
        if to.market is Market.ON_DEMAND and not coming:  # on-demand has run dry: spot is better than nothing
            launch = self._launching.launch(job, replace(risk, market=Market.SPOT), offers)
            if launch is not None:
                return [launch]
        # The job's own launch on the other market may be all that exceeds the cap: that launch is released first.
        if not self._launching.fits_instead(job, to, offers, coming):
            self.launches.keep(coming)
        if risk.cause is Why.AT_CAP:
            self._launching.keep_room(job, offers)
        return [self._hold(job, risk, offers, offers.stock.cheapest_pool(to.market))]

    def _reserve(self, job: JobView, offers: Offers) -> None:
        """Reserve room under the cap for the launch that the job may need at its last safe moment."""
        self._launching.reserve(job, offers, self._steering.on_demand_at(job, offers))

    def _wait_for(self, job: JobView, slot: FreeSlot, offers: Offers) -> Hold:
        """Return the hold of a job that waits for an instance that others hold, or that is on its way to them."""
        self._reserve(job, offers)
        if slot.instance_id is not None:
            self.launches.await_by_others(slot.instance_id)
        choice = MarketChoice(market=slot.pool.market, cause=Why.FREE_SOON, figures={"minutes": slot.hours * 60})
        return self._hold(job, choice, offers, slot.pool)

    def _hold(self, job: JobView, to: MarketChoice, offers: Offers, waits_for: PoolKey | None) -> Hold:
        """Return the hold of a job that waits, and goes to on-demand at its last safe moment."""
        on_demand = waits_for is not None and waits_for.market is Market.ON_DEMAND
        at = None if on_demand else self._steering.on_demand_at(job, offers)
        return Hold(job_id=job.job_id, cause=to.cause, figures=to.figures, waits_for=waits_for, on_demand_at=at)

    def _running(self, job: JobView, owner: InstanceView, coming: list[InstanceView], offers: Offers) -> list[Action]:
        """Return the actions for a running job, which may be better off elsewhere."""
        if coming and self._should_still_move(job, owner, coming):
            self.launches.keep(coming)
            return self._move(job, owner, coming)
        to = self._steering.steer(job, owner, offers, moving=True)
        if to.market is not None and to.market is not instance_market(owner):
            launch = self._launching.launch(job, to, offers)
            if launch is not None:
                return [launch]
            full = self._launching.at_cap(job)
            own_instances = [i for i in self.view.instances if i.launched_for is not None and _has_alone(i, job)]
            if full is not None and to.cause is Why.LAST_SAFE_MOMENT and self._swaps(job, to, offers, own_instances):
                return [_stop(job, owner, to)]
            to = full or self._steering.risk(job, offers)
        return [_stay(job, owner, to)]

    def _swaps(self, job: JobView, to: MarketChoice, offers: Offers, own_instances: list[InstanceView]) -> bool:
        """Return whether the job's launch fits under the cap once it gives back its own instances."""
        return bool(own_instances) and self._launching.fits_instead(job, to, offers, own_instances)

    def _should_still_move(self, job: JobView, owner: InstanceView, coming: list[InstanceView]) -> bool:
        """Return whether the job still is to move from its owner to the instances on their way.

        It moves to spot only while that is safe. It moves to on-demand unless it has a whole changeover more to spare
        than staying needs, so that a small change of the outlook does not reverse the decision.
        """
        if instance_market(coming[0]) is instance_market(owner):
            return False
        offers = self._launching.offers(job)
        if instance_market(coming[0]) is Market.SPOT:
            return self._steering.is_safe(job, offers)
        work = job_outlook(job)
        early = work.changeover_upper if work is not None else NO_TIME
        return self._steering.steer(job, owner, offers, moving=True, early=early).market is Market.ON_DEMAND

    def _move(self, job: JobView, owner: InstanceView, coming: list[InstanceView]) -> list[Action]:
        if len(coming) < job.nodes or not all(i.healthy for i in coming):
            choice = MarketChoice(
                market=instance_market(coming[0]), cause=Why.ON_ITS_WAY, figures={"instances": len(coming)}
            )
            return [_stay(job, owner, choice)]
        figures: ReasonFigures = {"market": instance_market(coming[0]).value}
        return [_stop(job, owner, MarketChoice(market=instance_market(coming[0]), cause=Why.MOVE, figures=figures))]

    def _owner(self, job: JobView) -> InstanceView | None:
        record = job.record
        if record is None or not record.state.owned or record.owner is None:
            return None
        return self._instances.get(record.owner)


def _stay(job: JobView, owner: InstanceView, to: MarketChoice) -> Stay:
    return Stay(job_id=job.job_id, instance_id=owner.instance_id, cause=to.cause, figures=to.figures)


def _stop(job: JobView, owner: InstanceView, to: MarketChoice) -> Stop:
    return Stop(
        job_id=job.job_id,
        instance_id=owner.instance_id,
        epoch=job.epoch,
        reason=Reason.MOVE,
        cause=to.cause,
        figures=to.figures,
    )


def _has_alone(instance: InstanceView, job: JobView) -> bool:
    """Return whether the job, and no other, runs on the instance."""
    assignment = instance.assignment
    return instance.residents == (job.job_id,) or (
        not instance.residents and assignment is not None and job.owned_by(assignment)
    )


def _sort_by_urgency(jobs: Iterable[JobView], view: ClusterView, now: datetime) -> list[JobView]:
    """Return the jobs by urgency, in the given order within each group.

    First come jobs past their last safe moment; then those with precedence, and those that have waited for a day; then
    those with a deadline, the nearest to its last safe moment first; then the others; last, jobs that run and might do
    better elsewhere. A job that cannot meet its deadline any more counts as one without.
    """
    return sorted(jobs, key=lambda job: _press(job, view, now))


def _press(job: JobView, view: ClusterView, now: datetime) -> _Press:
    work, deadline, spare = job_outlook(job), job.submission.deadline_at, slack(job, now)
    if work is None or deadline is None or hopeless(job, now):
        spare = None
    elif not is_safe(build_need(work, deadline, view.tick, now)):
        return 0, spare or _NONE
    if job.state.owned:
        return 4, _NONE
    if precedence(job, now) is not None or is_aged(job, now):
        return 1, _NONE
    return (2, spare) if spare is not None else (3, _NONE)
