"""Compares an earlier and a later run of a job by their measurements and at list prices, to show whether a change
helped.

The cost of a run is that of its useful seconds at list price. So neither the spot price of the day nor an interruption
counts as an effect of the change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import isfinite
from typing import Any

from everspot_core.costs.attempts import Attempt
from everspot_core.governance.pipelines import ACCURACY
from everspot_core.jobs.early_stop import StopMode, infer_mode
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobRecord

NOISE = 0.02
"""The relative difference of two runs' costs that may occur without any change. It is assumed, not measured."""
SAME_WORK = 0.01
"""The relative difference of two runs' epochs that is allowed, for example because of an incomplete last batch."""

_COMPUTES = {
    "recipe", "entrypoint", "parameters", "env", "image", "requirements", "setup", "resources", "processes",
    "precision",
}  # fmt: skip
"""The fields of a spec that determine a job's computation and its machine. Code and datasets count by their digests."""


def describe_partial_run(submission: JobSubmission, record: JobRecord | None, history: Sequence[Attempt]) -> str | None:
    """Return why the cost of a job is not that of a whole run of this cluster; None if it is."""
    if record is not None and record.reused_from is not None:
        return f"it was not run: it has the outputs of {record.reused_from}"
    if submission.visit is not None:
        return f"it is a job of {submission.visit.home}"
    first_step = history[0].from_step if history else None
    if submission.retry_of is not None and first_step:
        return f"it continued {submission.retry_of} from step {first_step}"
    return None


class RunOutcome(StrEnum):
    """How a later run compares with an earlier one. `unknown`: the two cannot be compared, and the reason says why."""

    BETTER = "better"
    SAME = "same"
    WORSE = "worse"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """The known facts of one run.

    Attributes:
        list_usd: dollars for its useful seconds at list price; None: a price is not known.
        epochs: how often it read its data; None: not reported.
        metrics: its last metrics.
    """

    job_id: str
    succeeded: bool
    list_usd: Fraction | None
    epochs: float | None
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """An outcome with a sentence that has the figures, or the reason why it is unknown."""

    outcome: RunOutcome
    reason: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A later run beside an earlier one.

    Attributes:
        cost: whether the later run did the same work for fewer dollars.
        metric: the name of the compared metric; None: no metric is reported by both.
        quality: whether the metric held: `better` and `same` mean that it did.
    """

    cost: RunVerdict
    metric: str | None
    quality: RunVerdict


def compare_runs(earlier: ComparedRun, later: ComparedRun, metric: str | None, tolerance: float) -> RunComparison:
    """Return how a later run compares with an earlier one.

    Args:
        metric: the metric that has to hold; None: see `common_metric`.
        tolerance: the difference for the worse at which the metric still held, in its unit.
    """
    return RunComparison(_compare_costs(earlier, later), metric, _compare_metric(earlier, later, metric, tolerance))


def common_metric(earlier: ComparedRun, later: ComparedRun) -> str | None:
    """Return the accuracy if both runs report it, else the first metric that both have, or None. A loss, error or
    perplexity comes first, and one whose name does not say which values are better last; among several, one that was
    not measured in training."""
    common = sorted(set(_finite(earlier.metrics)) & set(_finite(later.metrics)))
    accuracy = next((name for name in ACCURACY if name in common), None)
    if accuracy is not None or not common:
        return accuracy
    modes = {name: infer_mode(name) for name in common}
    return min(
        common,
        key=lambda name: (modes[name] is not StopMode.MIN, modes[name] is None, "train" in name.lower(), name),
    )


def changed_fields(earlier: JobSubmission, later: JobSubmission) -> list[tuple[str, Any, Any]]:
    """Return the fields of the two specs that differ, such as `parameters.batch_size`, with both values.

    Names, tags and the rules of when a job may run are left out: they do not change what it computes.
    """
    before, now = _fields(earlier), _fields(later)
    return [(name, before.get(name), now.get(name)) for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)]  # fmt: skip


def _fields(submission: JobSubmission) -> dict[str, Any]:
    spec = submission.spec.model_dump(mode="json", include=_COMPUTES)
    fields: dict[str, Any] = {"code": submission.code_digest, "datasets": submission.datasets}
    for name, value in spec.items():
        inner = value if isinstance(value, dict) else None
        fields |= {f"{name}.{key}": each for key, each in inner.items()} if inner is not None else {name: value}
    return fields


def _finite(metrics: Mapping[str, float]) -> Iterable[str]:
    return (name for name, value in metrics.items() if isfinite(value))


def _unfinished(earlier: ComparedRun, later: ComparedRun) -> str | None:
    runs = [run.job_id for run in (earlier, later) if not run.succeeded]
    return f"only runs that succeeded are compared: not {', '.join(runs)}" if runs else None


def _incomparable_costs(earlier: ComparedRun, later: ComparedRun) -> str | None:
    """Return why the costs of two runs cannot be compared."""
    unfinished = _unfinished(earlier, later)
    if unfinished is not None:
        return unfinished
    epochs = (earlier.epochs, later.epochs)
    if epochs[0] is not None and epochs[1] is not None and abs(epochs[0] - epochs[1]) > SAME_WORK * epochs[0]:
        return f"the runs read their data {epochs[0]:.3g} and {epochs[1]:.3g} times, which is different work"
    return None if earlier.list_usd and later.list_usd is not None else "a list price of their instances is not known"


def _compare_costs(earlier: ComparedRun, later: ComparedRun) -> RunVerdict:
    reason = _incomparable_costs(earlier, later)
    if reason is not None or not earlier.list_usd or later.list_usd is None:
        return RunVerdict(RunOutcome.UNKNOWN, reason or "")
    change = float(later.list_usd / earlier.list_usd) - 1
    figures = f"${float(later.list_usd):.4f} instead of ${float(earlier.list_usd):.4f} at list price"
    if abs(change) <= NOISE:
        return RunVerdict(RunOutcome.SAME, f"{figures}: a difference of {abs(change):.1%} may be chance")
    if change < 0:
        return RunVerdict(RunOutcome.BETTER, f"{figures}: {-change:.0%} less")
    return RunVerdict(RunOutcome.WORSE, f"{figures}: {change:.0%} more")


def _compare_metric(earlier: ComparedRun, later: ComparedRun, metric: str | None, tolerance: float) -> RunVerdict:
    if metric is None:
        return RunVerdict(RunOutcome.UNKNOWN, "no metric is reported by both runs")
    missing = [run.job_id for run in (earlier, later) if metric not in _finite(run.metrics)]
    if missing:
        return RunVerdict(RunOutcome.UNKNOWN, f"{metric} is not reported by {', '.join(missing)}")
    unfinished = _unfinished(earlier, later)
    if unfinished is not None:
        return RunVerdict(RunOutcome.UNKNOWN, unfinished)
    before, now = earlier.metrics[metric], later.metrics[metric]
    figures, mode = f"{metric} {now:.4g} instead of {before:.4g}", infer_mode(metric)
    if mode is None:
        words = f"{figures}: the name {metric} does not say whether lower or higher is better"
        return RunVerdict(RunOutcome.UNKNOWN, words)
    gain = before - now if mode is StopMode.MIN else now - before
    if gain < -tolerance:
        return RunVerdict(RunOutcome.WORSE, f"{figures}: worse by more than {tolerance:.3g}")
    if gain > tolerance:
        return RunVerdict(RunOutcome.BETTER, figures)
    return RunVerdict(RunOutcome.SAME, f"{figures}: within {tolerance:.3g}")
