"""A local cloud in this process for each test module, emptied before every test, with boto3 clients to it."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from everspot_local.cloud import LocalCloud
from everspot_local.market.delays import Delays
from everspot_local.market.disturbances import CALM
from everspot_local.options import Options

sys.path.insert(0, str(Path(__file__).parent))  # for the helpers of several test files

from stillness import standing_still

SCALE = 120.0  # a notice of 120 s takes one real second


class Kit:
    """Common operations of the tests, through the API only."""

    def __init__(self, cloud: LocalCloud, patch: pytest.MonkeyPatch) -> None:
        self.cloud = cloud
        self._patch = patch
        self.ec2 = self.client("ec2")

    def client(self, service: str, *, region: str = "us-east-1", **credentials: Any) -> Any:
        keys = credentials or {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto_client(self.cloud.endpoint, service, region, **keys)

    def roles(self) -> None:
        """Create the service-linked roles of the account's stack, which EC2 needs to launch Spot instances."""
        iam = self.client("iam")
        for service in ("ec2fleet", "spot"):
            with suppress(iam.exceptions.InvalidInputException):  # it is there
                iam.create_service_linked_role(AWSServiceName=f"{service}.amazonaws.com")

    def template(self, **data: Any) -> str:
        answer = self.ec2.create_launch_template(
            LaunchTemplateName=f"template-{time.monotonic_ns()}",
            LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "m6i.large", **data},
        )
        return str(answer["LaunchTemplate"]["LaunchTemplateId"])

    def fleet(self, total: int, *overrides: dict[str, Any], template: str | None = None, **more: Any) -> Any:
        """CreateFleet with a Spot default; the answer."""
        on_demand = more.pop("on_demand", 0)
        request = {
            "Type": "maintain",
            "SpotOptions": {"AllocationStrategy": "price-capacity-optimized"},
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": total,
                "OnDemandTargetCapacity": on_demand,
                "DefaultTargetCapacityType": "spot",
            },
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateId": template or self.template(),
                        "Version": "$Latest",
                    },
                    "Overrides": list(overrides) or [override("m6i.large", "a"), override("c6i.large", "b")],
                }
            ],
            **more,
        }
        return self.ec2.create_fleet(**request)

    def described(self, fleet_id: str) -> Any:
        return self.ec2.describe_fleets(FleetIds=[fleet_id])["Fleets"][0]

    def instances(self, *states: str) -> list[dict[str, Any]]:
        instances = [i for r in self.ec2.describe_instances()["Reservations"] for i in r["Instances"]]
        return [i for i in instances if not states or i["State"]["Name"] in states]

    def living(self, count: int) -> list[dict[str, Any]]:
        """Wait until exactly so many instances are pending or running."""
        return until(lambda: [f for f in [self.instances("pending", "running")] if len(f) == count])[0]

    def instance(self, instance_id: str) -> dict[str, Any]:
        """Return the description of an instance, which a new instance does not have at first."""
        return until(lambda: self._describe_visible(instance_id))[0]

    def _describe_visible(self, instance_id: str) -> list[dict[str, Any]]:
        try:
            return list(self.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"])
        except ClientError as error:
            if error.response["Error"]["Code"] != "InvalidInstanceID.NotFound":
                raise
            return []

    def reaches(self, instance_id: str, state: str) -> dict[str, Any]:
        return until(lambda: [i for i in [self.instance(instance_id)] if i["State"]["Name"] == state])[0]

    def run(self, **more: Any) -> str:
        """One on-demand instance."""
        request = {"ImageId": "ami-12c6146b", "InstanceType": "m6i.large", "MinCount": 1, "MaxCount": 1, **more}
        return str(self.ec2.run_instances(**request)["Instances"][0]["InstanceId"])

    def wait_for_role(self, name: str) -> None:
        """Wait until STS has heard of a role."""

        def usable() -> bool:
            try:
                role = f"arn:aws:iam::123456789012:role/{name}"
                self.client("sts").assume_role(RoleArn=role, RoleSessionName="session")
            except ClientError:
                return False
            return True

        until(usable)

    def wait_for_profile(self, profile: str) -> None:
        """Wait until EC2 has heard of an instance profile."""

        def usable() -> bool:
            with pytest.raises(ClientError) as caught:
                self.run(DryRun=True, IamInstanceProfile={"Name": profile})
            return caught.value.response["Error"]["Code"] == "DryRunOperation"

        until(usable)

    def spot(self, count: int = 1, **more: Any) -> list[str]:
        """Spot instances by an instant fleet."""
        answer = self.fleet(count, Type="instant", **more)
        return [i for group in answer["Instances"] for i in group["InstanceIds"]]

    def still(self) -> AbstractContextManager[Callable[[float], None]]:
        return standing_still(self.cloud, self._patch)

    def mark(self, moment: datetime) -> list[datetime]:
        """Gets the market time at which the cloud came to what is due at a moment. What was put down for the same
        moment before is done by then, however late a busy machine comes to it."""
        marks: list[datetime] = []
        clock = self.cloud.market.clock
        self.cloud.market.timeline.at(moment, lambda: marks.append(clock.now()))
        return marks

    def do(self, action: str, **fields: Any) -> dict[str, Any]:
        return self.cloud.do(action, **fields)

    def log(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.cloud.market.log.read() if line["event"] == event]


@cache
def boto_client(endpoint: str, service: str, region: str, **credentials: str) -> Any:
    """A client, which takes longer to make than most of its calls: one for all tests of a cloud."""
    config = Config(retries={"total_max_attempts": 1})
    return boto3.client(service, endpoint_url=endpoint, region_name=region, config=config, **credentials)


def override(instance_type: str, zone: str, **more: Any) -> dict[str, Any]:
    return {"InstanceType": instance_type, "AvailabilityZone": f"us-east-1{zone}", **more}


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Poll a condition until it gives something."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return value


def text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="session")
def helpers() -> Any:
    """The functions above, for tests in files of their own."""
    return SimpleNamespace(override=override, until=until, text=text)


@pytest.fixture(scope="session")
def kit_class() -> type[Kit]:
    """For modules that keep one kit over several tests."""
    return Kit


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    """Settings of the module's cloud: instances without processes."""
    # An hour is half a minute here, and a busy machine may look later than that.
    patient = Delays(remembered=timedelta(days=1))
    folder = Path(tmp_path_factory.mktemp("cloud"))
    return Options(folder, scale=SCALE, boot_command=None, delays=patient, disturbances=CALM)


@pytest.fixture(scope="module")
def module_cloud(options: Options) -> Iterator[LocalCloud]:
    with LocalCloud(options) as cloud:
        yield cloud


@pytest.fixture
def kit(bare: Kit) -> Kit:
    bare.roles()
    return bare


@pytest.fixture
def bare(module_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> Kit:
    """A kit of an account in which nobody has created a service-linked role yet."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    module_cloud.reset()
    return Kit(module_cloud, monkeypatch)


@pytest.fixture(scope="module")
def rig(module_cloud: LocalCloud) -> Iterator[Kit]:
    """One kit for every rule that leaves nothing behind."""
    with pytest.MonkeyPatch.context() as patch:
        kit = Kit(module_cloud, patch)
        kit.roles()
        yield kit
