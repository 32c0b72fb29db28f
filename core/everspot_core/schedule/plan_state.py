"""The state of a plan while it is made: the inputs of the passes, derived from the view, and their decisions so far."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from everspot_core.jobs.records import JobRecord
from everspot_core.schedule.actions import StandingAction
from everspot_core.schedule.admission import Admission, BudgetView
from everspot_core.schedule.market.reuse import Reuse
from everspot_core.schedule.placement.queue import Rates
from everspot_core.schedule.view import ClusterView, InstanceView, JobView


class PlanState:
    """The jobs and instances of the view, in a fixed order, and the decisions so far.

    There is one for each plan. Values that passes derive from the view alone are derived here, once, when the first
    pass needs them.
    """

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self.view, self.now = view, now
        self.jobs = _by_id(view.jobs)
        self.instances = {i.instance_id: i for i in sorted(view.instances, key=lambda i: i.instance_id)}
        self.actions: list[StandingAction] = []
        self.touched_jobs: set[str] = set()
        self.touched_instances: set[str] = set()

    def replace_jobs(self, jobs: Iterable[JobView]) -> None:
        """Replace the jobs of the view before anything is decided. They may differ from the view's only in what other
        jobs they await, of which budgets and prices do not depend."""
        self.view = replace(self.view, jobs=tuple(jobs))
        self.jobs = _by_id(self.view.jobs)

    @cached_property
    def records(self) -> dict[str, JobRecord | None]:
        """The record of each job."""
        return {j.job_id: j.record for j in self.view.jobs}

    @cached_property
    def rates(self) -> Rates:
        """The prices of instances."""
        return Rates(self.view.pools, self.view.types)

    @cached_property
    def budgets(self) -> BudgetView:
        """The budgets, and what running jobs will spend of them. Each pass counts what it adds by its own
        `Admission`."""
        return BudgetView(self.view, self.now, self.rates)

    @cached_property
    def admission(self) -> Admission:
        """The budgets before anything is decided."""
        return Admission(self.budgets)

    @cached_property
    def reuse(self) -> Reuse:
        """Which idle instances suit which jobs."""
        return Reuse(self.view, self.now)

    def untouched_instances(self) -> list[InstanceView]:
        """Return the instances about which nothing is decided, by their ids."""
        return [i for i in self.instances.values() if i.instance_id not in self.touched_instances]

    def untouched_jobs(self) -> list[JobView]:
        """Return the jobs about which nothing is decided, by their ids."""
        return [j for j in self.jobs.values() if j.job_id not in self.touched_jobs]

    def do(self, action: StandingAction, *, job: str | None = None, instance: str | None = None) -> None:
        """Add an action to the plan. The plan then decides nothing more about this job and this instance."""
        self.actions.append(action)
        if job is not None:
            self.touched_jobs.add(job)
        if instance is not None:
            self.touched_instances.add(instance)

    def busy(self, instance: InstanceView | None, name: str, job_id: str) -> bool:
        """Return whether this plan has decided about the job, or its instance, already. On a shared instance, decisions
        about other jobs do not count."""
        if instance is not None and instance.seated:
            return job_id in self.touched_jobs
        return name in self.touched_instances


def _by_id(jobs: Iterable[JobView]) -> dict[str, JobView]:
    return {job.job_id: job for job in sorted(jobs, key=lambda job: job.job_id)}
