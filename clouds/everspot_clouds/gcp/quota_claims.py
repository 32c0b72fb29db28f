"""The most that a cluster may use of a project's quotas: the same figures in a preview and in doctor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.market import Market

from everspot_clouds.gcp.quotas import ALL_REGIONS, count_units, list_metrics


@dataclass(frozen=True)
class QuotaClaim:
    """A part of a cluster: `count` machines, each of any of the `types`, and each on any of the `markets`."""

    part: str
    count: int
    types: tuple[str, ...]
    markets: tuple[Market, ...]


SCHEDULER, STANDING, LAUNCHED = "the scheduler", "standing", "launched"


def claims(
    scheduler_type: str,
    standing: Mapping[Market, int],
    standing_types: Iterable[str],
    launched: int,
    markets: Sequence[Market],
    launched_types: Iterable[str],
) -> list[QuotaClaim]:
    """Return the parts of a cluster. `scheduler_type`: empty if it is not known; `standing`: machines by market;
    `launched`: the most that may be launched, over all their `markets`."""
    own = [QuotaClaim(SCHEDULER, 1, (scheduler_type,), (Market.ON_DEMAND,))] if scheduler_type else []
    stands = [QuotaClaim(STANDING, count, tuple(standing_types), (market,)) for market, count in standing.items()]
    more = [QuotaClaim(LAUNCHED, launched, tuple(launched_types), tuple(markets))]
    return [claim for claim in (*own, *stands, *more) if claim.count > 0]


def most(
    parts: Iterable[QuotaClaim], catalogue: Mapping[str, InstanceType], limits: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return, by metric, the most that each part of a cluster may use of it. Parts of one name are added up.

    `limits`: by metric, as far as they are known: without a Spot quota in the region, Spot uses the standard one. If
    they are unknown, Spot is assumed to have its own.
    """
    by_metric: dict[str, dict[str, float]] = {}
    for claim in parts:
        each: dict[str, float] = {}
        for name in claim.types:
            for market in claim.markets if name in catalogue else ():
                for metric in _metrics(name, catalogue[name], market, limits):
                    each[metric] = max(each.get(metric, 0.0), claim.count * count_units(catalogue[name]))
        for metric, units in each.items():
            row = by_metric.setdefault(metric, {})
            row[claim.part] = row.get(claim.part, 0.0) + units
    return by_metric


def _metrics(name: str, kind: InstanceType, market: Market, limits: Mapping[str, float]) -> list[str]:
    """Return the metric that such a machine counts towards, and for GPUs the one of all regions."""
    metrics = list_metrics(name, market, limits)
    chosen = next((metric for metric in metrics if limits.get(metric)), metrics[0] if metrics else "")
    return [metric for metric in (chosen, ALL_REGIONS if kind.gpus else "") if metric]
