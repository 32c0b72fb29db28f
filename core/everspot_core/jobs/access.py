"""The access of a job's processes to the cluster's store, which limits their credentials.

The agent does everything else with the instance's identity: it takes the lease, unpacks the code, and uploads logs,
outputs and the checkpoint folder of programs that do not use the trainer library. Prefixes are those of the store's
layout.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.job import JobSubmission

DIGEST = 64
"""Hexadecimal digits of a dataset's full SHA-256."""
TRAINER = "trainer-"
"""The prefix of the names of trainers as writers of events."""


@dataclass(frozen=True)
class JobAccess:
    """The keys and prefixes that one attempt of a job may use. A prefix ends in `/` or in a part of a name.

    Only names below the prefixes of the `lists` fields may be listed. The keys of files of datasets and packages are
    their digests, so a job can read only files whose digests it knows.

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
    """Return the access of one attempt.

    Args:
        submission: of the job.
        epoch: of the attempt.
        head: the checkpoints that it may resume from. The job itself can write the head, so the head alone grants no
            access.
        retried: the earlier jobs of a chain of retries, by their submissions. The checkpoints of such a job may be read
            while the head has parts of them.
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
        # Both prefixes contain the epoch, so that an earlier attempt cannot change a later attempt's objects.
        data_writes=(f"{checkpoints}{epoch:06d}/", f"{own}metrics/{epoch:06d}/"),
        data_deletes=(checkpoints,),
        # A dataset without its full digest is looked up among its versions.
        data_lists=(own, *inputs, *(f"datasets/{name}/" for name, _, digest in references if len(digest) < DIGEST)),
    )


def _unique(prefixes: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(prefixes))
