"""What a user asks for: the job spec, and the submission that is stored for it."""

import math
import re
from enum import StrEnum
from pathlib import PurePosixPath

from pydantic import (
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from everspot_core.documents import Document, Duration, Frozen, Stored, Utc, is_stored
from everspot_core.field_types import Flag, Line, Name, Number, Span, Whole, printable
from everspot_core.problems import BadInputs
from everspot_core.recipes import parameter_faults

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATASET = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}(@[0-9a-f]{6,64})?")
_SECRET = re.compile(
    r"secretsmanager:[A-Za-z0-9/_+=.@:-]{1,2048}(#[A-Za-z0-9_.-]{1,256})?|ssm:/?[A-Za-z0-9/_.-]{1,1011}"
)
_MOST_DATASETS = 20
_MOST_COMMANDS = 50
_LONGEST_ENV = 32 * 1024  # Linux takes 128 KiB for one string and 2 MiB for all
_LONGEST_TAG = (128, 256)  # what AWS takes as a tag's key and value


class Priority(StrEnum):
    """`critical` runs on on-demand capacity if there is any and goes first; `normal` runs on spot."""

    CRITICAL = "critical"
    NORMAL = "normal"


class Precision(StrEnum):
    """Number format of the forward pass. `auto`: bf16 where the hardware has it, else fp16 on a GPU, else fp32. `tf32`:
    numbers of fp32, multiplied on a GPU with fewer digits, for models that do not bear bf16."""

    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    TF32 = "tf32"


class Resources(Frozen):
    """What one instance must have for the job to run on it."""

    vcpus: Whole = Field(default=1, ge=1, le=10_000)
    memory_gib: Number = Field(default=1, gt=0, le=100_000)
    gpus: Whole = Field(default=0, ge=0, le=100)
    gpu_memory_gib: Number = Field(default=0, ge=0, le=10_000, description="Memory of each GPU.")
    gpu: Line | None = Field(default=None, description="GPU model as the catalogue names it, for example A10G.")


class CheckpointPolicy(Frozen):
    """When to checkpoint apart from interruption notices, which always do. Whichever comes first."""

    every: Duration | None = Field(default=None, description="Time between checkpoints, at least 5s.")
    steps: Whole | None = Field(default=None, ge=1, le=10**12, description="Optimizer steps between checkpoints.")
    keep: Whole = Field(
        default=2, ge=2, le=100, description="Checkpoints kept; two at least, so that one bad read is survived."
    )

    @model_validator(mode="after")
    def _bounds(self) -> "CheckpointPolicy":
        if self.every is not None and self.every.total_seconds() < 5:
            raise ValueError("checkpoint.every must be at least 5s: no object is rewritten more often than that")
        return self


class Budget(Frozen):
    """Hard limits of one job over all its attempts. Reaching one ends the job as FAILED, after a checkpoint."""

    dollars: Number | None = Field(default=None, gt=0, le=1e9)
    gpu_hours: Number | None = Field(default=None, gt=0, le=1e9)
    wall_clock: Span | None = Field(default=None, description="Time since submission.")


class Retries(Frozen):
    """How often the user's own errors are tried again. Preemptions are not errors and are not counted here."""

    errors: Whole = Field(default=2, ge=0, le=1000)
    from_zero: Whole = Field(
        default=20,
        ge=0,
        le=1000,
        description="How often a job that has no checkpoint may be started over after interruptions.",
    )
    stalled: Flag = Field(
        default=False,
        description="Restart a program that has made no step for ten times its usual, and a minute at least. Each time "
        "counts as one of `errors`. It is told of in any case.",
    )
    backoff: Duration = Field(default="10s", validate_default=True, description="Wait before the first retry; doubles.")


class JobSpec(Frozen):
    """A training job as its author writes it."""

    name: Name
    recipe: Line | None = Field(default=None, description="A built-in recipe, instead of entrypoint.")
    entrypoint: list[str] | None = Field(
        default=None,
        description="Script and arguments, run under torchrun from the root of `code`. The script lies in `code`.",
    )
    code: Line | None = Field(default=None, description="Folder that is packed and uploaded at submission.")
    parameters: dict[str, JsonValue] = Field(default_factory=dict, description="Parameters of the recipe.")
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Environment of the training process. No secrets; `EVERSPOT_*` and `AWS_*` belong to the instance.",
    )
    datasets: list[str] = Field(
        default_factory=list,
        description="Datasets put with `everspot data put`, by `name` (its newest version when the job is submitted) "
        "or `name@digest`. The program finds each as a folder of its name in `EVERSPOT_DATA`.",
    )
    requirements: Line | None = Field(
        default=None,
        description="Lock file: a line `name==version` for each package, dependencies included. The wheels are fetched "
        "where the job is submitted, and installed on the instance without any index, into a layer of the job's own.",
    )
    setup: list[str] = Field(
        default_factory=list,
        description="Shell commands, run by bash in the root of `code` before each start of the program. One that "
        "fails is an error of the job.",
    )
    secrets: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables whose values are read on the instance with its role, kept nowhere and "
        "scrubbed from the log: `secretsmanager:NAME`, of which `#KEY` takes one value of JSON, or `ssm:/PARAMETER`.",
    )
    resources: Resources = Resources()
    priority: Priority = Priority.NORMAL
    deadline: Span | Utc | None = Field(
        default=None,
        description="A moment, or a duration from submission. With `expected_duration` given, one that is out of reach "
        "is refused at submission: it must be `expected_duration` and 15m, the longest changeover, away at the least.",
    )
    expected_duration: Span | None = Field(
        default=None,
        description="Upper bound of the uninterrupted running time, for deadlines and prices. Without it nobody can "
        "tell whether a deadline can be kept, and the job does not wait for spot.",
    )
    checkpoint: CheckpointPolicy = CheckpointPolicy(every="5m")
    precision: Precision = Precision.AUTO
    budget: Budget = Budget()
    retries: Retries = Retries()
    tags: dict[str, str] = Field(default_factory=dict, description="Project, Team, Environment, ModelVersion, …")

    @field_validator("entrypoint")
    @classmethod
    def _inside(cls, value: list[str] | None) -> list[str] | None:
        if value is None:
            return value
        if not value or not value[0]:
            raise ValueError("entrypoint must name a script")
        if any("\0" in word for word in value):
            raise ValueError("a word with a NUL cannot be handed to a program")
        script = PurePosixPath(printable(value[0]))
        if script.is_absolute() or ".." in script.parts:
            raise ValueError(f"{value[0]!r} does not lie in `code`: name the script relative to it")
        return value

    @field_validator("datasets")
    @classmethod
    def _datasets(cls, value: list[str]) -> list[str]:
        for word in value:
            if not _DATASET.fullmatch(word):
                raise ValueError(f"{word[:80]!r} is no dataset: write `name` or `name@digest`")
        names = [word.partition("@")[0] for word in value]
        if len(set(names)) < len(names) or len(names) > _MOST_DATASETS:
            raise ValueError(f"at most {_MOST_DATASETS} datasets, each name once")
        return value

    @field_validator("setup")
    @classmethod
    def _commands(cls, value: list[str]) -> list[str]:
        if len(value) > _MOST_COMMANDS or any(not c.strip() or "\0" in c or len(c) > _LONGEST_ENV for c in value):
            raise ValueError(f"at most {_MOST_COMMANDS} commands, none of them empty, longer than 32 KiB or with a NUL")
        return value

    @field_validator("secrets")
    @classmethod
    def _secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for name, reference in value.items():
            if not _ENV_NAME.fullmatch(name) or name.startswith(("EVERSPOT_", "AWS_")):
                raise ValueError(f"{name[:40]!r} is no name of a variable that a job may set")
            if not _SECRET.fullmatch(reference):
                raise ValueError(
                    f"{name[:40]}: has to be `secretsmanager:NAME`, `secretsmanager:NAME#KEY` or `ssm:/PARAMETER`: "
                    "the name of a secret, never the secret itself"
                )
        return value

    @field_validator("env")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            shown = repr(name[:40])
            if not _ENV_NAME.fullmatch(name):
                raise ValueError(f"{shown} is no name of a variable: letters, digits and _, and no digit first")
            if name.startswith(("EVERSPOT_", "AWS_")):
                raise ValueError(f"{shown}: EVERSPOT_* and AWS_* belong to the instance and cannot be set by a job")
            if "\0" in text or len(text.encode(errors="replace")) > _LONGEST_ENV:
                raise ValueError(f"{shown}: a value holds no NUL and at most {_LONGEST_ENV // 1024} KiB")
        return value

    @field_validator("tags")
    @classmethod
    def _tags(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            for what, word, most in zip(("key", "value"), (key, text), _LONGEST_TAG, strict=True):
                if len(printable(word)) > most or (what == "key" and not word.strip()):
                    raise ValueError(f"a tag's {what} has {'1' if what == 'key' else '0'} to {most} characters")
        return value

    @field_validator("parameters")
    @classmethod
    def _known(cls, value: dict[str, JsonValue], info: ValidationInfo) -> dict[str, JsonValue]:
        recipe = info.data.get("recipe")
        if not _is_finite(value):
            raise ValueError("a number is infinite or none (NaN), which JSON cannot carry")
        if value and recipe is None and "recipe" in info.data:
            raise ValueError("parameters belong to recipe; a script takes its arguments in entrypoint")
        if recipe is not None and not is_stored(info) and (faults := parameter_faults(recipe, value)):
            raise BadInputs("parameters", faults)
        return value

    @model_validator(mode="after")
    def _one_program(self) -> "JobSpec":
        if (self.recipe is None) == (self.entrypoint is None):
            raise ValueError("exactly one of recipe and entrypoint must be given")
        if self.recipe is not None and self.code is not None:
            raise ValueError("code belongs to entrypoint, not to recipe")
        both = sorted(set(self.env) & set(self.secrets))
        if both:
            raise ValueError(f"{', '.join(both)}: given by env and by secrets")
        if self.entrypoint is not None and self.code is None:
            raise ValueError("entrypoint needs code: the folder that holds the script")
        return self


def _is_finite(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


class Wheel(Stored):
    """One package of a job's requirements, in the data bucket under `wheels/{sha256}/{name}`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl$", description="Of the file; no path.")
    sha256: str

    @property
    def key(self) -> str:
        """Where it is in the data bucket."""
        return f"wheels/{self.sha256}/{self.name}"


class JobSubmission(Document):
    """The one document that creates a job. Written once by whoever submits; never changed."""

    job_id: str
    spec: JobSpec
    submitted_at: Utc
    deadline_at: Utc | None = None
    code_digest: str | None = Field(
        default=None, description="SHA-256 of the packed code under `code/` in the data bucket."
    )
    datasets: list[str] = Field(default_factory=list, description="As in the spec, each with its whole digest.")
    wheels: list[Wheel] = Field(default_factory=list, description="What the lock file of the spec names.")
    submitted_by: str = ""
    retry_of: str | None = Field(default=None, description="The job from whose newest checkpoint it goes on.")
