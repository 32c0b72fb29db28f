"""Decides which jobs may run within the budgets of teams and of the environment.

A waiting job is held if the cap cannot cover three amounts until the end of the period: the amount spent, the future
spending of running jobs, and the spending of this job. So no job begins that cannot be paid for. A job that needs more
than the cap of a whole period begins when the rest of the period is short enough. A running job is stopped only once
the cap is reached.

The amount for a job is a forecast: the longest time that it may still take, at the price of the cheapest instance that
could hold it. A job of unknown length counts for an hour.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.costs.team_budgets import ENVIRONMENT, CapUse, Commitment, committed
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import InstanceRecord, Role
from everspot_core.jobs.sharing import largest_share
from everspot_core.schedule.actions import Hold, ReasonFigures, Why
from everspot_core.schedule.jobs import job_outlook
from everspot_core.schedule.placement.queue import SPOT_DISCOUNT, Rates
from everspot_core.schedule.view import ClusterView, InstanceView, JobView

FORESIGHT = timedelta(hours=1)
"""The time that a job of unknown length is assumed to run from now on."""
_SLOWEST = 1e-3
_HOUR = timedelta(hours=1)


class _Price(NamedTuple):
    """The amount that an instance costs in an hour."""

    usd: float
    gpus: float


def commitment(job: JobView, usd_per_hour: float, gpus: float, kind: str, now: datetime) -> Commitment:
    """Return the future spending of a job if it holds, or is given, capacity of this price. `kind`: the instance
    type."""
    work = job_outlook(job)
    remaining = FORESIGHT
    if work is not None:
        remaining = work.changing + work.remaining_upper / max(job.speeds.get(kind, 1.0), _SLOWEST)
    budget = job.submission.spec.budget
    if budget.dollars is not None and usd_per_hour > 0:  # its own budget ends it
        hours = max(0.0, budget.dollars - job.spent.dollars) / usd_per_hour
        remaining = (
            timedelta(hours=hours) if hours < remaining / _HOUR else remaining
        )  # as a span it may be longer than Python has
    return Commitment(team=job.team, usd_per_hour=usd_per_hour, gpus=gpus, until=now + remaining)


class BudgetView:
    """The budgets of one view before a plan decides anything: the future spending of running jobs, and the needs of
    others."""

    def __init__(self, view: ClusterView, now: datetime, rates: Rates) -> None:
        self.now, self.cap_uses = now, view.cap_uses
        self.rates = rates
        self._view = view
        self._cheapest: dict[Resources, _Price] = {}

    @cached_property
    def totals(self) -> dict[CapUse, float]:
        """The future spending of all running jobs, by budget."""
        all_commitments = [c for own in self.running.values() for c in own]
        return {cap_use: self.committed_amount(all_commitments, cap_use) for cap_use in self.cap_uses}

    @cached_property
    def running(self) -> dict[str, list[Commitment]]:
        """The commitments of the jobs that hold an instance or have one on its way, by job."""
        jobs = {j.job_id: j for j in self._view.jobs if not j.state.final}
        by_job: dict[str, list[Commitment]] = defaultdict(list)
        for instance in self._view.instances:
            holders = [jobs[name] for name in _holders(instance) if name in jobs]
            price = self._instance_price(instance)
            for job in holders if price is not None else ():
                assert price is not None  # noqa: S101 - as just seen
                kind = instance.record.instance_type if instance.record is not None else ""
                assignment = instance.assignment
                share = assignment.share(job.job_id) if assignment is not None and instance.seated else 1 / len(holders)
                job_commitment = commitment(job, price.usd * share, price.gpus * share, kind, self.now)
                by_job[job.job_id].append(job_commitment)
        return dict(by_job)

    def committed_amount(self, commitments: Iterable[Commitment], cap_use: CapUse) -> float:
        """Return the amount of a budget that these commitments use until the end of its period."""
        return committed(commitments, cap_use.team, cap_use.unit, self.now, cap_use.until)

    def request(self, job: JobView) -> Commitment:
        """Return the future spending of the job on the cheapest capacity that could hold it."""
        need = job.submission.spec.resources
        if need not in self._cheapest:
            self._cheapest[need] = self._least(need, shared=self._view.shared and need.shared)
        price = self._cheapest[need]
        return commitment(job, price.usd * job.nodes, price.gpus * job.nodes, "", self.now)

    def _instance_price(self, instance: InstanceView) -> _Price | None:
        """Return the cost of the instance in an hour; None if the instance is gone or its price is unknown."""
        if instance.is_gone:
            return None
        if instance.record is not None:
            return _Price(self.rates.rate(instance.record), instance.record.gpus)
        pool = next((p for p in self._view.pools if p.key == instance.pool), None)
        return _Price(pool.usd_per_hour, pool.instance_type.gpus) if pool is not None else None

    def _least(self, need: Resources, *, shared: bool) -> _Price:
        """Return the fewest dollars and the fewest GPUs an hour among the pools and instances that hold the need;
        without any, among the types. `shared`: only the part of each that the job takes counts."""
        priced: list[tuple[float, InstanceRecord | InstanceType]] = [
            *((p.usd_per_hour, p.instance_type) for p in self._view.pools),
            *((self.rates.rate(record), record) for record in self._kinds),
        ]
        prices = [
            _Price(usd * part, machine.gpus * part)
            for usd, machine in priced
            if fits(need, Shape.from_machine(machine))
            for part in [largest_share(need, machine) if shared else 1.0]
        ]
        if not prices:
            able = [t for t in self._view.types if fits(need, Shape.from_machine(t))]
            prices = [_Price((t.on_demand_usd_per_hour or 0.0) * SPOT_DISCOUNT, t.gpus) for t in able]
        return _Price(min((p.usd for p in prices), default=0.0), min((p.gpus for p in prices), default=0))

    @cached_property
    def _kinds(self) -> list[InstanceRecord]:
        """One of each type and market among the instances that can be given jobs."""
        records = [i.record for i in self._view.instances if i.record is not None and i.reports]
        return list({(r.instance_type, r.market): r for r in records if r.role is Role.AGENT}.values())


class Admission:
    """The budgets in one pass of a plan, with the commitments that the pass makes.

    Each pass begins at the budgets of the view. Provisioning counts again the jobs that placement gave capacity to: it
    may refuse such a job, and charges whole instances.
    """

    def __init__(self, budgets: BudgetView) -> None:
        self._budgets = budgets

    def used_up(self, job: JobView) -> tuple[Why, ReasonFigures] | None:
        """Return the first used-up budget that concerns the job; None if all have something left."""
        empty = next((p for p in self._budgets.cap_uses if p.empty and p.concerns(job.team)), None)
        return (_cause(empty), self._figures(empty, job, 0.0)) if empty is not None else None

    def hold(self, job: JobView) -> Hold | None:
        """Return the hold of a waiting job for which a budget is too small; None if every budget covers it."""
        own_cap_uses = [p for p in self._budgets.cap_uses if p.concerns(job.team)]
        if not own_cap_uses:
            return None
        request = self._budgets.request(job)
        for cap_use in own_cap_uses:
            requested = request.costs(cap_use.unit, self._budgets.now, cap_use.until)
            if cap_use.empty or cap_use.spent + self._committed(cap_use, job) + requested > cap_use.cap:
                return Hold(job_id=job.job_id, cause=_cause(cap_use), figures=self._figures(cap_use, job, requested))
        return None

    def charge(self, job: JobView, usd_per_hour: float, gpus: float) -> None:
        """Note that the job was given capacity that takes this much an hour."""
        budgets = self._budgets
        if not budgets.cap_uses:
            return
        before = self._running.pop(job.job_id, [])
        self._running[job.job_id] = [commitment(job, usd_per_hour, gpus, "", budgets.now)]
        for cap_use in budgets.cap_uses:
            if cap_use.concerns(job.team):
                self._totals[cap_use] += budgets.committed_amount(
                    self._running[job.job_id], cap_use
                ) - budgets.committed_amount(before, cap_use)

    def charge_instances(self, job: JobView, chosen: Iterable[InstanceRecord], part: float = 1.0) -> None:
        """Note that the job was given these instances. `part`: the fraction, if it has only a part of one."""
        if self._budgets.cap_uses:
            records, rate = list(chosen), self._budgets.rates.rate
            self.charge(job, part * sum(rate(r) for r in records), part * sum(r.gpus for r in records))

    @cached_property
    def _totals(self) -> dict[CapUse, float]:
        """The future spending of all running jobs and of the jobs of this pass, by budget."""
        return dict(self._budgets.totals)

    @cached_property
    def _running(self) -> dict[str, list[Commitment]]:
        """The commitments of running jobs and of those of this pass, by job."""
        return dict(self._budgets.running)

    def _committed(self, cap_use: CapUse, but: JobView) -> float:
        """Return the future spending of all jobs but one, from the budget."""
        own = self._budgets.committed_amount(self._running.get(but.job_id, ()), cap_use)
        return max(0.0, self._totals[cap_use] - own)

    def _figures(self, cap_use: CapUse, job: JobView, requested: float) -> ReasonFigures:
        figures: ReasonFigures = {
            "spent": _round(cap_use.spent),
            "committed": _round(self._committed(cap_use, job)),
            "asked": _round(requested),
            "cap": _round(cap_use.cap),
            "unit": cap_use.unit.words,
            "period": cap_use.period.value,
            "until": f"{cap_use.until:%Y-%m-%d %H:%M} UTC",
        }
        return figures if cap_use.team == ENVIRONMENT else {"team": cap_use.team, **figures}


def _cause(cap_use: CapUse) -> Why:
    return Why.ENVIRONMENT_BUDGET if cap_use.team == ENVIRONMENT else Why.TEAM_BUDGET


def _holders(instance: InstanceView) -> tuple[str, ...]:
    """Return the jobs that hold an instance, or for which it is on its way."""
    assignment = instance.assignment
    jobs = instance.residents or (assignment.jobs if assignment is not None else ())
    return jobs or ((instance.launched_for,) if instance.launched_for is not None else ())


def _round(value: float) -> float:
    return round(value, 2) if value >= 1 else round(value, 4)
