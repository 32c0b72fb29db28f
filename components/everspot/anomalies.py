"""Settings of the anomalies that a cluster's scheduler reports."""

from typing import NotRequired, TypedDict

from everspot_core.governance.thresholds import Thresholds, threshold_problems
from everspot_core.validation.model_errors import parse_model
from everspot_core.validation.problems import Problems


class AnomalyArgs(TypedDict):
    """Thresholds of the anomalies that the scheduler reports through `notifications`."""

    job_times: NotRequired[float]
    """A job has held instances for more than this many times its `expected_duration`. Default: 2."""
    team_spreads: NotRequired[float]
    """A team's costs of a day exceed the median of its last 28 days by more than this many median absolute deviations.
    Default: 4."""
    team_share: NotRequired[float]
    """A team's costs must also exceed that median by this fraction of it: 0.5 is half. Default: 0.5."""
    team_usd: NotRequired[float]
    """A team's costs must also exceed that median by this many dollars. Default: 5."""
    idle_for: NotRequired[str]
    """Instances had no work for this long. Default: 2h."""
    idle_share: NotRequired[float]
    """More than this share of all instances was idle for `idleFor`, from 0 to 0.99. Default: 0.5."""
    price_times: NotRequired[float]
    """A Spot pool in use costs more than this many times its mean price of 30 days. Default: 2."""


def check_anomalies(problems: Problems, args: AnomalyArgs) -> None:
    """Add a problem for each mistake in the settings."""
    thresholds = parse_model(problems, Thresholds, args)
    if thresholds is not None:
        threshold_problems(problems, thresholds)


def build_thresholds(args: AnomalyArgs | None) -> Thresholds | None:
    """Return the settings as `cluster.json` has them; None without any."""
    return None if args is None else Thresholds.model_validate(args)
