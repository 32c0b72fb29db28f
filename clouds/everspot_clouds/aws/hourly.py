"""The cost of an hour of a cluster at list prices: without agents, of standing capacity, and at elastic capacity's
cap."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.fleet import derived_weights
from everspot_core.capacity.hourly import (
    ElasticCap,
    describe_cap,
    describe_hour,
    describe_price,
    describe_standing,
    describe_upkeep,
    list_rates,
)
from everspot_core.capacity.market import Market
from everspot_core.counting import counted
from everspot_core.estimate.requested import HOURS_A_MONTH

from everspot_clouds.aws import fixed_prices as fixed
from everspot_clouds.aws.alarms import USD_A_MONTH as MONITORING_USD_A_MONTH
from everspot_clouds.aws.fleet import Ec2Capacity
from everspot_clouds.aws.quotas import Launchable, find_quota, launchable, most_vcpus
from everspot_clouds.aws.root_volume import IMAGE_GIB
from everspot_clouds.costing import FixedPrice, listed_price
from everspot_clouds.idle_requests import requests_usd
from everspot_clouds.price_files import other_prices


@dataclass(frozen=True, kw_only=True)
class Always:
    """The costs of a cluster while no agent runs.

    The costs are the scheduler, its disk and its requests to the store; an endpoint of each of the `services` in each
    zone (`zones` is their number); with `monitoring` the metrics, alarms and dashboard; with `nat` the NAT gateway.
    """

    scheduler_type: str
    services: Sequence[str] = ()
    zones: int = 0
    monitoring: bool = False
    nat: bool = False


def hourly_cost(
    region: str, catalogue: Catalogue, capacity: Ec2Capacity, always: Always, cap: ElasticCap | None
) -> str:
    """Return the cost of an hour in a few lines, for a preview.

    `catalogue`: includes the types that are declared in place.
    """
    # The most that is paid on Spot is the on-demand price: Amazon EC2 API Reference, SpotOptionsRequest, the default of
    # MaxPrice.
    rates = list_rates(region, catalogue, capacity)
    lines = [
        _nothing_running(region, catalogue, always),
        describe_standing(capacity, rates, unit="unit", chooser="EC2 chooses"),
        describe_cap(rates, cap),
        *list_quotas(region, catalogue, capacity, cap, always.scheduler_type),
    ]
    return describe_hour(region, catalogue, capacity, lines)


def _nothing_running(region: str, catalogue: Catalogue, always: Always) -> str:
    count = len(always.services) * always.zones
    listed = other_prices("aws", region)

    def rate(price: FixedPrice) -> Fraction:
        return (listed_price(price, listed) or price).usd

    scheduler = catalogue.on_demand(always.scheduler_type, region)
    endpoint, nat = float(rate(fixed.ENDPOINT)), float(rate(fixed.NAT) + rate(fixed.ADDRESS))
    disk = float(IMAGE_GIB * rate(fixed.GP3_GIB) / HOURS_A_MONTH)
    requests = store_requests_usd(region)
    parts = [
        f"scheduler {always.scheduler_type} {describe_price(scheduler)}",
        f"its disk ${disk:.3f}",
        f"store requests ${requests:.3f}",
    ]
    if count:
        parts.append(f"{counted(count, 'interface endpoint')} ${count * endpoint:.3f}")
    watching = MONITORING_USD_A_MONTH / HOURS_A_MONTH if always.monitoring else 0
    if watching:
        parts.append(f"monitoring ${watching:.3f}")
    outside = nat if always.nat else 0
    if outside:
        parts.append(f"NAT gateway ${outside:.3f}")
    own = region in fixed.SAME or listed_price(fixed.ENDPOINT, listed) is not None
    known_all = scheduler is not None and (own or not count)
    total = (scheduler.usd_per_hour if scheduler is not None else 0) + disk + requests
    total += count * endpoint + watching + outside
    return describe_upkeep(total, total * HOURS_A_MONTH, parts, known_all=known_all)


def store_requests_usd(region: str) -> float:
    """Return the cost of an hour of a scheduler's requests to the store, without jobs."""
    listed = other_prices("aws", region)
    writes, reads = ((listed_price(price, listed) or price).usd for price in (fixed.STORE_WRITES, fixed.STORE_READS))
    return float(requests_usd(writes, reads) / HOURS_A_MONTH)


def launched_under(cap: ElasticCap | None, types: Sequence[str], catalogue: Catalogue, region: str) -> Launchable:
    """Return the instances that a cap allows to launch, by market."""
    if cap is None:
        return {}
    return launchable(cap.instances, cap.usd_per_hour, cap.markets, types, catalogue, region)


def list_quotas(
    region: str, catalogue: Catalogue, capacity: Ec2Capacity, cap: ElasticCap | None, scheduler_type: str | None
) -> list[str]:
    """Return the account's quotas that the whole cluster may need together. `everspot doctor` checks whether the
    account has them. `scheduler_type`: None if the scheduler has no instance of its own."""
    standing = {Market.ON_DEMAND: capacity.on_demand_target, Market.SPOT: capacity.spot_target}
    weights = derived_weights(capacity, catalogue.types)
    vcpus = most_vcpus(standing, launched_under(cap, list(weights), catalogue, region), weights, catalogue.types)
    if scheduler_type is not None and scheduler_type in catalogue.types:
        own = find_quota(scheduler_type, Market.ON_DEMAND)
        if own is not None:
            vcpus[own] = vcpus.get(own, 0) + catalogue.types[scheduler_type].vcpus
    listed = ", ".join(f"{count:,} of {quota.code} ({quota.name})" for quota, count in vcpus.items())
    return [f"vCPU quotas, at most: {listed}; `everspot doctor` says what the account has"] if listed else []
