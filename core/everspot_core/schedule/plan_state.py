"""The draft of a plan: what was decided so far, while the plan is made."""

from datetime import datetime

from everspot_core.schedule.actions import StandingAction
from everspot_core.schedule.admission import Admission
from everspot_core.schedule.view import ClusterView, InstanceView


class PlanState:
    """The jobs and instances of the view, in a fixed order, and what has been decided so far."""

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self.view, self.now = view, now
        self.admission = Admission(view, now)
        self.jobs = {j.job_id: j for j in sorted(view.jobs, key=lambda j: j.job_id)}
        self.instances = {i.instance_id: i for i in sorted(view.instances, key=lambda i: i.instance_id)}
        self.actions: list[StandingAction] = []
        self.touched_jobs: set[str] = set()
        self.touched_instances: set[str] = set()

    def do(self, action: StandingAction, *, job: str | None = None, instance: str | None = None) -> None:
        """Add an action to the plan. The plan then decides nothing more about this job and this instance."""
        self.actions.append(action)
        if job is not None:
            self.touched_jobs.add(job)
        if instance is not None:
            self.touched_instances.add(instance)

    def busy(self, instance: InstanceView | None, name: str, job_id: str) -> bool:
        """Whether this plan has decided about the job, or its instance, already. On a shared instance, decisions about
        other jobs do not count."""
        if instance is not None and instance.seated:
            return job_id in self.touched_jobs
        return name in self.touched_instances
