"""A month lived through at the local market's prices costs what was estimated for it, on both clouds.

The first month makes a ledger. From it the second one is estimated, at the same settings and at others, and then lived
through too; the bill is the product's own.
"""

import random
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from everspot_clouds.aws.rules import BILLING as AWS_BILLING
from everspot_clouds.estimating import collect_charges, environment
from everspot_clouds.gcp.rules import BILLING as GCP_BILLING
from everspot_core.capacity.allocation import AllocationRequest, Launchable, Prefer, allocate
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.market import Market
from everspot_core.costs.bill import bill
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.estimate.model import CostFigures, Range
from everspot_core.estimate.requested import RequestedCapacity, TypeOption
from everspot_core.estimate.totals import estimate
from everspot_core.estimate.usage_history import Recent
from everspot_core.jobs.records import Role
from everspot_local.market.pools import Pools

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
MONTH, HOUR = timedelta(hours=730), timedelta(hours=1)
REGIONS = {"aws": "eu-west-1", "gcp": "europe-west4"}
ZONES = {
    "aws": {f"eu-west-1{zone}": f"euw1-az{number}" for number, zone in enumerate("abc", 1)},
    "gcp": {f"europe-west4-{zone}": f"europe-west4-{zone}" for zone in "abc"},
}
TYPES = {
    "aws": ["c6i.large", "m6i.large", {"type": "c6i.xlarge", "weight": 2}],
    "gcp": ["e2-standard-4", "n2-standard-8", "c3-highcpu-8"],
}
BILLING = {"aws": AWS_BILLING, "gcp": GCP_BILLING}
FIRST = (6, 1, 4)  # target, of it on-demand, and elastic instances at the most
TAKEN = 0.004  # of the Spot instances, each hour


def requested_resources(cloud: str, target: int, base: int, most: int) -> RequestedCapacity:
    """Return the requests of the settings."""
    capacity = {
        "instanceTypes": TYPES[cloud],
        "standing": {"target": target, "onDemandBase": base},
        "elastic": {"maxInstances": most},
    }
    image = {"imageFamily": "x"} if cloud == "gcp" else {"imageId": "ami-1"}
    cluster = {"cloud": cloud, "zones": list(ZONES[cloud]), "capacity": capacity, "volumeGib": 50, **image}
    settings = environment("dev", {f"{cloud}:region": REGIONS[cloud], "everspot:cluster": cluster}, "everspot")
    return collect_charges(settings.resources, settings.regions)


@dataclass
class Life:
    """A cluster on the local market, hour by hour."""

    cloud: str
    seed: int
    launches: list[LaunchRecord] = field(default_factory=list)
    ends: list[EndRecord] = field(default_factory=list)
    points: list[PricePoint] = field(default_factory=list)
    running: dict[str, list[LaunchRecord]] = field(default_factory=dict)
    now: datetime = BEGIN

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.pools = Pools(
            builtin(),
            REGIONS[self.cloud],
            ZONES[self.cloud],
            self.seed,
            BEGIN,
            self.price,
            one_price=self.cloud == "gcp",
        )

    def price(self, pool: Any, usd: float, at: datetime) -> None:
        place = {"instance_type": pool.instance_type, "zone": pool.zone}
        self.points.append(PricePoint(**place, market=Market.SPOT, at=at, usd_per_hour=usd, source="local"))

    def month(self, requested: RequestedCapacity) -> None:
        """Live through a month at these settings."""
        for _ in range(int(MONTH / HOUR)):
            self.pools.walk(self.now)
            for name, launches in self.running.items():
                for launch in [
                    candidate
                    for candidate in launches
                    if candidate.market is Market.SPOT and self.draw.random() < TAKEN
                ]:
                    self.end(name, launch, interrupted=True)
            for group in requested.standing:
                role = Role.AGENT if group.agents else Role.SCHEDULER
                self.hold(group.name, group.candidates, float(group.units), group.market, group.prefer, role)
            (elastic,) = requested.elastic
            count = self.draw.choice((2, 3, 4)) if 8 <= self.now.hour < 18 else 0
            self.hold(elastic.name, elastic.candidates, min(count, elastic.most), Market.SPOT, Prefer.PRICE, Role.AGENT)
            self.now += HOUR

    def hold(
        self, name: str, types: tuple[TypeOption, ...], units: float, market: Market, prefer: Prefer, role: Role
    ) -> None:
        """Launch what is missing, as the product's allocation chooses it, and end what is too much."""
        running, weight = (
            self.running.setdefault(name, []),
            {option.instance_type: float(option.weight) for option in types},
        )
        while running and sum(weight[option.instance_type] for option in running[:-1]) >= units:
            self.end(name, running[-1], interrupted=False)
        missing = units - sum(weight[option.instance_type] for option in running)
        if missing <= 0:
            return
        places = [(option, zone) for option in types for zone in ZONES[self.cloud]]
        offers = [
            Launchable(
                instance_type=option.instance_type, zone=zone, weight=float(option.weight), priority=option.priority
            )
            for option, zone in places
        ]
        views = [pool.view(market) for option, zone in places if (pool := self.pools.get(option.instance_type, zone))]
        sizes: dict[str, Any] = {"spot": missing, "spot_strategy": prefer}
        if market is Market.ON_DEMAND:
            order = prefer if prefer is Prefer.ORDER else Prefer.PRICE
            sizes = {"on_demand": missing, "on_demand_strategy": order}
        request = AllocationRequest(candidates=tuple(offers), **sizes)
        for placed in allocate(request, [view for view in views if view is not None]).placements:
            launched = LaunchRecord(
                instance_id=f"i-{len(self.launches)}",
                instance_type=placed.instance_type,
                zone=placed.zone,
                market=market,
                role=role,
                launched_at=self.now,
            )
            running.append(launched)
            self.launches.append(launched)
            self.count(launched, 1)

    def end(self, name: str, launch: LaunchRecord, *, interrupted: bool) -> None:
        self.running[name].remove(launch)
        self.count(launch, -1)
        self.ends.append(EndRecord(instance_id=launch.instance_id, ended_at=self.now, interrupted=interrupted))

    def count(self, launch: LaunchRecord, by: int) -> None:
        pool = self.pools.get(launch.instance_type, launch.zone)
        assert pool is not None
        pool.used[launch.market] += by

    def billed(self) -> Fraction:
        """The bill up to now."""
        rules = BILLING[self.cloud]
        return bill(self.launches, self.ends, self.points, {}, builtin(), self.now, rules=rules).cost


def instances(figures: CostFigures | None) -> Range:
    """Return the cost of instances, because a bill contains nothing else."""
    assert figures is not None
    parts = [part.range for part in figures.parts if part.kind.endswith(" instances")]
    return Range(**{key: sum(getattr(part, key) for part in parts) for key in Range.model_fields})


@cache
def first_month(cloud: str) -> tuple[Life, Fraction]:
    """A cluster after its first month, and what that has cost. Live on in a copy of it."""
    life = Life(cloud, seed=7)
    life.month(requested_resources(cloud, *FIRST))
    return life, life.billed()


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("second_month", [FIRST, (9, 3, 4), (4, 1, 4)], ids=["the same", "larger", "smaller"])
def test_a_month_costs_what_was_estimated(cloud: str, second_month: tuple[int, int, int]) -> None:
    was, will = requested_resources(cloud, *FIRST), requested_resources(cloud, *second_month)
    past, first = first_month(cloud)
    life = deepcopy(past, {id(builtin()): builtin()})  # which stays one
    ledger = Recent.from_ledger(life.launches, life.ends, life.points, since=BEGIN, until=life.now)
    estimated = instances(estimate(was, will, builtin(), ledger, as_of=BEGIN.date()).after)
    life.month(will)
    paid = float(life.billed() - first)
    print(
        f"{cloud} {second_month}: ${paid:.2f} in [{estimated.low:.2f}, {estimated.high:.2f}], "
        f"expected {estimated.expected:.2f}: {100 * (estimated.expected / paid - 1):+.1f} % of at most 10 %"
    )
    assert estimated.low <= paid <= estimated.high
    assert abs(estimated.expected / paid - 1) <= 0.10


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_a_month_of_a_cluster_without_a_past_lies_between_low_and_high(cloud: str) -> None:
    estimated = instances(
        estimate(RequestedCapacity(), requested_resources(cloud, *FIRST), builtin(), as_of=BEGIN.date()).after
    )
    assert estimated.low <= float(first_month(cloud)[1]) <= estimated.high
