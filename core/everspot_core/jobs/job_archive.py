"""All documents of one job in one document. A finished job is archived in this form."""

from datetime import datetime

from pydantic import Field

from everspot_core.documents import Document, Utc
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Event, JobRecord


class Dossier(Document):
    """A job's submission, its record, and its events in order.

    In the archive it is written once, after the job's end, with the time in `archived_at`. For other jobs it is
    assembled from the job's documents, and `archived_at` is None.
    """

    submission: JobSubmission
    record: JobRecord | None = Field(default=None, description="None: it has never had an instance.")
    events: list[Event] = Field(default_factory=list)
    archived_at: Utc | None = None
    record_written_at: Utc | None = Field(
        default=None, description="When the last record was written, by the store's own clock; None: not known."
    )

    @property
    def ended_at(self) -> datetime | None:
        """When the job ended, by the store's own clock if that is known, so that ends on several machines are in
        order; None without a record."""
        return self.record_written_at or (self.record.changed_at if self.record is not None else None)

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.submission.job_id


def end_month(record: JobRecord) -> str:
    """Return the month of a finished job's end, such as `2026-01`. It is part of the archive's key, so that every
    archiver writes the same key.

    Raises:
        ValueError: if the job has not ended.
    """
    if not record.state.final:
        raise ValueError(f"job {record.job_id} is {record.state.value}: only what has ended is archived")
    return record.changed_at.strftime("%Y-%m")
