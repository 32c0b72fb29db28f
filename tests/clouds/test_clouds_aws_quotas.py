"""Which vCPU quotas a fleet counts towards, and how far they reach."""

import pytest
from everspot_clouds.aws.quotas import enough, most_vcpus, quota_of, reaches
from everspot_core.catalogue import builtin
from everspot_core.records import Market


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
    found = quota_of(name, Market.SPOT), quota_of(name, Market.ON_DEMAND)
    assert [quota.code for quota in found if quota] == [spot, on_demand]


def test_a_type_of_no_known_family_has_no_quota() -> None:
    assert quota_of("hpc7a.12xlarge", Market.SPOT) is None
    assert quota_of("u-6tb1.metal", Market.SPOT) is None


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
    known = builtin().types  # 4, 48 and 2 vCPUs
    weights = {"g5.xlarge": 1.0, "g5.12xlarge": 4.0, "m6i.large": 1.0}
    found = most_vcpus({Market.SPOT: 6, Market.ON_DEMAND: 0}, {Market.SPOT: 2, Market.ON_DEMAND: 3}, weights, known)
    # Six units are two of g5.12xlarge or six of the others; every launched instance counts one, whatever its type.
    assert {quota.code: count for quota, count in found.items()} == {
        "L-3819A6DF": (2 + 2) * 48, "L-DB2E81BA": 3 * 48, "L-34B43A08": (6 + 2) * 2, "L-1216C47A": 3 * 2,
    }  # fmt: skip
    assert most_vcpus({}, {}, weights, known) == {}
