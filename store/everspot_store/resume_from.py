"""Lets a job continue from another job's checkpoints, safely even while a collector may be about to remove them."""

from contextlib import suppress
from typing import TYPE_CHECKING

from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import EventKind

from everspot_store.backend import Versioned
from everspot_store.errors import JobExists, NothingLeft, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from everspot_store.store import Finalizer, Store


def retry(store: "Store", submission: JobSubmission, other: str, finalize: "Finalizer | None" = None) -> JobSubmission:
    """See `Store.retry`. If the other job never had a checkpoint, the new one begins at step 0."""
    other_head = store.heads.get(other)
    if other_head is None or not other_head.value.checkpoints:
        if _had_some(store, other_head, other):
            raise NothingLeft(other)
        return store.submit(submission, finalize=finalize)
    # Epoch 0 belongs to no owner, so these checkpoints are never confused with the new job's own.
    checkpoints = [checkpoint.model_copy(update={"epoch": 0}) for checkpoint in other_head.value.checkpoints]
    head = CheckpointHead(job_id=submission.job_id, epoch=0, checkpoints=checkpoints)
    created = store.heads.create(submission.job_id, head)  # before the job, so that its first owner finds the head
    if created is None:
        raise JobExists(submission.job_id)
    try:
        # A collector empties the head of the parts first and reads all heads afterwards. So either it finds the new
        # head, which exists from here on, or this function sees the emptied one.
        again = store.heads.get(other)
        if again is None or not again.value.checkpoints:
            raise NothingLeft(other)
        return store.submit(submission, finalize=finalize)
    except StoreUnavailable:  # the job may have been created nevertheless, and then needs its head
        raise
    except StoreError as error:
        _take_back(store, submission.job_id, created, others=isinstance(error, JobExists))
        raise


def _had_some(store: "Store", head: Versioned[CheckpointHead] | None, job: str) -> bool:
    if head is not None and head.value.emptied:
        return True
    dossier = store.dossier(job)
    return dossier is not None and any(event.kind is EventKind.CHECKPOINTED for event in dossier.events)


def _take_back(store: "Store", job: str, created: Versioned[CheckpointHead], *, others: bool) -> None:
    """Remove a head whose job was not created. `others`: another submitter created the job of this id, without this
    head. If the removal fails, the head stays, and nobody reads it."""
    with suppress(StoreError):
        current = store.heads.get(job)
        if current is not None and current.etag == created.etag and (others or store.jobs.get(job) is None):
            store.heads.delete(job)
