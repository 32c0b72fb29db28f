"""What the clusters of all clouds have in common for Prometheus: the blocks and ports that may read the metrics."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

from everspot_core.cluster.manifest import METRICS_PORT, Metrics
from everspot_core.validation.cidr import parse_block
from everspot_core.validation.problems import Problems

_WIDEST = 8
"""The prefix length of the widest block that may read. The metrics are neither encrypted nor behind a login."""
_PORTS = (1024, 65535)
"""The ports that may be chosen. The scheduler does not run as root, so it cannot use lower ones."""


class MetricsArgs(TypedDict):
    """The setting that all clouds have."""

    port: NotRequired[int]


def check_scraping(problems: Problems, args: MetricsArgs, cidrs: Iterable[str] = ()) -> None:
    """Add a problem for each block that is too wide, and for the port."""
    for index, text in enumerate(cidrs):
        block = parse_block(text, f"cidrs[{index}]", problems)
        if block is not None:
            problems.need(block.prefixlen >= _WIDEST, f"cidrs[{index}]", f"{text} is wider than a /{_WIDEST}")
    problems.number(args.get("port", METRICS_PORT), "port", *_PORTS, whole=True)


def build_metrics(args: MetricsArgs | None) -> Metrics | None:
    """Return the metrics section of the scheduler's own manifest."""
    return None if args is None else Metrics(port=int(args.get("port", METRICS_PORT)))
