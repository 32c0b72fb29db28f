"""The cost of an hour of a cluster at list prices: with nothing running, of standing capacity, and at the cap of
elastic capacity."""

import dataclasses
from dataclasses import dataclass

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.fleet import CapacitySpec
from everspot_core.capacity.hourly import (
    ElasticCap,
    Rate,
    describe_cap,
    describe_hour,
    describe_price,
    describe_standing,
    describe_upkeep,
    list_rates,
)
from everspot_core.capacity.market import Market

from everspot_clouds.costing import listed_price
from everspot_clouds.gcp import fixed_prices as fixed
from everspot_clouds.gcp.alarms import ALERTS
from everspot_clouds.gcp.disks import BOOT_DISKS
from everspot_clouds.gcp.quota_claims import claims, most
from everspot_clouds.idle_requests import requests_usd
from everspot_clouds.price_files import other_prices

NAT_USD_PER_HOUR = float(fixed.NAT_VM.usd)
"""Of Cloud NAT for each machine, up to 32 machines; besides its price per GB."""

MONITORING_USD_A_MONTH = float(len(ALERTS) * fixed.ALERT.usd_per_month)
"""The conditions of the alerting policies. The few metrics are within the free allotment of 150 MiB."""

_HOURS_A_MONTH = 730


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """The costs of a cluster while no agent runs: the scheduler, its disk and its requests to the store, with `nat` its
    share of Cloud NAT, and with `monitoring` the alerts."""

    scheduler_type: str
    nat: bool = False
    monitoring: bool = False


def hourly_cost(
    region: str, catalogue: Catalogue, capacity: CapacitySpec, always: Upkeep, cap: ElasticCap | None
) -> str:
    """Return the cost of an hour in a few lines, for a preview.

    `catalogue`: includes the types that are declared in place.
    """
    rates = [_at_list(rate, region, catalogue) for rate in list_rates(region, catalogue, capacity)]
    lines = [
        _nothing_running(region, catalogue, always),
        describe_standing(capacity, rates, unit="instance", chooser="the groups choose"),
        describe_cap(rates, cap),
        *_quotas(capacity, cap, catalogue, always.scheduler_type),
    ]
    return describe_hour(region, catalogue, capacity, lines)


def _at_list(rate: Rate, region: str, catalogue: Catalogue) -> Rate:
    """Spot has a list price here, which is all that is ever paid."""
    spot = catalogue.spot_range(rate.name, region)
    return rate if spot is None else dataclasses.replace(rate, limit=spot[1].usd_per_hour)


def _nothing_running(region: str, catalogue: Catalogue, always: Upkeep) -> str:
    scheduler = catalogue.on_demand(always.scheduler_type, region)
    price = fixed.DISK_GIB[BOOT_DISKS[0]]
    each = listed_price(price, other_prices("gcp", region)) or price
    disk = float(fixed.IMAGE_GIB * each.usd_per_month) / _HOURS_A_MONTH
    requests = float(requests_usd(fixed.STORE_WRITES.usd, fixed.STORE_READS.usd) / _HOURS_A_MONTH)
    parts = [
        f"scheduler {always.scheduler_type} {describe_price(scheduler)}",
        f"its disk ${disk:.3f}",
        f"store requests ${requests:.3f}",
    ]
    nat = NAT_USD_PER_HOUR if always.nat else 0
    watching = MONITORING_USD_A_MONTH / _HOURS_A_MONTH if always.monitoring else 0
    parts += [f"Cloud NAT ${nat:.3f}"] if nat else []
    parts += [f"monitoring ${watching:.3f}"] if watching else []
    total = (scheduler.usd_per_hour if scheduler is not None else 0) + disk + requests + nat + watching
    return describe_upkeep(total, total * _HOURS_A_MONTH, parts, known_all=scheduler is not None)


def _quotas(capacity: CapacitySpec, cap: ElasticCap | None, catalogue: Catalogue, scheduler_type: str) -> list[str]:
    """Return the project's quotas that the whole cluster may need. `everspot doctor` compares them with the limits."""
    types = [choice.name for choice in capacity.types]
    standing = {Market.ON_DEMAND: capacity.on_demand_target, Market.SPOT: capacity.spot_target}
    launched, markets = (cap.instances, cap.markets) if cap is not None else (0, ())
    by_metric = most(claims(scheduler_type, standing, types, launched, markets, types), catalogue.types, {})
    listed = ", ".join(f"{sum(parts.values()):,.0f} of {metric}" for metric, parts in sorted(by_metric.items()))
    return [f"quotas, at most: {listed}; `everspot doctor` says what the project has"] if listed else []
