"""A plan's view of a job, made from the author's figures and the record alone."""

from datetime import timedelta

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord
from everspot_core.schedule import JobView, Spent


def plain_view(submission: JobSubmission, record: JobRecord | None) -> JobView:
    """Return the view of a job without any measurement. `record`: None before its first attempt."""
    return JobView(
        submission=submission,
        record=record,
        stale=False,
        cancel=False,
        drills=(),
        spent=Spent(dollars=0.0, gpu_hours=0.0),
        after=(),
        condition_result=None,
        missing_metric=None,
        awaits=None,
        same_stage=(),
        nodes=1,
        outlook=None,
        head_epoch=None,
        changeover=None,
        preempted_at=(),
        measured=None,
        speeds={},
        measured_speeds=frozenset(),
        withheld=timedelta(0),
        accepted_deadline_at=None,
    )
