"""The setting of a simulated job, and the ticks of a trace at which it may start."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from everspot_core.validation.problems import Problems
from numpy.typing import NDArray

from everspot_simulator.trace import Trace

MOST_TICK_SECONDS = 365 * 86400
"""The longest tick of a clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One job.

    Attributes:
        changeover_hours: launch, set-up and lost progress, at each entry to spot or on-demand.
        price_ratio: on-demand price over spot price. Spot costs 1 per hour; where a trace has prices, on-demand costs
            the ratio times their mean.
        nodes: instances that the job needs at the same time; prices and hours are those of one.
        tick_seconds: the time between two decisions on a clock of whole ticks, with which every changeover ends. None:
            decisions come with the ticks of the trace, and a changeover may end between two of them.

    Raises:
        BadInputs: naming every value that is out of range.
    """

    job_hours: float
    deadline_hours: float
    changeover_hours: float
    price_ratio: float
    nodes: int = 1
    tick_seconds: float | None = None

    def __post_init__(self) -> None:
        problems = Problems()
        for name in ("job_hours", "deadline_hours", "price_ratio"):
            value = getattr(self, name)
            problems.need(0 < value < math.inf, name, f"must be > 0; it is {value}")
        value = self.changeover_hours
        problems.need(0 <= value < math.inf, "changeover_hours", f"must be >= 0; it is {value}")
        problems.need(self.nodes >= 1, "nodes", f"must be >= 1; it is {self.nodes}")
        tick = self.tick_seconds
        # A timedelta holds whole microseconds; the longest tick is a year.
        allowed = tick is None or 1e-6 <= tick <= MOST_TICK_SECONDS
        problems.need(allowed, "tick_seconds", f"must be > 0 and <= {MOST_TICK_SECONDS}, in seconds; it is {tick}")
        problems.raise_any("simulation")

    @property
    def job(self) -> float:
        """The job's computing, in seconds."""
        return seconds(self.job_hours)

    @property
    def deadline(self) -> float:
        """The deadline, in seconds from submission."""
        return seconds(self.deadline_hours)

    @property
    def changeover(self) -> float:
        """The changeover, in seconds, as the policies expect it."""
        return seconds(self.changeover_hours)

    @property
    def actual_changeover(self) -> float:
        """The changeover, in seconds, as it happens: on a clock of whole ticks it takes whole ticks."""
        if self.tick_seconds is None:
            return self.changeover
        return math.ceil(self.changeover / self.tick_seconds - 1e-9) * self.tick_seconds

    def on_clock(self, traces: Trace | Sequence[Trace]) -> list[Trace]:
        """Return the traces, tick by tick of the clock that drives the policies."""
        pools = [traces] if isinstance(traces, Trace) else list(traces)
        if self.tick_seconds is None:
            return pools
        return [trace.on_clock(timedelta(seconds=self.tick_seconds)) for trace in pools]


def seconds(hours: float) -> float:
    """Return hours as seconds, rounded to microseconds, so that whole seconds are exact and so are sums of them."""
    return round(hours * 3600, 6)


def starts(traces: Trace | Sequence[Trace], setting: Setting, count: int | None, seed: int) -> NDArray[np.int64]:
    """Return random ticks at which to submit the job, uniform over those whose deadline is within the trace.

    Ticks are those of the setting's clock. Several traces are the pools of one job; the shortest counts. With `count`
    None the result is every such tick, in order. The same seed gives the same ticks.

    Raises:
        BadInputs: if the trace is shorter than the deadline, or `count` is below 1.
    """
    pools = setting.on_clock(traces)
    shortest = min(pools, key=len)
    # Up to a millionth of a tick beyond a whole number is rounding.
    needed = math.ceil(setting.deadline / shortest.tick_seconds - 1e-6)
    problems = Problems()
    problems.need(count is None or count >= 1, "starts", f"must be >= 1; it is {count}")
    hours = len(shortest) * shortest.tick_seconds / 3600
    reason = f"{setting.deadline_hours:g} h do not fit into the {hours:.4g} h of {shortest.name}"
    problems.need(needed <= len(shortest), "deadline_hours", reason)
    problems.raise_any("simulation")
    first_unfit = len(shortest) - needed + 1
    if count is None:
        return np.arange(first_unfit)
    return np.random.default_rng(seed).integers(0, first_unfit, count)
