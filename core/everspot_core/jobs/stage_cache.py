"""The cache of stages: a job with `cache` is not run if an identical job has succeeded.

Two jobs are the same stage if their keys are equal. The key is a digest of everything that determines the program's
result. The outputs of an earlier job count by the id of the job that really computed them, because its outputs never
change.
"""

import hashlib
import json
from collections.abc import Mapping

from pydantic import Field

from everspot_core.documents import Document, Utc
from everspot_core.jobs.job import JobSubmission

KEY_FIELDS = frozenset(
    {
        "recipe",
        "entrypoint",
        "parameters",
        "env",
        "image",
        "setup",
        "secrets",
        "resources",
        "processes",
        "precision",
        "mixed_on_failover",
        "stop",
    }
)
"""The fields of a job that determine its program's result. `code`, `datasets` and `requirements` count by their
digests, and `after` by the jobs whose outputs it reads."""
_FORMAT = 1
"""Version of the key's format. A new version invalidates all keys."""


class StageClaim(Document):
    """The jobs of one key that may still succeed, or the job that has succeeded. Submitters change it by conditional
    writes."""

    key: str
    jobs: list[str] = Field(description="In order of submission: each waits for those before it.")
    changed_at: Utc


def stage_key(
    submission: JobSubmission, producers: Mapping[str, str], generation: str, begins_from: str | None = None
) -> str:
    """Return the key of a stage, as 64 hexadecimal digits.

    Args:
        submission: the job, with the digests of its code, datasets and packages.
        producers: for each earlier job by name, the id of the job that computed its outputs.
        generation: of the cluster (`Manifest.generation`). A change of the image or the machines changes all keys.
        begins_from: the job from whose checkpoint it resumes, if that job is another stage.
    """
    content = {
        "format": _FORMAT,
        "generation": generation,
        "spec": submission.spec.model_dump(mode="json", include=set(KEY_FIELDS)),
        "code": submission.code_digest,
        "datasets": sorted(submission.datasets),
        "wheels": sorted(wheel.key for wheel in submission.wheels),
        "inputs": dict(producers),
    }
    if begins_from is not None:
        content["begins_from"] = begins_from
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
