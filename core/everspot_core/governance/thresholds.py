"""From where on something is not as usual: the settings of a cluster's anomalies, and their bounds."""

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field

from everspot_core.documents import Duration, Frozen, format_duration
from everspot_core.validation.problems import Problems, camel, shown


def _figure(value: object) -> object:
    if isinstance(value, bool | str):
        raise ValueError(f"has to be a number, not {shown(value)}")
    return value


Figure = Annotated[float, BeforeValidator(_figure)]
"""A number, whose bounds `threshold_problems` knows."""


class Thresholds(Frozen):
    """Beyond each of these something is an anomaly."""

    job_times: Figure = Field(default=2, description="A job has held instances for so many times `expected_duration`.")
    team_spreads: Figure = Field(
        default=4,
        description="A team's day is above the median of its days by so many spreads, of the median absolute "
        "deviation, which one expensive day in the past does not move.",
    )
    team_share: Figure = Field(default=0.5, description="And by so much of that median: 0.5 is half of it.")
    team_usd: Figure = Field(default=5, description="And by so many dollars.")
    idle_for: Duration = Field(default="2h", validate_default=True, description="Instances had no work for so long.")
    idle_share: Figure = Field(default=0.5, description="More than this share of all instances, 0 to 1.")
    price_times: Figure = Field(default=2, description="A pool costs so many times its mean price of 30 days.")


USUAL = Thresholds()
"""Those of a cluster that names none."""

BOUNDS = {
    "job_times": (1.0, 1000.0),
    "team_spreads": (0.0, 1000.0),
    "team_share": (0.0, 1000.0),
    "team_usd": (0.0, 1e6),
    "idle_share": (0.0, 0.99),
    "price_times": (1.0, 1000.0),
}
"""Least and largest of each number. A price or a time below the usual is no anomaly, and no share is more than all."""
IDLE_FOR = (timedelta(minutes=5), timedelta(days=30))
"""Shortest and longest `idle_for`: the scheduler looks every five minutes."""


def threshold_problems(problems: Problems, thresholds: Thresholds) -> None:
    """Add each threshold that is out of its bounds."""
    for name, (low, high) in BOUNDS.items():
        problems.number(getattr(thresholds, name), camel(name), low, high)
    low_time, high_time = (format_duration(span) for span in IDLE_FOR)
    message = f"has to lie between {low_time} and {high_time}, not {format_duration(thresholds.idle_for)}"
    problems.need(IDLE_FOR[0] <= thresholds.idle_for <= IDLE_FOR[1], "idleFor", message)
