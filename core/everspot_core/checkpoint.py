"""What is published of a job's checkpoints: each names its parts, and one small head names the checkpoints."""

from pydantic import Field, JsonValue

from everspot_core.documents import Document, Stored, Utc


class Part(Stored):
    """One object of a checkpoint, in the data bucket."""

    name: str
    key: str
    size: int
    sha256: str


class Checkpoint(Stored):
    """A complete checkpoint. `step`: optimizer steps done; the next step to execute is `step` itself, from 0 on."""

    step: int
    epoch: int
    created_at: Utc
    parts: list[Part]
    info: dict[str, JsonValue] = Field(default_factory=dict, description="torch version, threads, precision, …")


class CheckpointHead(Document):
    """The published checkpoints of a job, newest first, in one small object changed only by conditional writes.

    `epoch`, and within it `incarnation`, is the fence: a new owner writes its own into the head before it reads, which
    changes the ETag, and a writer whose own is lower than the head's has lost its right for good.
    """

    job_id: str
    epoch: int
    incarnation: int = 0
    checkpoints: list[Checkpoint] = Field(default_factory=list)
    emptied: bool = Field(default=False, description="There were checkpoints, which were removed after the job's end.")
