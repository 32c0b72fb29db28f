"""The figures of a cluster that its cloud may keep for alarms and dashboards. They are few, since clouds charge for
each."""

from enum import StrEnum


class Gauge(StrEnum):
    """One figure. All are of the whole cluster, in market time."""

    JOBS_WAITING = "jobs-waiting"
    JOBS_RUNNING = "jobs-running"
    JOBS_OVER_ESTIMATE = "jobs-over-estimate"  # have held instances for far longer than expected
    INSTANCES = "instances"  # agents that live
    USD_PER_HOUR = "usd-per-hour"  # of everything that lives
    POOLS_OVER_NORM = "pools-over-norm"  # spot pools in use that do worse than they use to
    BUDGET_USED = "budget-used"  # the part of the budget that is used most, from 0
    TICKS = "ticks"  # of a scheduler since the last time
