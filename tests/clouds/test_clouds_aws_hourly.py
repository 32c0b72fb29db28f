"""The hourly cost in a preview, compared with sums by hand from list prices."""

from typing import Any

import pytest
from everspot_clouds.aws.fleet import Ec2Capacity
from everspot_clouds.aws.hourly import Always, hourly_cost
from everspot_core.capacity import catalogue
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.fleet import TypeChoice, WeightBy
from everspot_core.capacity.hourly import ElasticCap, list_rates, no_room
from everspot_core.capacity.market import Market

KNOWN = catalogue.builtin()
BOTH = (Market.SPOT, Market.ON_DEMAND)
ALWAYS = Always(scheduler_type="t3.small", services=("ec2", "sqs"), zones=3)


def capacity(**changes: Any) -> Ec2Capacity:
    types = (TypeChoice(name="g5.xlarge"), TypeChoice(name="g5.12xlarge"))
    return Ec2Capacity(**{"target": 0, "types": types, **changes})


def cost_lines(
    *, region: str = "us-east-2", always: Always = ALWAYS, cap: ElasticCap | None = None, **changes: Any
) -> list[str]:
    return [line.strip() for line in hourly_cost(region, KNOWN, capacity(**changes), always, cap).splitlines()]


def limits(instances: int = 8, usd: float | None = None, markets: tuple[Market, ...] = BOTH) -> ElasticCap:
    return ElasticCap(instances=instances, usd_per_hour=usd, markets=markets)


def test_monitoring_is_in_the_hour_of_a_cluster_with_nothing_running() -> None:
    # 8 metrics at 0.30, 4 alarms at 0.10, a dashboard at 3 and a request a minute at 0.01 for 1,000: 6.24 a month.
    always = Always(scheduler_type="t3.small", monitoring=True)
    assert cost_lines(always=always)[1] == (
        "nothing running: $0.039, $28.54 a month "
        "(scheduler t3.small $0.021, its disk $0.008, store requests $0.002, monitoring $0.009)"
    )


def test_with_nothing_standing_an_hour_is_the_schedulers_and_the_endpoints() -> None:
    # g5.xlarge costs 1.006 on-demand, g5.12xlarge 5.672, t3.small 0.0208, an endpoint 0.01. The scheduler's disk has 75
    # GiB at $0.08 a month, and its requests cost $1.12 a month.
    head, idle, standing, elastic, quotas, footnote = cost_lines(cap=limits())
    dated = KNOWN.on_demand("g5.xlarge", "us-east-2")
    assert dated is not None and head == f"An hour of the cluster, at list prices of us-east-2 of {dated.as_of}:"
    assert idle == (
        "nothing running: $0.091, $66.10 a month "
        "(scheduler t3.small $0.021, its disk $0.008, store requests $0.002, 6 interface endpoints $0.060)"
    )
    assert standing == "standing: nothing"
    assert elastic == "elastic: up to $45.38 more (8 instances of g5.12xlarge at $5.672)"
    # 48 vCPUs of a g5.12xlarge, and 8 of them in either market; the scheduler's 2 are of another family.
    assert quotas == (
        "vCPU quotas, at most: 384 of L-3819A6DF (All G and VT Spot Instance Requests), "
        "384 of L-DB2E81BA (Running On-Demand G and VT instances), "
        "2 of L-1216C47A (Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances); "
        "`everspot doctor` says what the account has"
    )
    assert footnote == "Agents' volumes, what is stored, jobs' requests, data transfer and taxes are not counted."


def test_the_cap_in_dollars_ends_it_where_it_is_lower() -> None:
    assert cost_lines(cap=limits(usd=20))[3] == (
        "elastic: up to $20.00 more (maxUsdPerHour; 8 instances of g5.12xlarge at $5.672 would be $45.38)"
    )
    assert cost_lines(cap=limits(usd=0.9))[3].endswith(
        "On-demand does not fit under it: the cheapest type is g5.xlarge at $1.006"
    )
    assert cost_lines(cap=limits(usd=100))[3] == "elastic: up to $45.38 more (8 instances of g5.12xlarge at $5.672)"
    assert cost_lines(cap=limits(0))[3] == cost_lines()[3] == "elastic: nothing"


def test_on_spot_alone_the_highest_price_that_is_paid_counts() -> None:
    assert cost_lines(cap=limits(2, markets=(Market.SPOT,)), max_price=0.5)[3] == (
        "elastic: up to $1.00 more (2 instances of g5.xlarge at $0.500)"
    )
    # Spot never costs more than on-demand, whatever limit is set.
    assert cost_lines(cap=limits(1, markets=(Market.SPOT,)), max_price=99)[3].startswith("elastic: up to $5.67 more")


def test_what_stands_costs_by_the_units_that_each_type_brings() -> None:
    spot = KNOWN.spot_range("g5.12xlarge", "us-east-2")
    other = KNOWN.spot_range("g5.xlarge", "us-east-2")
    assert spot is not None and other is not None
    low = 2 * 1.006 + 14 * min(spot[0].usd_per_hour / 4, other[0].usd_per_hour)
    high = 2 * 5.672 / 4 + 14 * 5.672 / 4
    line = cost_lines(target=16, on_demand_base=2, weight_by=WeightBy.GPU)[2]
    assert line == (
        f"standing: ${low:.2f} to ${high:.2f} more (2 units on-demand and 14 units on Spot, depending on the types "
        "that EC2 chooses)"
    )
    assert cost_lines(target=1, on_demand_base=1, types=(TypeChoice(name="g5.xlarge"),))[2].startswith(
        "standing: $1.01 more (1 unit on-demand"
    )


def test_prices_that_are_not_known_make_it_at_least() -> None:
    declared = KNOWN.with_types([InstanceType(name="own", vcpus=1, memory_gib=1, on_demand_usd_per_hour=0.5)])
    own = Ec2Capacity(target=0, types=(TypeChoice(name="own"),))
    lines = hourly_cost("sa-east-1", declared, own, ALWAYS, limits(2)).splitlines()
    assert lines[0] == "An hour of the cluster, at list prices of sa-east-1:"
    assert lines[1].strip() == (
        "nothing running: at least $0.070, $50.92 a month (scheduler t3.small at a price that is not known here, "
        "its disk $0.008, store requests $0.002, 6 interface endpoints $0.060)"
    )
    assert "up to $1.00 more" in lines[3]


def test_an_existing_network_has_no_endpoints_of_ours() -> None:
    assert cost_lines(always=Always(scheduler_type="t3.small"))[1] == (
        "nothing running: $0.031, $22.30 a month (scheduler t3.small $0.021, its disk $0.008, store requests $0.002)"
    )


@pytest.mark.parametrize(
    ("cap", "refused"),
    [
        (limits(usd=0.5, markets=(Market.ON_DEMAND,)), True),
        (limits(usd=0.5), False),
        (limits(usd=1.1, markets=(Market.ON_DEMAND,)), False),
        (limits(0, usd=0.5, markets=(Market.ON_DEMAND,)), False),
        (limits(markets=(Market.ON_DEMAND,)), False),
    ],
)
def test_a_cap_under_which_nothing_fits_is_seen(cap: ElasticCap, refused: bool) -> None:
    reason = no_room(list_rates("us-east-2", KNOWN, capacity()), cap)
    assert reason == (
        "0.5 is less than an hour of any type costs on-demand; the cheapest is g5.xlarge at $1.006" if refused else None
    )
