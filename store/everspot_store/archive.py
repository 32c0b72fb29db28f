"""Moves a finished job out of the tables that every tick lists, into one document below its month.

The order of the writes makes this safe at every point at which the writer may die:

1. The archive's document is created, once.
2. The submission is deleted. From then on there is no job for a scheduler, whatever other documents remain. If the
    record were deleted first, the submission alone would look like a waiting job.
3. Requests and events are deleted.
4. The record is deleted last. A record without a submission shows the next scheduler which documents remain to be
    deleted.

A program that reads both places reads the tables first and the archive second: a job that moves in between is then
found in the archive.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.job_archive import Dossier, end_month
from everspot_core.jobs.records import Event, JobRecord, Request

from everspot_store.bucket import Bucket
from everspot_store.document_cache import DocumentCache
from everspot_store.errors import BadDocument, StoreUnavailable
from everspot_store.events import ordered
from everspot_store.table import READERS, Table

PREFIX = "archive"


class Archive:
    """The finished jobs of a cluster. Thread-safe.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`.
    """

    def __init__(
        self,
        control: Bucket,
        jobs: Table[JobSubmission],
        records: Table[JobRecord],
        events: Table[Event],
        requests: tuple[Table[Request], Table[Request]],
        cache: DocumentCache | None = None,
    ) -> None:
        self._table = Table(control, PREFIX, Dossier, cache)
        self._jobs, self._records, self._events = jobs, records, events
        self._cancels, self._drills = requests

    # Reading

    def keys(self, since: datetime | None = None) -> dict[str, str]:
        """Return the archived jobs, each with the name of its document (`2026-01/job`), in order of months.

        Args:
            since: Without the jobs that ended in earlier months.
        """
        first = since.strftime("%Y-%m") if since is not None else ""
        listed = (
            entry.key.removeprefix(f"{PREFIX}/").removesuffix(".json")
            for entry in self._table.bucket.list(f"{PREFIX}/")
        )
        return {name.partition("/")[2]: name for name in listed if name.partition("/")[0] >= first}

    def get(self, job_id: str) -> Dossier | None:
        """Return one archived job, or None if it is not archived.

        Raises:
            BadDocument: if its document cannot be read.
        """
        name = self.keys().get(job_id)
        return self._document(name) if name is not None else None

    def read(self, names: Iterable[str]) -> dict[str, Dossier]:
        """Return the documents with these names (values of `keys`), by job. They are read in parallel. Documents that
        are gone or cannot be read are left out, and the latter are logged."""
        documents = self._table.read(list(names))
        return {document.value.job_id: document.value for document in documents.values()}

    def scan(self, since: datetime | None = None, now: datetime | None = None) -> dict[str, Dossier]:
        """Return the archived jobs by id, in order of months. Documents that were read before are not read again.

        Args:
            since: Without jobs that ended earlier.
            now: Given with `since`, only the months between are listed.
        """
        if since is None or now is None:
            documents = list(self._table.scan().values())
        else:
            listed = self._table.scan_all([f"{month}/" for month in _months(since, now)])
            documents = [document for months in listed.values() for document in months.values()]
        read = (document.value for document in documents)
        return {d.job_id: d for d in read if since is None or d.record is None or d.record.changed_at >= since}

    def scan_with_unreadable(self) -> tuple[dict[str, Dossier], list[str]]:
        """Return all archived jobs by id, and the keys of documents that cannot be read."""
        documents, unreadable = self._table.scan_with_unreadable()
        return {document.value.job_id: document.value for document in documents.values()}, unreadable

    # Moving

    def move(
        self, submission: JobSubmission, record: JobRecord, now: datetime, record_written_at: datetime | None = None
    ) -> Dossier:
        """Archive a job that has ended: write its document, then delete its other documents. Idempotent: it finishes an
        earlier call that was cut off. `record_written_at`: when the record was written, by the store's clock.

        Raises:
            ValueError: if the job has not ended.
            BadDocument: if a document of this name exists and cannot be read. Nothing is deleted.
        """
        name = f"{end_month(record)}/{record.job_id}"
        names = self._events.names(f"{record.job_id}/")
        events = self._events.read(names)
        if missing := sorted(set(names) - set(events)):
            raise BadDocument(self._events.key(missing[0]), f"job {record.job_id} is not archived without it")
        dossier = Dossier(
            submission=submission, record=record, events=ordered([e.value for e in events.values()]), archived_at=now,
            record_written_at=record_written_at,
        )  # fmt: skip
        if self._table.create(name, dossier) is None:
            existing = self._document(name)
            if existing is None:
                raise StoreUnavailable(f"{self._table.key(name)} is neither there nor can it be created")
            dossier = existing  # the first one that was written counts
        self._delete(record.job_id)
        return dossier

    def finish(self, job_id: str, record: JobRecord) -> bool:
        """Delete the remaining documents of an archived job whose record was found alone after a crash. Return False if
        the job is not in the archive; nothing is deleted then."""
        name = f"{end_month(record)}/{job_id}" if record.state.final else self.keys().get(job_id)
        if name is None or self._document(name) is None:
            return False
        self._delete(job_id)
        return True

    def _document(self, name: str) -> Dossier | None:
        document = self._table.get(name)
        return document.value if document is not None else None

    def _delete(self, job_id: str) -> None:
        self._jobs.delete(job_id)
        _each(self._cancels.delete, [job_id])
        _each(self._drills.delete, self._drills.names(f"{job_id}/"))
        _each(self._events.delete, self._events.names(f"{job_id}/"))
        self._records.delete(job_id)


def _months(since: datetime, now: datetime) -> list[str]:
    """Return the months from `since` to the month after `now`: a machine whose clock is ahead may have used that
    month."""
    first, last = since.year * 12 + since.month - 1, now.year * 12 + now.month
    return [f"{month // 12:04d}-{month % 12 + 1:02d}" for month in range(first, last + 1)]


def _each(delete: Callable[[str], None], names: list[str]) -> None:
    if len(names) < 2:
        for name in names:
            delete(name)
        return
    with ThreadPoolExecutor(min(READERS, len(names)), thread_name_prefix="everspot-archive") as pool:
        list(pool.map(delete, names))
