"""Settings of the anomalies that a cluster's scheduler reports."""

from typing import NotRequired, TypedDict

from everspot_core.governance.thresholds import Thresholds, threshold_problems
from everspot_core.validation.model_errors import parse_model
from everspot_core.validation.problems import Problems


class AnomalyArgs(TypedDict):
    """From where on something is an anomaly, of which `notifications` tell."""

    job_times: NotRequired[float]
    """A job has held instances for more than so many times its `expected_duration`. Default: 2."""
    team_spreads: NotRequired[float]
    """A team's day is above the median of its last 28 days by more than so many spreads (by the median absolute
    deviation). Default: 4."""
    team_share: NotRequired[float]
    """And by more than so much of that median: 0.5 is half of it. Default: 0.5."""
    team_usd: NotRequired[float]
    """And by more than so many dollars. Default: 5."""
    idle_for: NotRequired[str]
    """Instances had no work for so long. Default: 2h."""
    idle_share: NotRequired[float]
    """More than this share of all instances are idle for so long, from 0 to 0.99. Default: 0.5."""
    price_times: NotRequired[float]
    """A Spot pool in use costs more than so many times its mean price of 30 days. Default: 2."""


def check_anomalies(problems: Problems, args: AnomalyArgs) -> None:
    """Add a problem for each mistake in the settings."""
    thresholds = parse_model(problems, Thresholds, args)
    if thresholds is not None:
        threshold_problems(problems, thresholds)


def build_thresholds(args: AnomalyArgs | None) -> Thresholds | None:
    """Return the settings as `cluster.json` has them; None without any."""
    return None if args is None else Thresholds.model_validate(args)
