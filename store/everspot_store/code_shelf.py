"""The packed code of jobs in the data bucket: each kept once under its digest, for all jobs that have the same."""

import tempfile
from contextlib import suppress
from pathlib import Path

from everspot_core.job import JobSubmission

from everspot_store import code
from everspot_store.bucket import Bucket
from everspot_store.errors import KeyTaken
from everspot_store.sweeps import Sweeps


class CodeShelf:
    """Where code is put before a job is created, and made sure of behind it: what lay there already, as old code of
    nobody, may be removed by a collector of garbage at that very moment. See `sweeps`.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`.
    """

    def __init__(self, data: Bucket) -> None:
        self._data = data
        self._sweeps = Sweeps(data)

    def put(self, archive: Path, digest: str) -> None:
        """Upload packed code, unless it is there.

        Raises:
            DigestMismatch: if what is there is something else.
        """
        try:
            self._data.upload(_shared(digest), archive)
        except KeyTaken:
            # What is removed at this very moment is put there again behind the job's creation.
            with tempfile.TemporaryDirectory(prefix="everspot-code-") as scratch, suppress(FileNotFoundError):
                self._data.download(_shared(digest), Path(scratch, "there"), digest)

    def secure(self, submission: JobSubmission, archive: Path | None) -> None:
        """Make sure that the code of a job that has just been created stays. `archive`: the packed code; None for a job
        that is submitted once more, whose code another job names all the while.

        Raises:
            Unreadable: if nobody can tell whether it stays.
        """
        digest, job = submission.code_digest, submission.job_id
        if digest is None:
            return
        if archive is None:
            self._take_over(submission, digest)
        elif _shared(digest) in self._sweeps.announced_keys():
            self._data.upload(_own(job, digest), archive)
        else:
            with suppress(KeyTaken):
                self._data.upload(_shared(digest), archive)

    def fetch(self, submission: JobSubmission, folder: Path) -> None:
        """Fetch a job's code and unpack it into `folder`.

        Raises:
            FileNotFoundError: if it has none, or it was never uploaded.
            DigestMismatch: if the bytes are others.
            UnsafeArchive: if it would write outside `folder`.
        """
        digest = submission.code_digest
        if digest is None:
            raise FileNotFoundError(f"job {submission.job_id} has no code")
        with tempfile.TemporaryDirectory(prefix="everspot-code-") as scratch:
            archive = Path(scratch, "code.tar.gz")
            try:
                self._data.download(_shared(digest), archive, digest)
            except FileNotFoundError as error:
                try:
                    self._data.download(_own(submission.job_id, digest), archive, digest)
                except FileNotFoundError:
                    raise error from None
            code.unpack(archive, folder)

    def _take_over(self, submission: JobSubmission, digest: str) -> None:
        """A copy that the other job has of its own is copied: whoever is asked for code knows one job."""
        other = submission.retry_of
        if other is None or not self._data.list(f"jobs/{other}/code/"):
            return
        with tempfile.TemporaryDirectory(prefix="everspot-code-") as scratch:
            archive = Path(scratch, "code.tar.gz")
            self._data.download(_own(other, digest), archive, digest)
            self._data.upload(_own(submission.job_id, digest), archive)


def _shared(digest: str) -> str:
    return f"code/{digest}.tar.gz"


def _own(job: str, digest: str) -> str:
    return f"jobs/{job}/code/{digest}.tar.gz"
