"""Intervals and time limits of a cluster as settings, and the weights of its teams."""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from everspot_core.cluster.manifest import Limits, limit_problems
from everspot_core.validation.model_errors import parse_model
from everspot_core.validation.problems import Problems, shown


class LimitsArgs(TypedDict):
    """Durations such as 45s, 10m or 1h30m; each has a default that suits real clouds."""

    lease_ttl: NotRequired[str]
    """An instance that has not renewed its job's lease for this long is presumed dead. Default: 60s."""
    beat_every: NotRequired[str]
    """Interval of the heartbeats of an instance without a job, at least 5s. A lease is renewed after 0.6 of
    `lease_ttl`, and not more often than this. Default: 10s."""
    poll_every: NotRequired[str]
    """How often an agent without a job polls its assignment. Default: 2s."""
    tick_every: NotRequired[str]
    """Interval of the scheduler's ticks, which are further apart while little changes. Default: 5s."""
    notice_poll: NotRequired[str]
    """How often an agent asks the metadata service for notices; AWS advises 5s or less. Default: 2s."""
    orphan_limit: NotRequired[str]
    """Instances shut down when they have not reached the store for this long. Default: 15m."""
    boot_deadline: NotRequired[str]
    """Instances whose agent has not reported this long after boot shut down. Types with eight GPUs or more have twice
    as long, bare metal three times. Default: 10m."""
    archive_after: NotRequired[str]
    """Jobs and instances that ended this long ago are archived: the scheduler no longer lists them. Default: 1h."""
    stop_margin: NotRequired[str]
    """A program that still runs this long before the instance is taken is killed. Default: 5s."""


IDLE_LIMIT = "5m"
"""Default time after which an elastic instance without a job is terminated."""


def check_limits(problems: Problems, args: LimitsArgs) -> None:
    """Add a problem for each mistake in the durations, one by one and together."""
    limits = parse_model(problems, Limits, {key: value for key, value in args.items() if key != "idle_limit"})
    # EC2 replaces whatever powers itself off in a standing fleet, and its replacement would be as idle.
    problems.need(
        "idle_limit" not in args,
        "idleLimit",
        "belongs to capacity.elastic: standing instances stay when they have no work",
    )
    if limits is not None:
        limit_problems(problems, limits)


def idle_limit_problems(problems: Problems, idle_limit: object) -> None:
    """Add a problem for each mistake in the `idleLimit` of elastic instances."""
    limits = parse_model(problems, Limits, {"idle_limit": idle_limit})
    if limits is not None:
        limit_problems(problems, limits)


SHARE = (0.001, 1000.0)
"""Least and largest weight of a team. 0 is refused: a team of weight 0 could submit jobs that never run."""

_MAX_TEAM_NAME = 256
"""Most characters of a team's name, which is the value of a tag."""


def check_shares(problems: Problems, shares: Mapping[str, float]) -> None:
    """Add a problem for each mistake in the teams' weights, each by its team."""
    for team, weight in shares.items():
        problems.need(team == team.strip() != "", shown(team), "a team's name is not empty, nor ends in spaces")
        problems.need(
            len(team) <= _MAX_TEAM_NAME, shown(team), f"has {len(team)} characters; {_MAX_TEAM_NAME} are allowed"
        )
        problems.number(weight, team if team.strip() else shown(team), *SHARE)
