"""The networks that may read the scheduler's metrics: none, unless the spec names them."""

from typing import NotRequired, TypedDict

from everspot_core.cluster.manifest import METRICS_PORT, Metrics
from everspot_core.validation.cidr import parse_block
from everspot_core.validation.problems import Problems

WIDEST = 8
"""The prefix length of the widest block that may read. The metrics are neither encrypted nor behind a login."""
PORTS = (1024, 65535)
"""The ports that may be chosen. The scheduler does not run as root, so it cannot use lower ones."""


class GcpPrometheusArgs(TypedDict):
    """Who may read the scheduler's metrics."""

    cidrs: list[str]
    """IPv4 blocks from which Prometheus reads, /8 or smaller."""
    port: NotRequired[int]
    """The scheduler's port, 1024 to 65535. Default: 9494."""


def check_prometheus(problems: Problems, args: GcpPrometheusArgs) -> None:
    """Add a problem for each mistake in the settings."""
    problems.need(bool(args["cidrs"]), "cidrs", "is empty; name the address blocks from which the metrics may be read")
    for index, text in enumerate(args["cidrs"]):
        block = parse_block(text, f"cidrs[{index}]", problems)
        if block is not None:
            problems.need(block.prefixlen >= WIDEST, f"cidrs[{index}]", f"{text} is wider than a /{WIDEST}")
    problems.number(args.get("port", METRICS_PORT), "port", *PORTS, whole=True)


def build_metrics(args: GcpPrometheusArgs | None) -> Metrics | None:
    """Return the metrics section of the scheduler's own manifest."""
    return None if args is None else Metrics(port=int(args.get("port", METRICS_PORT)))
