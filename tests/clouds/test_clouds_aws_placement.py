"""Placement scores: the request to EC2, and its maximum frequency."""

from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from everspot_clouds.aws.placement import DAY, KEPT, NEW_A_DAY, REFUSED, PlacementScores
from everspot_core.capacity.catalogue import builtin
from everspot_core.capacity.placement import COUNT_AT_MOST, groups, request_count
from everspot_store import ManualClock

T0 = datetime(2026, 3, 1, tzinfo=UTC)
TYPES = ("c6i.large", "m6i.large", "m7i.large")
ZONES = {"use1-az1": "us-east-1c", "use1-az2": "us-east-1a"}


class PlacementService:
    """Placement scores of a client whose answers the test writes down beforehand, question by question."""

    def __init__(self) -> None:
        self.clock = ManualClock(T0)
        ec2 = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
        self.stub, self.placement = Stubber(ec2), PlacementScores(ec2, self.clock)
        self.stub.activate()

    def question(
        self, types: tuple[str, ...] = TYPES, count: int = 1, regions: tuple[str, ...] = ()
    ) -> dict[str, object]:
        return {
            "InstanceTypes": sorted(types),
            "TargetCapacity": count,
            "TargetCapacityUnitType": "units",
            "SingleAvailabilityZone": not regions,
            "RegionNames": list(regions) or ["us-east-1"],
        }

    def answers(self, scores: dict[str, int], **question: object) -> None:
        rows = [{"Region": "us-east-1", "AvailabilityZoneId": zone, "Score": n} for zone, n in scores.items()]
        self.stub.add_response("get_spot_placement_scores", {"SpotPlacementScores": rows}, self.question(**question))

    def names_zones(self) -> None:
        zones = [{"ZoneId": zone_id, "ZoneName": name} for zone_id, name in ZONES.items()]
        self.stub.add_response("describe_availability_zones", {"AvailabilityZones": zones}, {})


@pytest.fixture
def service() -> PlacementService:
    return PlacementService()


def test_scores_are_of_zones_by_their_names_and_are_asked_again_when_they_are_old(service: PlacementService) -> None:
    service.answers({"use1-az1": 9, "use1-az2": 3})
    service.names_zones()
    first = service.placement.scores(TYPES, 1)
    assert [(s.zone, s.score, s.count, s.types, s.at) for s in first] == [
        ("us-east-1c", 9, 1, TYPES, T0), ("us-east-1a", 3, 1, TYPES, T0),
    ]  # fmt: skip
    service.clock.advance(KEPT - timedelta(seconds=1))
    assert service.placement.scores(reversed(TYPES), 1) == first  # the order of the types makes no other question
    service.clock.advance(timedelta(seconds=1))
    service.answers({"use1-az1": 1})
    assert [(s.zone, s.score) for s in service.placement.scores(TYPES, 1)] == [("us-east-1c", 1)]
    service.stub.assert_no_pending_responses()


def test_regions_are_scored_as_a_whole(service: PlacementService) -> None:
    regions = ("eu-west-1", "us-east-1")
    rows = [{"Region": "eu-west-1", "Score": 7}, {"Region": "us-east-1", "Score": 2}]
    service.stub.add_response(
        "get_spot_placement_scores", {"SpotPlacementScores": rows}, service.question(count=16, regions=regions)
    )
    scores = service.placement.scores(TYPES, 5, ["us-east-1", "eu-west-1"])
    assert [(s.region, s.zone, s.score, s.count) for s in scores] == [
        ("eu-west-1", "", 7, 16),
        ("us-east-1", "", 2, 16),
    ]


def test_fewer_than_three_types_are_not_asked_about(service: PlacementService) -> None:
    assert service.placement.scores((*TYPES[:2], TYPES[0]), 1) == []  # the stub would refuse any call


def test_so_many_new_configurations_a_day_and_no_more(service: PlacementService) -> None:
    names = [(*TYPES, f"x{number}.large") for number in range(NEW_A_DAY + 1)]
    for types in names[:-1]:
        service.answers({}, types=types)
        assert service.placement.scores(types, 1) == []
    assert service.placement.scores(names[-1], 1) == []  # the stub would refuse the call
    assert service.placement.scores(names[0], 8) == []  # answered from what is known of one instance
    service.clock.advance(DAY - timedelta(seconds=1))
    service.answers({}, types=names[0])  # configurations that were requested today may be requested again
    service.placement.scores(names[0], 1)
    service.clock.advance(timedelta(seconds=1))
    service.answers({}, types=names[-1])
    service.placement.scores(names[-1], 1)
    service.stub.assert_no_pending_responses()


def test_when_ec2_refuses_new_configurations_the_old_ones_go_on(service: PlacementService) -> None:
    more = (*TYPES, "x.large")
    service.answers({}, types=TYPES)
    service.placement.scores(TYPES, 1)
    service.stub.add_client_error("get_spot_placement_scores", REFUSED, http_status_code=400)
    assert service.placement.scores(more, 1) == []
    assert service.placement.scores(more, 1) == []  # is not asked again
    service.clock.advance(KEPT)
    service.answers({"use1-az1": 4}, types=TYPES)
    service.names_zones()
    assert [s.score for s in service.placement.scores(TYPES, 1)] == [4]
    service.clock.advance(DAY)
    service.answers({"use1-az1": 5}, types=more)
    assert [s.score for s in service.placement.scores(more, 1)] == [5]


def test_any_other_refusal_is_an_error(service: PlacementService) -> None:
    service.stub.add_client_error("get_spot_placement_scores", "UnauthorizedOperation", http_status_code=403)
    with pytest.raises(ClientError):
        service.placement.scores(TYPES, 1)


def test_types_that_may_stand_in_for_each_other_are_asked_about_together() -> None:
    names = ("m6i.large", "c6i.large", "g5.xlarge", "g4dn.xlarge", "g5.2xlarge", "g5.12xlarge", "c6i.large")
    assert groups(builtin().get(name) for name in names) == [
        ("c6i.large", "m6i.large"), ("g4dn.xlarge", "g5.2xlarge", "g5.xlarge"), ("g5.12xlarge",),
    ]  # fmt: skip
    assert [request_count(n) for n in (0, 1, 2, 4, 5, 16, 17, 1000)] == [1, 1, 4, 4, 16, 16, 64, COUNT_AT_MOST]
