"""How much a job has still to do, as far as its record and its author tell."""

from datetime import timedelta

from everspot_core.records import JobState
from everspot_core.schedule.view import JobView, Outlook

HOUR = timedelta(hours=1)
CHANGEOVER, CHANGEOVER_UPPER = timedelta(minutes=6), timedelta(minutes=15)
"""Launch, boot, download of the checkpoint and set-up, where nothing has been measured."""


def outlook_of(job: JobView) -> Outlook | None:
    """What the driver has measured; failing that, what the author expects less the part of the steps that is done.

    A job that is given to an instance makes no progress until it has said that it runs. None if nobody has said how
    long it runs.
    """
    if job.outlook is not None:
        return job.outlook
    expected = job.submission.spec.expected_duration
    if expected is None:
        return None
    progress = job.record.progress if job.record is not None else None
    done = 0.0
    if progress is not None and progress.total_steps:
        done = min(1.0, progress.step / progress.total_steps)
    left = expected * (1 - done)
    begins = job.state is JobState.ASSIGNED
    return Outlook(
        left=left,
        left_upper=left,
        changeover=CHANGEOVER,
        changeover_upper=CHANGEOVER_UPPER,
        changing=CHANGEOVER_UPPER if begins else timedelta(0),
    )
