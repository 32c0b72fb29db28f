"""What a job's own processes need of the cluster's store: the limits of the credentials that they get.

The agent carries out the rest with the instance's identity: it takes the lease, unpacks the code, and uploads logs,
outputs and the folder of programs that do not use the trainer library. Prefixes are those of the store's layout.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.job import JobSubmission

DIGEST = 64
"""Digits of a dataset's whole digest, a SHA-256."""
TRAINER = "trainer-"
"""The beginning of the names of trainers, as writers of events."""


@dataclass(frozen=True)
class JobAccess:
    """The keys and prefixes that one attempt of a job may use. A prefix ends in `/` or in a part of a name.

    Listing is allowed below the `lists` alone. Files of datasets and packages lie under their digests, so a job
    can read only those whose digests it knows.

    Attributes:
        job_id: of the job.
        epoch: of the attempt.
        control_lists: prefixes of the control bucket below which names may be listed.
        control_documents: keys and prefixes of the control bucket, to read, create and replace.
        data_reads: prefixes of the data bucket.
        data_writes: the same, to create.
        data_deletes: the same, to delete.
        data_lists: prefixes of the data bucket below which names may be listed.
    """

    job_id: str
    epoch: int
    control_lists: tuple[str, ...]
    control_documents: tuple[str, ...]
    data_reads: tuple[str, ...]
    data_writes: tuple[str, ...]
    data_deletes: tuple[str, ...]
    data_lists: tuple[str, ...]


def job_access(
    submission: JobSubmission, epoch: int, head: CheckpointHead | None = None, retried: Iterable[str] = ()
) -> JobAccess:
    """Return what one attempt needs.

    Args:
        submission: of the job.
        epoch: of the attempt.
        head: the checkpoints from which it may resume. The job itself writes it, so it grants nothing by itself.
        retried: the jobs that this one is a retry of, by their submissions. Of those that the head still has parts of,
            the checkpoints may be read.
    """
    job_id = submission.job_id
    own, checkpoints = f"jobs/{job_id}/", f"jobs/{job_id}/checkpoints/"
    keys = (part.key for checkpoint in (head.checkpoints if head else ()) for part in checkpoint.parts)
    holders = {key.split("/")[1] for key in keys if key.startswith("jobs/")}
    earlier_parts = tuple(f"jobs/{other}/checkpoints/" for other in retried if other in holders)
    head_key, events = f"heads/{job_id}.json", f"events/{job_id}/{epoch:06d}-{TRAINER}"
    references = [reference.partition("@") for reference in submission.datasets]
    datasets = _unique(f"datasets/{name}/" for name, _, _ in references)
    inputs = _unique(f"jobs/{earlier.job_id}/outputs/" for earlier in submission.after)
    files = ("datasets/_files/",) if datasets else ()
    wheels = ("wheels/",) if submission.wheels else ()
    return JobAccess(
        job_id=job_id,
        epoch=epoch,
        control_lists=(f"events/{job_id}/",),
        control_documents=(head_key, events),
        data_reads=(own, *earlier_parts, *inputs, *datasets, *files, *wheels),
        # Both carry the epoch, so that an earlier attempt cannot touch what a later one has written.
        data_writes=(f"{checkpoints}{epoch:06d}/", f"{own}metrics/{epoch:06d}/"),
        data_deletes=(checkpoints,),
        # A dataset without its whole digest is looked up among its versions.
        data_lists=(own, *inputs, *(f"datasets/{name}/" for name, _, digest in references if len(digest) < DIGEST)),
    )


def _unique(prefixes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(prefixes))
