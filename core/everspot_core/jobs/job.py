"""The request of a user: the job spec, and the submission that is stored for it."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Self

from pydantic import (
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from everspot_core.documents import Document, Duration, Frozen, Stored, Utc, is_stored
from everspot_core.jobs.early_stop import StopRule as StopRule
from everspot_core.jobs.job_parts import Budget as Budget
from everspot_core.jobs.job_parts import CheckpointPolicy as CheckpointPolicy
from everspot_core.jobs.job_parts import ContinueFrom as ContinueFrom
from everspot_core.jobs.job_parts import JobLimits as JobLimits
from everspot_core.jobs.job_parts import LimitAction as LimitAction
from everspot_core.jobs.job_parts import Precision as Precision
from everspot_core.jobs.job_parts import Priority as Priority
from everspot_core.jobs.job_parts import Resources as Resources
from everspot_core.jobs.job_parts import Retries as Retries
from everspot_core.jobs.job_rules import (
    NO_CLOUD,
    CloudRules,
    cache_faults,
    container_faults,
    dataset_faults,
    entrypoint_faults,
    env_faults,
    image_faults,
    limit_faults,
    move_faults,
    process_faults,
    program_faults,
    repeated,
    secret_faults,
    setup_faults,
    stop_faults,
    stream_faults,
    tag_faults,
    written_faults,
)
from everspot_core.jobs.recipes import parameter_faults
from everspot_core.jobs.run_condition import Condition
from everspot_core.jobs.timing import Hours, Skip
from everspot_core.jobs.timing_rules import LEAST_EVERY, after_faults, timing_faults
from everspot_core.jobs.tracking import Tracking, tracking_faults
from everspot_core.jobs.visit_records import Visit as Visit
from everspot_core.validation.field_types import Flag, Line, Name, Span, Whole
from everspot_core.validation.problems import BadInputs, Problem

_RULES: dict[str, Callable[[Any], list[Problem]]] = {
    "entrypoint": entrypoint_faults,
    "datasets": dataset_faults,
    "setup": setup_faults,
    "tags": tag_faults,
    "after": after_faults,
}
_CLOUDS: dict[str, Callable[[Any, CloudRules], list[Problem]]] = {
    "secrets": secret_faults,
    "env": env_faults,
    "image": image_faults,
}
_CLOUD_RULES = "clouds"

MOST_PROCESSES = 1024
"""The most processes of a job, more than any machine has processors."""

YEARS = (2020, 2100)
"""The first and the last year that a time in a job file may have."""


class JobSpec(Frozen):
    """A training job as its author writes it."""

    name: Name
    recipe: Line | None = Field(default=None, description="A built-in recipe, instead of entrypoint.")
    entrypoint: list[str] | None = Field(
        default=None,
        description="Script and arguments. The script is run in the root of `code`; several `processes` by torchrun.",
    )
    code: Line | None = Field(default=None, description="Folder with the program, packed and uploaded at submission.")
    parameters: dict[str, JsonValue] = Field(default_factory=dict, description="Parameters of the recipe.")
    env: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables of the training process, without secrets. `EVERSPOT_*` and the variables of "
        "clouds, listed below, belong to the instance and are refused.",
    )
    datasets: list[str] = Field(
        default_factory=list,
        description="Datasets of `everspot data put`, by `name` (its newest version when the job is submitted) or "
        "`name@digest`. The program finds each as a folder of its name in `EVERSPOT_DATA`.",
    )
    stream: list[str] = Field(
        default_factory=list,
        description="Names of `datasets` that are not fetched before the start, but read through a limited cache by "
        "`everspot_train.shards`.",
    )
    image: str | None = Field(
        default=None,
        description="An OCI image in which the script is run, by its own `python3`: a dataset in OCI's image layout, "
        "by `name` or `name@digest`, or `HOST/REPOSITORY@sha256:DIGEST` in a registry of the cluster's cloud.",
    )
    requirements: Line | None = Field(
        default=None,
        description="Lock file with a line `name==version` for each package, dependencies included. `everspot submit` "
        "fetches the wheels. The instance installs them without an index, for this job alone.",
    )
    setup: list[str] = Field(
        default_factory=list,
        description="Shell commands, run by bash in the root of `code` before each start of the program. A failing "
        "command is an error of the job.",
    )
    secrets: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables that get secrets of the cloud. Give the secret's name, in a form that is "
        "listed below. The instance reads the values with its role, stores them "
        "nowhere and removes them from the log.",
    )
    resources: Resources = Resources()
    processes: Whole | None = Field(
        default=None,
        ge=1,
        le=MOST_PROCESSES,
        description="Processes of the program on its instance, as torchrun's `--nproc-per-node`. Default: one for "
        "each of `resources.gpus`, else one. With GPUs at most one per GPU, since NCCL does not allow two "
        "ranks on one GPU; each process sees all GPUs of the job. Without GPUs the processes share the vCPUs.",
    )
    priority: Priority = Priority.NORMAL
    deadline: Span | Utc | None = Field(
        default=None,
        description="A moment, or a duration from submission. With `expected_duration`, a deadline that is closer "
        "than `expected_duration`, a changeover and a scheduler's tick together is refused (unless `everspot submit "
        "--force`). A changeover counts as 15m until the cluster has measured its own.",
    )
    expected_duration: Span | None = Field(
        default=None,
        description="Upper bound of the uninterrupted running time, for deadlines and prices. Without it a job with "
        "a deadline does not wait for spot.",
    )
    after: list[str] = Field(
        default_factory=list,
        description="Jobs that must succeed first, by id or by name (the newest job with this name). If one of "
        "them fails, this job fails too. The program finds the `outputs/` of each in a folder of its name below "
        "`EVERSPOT_INPUTS`.",
    )
    start_after: Span | Utc | None = Field(
        default=None, description="A moment, or a duration from submission. The job does not start earlier."
    )
    window: Hours | None = Field(
        default=None,
        description="Hours of the day in which the job runs, such as `22:00-06:00` (UTC) or `22:00-06:00 Europe/"
        "Berlin`. When they end, the job checkpoints and waits for the next window.",
    )
    run_if: Condition | None = Field(
        default=None,
        description="The job runs only if this holds once the jobs of `after` have succeeded, as in "
        "`metric(train.accuracy) > last(deployed.accuracy) + 0.5%`. Otherwise it is SKIPPED at no cost, and so are the "
        "jobs after it. `metric`: of a job of `after`; `last`: of the latest successful job of that name.",
    )
    continue_from: ContinueFrom | None = Field(
        default=None,
        description="With `every`: `last` gives each run the `outputs/` of the last successful run of the series, in a "
        "folder of the job's own name below `EVERSPOT_INPUTS`. The first run finds none. Its checkpoints are not given "
        "on: save what the next run loads in `outputs/`.",
    )
    every: Span | None = Field(
        default=None,
        description="Makes a series: each run starts this long after the planned start of the last one, but never "
        "before the last one has ended. `everspot cancel` of a run ends the series.",
    )
    skip_if: Skip | None = Field(
        default=None,
        description="With `every`: skip one run if the last run has improved a metric too little over the run before "
        "it, as in `test_accuracy gain < 0.01` or `loss drop < 0.1`.",
    )
    clouds: list[Name] = Field(
        default_factory=list,
        max_length=20,
        description="The clouds in which the job may run, by name. It may then move, with its checkpoint, to peers of "
        "its cluster in these clouds. Without `clouds` and `clusters` the job stays in the cluster to which it "
        "was submitted.",
    )
    clusters: list[Name] = Field(
        default_factory=list,
        max_length=20,
        description="The only peers, by name, to which the job may move. Default: all peers in one of `clouds`.",
    )
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    precision: Precision = Precision.AUTO
    mixed_on_failover: Flag = Field(
        default=False,
        description="With `precision: auto` and the trainer library: the run begins in fp32, and changes to mixed "
        "precision when it moves, after a failover, to a type whose GPUs have less memory than it uses in "
        "fp32. The change is recorded as an event; the job's numbers differ from then on.",
    )
    budget: Budget = Budget()
    limits: JobLimits | None = Field(
        default=None, description="What happens if its GPUs compute too little. Default: nothing."
    )
    cache: Flag = Field(
        default=False,
        description="Do not run the job if the same stage has succeeded before and its outputs are there: same code, "
        "data, packages, parameters, environment, resources, image, and inputs from earlier jobs. It then succeeds at "
        "no cost, with these outputs and metrics. It waits while the same stage is under way.",
    )
    stop: StopRule | None = Field(
        default=None, description="When it ends because a metric no longer improves. Default: never."
    )
    tracking: Tracking | None = Field(
        default=None, description="Where its metrics go besides the store. Default: nowhere."
    )
    retries: Retries = Retries()
    tags: dict[str, str] = Field(
        default_factory=dict,
        description="Project, Team, Environment, ModelVersion, … Without Team, the job gets the one of the cluster's "
        "stack.",
    )

    @classmethod
    def from_values(cls, values: Any, clouds: CloudRules) -> Self:
        """Return the job of a job file's values. `clouds`: the rules of the clouds that may run it.

        Raises:
            pydantic.ValidationError: if it is no valid job.
        """
        return cls.model_validate(values, context={_CLOUD_RULES: clouds})

    @property
    def process_count(self) -> int:
        """The number of processes on its instance. Default: one for each GPU that the job asks for, at least one."""
        return self.processes if self.processes is not None else max(1, self.resources.gpus)

    @field_validator(*_RULES, *_CLOUDS, mode="before")
    @classmethod
    def _apply_field_rules(cls, value: object, info: ValidationInfo) -> object:
        name = str(info.field_name)
        clouds = (info.context or {}).get(_CLOUD_RULES, NO_CLOUD)
        faults = _CLOUDS[name](value, clouds) if name in _CLOUDS else _RULES[name](value)
        if not is_stored(info):
            faults = [*faults, *written_faults(name, value)]
        if faults:
            raise BadInputs(name, faults)
        return value

    @field_validator("clouds", "clusters")
    @classmethod
    def _reject_duplicates(cls, value: list[str], info: ValidationInfo) -> list[str]:
        twice = [] if is_stored(info) else repeated(value)
        if twice:
            raise ValueError(f"{', '.join(twice)}: listed twice")
        return value

    @field_validator("deadline", "start_after")
    @classmethod
    def _check_year(cls, value: timedelta | datetime | None, info: ValidationInfo) -> timedelta | datetime | None:
        if isinstance(value, datetime) and not is_stored(info) and not YEARS[0] <= value.year <= YEARS[1]:
            raise ValueError(f"a moment lies in the years {YEARS[0]} to {YEARS[1]}")
        return value

    @field_validator("every")
    @classmethod
    def _check_least_interval(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and value < LEAST_EVERY:
            raise ValueError("must be at least 1m")
        return value

    @field_validator("parameters")
    @classmethod
    def _check_parameters(cls, value: dict[str, JsonValue], info: ValidationInfo) -> dict[str, JsonValue]:
        recipe = info.data.get("recipe")
        if not _is_finite(value):
            raise ValueError("a number is infinite or none (NaN), which JSON cannot carry")
        if value and recipe is None and "recipe" in info.data:
            raise ValueError("parameters belong to recipe; a script takes its arguments in entrypoint")
        if recipe is not None and not is_stored(info) and (faults := parameter_faults(recipe, value)):
            raise BadInputs("parameters", faults)
        return value

    @model_validator(mode="after")
    def _check_program(self) -> "JobSpec":
        values = dict(self)
        faults = [
            *program_faults(values),
            *stream_faults(values),
            *container_faults(values),
            *process_faults(self.processes, self.resources.gpus),
            *limit_faults(has_limits=self.limits is not None, gpus=self.resources.gpus),
            *stop_faults(values),
            *cache_faults(values),
            *timing_faults(values),
            *move_faults(values),
            *tracking_faults(values),
        ]
        if faults:
            raise BadInputs("the job", faults)
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
        """Its key in the data bucket."""
        return f"wheels/{self.sha256}/{self.name}"


class PrecedingJob(Stored):
    """A job that has to succeed before another one begins. `name`: the name that the other job uses for it."""

    name: str
    job_id: str
    reused: bool = Field(
        default=False, description="`job_id` is the job that computed the outputs, in place of one that was not run."
    )


class Series(Stored):
    """A job's place in a series. `id`: of the first run. `before`: the metrics of the run before this one."""

    id: str
    run: int = 1
    before: dict[str, float] = Field(default_factory=dict)


class JobSubmission(Document):
    """The one document that creates a job. The submitter writes it once; it never changes."""

    job_id: str
    spec: JobSpec
    submitted_at: Utc
    deadline_at: Utc | None = None
    start_at: Utc | None = Field(default=None, description="It does not begin before.")
    after: list[PrecedingJob] = Field(default_factory=list, description="As in the spec, each with its id.")
    series: Series | None = Field(default=None, description="Where the spec has `every`.")
    code_digest: str | None = Field(
        default=None, description="SHA-256 of the packed code under `code/` in the data bucket."
    )
    datasets: list[str] = Field(
        default_factory=list, description="As in the spec, each with its whole digest; last the image."
    )
    wheels: list[Wheel] = Field(default_factory=list, description="What the lock file of the spec names.")
    submitted_by: str = ""
    forced: bool = Field(
        default=False, description="Its author wants it run although its deadline cannot be kept, as far as is known."
    )
    changeover_bound: Duration | None = Field(
        default=None, description="The bound on a changeover by which its deadline was accepted."
    )
    stage_key: str | None = Field(default=None, description="The digest of its stage, where the spec has `cache`.")
    same_stage: list[str] = Field(
        default_factory=list, description="Earlier jobs of the same stage: if one succeeds, this job is not run."
    )
    retry_of: str | None = Field(default=None, description="The job from whose newest checkpoint it goes on.")
    warm_start: bool = Field(
        default=False, description="Of a promoted trial: what does not fit of the checkpoint of `retry_of` is skipped."
    )
    visit: Visit | None = Field(default=None, description="Whose job it is, if it came from another cluster.")

    @property
    def team(self) -> str:
        """The team of this cluster that pays for the job. It is empty without a tag, and for a job of another cluster,
        where a team may have the same name."""
        return self.spec.tags.get("Team", "") if self.visit is None else ""

    @property
    def home_id(self) -> str:
        """The job's id in its own cluster, which stays the same when the job moves."""
        return self.visit.job_id if self.visit is not None else self.job_id
