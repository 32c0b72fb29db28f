"""A sweep: one job run many times with different values of some fields, to find those with the best metric."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from math import prod
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, JsonValue, ValidationInfo, model_validator

from everspot_core.counting import counted
from everspot_core.documents import Document, Frozen, Utc, is_stored
from everspot_core.experiments.fidelity import Fidelity as Fidelity
from everspot_core.experiments.values import Value as Value
from everspot_core.jobs.early_stop import Delta, MinDelta, StopMode, infer_mode
from everspot_core.jobs.records import JobState
from everspot_core.validation.field_types import Flag, Line, Name, Number, Whole
from everspot_core.validation.problems import BadInputs, Problem, shown

SWEEP_TAG = "Sweep"
"""The tag of a trial's job whose value is the name of its sweep."""
_TRIAL = re.compile(r"(?P<sweep>.+)-t(?P<number>\d+)(?:-r(?P<rung>\d+))?")
_RETRY = re.compile(r"(?P<sweep>.+)-[0-9a-f]{8}")
MOST = 1e15
"""The largest absolute value of a range's end. Beyond it a 64-bit float cannot tell whole numbers apart."""
_VALUES = 1e12
"""The most values of a range with a step."""
CHECKED_TRIALS = 64
"""The most combinations of values that are checked before a sweep begins: each costs a check of a whole job."""


def _figure(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"has to be a number, not {shown(value)}")
    if not -MOST <= value <= MOST:  # refuses NaN, too
        raise ValueError(f"has to be a number from {-MOST:.0e} to {MOST:.0e}")
    return value


Figure = Annotated[int | float, BeforeValidator(_figure)]
"""A number; an int if it is written as one."""


class Direction(StrEnum):
    """Whether greater or smaller values of the metric are better."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


def infer_direction(metric: str) -> Direction | None:
    """Infer from a metric's name whether greater values are better; None if the name does not show it."""
    mode = infer_mode(metric)
    if mode is None:
        return None
    return Direction.MINIMIZE if mode is StopMode.MIN else Direction.MAXIMIZE


class Pruning(StrEnum):
    """How trials that do worse than others are ended early: by successive halving (`asha`), by several brackets of it
    (`hyperband`), or not at all."""

    ASHA = "asha"
    HYPERBAND = "hyperband"
    NONE = "none"


class Dimension(Frozen):
    """The values that one field may have: `choices`, or a range."""

    low: Figure | None = None
    high: Figure | None = Field(default=None, description="Included. The values are whole where both ends are.")
    step: Figure | None = Field(default=None, gt=0, description="Between two values of a range.")
    log: Flag = Field(default=False, description="Orders of magnitude are equally likely.")
    choices: list[Value] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "Dimension":
        ends = [end for end in (self.low, self.high) if end is not None]
        if self.choices is not None:
            if ends or self.step is not None or self.log:
                raise ValueError("has either choices or a range, and not both")
            if not self.choices or len({repr(c) for c in self.choices}) < len(self.choices):
                raise ValueError("choices: at least one, each once")
            return self
        if len(ends) < 2:
            raise ValueError("needs low and high, or choices")
        if ends[0] >= ends[1]:
            raise ValueError("low has to be less than high")
        if self.log and (ends[0] <= 0 or self.step is not None):
            raise ValueError("log needs a low greater than 0, and has no step")
        if self.step is not None and self.whole and not isinstance(self.step, int):
            raise ValueError("step has to be whole, as low and high are")
        if self.step is not None and (ends[1] - ends[0]) / self.step > _VALUES:
            raise ValueError(f"step leaves more than {_VALUES:.0e} values")
        return self

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def first(self) -> Value:
        """The first of its values."""
        value = self.choices[0] if self.choices is not None else self.low
        assert value is not None  # noqa: S101 - it has one of the two
        return value

    @property
    def corners(self) -> list[Value]:
        """All choices, or both ends of the range: where a value that the job refuses shows."""
        if self.choices is not None:
            return list(self.choices)
        return [end for end in (self.low, self.high) if end is not None]


class SweepBudget(Frozen):
    """The budget of all trials together. Once it is used up, no trial begins, and running trials are cancelled."""

    dollars: Number | None = Field(default=None, gt=0, le=1e9)
    gpu_hours: Number | None = Field(default=None, gt=0, le=1e9)


class SweepStop(Frozen):
    """Begins no further trial once the best has not improved over so many `trials`, or over so many dollars (`usd`),
    whichever comes first. Running trials end by themselves."""

    min_delta: Delta = Field(default=MinDelta(), description="The change that an improvement has to exceed.")
    trials: Whole | None = Field(default=None, ge=1, le=10_000)
    usd: Number | None = Field(default=None, gt=0, le=1e9)

    @model_validator(mode="after")
    def _has_span(self) -> "SweepStop":
        if self.trials is None and self.usd is None:
            raise ValueError("needs trials or usd: over how much the best has to improve")
        return self


@dataclass(frozen=True, kw_only=True)
class EndedTrial:
    """The result of a trial that is over.

    Attributes:
        value: of the metric; None of a trial that was ended early or failed.
        failed: whether the trial says nothing about its values. Its dollars count, and itself does not.
    """

    value: float | None
    dollars: float
    failed: bool = False


def end_sweep(spec: "SweepSpec", trials: Sequence[EndedTrial]) -> str | None:
    """Return why the sweep begins no further trial, in words; None while it goes on.

    Args:
        trials: the ended trials, in the order in which they began.
    """
    rule, sign = spec.stop, 1 if spec.direction is Direction.MAXIMIZE else -1
    if rule is None:
        return None
    reference: float | None = None
    count, dollars = 0, 0.0
    for trial in trials:
        value = trial.value
        if value is not None and (reference is None or sign * (value - reference) > rule.min_delta.absolute(reference)):
            reference, count, dollars = value, 0, 0.0
        elif reference is not None:
            count, dollars = count + (not trial.failed), dollars + trial.dollars
    by = f" by {rule.min_delta}" if rule.min_delta.amount else ""
    if rule.trials is not None and count >= rule.trials:
        return f"the best {spec.metric} has not improved{by} in {counted(count, 'trial')}"
    if rule.usd is not None and dollars >= rule.usd:
        return f"the best {spec.metric} has not improved{by} for ${dollars:.2f}"
    return None


class SweepSpec(Frozen):
    """A sweep as its author writes it."""

    name: Name
    job: Line = Field(description="File of the job, relative to this one.")
    metric: Line = Field(description="One of the metrics that the job reports.")
    direction: Direction = Field(
        default=Direction.MAXIMIZE,  # of stored sweeps without one
        description="Whether greater values of the metric are better. Default: by its name, such as loss or accuracy.",
    )
    fields: dict[str, Dimension] = Field(
        min_length=1, description="By field of the job, such as `parameters.lr` or `env.SEED`: the values to try."
    )
    trials: Whole = Field(ge=1, le=10_000, description="How many there are at most.")
    parallel: Whole = Field(default=4, ge=1, le=1000, description="How many are under way at the same time.")
    budget: SweepBudget = SweepBudget()
    stop: SweepStop | None = None
    pruner: Pruning = Pruning.ASHA
    min_steps: Whole = Field(default=1, ge=1, le=10**12, description="Steps before which no trial is ended early.")
    seed: Whole | None = Field(default=None, ge=0, le=2**32 - 1, description="Of the sampler.")
    fidelity: Fidelity | None = Field(
        default=None, description="Begin all trials small, and bring the best of them to full size."
    )

    @model_validator(mode="before")
    @classmethod
    def _prune_by_rungs(cls, values: Any) -> Any:
        """Leave early ends to the rungs if there are any: values of different sizes cannot be compared."""
        if isinstance(values, Mapping) and values.get("fidelity") is not None and values.get("pruner") is None:
            return {**values, "pruner": Pruning.NONE}
        return values

    @model_validator(mode="before")
    @classmethod
    def _fill_direction(cls, values: Any, info: ValidationInfo) -> Any:
        """Store the direction that the metric's name implies: a later release may read other names."""
        is_missing = isinstance(values, Mapping) and values.get("direction") is None and not is_stored(info)
        if not is_missing or not isinstance(values.get("metric"), str):
            return values
        direction = infer_direction(values["metric"])
        return {**values, "direction": direction} if direction is not None else values

    @model_validator(mode="after")
    def _is_consistent(self, info: ValidationInfo) -> "SweepSpec":
        problems = []
        if "direction" not in self.model_fields_set and not is_stored(info):
            words = f"the name {self.metric} does not say whether lower or higher is better: give minimize or maximize"
            problems.append(Problem("direction", words))
        if self.fidelity is not None:
            problems += self._fidelity_problems(self.fidelity)
        if problems:
            raise BadInputs("the sweep", problems)
        return self

    def _fidelity_problems(self, fidelity: Fidelity) -> list[Problem]:
        problems = []
        if fidelity.field in self.fields:
            problems.append(Problem("fidelity.field", f"{fidelity.field} is one of fields, which every trial varies"))
        if self.pruner is not Pruning.NONE:
            problems.append(Problem("pruner", "has to be none with fidelity, whose rungs end trials early"))
        if self.trials < len(fidelity.values):
            problems.append(Problem("trials", f"has to be at least {len(fidelity.values)}, one for each rung"))
        return problems

    @property
    def rungs(self) -> int:
        """The number of its rungs: 1 without a fidelity field."""
        return len(self.fidelity.values) if self.fidelity is not None else 1

    def rung_fields(self, rung: int) -> dict[str, Value]:
        """Return the value of the fidelity field in a rung."""
        return {self.fidelity.field: self.fidelity.values[rung]} if self.fidelity is not None else {}

    @property
    def job_fields(self) -> dict[str, Dimension]:
        """All fields of the job that trials change, with their values."""
        if self.fidelity is None:
            return dict(self.fields)
        return {**self.fields, self.fidelity.field: Dimension(choices=list(reversed(self.fidelity.values)))}

    def differs(self, other: "SweepSpec") -> list[str]:
        """Return the fields whose difference makes two sweeps different ones. Caps may change while a sweep goes on."""
        free = {"trials", "parallel", "budget", "stop"}
        fixed = [name for name in type(self).model_fields if name not in free]
        return [name for name in fixed if getattr(self, name) != getattr(other, name)]


def trials_to_check(fields: Mapping[str, Dimension]) -> list[dict[str, Value]]:
    """Return the values of the trials that are checked before a sweep begins, the first values first.

    These are all combinations of the fields' corners. If there are more than `CHECKED_TRIALS`, each corner is checked
    with the first values of the other fields.
    """
    corners = {path: dimension.corners for path, dimension in fields.items()}
    if prod(len(values) for values in corners.values()) <= CHECKED_TRIALS:
        return [dict(zip(corners, values, strict=True)) for values in product(*corners.values())]
    first = {path: dimension.first for path, dimension in fields.items()}
    return [first, *({**first, path: value} for path, values in corners.items() for value in values[1:])]


class SweepRecord(Document):
    """The stored record of a sweep that has begun."""

    spec: SweepSpec
    made_at: Utc
    made_by: str = ""


def trial_job(sweep: str, number: int, rung: int = 0) -> str:
    """Return the id of a trial's job. `number`: 0 for the first; of a promoted trial that of its first rung."""
    return f"{sweep}-t{number:04d}{f'-r{rung}' if rung else ''}"


def trial_sweep(job_id: str, tags: Mapping[str, str]) -> str | None:
    """Return the name of the sweep that a job of this id and these tags belongs to; None if it is no trial."""
    match = _TRIAL.fullmatch(job_id)
    return match["sweep"] if match is not None and tags.get(SWEEP_TAG) == match["sweep"] else None


def retried_sweep(job_id: str, tags: Mapping[str, str]) -> str | None:
    """Return the name of the sweep of which this job, by `everspot retry`, runs a trial again; None if it runs none."""
    match = _RETRY.fullmatch(job_id)
    return match["sweep"] if match is not None and tags.get(SWEEP_TAG) == match["sweep"] else None


def trial_rung(job_id: str) -> int:
    """Return the rung of a trial's job; 0 for the first, and without a fidelity field."""
    match = _TRIAL.fullmatch(job_id)
    return int(match["rung"] or 0) if match is not None else 0


def is_useful(state: JobState, value: float | None) -> bool:
    """Return whether a trial was useful: its job ran to its end and reported the metric, so that it can be compared
    with others. Trials that were ended early, failed or were cancelled were not."""
    return state is JobState.SUCCEEDED and value is not None


@dataclass(frozen=True, kw_only=True)
class SweepCost:
    """The cost of a sweep.

    Attributes:
        dollars: for all of its trials.
        useful: the number of useful trials (`is_useful`).
    """

    trials: int
    useful: int
    dollars: float

    def figures(self) -> dict[str, float | None]:
        """Return dollars in total, per trial, and per useful trial; None if there is no such trial."""
        return {
            "cost_usd": round(self.dollars, 6),
            "cost_per_trial_usd": self._each(self.trials),
            "cost_per_useful_trial_usd": self._each(self.useful),
        }

    def _each(self, count: int) -> float | None:
        return round(self.dollars / count, 6) if count else None


class JournalEntry(Document):
    """A piece of the journal of a sweep's study, as Optuna writes it: operations, in order. Written once."""

    logs: list[dict[str, JsonValue]]
