"""GetSpotPlacementScores: from the depth of the market's pools, within EC2's limits."""

from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_clouds.aws.placement import PlacementScores
from everspot_store import SystemClock
from localcloud_refusals import refused

KINDS = ["c6i.large", "m6i.large", "m7i.large"]


@pytest.fixture
def zones(kit: Any) -> Any:
    """Sets how many Spot instances each zone gives, evenly over the types, and none in the others."""

    def put(**instances: int) -> None:
        for kind in KINDS:
            for zone in kit.cloud.market.pools.zones:
                if kit.cloud.market.pools.offers(kind, zone):
                    kit.do("depth", pool=f"{kind}/{zone}", instances=instances.get(zone[-1], 0))

    return put


def read_scores(kit: Any, count: int, kinds: list[str] = KINDS, **more: Any) -> dict[str, int]:
    """Scores by zone letter, or of the region."""
    request = {"InstanceTypes": kinds, "TargetCapacity": count, "SingleAvailabilityZone": True, **more}
    ids = {zone_id: name[-1] for name, zone_id in kit.cloud.market.zone_ids.items()}
    scores = kit.ec2.get_spot_placement_scores(**request)["SpotPlacementScores"]
    assert {s["Region"] for s in scores} <= {"us-east-1"}
    return {ids.get(s.get("AvailabilityZoneId"), "region"): s["Score"] for s in scores}


def test_a_score_follows_what_the_pools_would_give_now(kit: Any, zones: Any) -> None:
    zones(a=12, b=4, c=2)
    scores = read_scores(kit, 12)
    assert [scores.pop(zone) for zone in "abc"] == [10, 5, 2]
    assert set(scores.values()) == {1}
    assert read_scores(kit, 12, SingleAvailabilityZone=False) == {"region": 10}
    assert read_scores(kit, 24)["a"] == 6
    kit.do("drought", pool="*/us-east-1a")
    assert read_scores(kit, 12)["a"] == 1
    kit.do("recover", pool="*/us-east-1a")
    kit.fleet(4, *[{"InstanceType": k, "AvailabilityZone": "us-east-1b"} for k in KINDS], Type="instant")
    assert read_scores(kit, 12)["b"] == 3


def test_fewer_than_three_types_always_score_low(kit: Any, zones: Any) -> None:
    zones(a=100)
    assert (read_scores(kit, 1)["a"], read_scores(kit, 1, KINDS[:2])["a"]) == (10, 2)


def test_capacity_is_counted_in_its_unit(kit: Any, zones: Any) -> None:
    zones(a=4)
    assert read_scores(kit, 24, TargetCapacityUnitType="vcpu")["a"] == 5
    assert read_scores(kit, 8 * 1024 * 6, TargetCapacityUnitType="memory-mib")["a"] == 6


def test_new_configurations_are_few_a_day(kit: Any, zones: Any) -> None:
    zones(a=4)
    with kit.still() as move:
        for count in range(1, 11):
            read_scores(kit, count)
        with refused("MaxConfigLimitExceeded", "maximum allowed Spot placement configurations"):
            read_scores(kit, 11)
        assert read_scores(kit, 10) == read_scores(kit, 10, list(reversed(KINDS)))  # the same question
        move(24 * 3600)
        read_scores(kit, 11)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"InstanceTypes": []}, "MissingParameter"),
        ({"InstanceTypes": ["m6i.enormous", *KINDS]}, "InvalidInstanceType"),
        ({"TargetCapacityUnitType": "instances"}, "InvalidParameterValue"),
        ({"RegionNames": ["us-east-1"] * 11}, "InvalidParameterValue"),
        ({"NextToken": "elsewhere"}, "InvalidNextToken"),
    ],
)
def test_a_question_that_cannot_be(rig: Any, request_: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as caught:
        rig.ec2.get_spot_placement_scores(**{"InstanceTypes": KINDS, "TargetCapacity": 1, **request_})
    assert caught.value.response["Error"]["Code"] == code


def test_a_region_without_a_market_is_left_out(kit: Any) -> None:
    assert read_scores(kit, 1, RegionNames=["eu-west-1"]) == {}
    assert "a" in read_scores(kit, 1, RegionNames=["eu-west-1", "us-east-1"])


def test_the_product_reads_them(kit: Any, zones: Any) -> None:
    zones(a=12)
    scores = {s.zone: s.score for s in PlacementScores(kit.ec2, SystemClock()).scores(KINDS, 1)}
    assert scores.pop("us-east-1a") == 10
    assert set(scores.values()) == {1}
