"""The documents of a job whose credentials are tested."""

from datetime import UTC, datetime

from everspot_core.jobs.checkpoint import Checkpoint, CheckpointHead, Part
from everspot_core.jobs.job import JobSpec, JobSubmission

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def submission(job_id: str = "mine", **fields: object) -> JobSubmission:
    spec = JobSpec.model_validate({"name": "mine", "entrypoint": ["fit.py"], "code": "."})
    return JobSubmission.model_validate({"job_id": job_id, "spec": spec, "submitted_at": NOW, **fields})


def head(*keys: str) -> CheckpointHead:
    parts = [Part(name=str(number), key=key, size=1) for number, key in enumerate(keys)]
    return CheckpointHead(
        job_id="mine", epoch=1, checkpoints=[Checkpoint(step=1, epoch=1, created_at=NOW, parts=parts)]
    )
