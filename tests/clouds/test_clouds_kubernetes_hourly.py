"""The hourly cost of a cluster on Kubernetes in a preview, compared with sums by hand from list prices."""

from everspot_clouds.aws.fleet import Ec2Capacity
from everspot_clouds.kubernetes.hourly import hourly_cost
from everspot_core.capacity.catalogue import Catalogue, InstanceType, builtin
from everspot_core.capacity.fleet import TypeChoice
from everspot_core.capacity.hourly import ElasticCap
from everspot_core.capacity.market import Market

BOTH = (Market.SPOT, Market.ON_DEMAND)


def limits(instances: int = 8, usd: float | None = None, markets: tuple[Market, ...] = BOTH) -> ElasticCap:
    return ElasticCap(instances=instances, usd_per_hour=usd, markets=markets)


def cost_lines(
    cap: ElasticCap,
    *types: str,
    region: str = "us-east-2",
    catalogue: Catalogue | None = None,
) -> list[str]:
    capacity = Ec2Capacity(target=0, types=tuple(TypeChoice(name=name) for name in types or ("g5.xlarge", "c6i.large")))
    return [line.strip() for line in hourly_cost(region, catalogue or builtin(), capacity, cap).splitlines()]


def test_an_hour_is_the_stores_requests_and_at_most_all_nodes_of_the_most_expensive_type() -> None:
    # g5.xlarge costs 1.006 on-demand and 0.3770 to 0.3943 on Spot; c6i.large 0.085, and 0.0291 to 0.0345. 242 writes at
    # $0.005 and 811 reads at $0.0004 for 1,000, in each of 730 hours.
    head, idle, standing, elastic, spot, quotas, scheduler, footnote = cost_lines(limits())
    dated = builtin().on_demand("g5.xlarge", "us-east-2")
    assert dated is not None and head == f"An hour of the cluster, at list prices of us-east-2 of {dated.as_of}:"
    assert idle == "nothing running: $0.002, $1.12 a month (store requests $0.002)"
    assert standing == "standing: nothing"
    assert elastic == "elastic: up to $8.05 more (8 instances of g5.xlarge at $1.006)"
    assert spot == (
        "elastic, all on Spot: $0.23 to $3.15 more at the known prices "
        "(8 instances of g5.xlarge $0.377 to $0.394, c6i.large $0.029 to $0.035)"
    )
    assert quotas == (
        "vCPU quotas, at most: 32 of L-3819A6DF (All G and VT Spot Instance Requests), "
        "16 of L-34B43A08 (All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests), "
        "32 of L-DB2E81BA (Running On-Demand G and VT instances), "
        "16 of L-1216C47A (Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances); "
        "`everspot doctor` says what the account has"
    )
    assert scheduler == (
        "The scheduler's pod requests 0.25 vCPU and 512 MiB of nodes that the EKS cluster has; these and the EKS "
        "cluster itself are not counted."
    )
    assert footnote.startswith("Agents' volumes, what is stored")


def test_the_region_decides_the_prices() -> None:
    assert cost_lines(limits(2), "m6i.large", region="eu-west-1")[3].endswith("(2 instances of m6i.large at $0.107)")
    assert cost_lines(limits(2), "m6i.large", region="us-east-2")[3].endswith("(2 instances of m6i.large at $0.096)")


def test_the_cap_in_dollars_ends_both_sums() -> None:
    lines = cost_lines(limits(usd=2))
    assert lines[3] == "elastic: up to $2.00 more (maxUsdPerHour; 8 instances of g5.xlarge at $1.006 would be $8.05)"
    assert lines[4].startswith("elastic, all on Spot: $0.23 to $2.00 more at the known prices (maxUsdPerHour; 8 inst")
    assert cost_lines(limits(usd=0.1))[4].startswith("elastic, all on Spot: $0.10 more at the known prices")


def test_spot_has_a_line_only_where_it_is_launched_and_has_a_price() -> None:
    def spot(cap: ElasticCap, *types: str, catalogue: Catalogue | None = None) -> list[str]:
        return [line for line in cost_lines(cap, *types, catalogue=catalogue) if "all on Spot" in line]

    assert spot(limits(markets=(Market.ON_DEMAND,))) == spot(limits(0)) == []
    own = builtin().with_types([InstanceType(name="own", vcpus=1, memory_gib=1, on_demand_usd_per_hour=0.5)])
    assert spot(limits(), "own", catalogue=own) == []
    (line,) = spot(limits(), "own", "c6i.large", catalogue=own)
    assert line.endswith("(8 instances of c6i.large $0.029 to $0.035; own at a price that is not known here)")
