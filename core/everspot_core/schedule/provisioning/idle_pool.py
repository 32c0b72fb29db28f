"""The free instances that this plan gives to no job, for jobs that are about to lose theirs."""

from everspot_core.jobs.fit import Shape, fits
from everspot_core.schedule.placement.capacity import is_free
from everspot_core.schedule.placement.gangs import instance_record
from everspot_core.schedule.plan_state import PlanState
from everspot_core.schedule.view import InstanceView, JobView


class Spares:
    """The spare instances. Each serves one job; a launched one only a job that it suits."""

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
