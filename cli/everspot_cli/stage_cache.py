"""Claims the cached stage of a job at its submission: for an earlier job's result, or for this job to compute."""

from collections.abc import Mapping
from datetime import timedelta

from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord, JobState
from everspot_core.jobs.stage_cache import StageClaim, stage_key
from everspot_store import StoreUnavailable

from everspot_cli.job_lookup import read_record
from everspot_cli.session import Session

_TRIES = 20
"""Conditional writes of a claim before it is given up: so often in a row others would have been faster."""
_UNBORN = timedelta(minutes=10)
"""Real time for which a claim of a job that does not exist counts: its submitter is about to create it."""


def claim_stage(session: Session, submission: JobSubmission) -> JobSubmission:
    """Return the submission with its stage's key and the earlier jobs of the same stage, if its spec has `cache`.

    If one of them has succeeded and its outputs still exist, only that one is returned. Otherwise the unfinished ones
    are returned, and this job is queued behind them as the next to run the stage.

    Raises:
        StoreError: if the store could not be asked.
    """
    if not submission.spec.cache:
        return submission.model_copy(update={"stage_key": None, "same_stage": []})
    store, now = session.store, session.submission_time
    producers = {earlier.name: find_producer(session, earlier.job_id) for earlier in submission.after}
    manifest = store.read_manifest()  # of now: a sweep outlives many of them
    generation = (manifest.value if manifest is not None else session.manifest).generation
    key = _find_key(session, submission, producers, generation)
    for _ in range(_TRIES):
        claim = store.stages.get(key)
        jobs = claim.value.jobs if claim is not None else []
        records = {job: read_record(session, job) for job in jobs}
        computed = next((job for job in jobs if _is_reusable(session, records[job], producers, generation)), None)
        if computed is not None:
            return submission.model_copy(update={"stage_key": key, "same_stage": [computed]})
        is_new = claim is not None and session.clock.to_real(now - claim.value.changed_at) < _UNBORN
        ahead = [job for job in jobs if _may_succeed(session, job, records[job], is_new=is_new)]
        value = StageClaim(key=key, jobs=[*ahead, submission.job_id], changed_at=now)
        written = store.stages.create(key, value) if claim is None else store.stages.replace(key, claim, value)
        if written is not None:
            return submission.model_copy(update={"stage_key": key, "same_stage": ahead})
    raise StoreUnavailable(f"the claim of stage {key} was written by others {_TRIES} times in a row")


def _find_key(session: Session, submission: JobSubmission, producers: Mapping[str, str], generation: str) -> str:
    """Return the key of a submission's stage. A retry goes on from work of the same stage, or is a stage of its own:
    a part of its steps is of other settings."""
    key = stage_key(submission, producers, generation)
    source = session.store.dossier(submission.retry_of, brief=True) if submission.retry_of is not None else None
    if submission.retry_of is None or (source is not None and source.submission.stage_key == key):
        return key
    return stage_key(submission, producers, generation, begins_from=submission.retry_of)


def find_producer(session: Session, job_id: str) -> str:
    """Return the job that computed the outputs of a job, or that will as far as it is known now."""
    record = read_record(session, job_id)
    if record is not None and record.state.final:
        return record.reused_from or job_id
    document = session.store.jobs.get(job_id)
    others = document.value.same_stage if document is not None else []
    records = {other: read_record(session, other) for other in others}
    for other, other_record in records.items():
        if other_record is not None and other_record.state is JobState.SUCCEEDED:
            return other_record.reused_from or other
    for other, other_record in records.items():
        if _may_succeed(session, other, other_record, is_new=False):
            return find_producer(session, other)
    return job_id


def describe_reuse(submission: JobSubmission) -> str | None:
    """Return a sentence about a job that waits for another one's result, or has it; None for others."""
    if not submission.same_stage:
        return None
    return f"{submission.same_stage[0]} is the same stage: this job is run only if that one fails or is held."


def _may_succeed(session: Session, job_id: str, record: JobRecord | None, *, is_new: bool) -> bool:
    """Return whether a job has not ended. `is_new`: it counts even if it does not exist yet."""
    if record is not None:
        return not record.state.final
    return is_new or session.store.jobs.get(job_id) is not None


def _is_reusable(session: Session, record: JobRecord | None, producers: Mapping[str, str], generation: str) -> bool:
    """Return whether a job has succeeded on an instance of this generation, has read the outputs of these producers,
    and all of its own outputs are there."""
    if record is None or record.state is not JobState.SUCCEEDED:
        return False
    if not session.store.ran_on_generation(record, generation):
        return False
    computed_by = record.reused_from or record.job_id
    # Its key names the producers that were expected at its submission.
    if producers and session.store.input_producers(computed_by) != producers:
        return False
    return session.store.outputs(computed_by).is_complete()
