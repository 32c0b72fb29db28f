"""Which vCPU quotas a fleet counts towards, and how far they reach."""

import pytest
from everspot_clouds.aws.quotas import (
    QUOTAS,
    enough,
    find_quota,
    launchable,
    most_vcpus,
    needs,
    reaches,
    shortfalls,
    stated_quotas,
)
from everspot_core.capacity.catalogue import builtin
from everspot_core.jobs.records import Market


@pytest.mark.parametrize(
    ("name", "spot", "on_demand"),
    [
        ("m6i.large", "L-34B43A08", "L-1216C47A"),
        ("i4i.large", "L-34B43A08", "L-1216C47A"),
        ("g5.xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("gr6.4xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("p4d.24xlarge", "L-7212CCBC", "L-417A185B"),
        ("p5en.48xlarge", "L-C4BD4855", "L-417A185B"),
        ("inf2.xlarge", "L-B5D1601B", "L-1945791B"),
        ("trn1.2xlarge", "L-6B0D517C", "L-2C3B7624"),
    ],
)
def test_a_type_counts_towards_the_quota_of_its_family_and_market(name: str, spot: str, on_demand: str) -> None:
    quotas = find_quota(name, Market.SPOT), find_quota(name, Market.ON_DEMAND)
    assert [quota.code for quota in quotas if quota] == [spot, on_demand]


@pytest.mark.parametrize("name", ["p6-b200.48xlarge", "p6-b300.48xlarge"])
def test_p6_on_spot_counts_towards_the_quota_that_the_account_states_and_towards_no_other(name: str) -> None:
    assert find_quota(name, Market.SPOT) is None
    on_demand = find_quota(name, Market.ON_DEMAND)
    assert on_demand is not None and on_demand.code == "L-417A185B"
    stated = stated_quotas(
        {"L-7212CCBC": "All P4, P3 and P2 Spot Instance Requests", "L-NEW": "All P6 Spot Instance Requests"}
    )
    quota = find_quota(name, Market.SPOT, stated)
    assert quota is not None and (quota.code, quota.families) == ("L-NEW", {"p6"})
    weights = {name: 1.0}
    values = {"L-7212CCBC": 10_000.0, "L-NEW": 192.0}
    (need,) = needs({Market.SPOT: 2}, weights, {}, builtin().types, values, stated)
    assert [(reach.quota.code, reach.units) for reach in need.reaches] == [("L-NEW", 1)]
    assert needs({Market.SPOT: 2}, weights, {}, builtin().types, values)[0].reaches == ()


def test_names_that_say_something_else_are_no_quota_of_a_generation() -> None:
    others = {"L-1": "All Standard (A, C, D) Spot Instance Requests", "L-2": "Running Dedicated p6 Hosts"}
    assert stated_quotas(others) == QUOTAS
    (shared_quota,) = set(stated_quotas({"L-3": "All P7 and P8 Spot Instance Requests"})) - set(QUOTAS)
    assert shared_quota.families == {"p7", "p8"}


def test_a_type_of_no_known_family_has_no_quota() -> None:
    assert find_quota("hpc7a.12xlarge", Market.SPOT) is None
    assert find_quota("u-6tb1.metal", Market.SPOT) is None


@pytest.mark.parametrize(("vcpus", "units", "is_enough"), [(64, None, True), (63, 15, False), (3, 0, False)])
def test_a_quota_reaches_as_far_as_its_vcpus(vcpus: float, units: float | None, is_enough: bool) -> None:
    weights = {"g5.xlarge": 1, "g5.12xlarge": 4}  # 4 and 48 vCPUs
    (reach,) = reaches(16, weights, builtin().types, Market.SPOT, {"L-3819A6DF": vcpus})
    assert (reach.least, reach.units) == (64, units)
    assert reach.types == ("g5.xlarge", "g5.12xlarge")
    assert enough(16, [reach]) is is_enough


def test_families_add_up_and_what_was_not_told_is_enough() -> None:
    weights = {"g5.xlarge": 1, "p4d.24xlarge": 8}
    values = {"L-3819A6DF": 32, "L-7212CCBC": 96}
    assert enough(16, reaches(16, weights, builtin().types, Market.SPOT, values))
    assert not enough(17, reaches(17, weights, builtin().types, Market.SPOT, values))
    assert enough(16, reaches(16, weights, builtin().types, Market.SPOT, {"L-3819A6DF": 0}))


def test_what_stands_and_what_is_launched_count_towards_a_quota_together() -> None:
    catalogue = builtin().types  # 4, 48 and 2 vCPUs
    weights = {"g5.xlarge": 1.0, "g5.12xlarge": 4.0, "m6i.large": 1.0}
    elastic = {Market.SPOT: dict.fromkeys(weights, 2), Market.ON_DEMAND: dict.fromkeys(weights, 3)}
    vcpus = most_vcpus({Market.SPOT: 6, Market.ON_DEMAND: 0}, elastic, weights, catalogue)
    # Six units are two of g5.12xlarge or six of the others; every launched instance counts one, whatever its type.
    assert {quota.code: count for quota, count in vcpus.items()} == {
        "L-3819A6DF": (2 + 2) * 48, "L-DB2E81BA": 3 * 48, "L-34B43A08": (6 + 2) * 2, "L-1216C47A": 3 * 2,
    }  # fmt: skip
    assert most_vcpus({}, {}, weights, catalogue) == {}


REGION = "us-east-1"
G5, P4D = "g5.xlarge", "p4d.24xlarge"


def test_a_cap_in_dollars_lets_no_more_be_launched_than_it_pays_at_the_lowest_price() -> None:
    catalogue = builtin()
    on_demand, spot = catalogue.on_demand(G5, REGION), catalogue.spot_range(G5, REGION)
    assert on_demand is not None and spot is not None
    most = launchable(100, 3 * on_demand.usd_per_hour, list(Market), [G5, P4D, "no.price"], catalogue, REGION)
    assert most[Market.ON_DEMAND] == {G5: 3, P4D: 0, "no.price": 100}
    assert most[Market.SPOT][G5] == int(3 * on_demand.usd_per_hour / spot[0].usd_per_hour) > 3
    assert launchable(2, 1e6, [Market.SPOT], [G5], catalogue, REGION) == {Market.SPOT: {G5: 2}}
    assert launchable(2, None, [Market.SPOT], [P4D], catalogue, REGION) == {Market.SPOT: {P4D: 2}}
    assert launchable(2, 0.0, [Market.SPOT], [P4D], catalogue, REGION) == {Market.SPOT: {P4D: 0}}


def test_a_quota_need_not_hold_what_a_cap_in_dollars_never_launches() -> None:
    catalogue = builtin().types
    values = {"L-DB2E81BA": 12.0, "L-417A185B": 0.0}

    def short(**most: int) -> list[str]:
        elastic = {Market.ON_DEMAND: {name.replace("_", "."): count for name, count in most.items()}}
        return shortfalls(needs({}, {}, elastic, catalogue, values), values)

    assert short(g5_xlarge=3, p4d_24xlarge=0) == [], "12 vCPUs are three of 4"
    assert short(g5_xlarge=3, p4d_24xlarge=1) == [], "and P instances are not needed for them"
    (sentence,) = short(g5_xlarge=4, p4d_24xlarge=1)
    assert "do not hold 4 launched instances on on-demand" in sentence
    assert sentence.count("L-417A185B") == 1, "one more of P would be dearer to ask for than 4 vCPUs of G"
    assert short(g5_xlarge=0, p4d_24xlarge=0) == []
    assert "do not hold 1 launched instance on on-demand" in short(p4d_24xlarge=1)[0]
