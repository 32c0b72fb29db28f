"""The networks that may read the scheduler's metrics: none, unless the spec names them."""

from typing import NotRequired, TypedDict

from everspot_core.validation.problems import Problems

from everspot.scraping import check_scraping


class GcpPrometheusArgs(TypedDict):
    """Who may read the scheduler's metrics."""

    cidrs: list[str]
    """IPv4 blocks from which Prometheus reads, /8 or smaller."""
    port: NotRequired[int]
    """The scheduler's port, 1024 to 65535. Default: 9494."""


def check_prometheus(problems: Problems, args: GcpPrometheusArgs) -> None:
    """Add a problem for each mistake in the settings."""
    problems.need(bool(args["cidrs"]), "cidrs", "is empty; name the address blocks from which the metrics may be read")
    check_scraping(problems, args, args["cidrs"])
