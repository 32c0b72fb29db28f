"""A plan that is being made."""

from datetime import datetime

from everspot_core.schedule.actions import StandingAction
from everspot_core.schedule.admission import Admission
from everspot_core.schedule.view import ClusterView, InstanceView


class Draft:
    """A plan that is being made: what was seen, in a fixed order, and what has been decided so far."""

    def __init__(self, view: ClusterView, now: datetime) -> None:
        self.view, self.now = view, now
        self.admission = Admission(view, now)
        self.jobs = {j.job_id: j for j in sorted(view.jobs, key=lambda j: j.job_id)}
        self.instances = {i.instance_id: i for i in sorted(view.instances, key=lambda i: i.instance_id)}
        self.actions: list[StandingAction] = []
        self.touched_jobs: set[str] = set()
        self.touched_instances: set[str] = set()

    def do(self, action: StandingAction, *, job: str | None = None, instance: str | None = None) -> None:
        """Decide on an action; nothing more is then decided of this job, and of this instance, in this plan."""
        self.actions.append(action)
        if job is not None:
            self.touched_jobs.add(job)
        if instance is not None:
            self.touched_instances.add(instance)

    def busy(self, instance: InstanceView | None, name: str, job_id: str) -> bool:
        """Whether what has been decided leaves nothing to decide of the job on the instance of this name in this plan.
        Jobs that share one do not get in each other's way."""
        if instance is not None and instance.seated:
            return job_id in self.touched_jobs
        return name in self.touched_instances
