"""Plans a sweep within a budget: how many trials, in which rungs, and when it stops."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everspot_core.experiments.fidelity import Fidelity
from everspot_core.experiments.values import Value

RESERVE = 0.2
"""The part of the budget that is left for boot, idling, interruptions and retries. An assumption: a cluster's report
shows what they really cost."""
KEEP = 3
"""One trial in so many is promoted: the usual factor of successive halving."""
MOST_TRIALS = 500
PARALLEL = 4
_LENGTHS = frozenset({"epochs", "steps", "iterations"})
_QUALIFIERS = frozenset({"num", "n", "max", "total", "train", "training"})
"""Words that a field's name may have before its last one. `warmup_steps` is no length of a training."""


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """The size of a sweep.

    Attributes:
        trials: of the first rung; 0 if the budget does not suffice for one run of full size.
        sizes: the trials of each rung.
        expected_usd: what all of them cost, without the reserve.
        stop_trials: trials without an improvement after which none begins.
    """

    trials: int
    sizes: tuple[int, ...]
    expected_usd: float
    stop_trials: int


def plan_sweep(budget_usd: float, run_usd: float, fidelity: Fidelity | None, start_usd: float = 0.0) -> SweepPlan:
    """Return the largest sweep whose expected cost leaves the reserve of the budget.

    Args:
        run_usd: the cost of one run of full size, with its start.
        start_usd: the part of it that each trial pays in full, however small it is: until it trains.
        fidelity: its rungs, whose values are ascending numbers; None for full size only.
    """
    most = budget_usd * (1 - RESERVE)
    least = len(fidelity.values) if fidelity is not None else 1
    shares = (fidelity.rung_shares() if fidelity is not None else None) or [1.0] * least
    trial_usd = [start_usd + (run_usd - start_usd) * share for share in shares]
    trials, usd = 0, 0.0
    sizes: tuple[int, ...] = (0,)
    for number in range(least, MOST_TRIALS + 1):
        more = tuple(fidelity.rung_sizes(number)) if fidelity is not None else (number,)
        cost = sum(size * usd_each for size, usd_each in zip(more, trial_usd, strict=True))
        if cost > most:
            break
        trials, sizes, usd = number, more, cost
    return SweepPlan(trials=trials, sizes=sizes, expected_usd=usd, stop_trials=max(5, trials // 4))


def find_fidelity(values: Mapping[str, Any]) -> Fidelity | None:
    """Return the rungs of a job by the field that says how long it trains; None if no field does.

    Args:
        values: the values of `parameters.…` and `env.…`, by field.
    """
    for field, value in values.items():
        number = _number(value)
        *words, last = field.partition(".")[2].lower().split("_")
        if number is not None and number > 1 and last in _LENGTHS and _QUALIFIERS.issuperset(words):
            is_whole = float(number).is_integer()
            sizes: list[Value] = [number / KEEP**2, number / KEEP, number]
            rungs = [max(1, round(float(size))) if is_whole else size for size in sizes]
            return Fidelity(field=field, values=list(dict.fromkeys(rungs)), keep=KEEP)
    return None


def is_same_size(value: Any, other: Any) -> bool:
    """Return whether two values of a fidelity field are the same number, or else the same text."""
    numbers = _number(value), _number(other)
    return numbers[0] == numbers[1] if None not in numbers else str(value) == str(other)


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None
