"""Aggregates the figures of many runs from their outcomes."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everspot_simulator.engine import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """The figures of a number of runs. Hours, changeovers and moves are means over the runs; misses are counted.

    Attributes:
        saving_percent: against the job on one on-demand instance without any changeover.
        saving_error: its standard error over random starts, as an estimate of the mean over all starts of the same
            traces; None for one run.
    """

    runs: int
    saving_percent: float
    saving_error: float | None
    deadline_misses: int
    spot_hours: float
    on_demand_hours: float
    idle_hours: float
    changeovers: float
    moves: float


def aggregate_runs(outcomes: Sequence[Outcome]) -> Aggregate:
    """Return the figures of runs on one trace.

    Raises:
        ValueError: if there are none.
    """
    if not outcomes:
        raise ValueError("no runs to tell of")
    savings = [100 * o.saving for o in outcomes]
    several = len(savings) > 1
    return Aggregate(
        runs=len(outcomes),
        saving_percent=statistics.fmean(savings),
        saving_error=statistics.stdev(savings) / len(savings) ** 0.5 if several else None,
        deadline_misses=sum(o.missed for o in outcomes),
        spot_hours=statistics.fmean(o.spot_hours for o in outcomes),
        on_demand_hours=statistics.fmean(o.on_demand_hours for o in outcomes),
        idle_hours=statistics.fmean(o.idle_hours for o in outcomes),
        changeovers=statistics.fmean(o.changeovers for o in outcomes),
        moves=statistics.fmean(o.moves for o in outcomes),
    )


def aggregate_traces(aggregates: Mapping[str, Aggregate] | Sequence[Aggregate]) -> Aggregate:
    """Return the figures of several traces together. Each trace has the same weight, however many runs it had.

    Raises:
        ValueError: if there are none.
    """
    each = list(aggregates.values()) if isinstance(aggregates, Mapping) else list(aggregates)
    if not each:
        raise ValueError("no traces to tell of")
    errors = [t.saving_error for t in each if t.saving_error is not None]
    return Aggregate(
        runs=sum(t.runs for t in each),
        saving_percent=statistics.fmean(t.saving_percent for t in each),
        saving_error=sum(e**2 for e in errors) ** 0.5 / len(each) if len(errors) == len(each) else None,
        deadline_misses=sum(t.deadline_misses for t in each),
        spot_hours=statistics.fmean(t.spot_hours for t in each),
        on_demand_hours=statistics.fmean(t.on_demand_hours for t in each),
        idle_hours=statistics.fmean(t.idle_hours for t in each),
        changeovers=statistics.fmean(t.changeovers for t in each),
        moves=statistics.fmean(t.moves for t in each),
    )
