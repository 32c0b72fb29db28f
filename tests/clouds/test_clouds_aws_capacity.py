"""The requests of CreateFleet and TerminateInstances, validated by botocore's model, and the parsing of their
answers."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from botocore.stub import ANY, Stubber
from everspot_clouds.aws import capacity
from everspot_clouds.base import Launched
from everspot_core.capacity.launching import LaunchIntent, LaunchPool, LaunchTrouble
from everspot_core.capacity.market import Market

AT = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "0f" * 16
PLACES = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}


def intent(market: Market = Market.SPOT, *, jobs=("a",), ordered=False, whole=False, max_price=None) -> LaunchIntent:
    pools = [
        LaunchPool(instance_type=kind, zone=zone, market=market, place=place, max_price=max_price)
        for kind in ("g5.xlarge", "g6.xlarge")
        for zone, place in PLACES.items()
    ]
    return LaunchIntent(
        seq=3, token=TOKEN, jobs=jobs, pools=tuple(pools), ordered=ordered, whole=whole, template="lt-1",
        template_version="7", usd_per_hour=1.0, made_at=AT, scheduler_id="s",
    )  # fmt: skip


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Stubber]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    client = boto3.client("ec2", region_name="us-east-1")
    with Stubber(client) as stub:
        yield client, stub
    client.close()


def overrides(**each: Any) -> list[dict[str, Any]]:
    entries = []
    for kind in ("g5.xlarge", "g6.xlarge"):
        for place in PLACES.values():
            entries.append({"InstanceType": kind, "SubnetId": place, **each})
    return entries


RESERVED = {"CapacityReservationOptions": {"UsageStrategy": "use-capacity-reservations-first"}}
WHOLE = {"SingleInstanceType": True, "SingleAvailabilityZone": True, "MinTargetCapacity": 2}


@pytest.mark.parametrize(
    ("launch_intent", "name", "options", "ranked"),
    [
        (intent(), "SpotOptions", {"AllocationStrategy": "price-capacity-optimized"}, False),
        (intent(ordered=True), "SpotOptions", {"AllocationStrategy": "capacity-optimized-prioritized"}, True),
        (intent(Market.ON_DEMAND), "OnDemandOptions", {"AllocationStrategy": "lowest-price", **RESERVED}, False),
        (
            intent(Market.ON_DEMAND, ordered=True),
            "OnDemandOptions",
            {"AllocationStrategy": "prioritized", **RESERVED},
            True,
        ),
        (
            intent(jobs=("g", "g"), whole=True),
            "SpotOptions",
            {"AllocationStrategy": "price-capacity-optimized", **WHOLE},
            False,
        ),
        (
            intent(Market.ON_DEMAND, jobs=("g", "g"), ordered=True, whole=True),
            "OnDemandOptions",
            {"AllocationStrategy": "prioritized", **RESERVED, **WHOLE},
            True,
        ),
    ],
)
def test_a_launch_is_one_request_of_all_its_pools(ec2, launch_intent, name, options, ranked) -> None:
    client, stub = ec2
    ways = [{**way, **({"Priority": float(rank)} if ranked else {})} for rank, way in enumerate(overrides())]
    launch_intent = launch_intent.model_copy(update={"tags": {"Team": "vision", "everspot:cluster": "c"}})
    tags = [
        {"Key": "Team", "Value": "vision"},
        {"Key": "everspot:cluster", "Value": "c"},
        {"Key": "everspot:role", "Value": "agent"},
        {"Key": "everspot:launch", "Value": TOKEN},
    ]
    expected = {
        "Type": "instant",
        "ClientToken": TOKEN,
        "LaunchTemplateConfigs": [
            {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "7"}, "Overrides": ways}
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": launch_intent.count,
            "DefaultTargetCapacityType": launch_intent.market.value,
        },
        name: options,
        "TagSpecifications": [
            {"ResourceType": "fleet", "Tags": tags},
            {"ResourceType": "instance", "Tags": tags},
        ],
    }
    stub.add_response("create_fleet", {"FleetId": "fleet-1"}, expected)
    answer = capacity.launch(client, "c", launch_intent)
    assert (answer.instances, answer.errors) == ((), ())
    stub.assert_no_pending_responses()


def test_a_highest_price_is_for_spot_alone() -> None:
    def prices(launch_intent: LaunchIntent) -> set[str | None]:
        (config,) = capacity.request("c", launch_intent)["LaunchTemplateConfigs"]
        return {way.get("MaxPrice") for way in config["Overrides"]}

    assert prices(intent(max_price=0.8)) == {"0.8"}
    assert prices(intent(Market.ON_DEMAND, max_price=0.8)) == {None}


def way(kind: str, place: str) -> dict[str, Any]:
    return {
        "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "7"},
        "Overrides": {"InstanceType": kind, "SubnetId": place},
    }


def refused(code: str, message: str = "m", kind: str = "g5.xlarge", place: str = "subnet-b") -> dict[str, Any]:
    error = {"Lifecycle": "spot", "ErrorCode": code, "ErrorMessage": message}
    return {"LaunchTemplateAndOverrides": way(kind, place), **error}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", LaunchTrouble.CAPACITY),
        ("UnfulfillableCapacity", LaunchTrouble.CAPACITY),
        ("InsufficientFreeAddressesInSubnet", LaunchTrouble.CAPACITY),
        ("InvalidFleetConfiguration", LaunchTrouble.CAPACITY),
        ("Unsupported", LaunchTrouble.CAPACITY),
        ("SpotMaxPriceTooLow", LaunchTrouble.PRICE),
        ("VcpuLimitExceeded", LaunchTrouble.QUOTA),
        ("MaxSpotInstanceCountExceeded", LaunchTrouble.QUOTA),
        ("InvalidParameterValue", LaunchTrouble.REQUEST),
        ("InvalidAMIID.NotFound", LaunchTrouble.REQUEST),
        ("MissingParameter", LaunchTrouble.REQUEST),
        ("UnsupportedOperation", LaunchTrouble.REQUEST),
        ("RequestLimitExceeded", LaunchTrouble.THROTTLED),
        ("UnauthorizedOperation", LaunchTrouble.CREDENTIALS),
        # Met in the answers of instant fleets (https://github.com/aws/karpenter-provider-aws/pull/7998).
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", LaunchTrouble.CREDENTIALS),
        ("InternalError", LaunchTrouble.TRANSIENT),
        ("SomethingThatNobodyKnows", LaunchTrouble.TRANSIENT),
    ],
)
def test_each_override_that_gave_nothing_is_told_by_its_pool_and_kind(ec2, code, kind) -> None:
    client, stub = ec2
    launched = {
        "LaunchTemplateAndOverrides": way("g6.xlarge", "subnet-a"),
        "Lifecycle": "spot",
        "InstanceIds": ["i-1", "i-2"],
        "InstanceType": "g6.xlarge",
    }
    stub.add_response("create_fleet", {"FleetId": "f", "Instances": [launched], "Errors": [refused(code)]}, ANY_REQUEST)
    answer = capacity.launch(client, "c", intent(jobs=("a", "b", "c")))
    assert answer.instances == tuple(
        Launched(instance_id=name, instance_type="g6.xlarge", zone="us-east-1a") for name in ("i-1", "i-2")
    )
    (error,) = answer.errors
    assert (error.instance_type, error.zone, error.market) == ("g5.xlarge", "us-east-1b", Market.SPOT)
    assert (error.kind, error.code, error.message) == (kind, code, "m")


_ASKED = "Type ClientToken LaunchTemplateConfigs TargetCapacitySpecification SpotOptions TagSpecifications"
ANY_REQUEST = dict.fromkeys(_ASKED.split(), ANY)


def test_an_override_that_failed_for_others_is_no_refusal_of_its_own() -> None:
    pointer = refused("UnfulfillableCapacity", "Failed to fulfill capacity. Please review errors in the response.")
    real = refused("VcpuLimitExceeded", kind="g6.xlarge", place="subnet-a")
    answer = capacity.read({"Errors": [pointer, real]}, intent())
    assert [(e.instance_type, e.kind) for e in answer.errors] == [("g6.xlarge", LaunchTrouble.QUOTA)]
    assert len(capacity.read({"Errors": [pointer]}, intent()).errors) == 1


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InvalidLaunchTemplateId.NotFound", 400, LaunchTrouble.REQUEST),
        ("UnauthorizedOperation", 403, LaunchTrouble.CREDENTIALS),
        ("MaxFleetCountExceeded", 400, LaunchTrouble.QUOTA),
        ("InsufficientInstanceCapacity", 400, LaunchTrouble.CAPACITY),
    ],
)
def test_a_refusal_of_the_whole_request_speaks_of_every_pool(ec2, code, status, kind) -> None:
    client, stub = ec2
    stub.add_client_error("create_fleet", code, "words", http_status_code=status)
    (error,) = capacity.launch(client, "c", intent()).errors
    assert (error.instance_type, error.zone, error.kind, error.code) == ("", "", kind, code)


@pytest.mark.parametrize(
    ("code", "message", "unresolved"),
    [
        ("InvalidLaunchTemplateId.VersionNotFound", "", True),
        ("InvalidLaunchTemplateName.NotFoundException", "", True),
        ("InvalidAMIID.NotFound", "", True),
        ("InvalidSubnetID.NotFound", "", True),
        ("InvalidKeyPair.NotFound", "", True),
        ("InvalidParameterValue", "Value (a) for parameter iamInstanceProfile.name is invalid. "
         "Invalid IAM Instance Profile name", True),
        ("InvalidParameterValue", "IAM Instance Profile \"arn\" has no associated IAM Roles", True),
        ("InvalidParameterValue", "Value (x) for parameter groupId is invalid.", False),
        ("InvalidAMIID.Malformed", "", False),
        ("MissingParameter", "", False),
    ],
)  # fmt: skip
def test_a_resource_that_ec2_does_not_know_may_be_a_new_one(ec2, code, message, unresolved) -> None:
    client, stub = ec2
    stub.add_client_error("create_fleet", code, message, http_status_code=400)
    (whole,) = capacity.launch(client, "c", intent()).errors
    (of_one,) = capacity.read({"Errors": [refused(code, message)]}, intent()).errors
    assert (whole.kind, of_one.kind) == (LaunchTrouble.REQUEST, LaunchTrouble.REQUEST)
    assert (whole.unresolved, of_one.unresolved) == (unresolved, unresolved)


@pytest.mark.parametrize("brought", [(), ("i-1", "i-2")])
def test_a_token_that_was_used_for_another_request_has_brought_what_is_described_under_it(ec2, brought) -> None:
    client, stub = ec2
    stub.add_client_error("create_fleet", "IdempotentParameterMismatch", "words", http_status_code=400)
    described = [
        {
            "InstanceId": name, "InstanceType": "g5.xlarge", "State": {"Name": "running"}, "LaunchTime": AT,
            "Placement": {"AvailabilityZone": "us-east-1a"}, "InstanceLifecycle": "spot",
        }
        for name in brought
    ]  # fmt: skip
    filters = [{"Name": "tag:everspot:launch", "Values": [TOKEN]}]
    stub.add_response(
        "describe_instances", {"Reservations": [{"Instances": described}]}, {"Filters": filters, "MaxResults": 500}
    )
    answer = capacity.launch(client, "c", intent())
    assert answer.instances == tuple(
        Launched(instance_id=i, instance_type="g5.xlarge", zone="us-east-1a") for i in brought
    )
    assert [e.kind for e in answer.errors] == ([] if brought else [LaunchTrouble.TRANSIENT])


class Broken:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def create_fleet(self, **_: Any) -> None:
        raise self.error


def service(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "CreateFleet")


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url="here"),
        EndpointConnectionError(endpoint_url="here"),
        service("RequestLimitExceeded", 503),
        service("InternalError", 500),
        service("Unavailable", 503),
    ],
)
def test_what_may_have_been_carried_out_is_raised_and_asked_again(error: Exception) -> None:
    with pytest.raises(type(error)):
        capacity.launch(Broken(error), "c", intent())


def test_a_launch_without_credentials_is_an_error() -> None:
    (error,) = capacity.launch(Broken(NoCredentialsError()), "c", intent()).errors
    assert error.kind is LaunchTrouble.CREDENTIALS
