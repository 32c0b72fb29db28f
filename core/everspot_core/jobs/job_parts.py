"""The parts of a job spec: its resources, its checkpoints, its budget, its retries."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializationInfo,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from everspot_core.documents import Frozen, is_stored
from everspot_core.validation.field_types import Flag, Given, Line, Number, Percent, Span, Whole, parse_given

AUTO: Literal["auto"] = "auto"
"""The value of `every` with which Everspot chooses the interval: see `checkpoint_interval`."""

LEAST_MEMORY_GIB = 0.001
"""The least memory that a job file may ask for. No program runs in less."""
LEAST_BUDGET = 0.0001
"""The least dollars or GPU hours of a budget. No second of an instance costs less."""


class Priority(StrEnum):
    """`critical` gets on-demand capacity immediately, before other jobs. `normal` runs on spot, and on on-demand when
    its deadline or a day of waiting demands it."""

    CRITICAL = "critical"
    NORMAL = "normal"


class Precision(StrEnum):
    """Number format of the forward pass. `auto`: bf16 if the hardware has it, else fp16 on a GPU, else fp32. `tf32`:
    fp32 numbers that a GPU multiplies with fewer digits, for models that do not tolerate bf16."""

    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"
    TF32 = "tf32"


class ContinueFrom(StrEnum):
    """The inputs of a run of a series. `last`: the outputs of the last successful run."""

    LAST = "last"


class Resources(Frozen):
    """The least resources of an instance that can run the job."""

    vcpus: Whole = Field(default=1, ge=1, le=10_000)
    memory_gib: Number = Field(default=1, gt=0, le=100_000)
    gpus: Whole = Field(default=0, ge=0, le=100)
    gpu_memory_gib: Number = Field(default=0, ge=0, le=10_000, description="Memory of each GPU.")
    gpu: Line | None = Field(default=None, description="GPU model as the catalogue names it, for example A10G.")
    instance_types: tuple[Line, ...] = Field(default=(), description="Only these instance types, such as g5.xlarge.")
    shared: Flag = Field(
        default=False,
        description="The job may share an instance with others, if the cluster allows it. It then gets exactly these "
        "resources, and pays its part of the instance. Otherwise the job has the instance alone.",
    )

    @field_validator("memory_gib")
    @classmethod
    def _some_memory(cls, value: float, info: ValidationInfo) -> float:
        if value < LEAST_MEMORY_GIB and not is_stored(info):
            raise ValueError(f"has to be at least {LEAST_MEMORY_GIB}")
        return value

    @field_validator("gpu")
    @classmethod
    def _some_gpu(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and not value.strip() and not is_stored(info):
            raise ValueError("is empty: name a model, or leave it out")
        return value


def _interval(value: Any, info: ValidationInfo) -> Any:
    if value is None or value == AUTO:
        return value
    span = parse_given(value, info)
    if not isinstance(span, timedelta):
        raise ValueError("has to be a duration such as 10m, or auto")
    return span


class CheckpointPolicy(Frozen):
    """When to checkpoint: after `every` or after `steps`, whichever comes first. An interruption notice always makes a
    checkpoint."""

    every: Annotated[timedelta | Literal["auto"] | None, BeforeValidator(_interval)] = Field(
        default=None,
        description="Time between checkpoints, at least 5s, or `auto`, the default if `steps` is not given either. "
        "`auto` weighs the time for which the job's own checkpoints stall training against the work that is redone "
        "after an interruption, by the rate of interruptions in the instance's pool: from 1m to 1h.",
    )
    steps: Whole | None = Field(default=None, ge=1, le=10**12, description="Optimizer steps between checkpoints.")
    keep: Whole = Field(
        default=2,
        ge=2,
        le=100,
        description="Number of checkpoints that are kept; at least two, so that the job survives a damaged one.",
    )

    state_gib: Number | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Size of one checkpoint in GiB, if it is known. `everspot submit`, also with `--dry-run`, then "
        "says whether a checkpoint fits into the notice of an interruption. While the job runs, its own checkpoints "
        "are measured.",
    )

    @model_validator(mode="before")
    @classmethod
    def _never_none(cls, value: Any) -> Any:
        """Choose the interval automatically if neither `every` nor `steps` is given."""
        if isinstance(value, dict) and value.get("every") is None and value.get("steps") is None:
            return {**value, "every": AUTO}
        return value

    @field_validator("every")
    @classmethod
    def _check_least_interval(cls, value: timedelta | Literal["auto"] | None) -> timedelta | Literal["auto"] | None:
        if isinstance(value, timedelta) and value.total_seconds() < 5:
            raise ValueError("must be at least 5s: no object is rewritten more often than that")
        return value

    @field_serializer("every", when_used="json")
    def _every_in_json(
        self, value: timedelta | Literal["auto"] | None, info: SerializationInfo
    ) -> float | Literal["auto"] | None:
        """Write seconds, or `auto`. Stored documents leave the default out, because earlier releases cannot read `auto`
        and have their own default."""
        if isinstance(value, timedelta):
            return value.total_seconds()
        return None if is_stored(info) and self.steps is None else value

    @property
    def is_auto(self) -> bool:
        """Whether Everspot chooses the interval."""
        return self.every == AUTO

    @property
    def interval(self) -> timedelta | None:
        """The time between checkpoints that the job's author chose; None if the author chose no time."""
        return self.every if isinstance(self.every, timedelta) else None


class Budget(Frozen):
    """Hard limits of one job over all its attempts. Reaching one ends the job as FAILED, after a checkpoint."""

    dollars: Number | None = Field(default=None, gt=0, le=1e9)
    gpu_hours: Number | None = Field(default=None, gt=0, le=1e9)
    wall_clock: Span | None = Field(default=None, description="Time since submission, or since `start_after`.")

    @field_validator("dollars", "gpu_hours")
    @classmethod
    def _some_budget(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and value < LEAST_BUDGET and not is_stored(info):
            raise ValueError(f"has to be at least {LEAST_BUDGET}")
        return value


LEAST_LIMIT_SPAN = timedelta(minutes=1)
"""The shortest span over which the use of GPUs is judged. It has six samples of the agent."""
MOST_LIMIT_SPAN = timedelta(days=1)


class LimitAction(StrEnum):
    """The reaction to a job that uses its machine too little. `warn`: an event, a line in its log and a mark beside the
    job. `end`: also a checkpoint, and the job ends as FAILED."""

    WARN = "warn"
    END = "end"


class JobLimits(Frozen):
    """Limits on the job's use of its machine."""

    model_config = ConfigDict(serialize_by_alias=True)

    gpu_utilization_below: Percent = Field(
        ge=1,
        le=100,
        description="The limit, such as `20%`: the least share of the time in which a kernel runs on its GPUs.",
    )
    span: Span = Field(
        default=timedelta(minutes=30),
        alias="for",
        description="How long its GPUs may compute less than that, from 1m to 1d. The mean over this time counts.",
    )
    then: LimitAction = LimitAction.WARN

    @field_validator("span")
    @classmethod
    def _measurable(cls, value: timedelta, info: ValidationInfo) -> timedelta:
        if not is_stored(info) and not LEAST_LIMIT_SPAN <= value <= MOST_LIMIT_SPAN:
            raise ValueError("has to be from 1m to 1d")
        return value


class Retries(Frozen):
    """How often a job is retried after its own errors. Preemptions are not errors and do not count."""

    errors: Whole = Field(default=2, ge=0, le=1000)
    from_zero: Whole = Field(
        default=3,
        ge=0,
        le=1000,
        description="How often a job without a checkpoint may start over after interruptions.",
    )
    stalled: Flag = Field(
        default=False,
        description="Restart a program that has made no step for ten times its usual step time (at least a minute), or "
        "has neither printed nor used the processor for half an hour before its second step or without "
        "reported steps. Each restart counts as one of `errors`. Without this a stall is only reported.",
    )
    backoff: Given = Field(
        default="10s", validate_default=True, description="Wait before the first retry; doubles, up to an hour."
    )
