"""What a user asks for: the job spec, and the submission that is stored for it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue, StringConstraints, model_validator

from everspot_core.documents import Document, Duration, Frozen, Utc

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")]


class Priority(StrEnum):
    """`critical` runs on on-demand capacity if there is any and goes first; `normal` runs on spot."""

    CRITICAL = "critical"
    NORMAL = "normal"


class Precision(StrEnum):
    """Number format of the forward pass. `auto`: bf16 where the hardware has it, else fp16 on a GPU, else fp32."""

    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class Resources(Frozen):
    """What one instance must have for the job to run on it."""

    vcpus: int = Field(default=1, ge=1)
    memory_gib: float = Field(default=1, gt=0)
    gpus: int = Field(default=0, ge=0)
    gpu_memory_gib: float = Field(default=0, ge=0, description="Memory of each GPU.")
    gpu: str | None = Field(default=None, description="GPU model as the catalogue names it, for example A10G.")


class CheckpointPolicy(Frozen):
    """When to checkpoint apart from interruption notices, which always do. Whichever comes first."""

    every: Duration | None = Field(default=None, description="Time between checkpoints, at least 5s.")
    steps: int | None = Field(default=None, ge=1, description="Optimizer steps between checkpoints.")
    keep: int = Field(default=2, ge=2, description="Checkpoints kept; two at least, so that one bad read is survived.")

    @model_validator(mode="after")
    def _bounds(self) -> "CheckpointPolicy":
        if self.every is not None and self.every.total_seconds() < 5:
            raise ValueError("checkpoint.every must be at least 5s: no object is rewritten more often than that")
        return self


class Budget(Frozen):
    """Hard limits of one job over all its attempts. Reaching one ends the job as FAILED, after a checkpoint."""

    dollars: float | None = Field(default=None, gt=0)
    gpu_hours: float | None = Field(default=None, gt=0)
    wall_clock: Duration | None = Field(default=None, description="Time since submission.")


class Retries(Frozen):
    """How often the user's own errors are tried again. Preemptions are not errors and are not counted here."""

    errors: int = Field(default=2, ge=0)
    backoff: Duration = Field(default="10s", validate_default=True, description="Wait before the first retry; doubles.")


class JobSpec(Frozen):
    """A training job as its author writes it."""

    name: Name
    recipe: str | None = Field(default=None, description="A built-in recipe, instead of entrypoint.")
    entrypoint: list[str] | None = Field(
        default=None, description="Script and arguments, run under torchrun from the root of `code`."
    )
    code: str | None = Field(default=None, description="Folder that is packed and uploaded at submission.")
    parameters: dict[str, JsonValue] = Field(default_factory=dict, description="Parameters of the recipe.")
    env: dict[str, str] = Field(default_factory=dict, description="Environment of the training process. No secrets.")
    resources: Resources = Resources()
    priority: Priority = Priority.NORMAL
    deadline: Duration | Utc | None = Field(
        default=None,
        description="A moment, or a duration from submission. With `expected_duration` given, one that is out of reach "
        "is refused at submission: it must be `expected_duration` and 15m, the longest changeover, away at the least.",
    )
    expected_duration: Duration | None = Field(
        default=None,
        description="Upper bound of the uninterrupted running time, for deadlines and prices. Without it nobody can "
        "tell whether a deadline can be kept, and the job does not wait for spot.",
    )
    checkpoint: CheckpointPolicy = CheckpointPolicy(every="5m")
    precision: Precision = Precision.AUTO
    budget: Budget = Budget()
    retries: Retries = Retries()
    tags: dict[str, str] = Field(default_factory=dict, description="Project, Team, Environment, ModelVersion, …")

    @model_validator(mode="after")
    def _one_program(self) -> "JobSpec":
        if (self.recipe is None) == (self.entrypoint is None):
            raise ValueError("exactly one of recipe and entrypoint must be given")
        if self.entrypoint is not None and not self.entrypoint:
            raise ValueError("entrypoint must name a script")
        if self.recipe is not None and self.code is not None:
            raise ValueError("code belongs to entrypoint, not to recipe")
        if self.entrypoint is not None and self.code is None:
            raise ValueError("entrypoint needs code: the folder that holds the script")
        return self


class JobSubmission(Document):
    """The one document that creates a job. Written once by whoever submits; never changed."""

    job_id: str
    spec: JobSpec
    submitted_at: Utc
    deadline_at: Utc | None = None
    code_digest: str | None = Field(
        default=None, description="SHA-256 of the packed code under `code/` in the data bucket."
    )
    submitted_by: str = ""
