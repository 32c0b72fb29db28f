"""The packed code of jobs in the data bucket. Equal code is stored once under its digest, for all jobs."""

import tempfile
from contextlib import suppress
from pathlib import Path

from everspot_core.jobs.job import JobSubmission

from everspot_store import code
from everspot_store.bucket import Bucket
from everspot_store.errors import KeyTaken, StoreDenied
from everspot_store.gc_announcements import GcAnnouncements

OWN, NAMED = "code/own/", "code/named/"


class CodeStore:
    """Stores code before a job is created.

    A garbage collector may be about to remove old code that no job names (see `gc_announcements`). So a submitter first
    writes an empty object that names the code, and then checks the announcements. Both happen before the job is
    created, so every job that a machine sees has its code.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`.
    """

    def __init__(self, data: Bucket, sweeps: GcAnnouncements) -> None:
        self._data = data
        self._sweeps = sweeps

    def put(self, archive: Path, digest: str, job: str) -> None:
        """Store the packed code of a job that will be created, under `code/` or as the job's own copy.

        Raises:
            DigestMismatch: if the stored bytes differ.
        """
        self._data.put(f"{NAMED}{digest}/{job}", b"")
        own = self._sweeps.may_be_deleted(shared_key(digest))
        try:
            self._data.upload(own_key(job, digest) if own else shared_key(digest), archive)
        except (KeyTaken, StoreDenied) as refused:
            with tempfile.TemporaryDirectory(prefix="everspot-code-") as scratch:
                if own:  # an upload by this process whose answer was lost
                    self._data.download_existing(own_key(job, digest), Path(scratch, "there"), refused)
                    return
                try:
                    self._data.download(shared_key(digest), Path(scratch, "there"), digest)
                except FileNotFoundError:  # a deletion that came late
                    self._data.upload(own_key(job, digest), archive)

    def take_over(self, submission: JobSubmission, owner: str) -> None:
        """Make the code of another job available to one that will be created with the same code.

        Shared code needs no copy, because the other job names it the whole time. If the other job uses an own copy,
        that is copied, because own copies are found by the job's id. `owner`: the other job's `code_owner`.

        Raises:
            DigestMismatch: if the bytes of the copy differ.
        """
        digest = submission.code_digest
        if digest is None:
            return
        with tempfile.TemporaryDirectory(prefix="everspot-code-") as scratch:
            archive = Path(scratch, "code.tar.gz")
            if self._download_own(owner, digest, archive):
                with suppress(KeyTaken):
                    self._data.upload(own_key(submission.job_id, digest), archive)

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
            self._download(submission, digest, archive)
            code.unpack(archive, folder)

    def send(self, submission: JobSubmission, other: "CodeStore", job: str) -> int:
        """Copy a job's code to another cluster's store, for a job that will be created there. Return the number of
        bytes; 0 if the job has no code.

        Raises:
            FileNotFoundError: if it was never uploaded, or is gone.
            DigestMismatch: if the bytes are others.
        """
        digest = submission.code_digest
        if digest is None:
            return 0
        with tempfile.TemporaryDirectory(prefix="everspot-code-") as scratch:
            archive = Path(scratch, "code.tar.gz")
            self._download(submission, digest, archive)
            other.put(archive, digest, job)
            return archive.stat().st_size

    def _download(self, submission: JobSubmission, digest: str, archive: Path) -> None:
        try:
            self._data.download(shared_key(digest), archive, digest)
        except FileNotFoundError:
            if not self._download_own(code_owner(submission), digest, archive):
                raise

    def _download_own(self, job: str, digest: str, archive: Path) -> bool:
        """Download a job's own copy of its code. Return False if it has none."""
        for key in (own_key(job, digest), f"jobs/{job}/code/{digest}.tar.gz"):  # and the key of earlier releases
            with suppress(FileNotFoundError):
                self._data.download(key, archive, digest)
                return True
        return False


def code_owner(submission: JobSubmission) -> str:
    """Return the job whose own copy this job uses. In a series that is the first run."""
    return submission.series.id if submission.series is not None else submission.job_id


def names(submission: JobSubmission) -> set[str]:
    """Return the keys that a job's code may have."""
    digest = submission.code_digest
    return {shared_key(digest), own_key(code_owner(submission), digest)} if digest is not None else set()


def named_by(key: str) -> str:
    """Return the key of the shared code that an object below `NAMED` names."""
    return shared_key(key.removeprefix(NAMED).partition("/")[0])


def shared_key(digest: str) -> str:
    """Return the key of code that all jobs with the same code share."""
    return f"code/{digest}.tar.gz"


def own_key(job: str, digest: str) -> str:
    """Return the key of a job's own copy. It is not below `jobs/`, where a bucket's rules may remove old objects."""
    return f"{OWN}{job}/{digest}.tar.gz"
