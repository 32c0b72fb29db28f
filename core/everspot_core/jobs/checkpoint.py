"""The published checkpoints of a job. Each checkpoint lists its parts, and one small head document lists the
checkpoints.

A part is a file, or a segment of a stream. A stream holds the tensors of one rank, one after another. It is stored in
segments, which are uploaded and read in parallel. A segment whose bytes have not changed since the checkpoint before is
not uploaded again.
"""

from collections.abc import Sequence

from pydantic import Field, JsonValue

from everspot_core.documents import Document, Stored, Utc

AFTER_LOOP = "after_loop"
"""The key in a checkpoint's `info` for a state that code after the loop has changed already."""
SAVED_BY = "job"
"""The key in a checkpoint's `info` for the job that saved it, by its id in its own cluster."""


class Part(Stored):
    """One object of a checkpoint, in the data bucket."""

    name: str
    key: str
    size: int
    sha256: str = Field(default="", description="SHA-256 of a file, in hexadecimal digits.")
    xxh3: str = Field(default="", description="XXH3-128 of a segment, in hexadecimal digits.")
    stream: str = Field(default="", description="The stream that the segment belongs to; empty for a file.")
    offset: int = Field(default=0, description="Of the segment in its stream, in bytes.")
    stored_at: Utc | None = Field(default=None, description="When the segment was uploaded.")

    @property
    def digest(self) -> str:
        """The digest that verifies the part."""
        return self.sha256 or self.xxh3


class Checkpoint(Stored):
    """A complete checkpoint. `step`: optimizer steps done, which is also the index of the next step, counted from 0."""

    step: int
    epoch: int
    created_at: Utc
    parts: list[Part]
    info: dict[str, JsonValue] = Field(default_factory=dict, description="torch version, threads, precision, …")
    failed_loads: int = Field(default=0, description="How many attempts failed while they loaded it.")


class CheckpointHead(Document):
    """The published checkpoints of a job, newest first, in one small object changed only by conditional writes.

    `epoch`, and within it `incarnation`, is the fence. A new owner writes its own epoch into the head, which changes
    the ETag, before it reads the checkpoints. From then on a writer with a lower epoch can never publish again.
    """

    job_id: str
    epoch: int
    incarnation: int = 0
    checkpoints: list[Checkpoint] = Field(default_factory=list)
    emptied: bool = Field(default=False, description="There were checkpoints, which were removed after the job's end.")


def by_failed_loads(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return checkpoints in the order in which they are tried: checkpoints without failed loads before the others, and
    the newest first in each group."""
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.failed_loads)


def before_loop_end(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints in the order in which a resume tries them. Of two checkpoints of one step, the one that
    code after the loop has changed comes last, because that code runs again."""
    ordered = list(checkpoints)
    if len(ordered) > 1 and ordered[0].step == ordered[1].step and ordered[0].info.get(AFTER_LOOP) is True:
        ordered[:2] = ordered[1], ordered[0]
    return ordered
