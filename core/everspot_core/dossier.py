"""All that is known of one job, in one document: what a finished job leaves when it goes to the archive."""

from pydantic import Field

from everspot_core.documents import Document, Utc
from everspot_core.job import JobSubmission
from everspot_core.records import Event, JobRecord


class Dossier(Document):
    """A job: what was asked for, how it stands, and everything that happened to it, in order.

    As a document of the archive it is written once, after the job's end; `archived_at` tells when. Put together from
    the documents of a job that is not archived, it has none.
    """

    submission: JobSubmission
    record: JobRecord | None = Field(default=None, description="None: it has never had an instance.")
    events: list[Event] = Field(default_factory=list)
    archived_at: Utc | None = None

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.submission.job_id


def month_of(record: JobRecord) -> str:
    """Under which month a finished job is archived, such as `2026-01`: that of its end, so that whoever archives it
    writes the same key.

    Raises:
        ValueError: if the job has not ended.
    """
    if not record.state.final:
        raise ValueError(f"job {record.job_id} is {record.state.value}: only what has ended is archived")
    return record.changed_at.strftime("%Y-%m")
