"""A job as a plan sees it that knows only its author's figures and its record."""

from everspot_core.job import JobSubmission
from everspot_core.records import JobRecord
from everspot_core.schedule import JobView, Spent


def plain_view(submission: JobSubmission, record: JobRecord | None) -> JobView:
    """The view of a job of which nothing has been measured. `record`: None before its first attempt."""
    return JobView(
        submission=submission,
        record=record,
        stale=False,
        cancel=False,
        drills=(),
        spent=Spent(dollars=0.0, gpu_hours=0.0),
        after=(),
        nodes=1,
        outlook=None,
        head_epoch=None,
        changeover=None,
        preempted_at=(),
        measured=None,
        speeds={},
        measured_speeds=frozenset(),
    )
