"""Early stopping: ends a job whose metric no longer improves.

The decision depends only on the series of values by step. So it is the same on another machine, after an interruption,
and in every program that reports the same values.
"""

import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, field_validator, model_validator

from everspot_core.counting import counted
from everspot_core.documents import Frozen, Stored, is_stored
from everspot_core.jobs.reported_values import Step
from everspot_core.jobs.step_lines import is_metric_name
from everspot_core.validation.field_types import Line, Whole, parse_percentage
from everspot_core.validation.problems import BadInputs, Problem, shown

MOST_PATIENCE = 10_000
"""The largest `patience`, and the number of newest evaluations that are kept for programs that repeat some of them."""
_LARGEST = 1e300
_LOWER_IS_BETTER = (
    *("loss", "error", "error rate", "perplexity", "ppl", "mse", "rmse", "mae", "mape", "nll", "cross entropy"),
    *("wer", "cer", "bpb", "bpc", "bits per byte", "bits per character", "bits per char", "bits per dim"),
)
_HIGHER_IS_BETTER = (
    *("accuracy", "acc", "f1", "auc", "auroc", "precision", "recall", "bleu", "iou", "miou", "dice"),
    *("ndcg", "mrr", "rouge", "ssim", "psnr", "error free rate"),
)
"""The last words of metrics' names."""
_INVERTED = frozenset({"neg", "negative", "inverse", "inverted"})
"""Words that invert the meaning of a name's last word, as in `neg_log_loss`."""
_WORD = re.compile(r"[a-z0-9]+")


class StopMode(StrEnum):
    """Whether lower (`min`) or higher (`max`) values of the metric are better."""

    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class MinDelta:
    """The change of a metric that an improvement has to exceed.

    Attributes:
        amount: the change; if `is_relative`, as a fraction of the value that has to be improved.
    """

    amount: float = 0.0
    is_relative: bool = False

    @classmethod
    def parse(cls, value: Any) -> "MinDelta":
        """Parse a number, or a percentage such as `0.1%`.

        Raises:
            ValueError: if the value is neither, or is negative, infinite, or a percentage above 100.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            percent = parse_percentage(value)
            if percent > 100:
                raise ValueError(f"has to be at most 100%, not {shown(value)}")
            return cls(percent / 100, is_relative=True)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
            raise ValueError(f"has to be a number from 0, or a percentage such as 0.1%, not {shown(value)}")
        return cls(float(value))

    def __str__(self) -> str:
        """Return the change as a person writes it."""
        return f"{100 * self.amount:.7g}%" if self.is_relative else f"{self.amount:g}"

    def absolute(self, value: float) -> float:
        """Return the change in the metric's units. `value`: the value that has to be improved."""
        return self.amount * abs(value) if self.is_relative else self.amount


def _write_delta(delta: MinDelta) -> float | str:
    return str(delta) if delta.is_relative else delta.amount


Delta = Annotated[MinDelta, BeforeValidator(MinDelta.parse), PlainSerializer(_write_delta, when_used="json")]


def infer_mode(metric: str) -> StopMode | None:
    """Infer from a metric's name whether lower or higher values are better; None if the name does not show it."""
    words = _WORD.findall(metric.lower())
    while words and words[-1].isdecimal():  # as in precision@5
        words.pop()
    if _INVERTED.intersection(words):
        return None
    name = f" {' '.join(words)}"
    if any(name.endswith(f" {last}") for last in _HIGHER_IS_BETTER):
        return StopMode.MAX
    return StopMode.MIN if any(name.endswith(f" {last}") for last in _LOWER_IS_BETTER) else None


class StopRule(Frozen):
    """Ends the job as SUCCEEDED once a metric no longer improves."""

    metric: Line = Field(description="A metric that the program reports. Each step with a value is one evaluation.")
    mode: StopMode | None = Field(
        default=None,
        description="Whether lower or higher values are better. Default: `min` for names that end in `loss`, `error` "
        "or `perplexity`, `max` for `accuracy`, `f1` or `auc`; most others need it.",
    )
    min_delta: Delta = Field(
        default=MinDelta(),
        description="The change that an improvement has to exceed: a number, or a percentage such as `0.1%` of the "
        "last improvement's value.",
    )
    patience: Whole = Field(
        default=3,
        ge=1,
        le=MOST_PATIENCE,
        description="Evaluations in a row without an improvement after which the job ends.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_mode(cls, values: Any) -> Any:
        """Store the mode that the name implies: a later release may read other names."""
        if isinstance(values, Mapping) and values.get("mode") is None and isinstance(values.get("metric"), str):
            mode = infer_mode(values["metric"])
            return {**values, "mode": mode} if mode is not None else values
        return values

    @field_validator("metric")
    @classmethod
    def _reportable(cls, value: str, info: ValidationInfo) -> str:
        if not is_stored(info) and not is_metric_name(value):
            raise ValueError("no program can report this name: it has letters, digits and _./-, first a letter or _")
        return value

    @model_validator(mode="after")
    def _has_mode(self) -> "StopRule":
        if self.mode is None:
            words = f"the name {self.metric} does not say whether lower or higher is better: give min or max"
            raise BadInputs("stop", [Problem("mode", words)])
        return self

    def improves(self, value: float, reference: float) -> bool:
        """Return whether a value is better than a reference by more than `min_delta`."""
        delta = self.min_delta.absolute(reference)
        return value < reference - delta if self.mode is StopMode.MIN else value > reference + delta

    def is_better(self, value: float, other: float) -> bool:
        """Return whether a value is better than another one, by any amount."""
        return value < other if self.mode is StopMode.MIN else value > other


class EarlyStop(Stored):
    """The end of a job by its `stop`: at which step, and what the best value was."""

    metric: str
    step: Step = Field(description="Optimizer steps at the evaluation that ended it.")
    evaluations: int = Field(description="The number of evaluations in a row without an improvement.")
    best: float
    best_step: Step
    min_delta: Delta = MinDelta()

    @property
    def sentence(self) -> str:
        """The reason in words, for people."""
        by = f" by {self.min_delta}" if self.min_delta.amount else ""
        return (
            f"stopped early: {self.metric} has not improved{by} for {counted(self.evaluations, 'evaluation')}; "
            f"best {self.best:.4g} at step {self.best_step:,}"
        )


@dataclass(frozen=True, slots=True)
class StopState:
    """The result of the evaluations so far.

    Attributes:
        last_step: the step of the last evaluation; -1 before the first.
        reference: the value that the next evaluation has to improve; None before the first finite value.
        best: the best value; better than the reference by at most `min_delta`.
        misses: evaluations in a row without an improvement.
    """

    last_step: int = -1
    reference: float | None = None
    best: float = math.nan
    best_step: int = 0
    misses: int = 0

    def observe(self, rule: StopRule, step: int, value: float) -> "StopState":
        """Return the state after one more evaluation. Once the job has to stop, the state no longer changes."""
        state = replace(self, last_step=step)
        if self.misses >= rule.patience:
            return self
        if not math.isfinite(value):
            return state if self.reference is None else replace(state, misses=self.misses + 1)
        if self.reference is None or rule.is_better(value, self.best):
            state = replace(state, best=value, best_step=step)
        if self.reference is None or rule.improves(value, self.reference):
            return replace(state, reference=value, misses=0)
        return replace(state, misses=self.misses + 1)


class StopTracker:
    """Decides by the evaluations of one metric, one at a time. Not thread-safe.

    If a program resumes from a checkpoint, it repeats steps. An evaluation at a repeated step replaces the earlier
    evaluation of that step and all later ones.
    """

    def __init__(self, rule: StopRule) -> None:
        self.rule = rule
        self._states: deque[StopState] = deque([StopState()], maxlen=MOST_PATIENCE + 1)

    def add(self, step: int, value: float) -> None:
        """Add the value of an evaluation, which need not be finite."""
        states = self._states
        while len(states) > 1 and states[-1].last_step >= step:
            states.pop()
        if states[-1].last_step > step:  # the step is before all remembered evaluations: restart the count
            states[-1] = StopState()
        elif states[-1].last_step == step:  # of the state that was loaded
            return
        states.append(states[-1].observe(self.rule, step, value))

    @property
    def has_evaluations(self) -> bool:
        """Whether the metric was ever reported."""
        return self._states[-1].last_step >= 0

    @property
    def early_stop(self) -> EarlyStop | None:
        """The end of the job; None while it continues."""
        state = self._states[-1]
        if state.misses < self.rule.patience:
            return None
        return EarlyStop(
            metric=self.rule.metric,
            step=state.last_step,
            evaluations=state.misses,
            best=state.best,
            best_step=state.best_step,
            min_delta=self.rule.min_delta,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state, of values that need no pickle, for a checkpoint."""
        state = self._states[-1]
        return {
            "rule": self.rule.model_dump_json(),
            "last_step": state.last_step,
            "reference": state.reference,
            "best": state.best,
            "best_step": state.best_step,
            "misses": state.misses,
        }

    def load_state_dict(self, saved: Mapping[str, Any] | None) -> None:
        """Continue from a saved state. A state of another rule is ignored, and the count restarts."""
        self._states.clear()
        self._states.append(StopState())
        if saved is not None and saved["rule"] == self.rule.model_dump_json():
            self._states[0] = StopState(**{name: value for name, value in saved.items() if name != "rule"})
