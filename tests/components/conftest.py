"""Components under Pulumi's mocks: what they register is recorded, nothing is created."""

import asyncio
import copy
import gc
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pulumi
import pytest
from everspot import AwsTrainingClusterArgs
from pulumi.runtime import settings, stack
from pulumi.runtime.proto.source_pb2 import StackTrace

sys.path.insert(0, str(Path(__file__).parent))  # what tests of several files share

import gcp_helpers
from federated_pair import Pair
from stack_helpers import declared

__all__ = ["declared"]

TAGS = {"Project": "vision", "Team": "ml", "Environment": "test"}


class Recorder(pulumi.runtime.Mocks):
    """Answers as a cloud would, and remembers every resource with its inputs."""

    not_offered: ClassVar[set[tuple[str, str]]] = set()

    def __init__(self) -> None:
        self.resources: list[pulumi.runtime.MockResourceArgs] = []
        self.calls: list[str] = []
        self.vcpus: dict[str, float | None] = {}
        self.endpoints: tuple[str, ...] = ("s3", "ec2", "sqs", "sts")
        self.routes: list[dict[str, str]] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        self.resources.append(args)
        if args.typ.startswith("gcp:"):
            return gcp_helpers.new_resource(args)
        answer = {"arn": f"arn:{args.name}", "url": f"https://queue/{args.name}", "latestVersion": 3, "name": args.name}
        return f"{args.name}-id", {**answer, "prefixListId": "pl-s3", **args.inputs}

    def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
        self.calls.append(args.token)
        if args.token.startswith("gcp:"):
            return gcp_helpers.call(args.token, args.args)
        if args.token == "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings":
            return self.offerings(args.args)
        subnet = str(args.args.get("id", ""))
        service = str(args.args.get("serviceName", "")).rpartition(".")[2]
        if args.token == "aws:ec2/getVpcEndpoint:getVpcEndpoint" and service not in self.endpoints:
            return {}, [("", "no matching EC2 VPC Endpoint found")]
        if args.token == "aws:servicequotas/getServiceQuota:getServiceQuota":
            return self.quotas(args.args)
        if args.token == "aws:iam/getRole:getRole":
            return {}, [("", "couldn't find resource")]
        return {
            "aws:index/getAvailabilityZones:getAvailabilityZones": {
                "names": [f"eu-west-1{zone}" for zone in "abcdefgh"]
            },
            "aws:ec2/getVpcEndpoint:getVpcEndpoint": {
                "routeTableIds": ["rtb-1"] if service == "s3" else [],
                "privateDnsEnabled": service != "s3",
            },
            "aws:ec2/getRouteTable:getRouteTable": {"routeTableId": "rtb-1", "routes": self.routes},
            "aws:index/getRegion:getRegion": {"region": "eu-west-1"},
            "aws:index/getCallerIdentity:getCallerIdentity": {
                "accountId": "123456789012",
                "arn": "arn:aws:iam::123456789012:user/admin",
            },
            "aws:ec2/getAmi:getAmi": {
                "rootDeviceName": "/dev/xvda",
                "blockDeviceMappings": [
                    {"deviceName": "/dev/xvdb", "ebs": {}, "noDevice": "", "virtualName": "ephemeral0"},
                    {"deviceName": "/dev/xvda", "ebs": {"volume_size": "75"}, "noDevice": "", "virtualName": ""},
                ],
            },
            "aws:ssm/getParameter:getParameter": {"value": "ami-fromparameter"},
            "aws:eks/getCluster:getCluster": {
                "endpoint": "https://eks.example",
                "certificateAuthorities": [{"data": "Y2E="}],
            },
            "aws:ec2/getVpc:getVpc": {
                "id": subnet,
                "cidrBlock": "10.9.0.0/16",
                "cidrBlockAssociations": [{"cidrBlock": "10.9.0.0/16"}, {"cidrBlock": "100.64.0.0/16"}],
            },
            "aws:ec2/getSubnet:getSubnet": {
                "id": subnet,
                "vpcId": "vpc-other" if subnet.endswith("stray") else "vpc-mine",
                "availabilityZone": subnet.removesuffix("stray").removesuffix("-twin"),
            },
            "aws:ec2/getPrefixList:getPrefixList": {"id": "pl-found"},
            "aws:ebs/getDefaultKmsKey:getDefaultKmsKey": {"keyArn": "alias/aws/ebs"},
        }[args.token]

    def offerings(self, query: dict[Any, Any]) -> dict[str, Any]:
        """Every type in every zone, but for what a test says is not offered."""
        names = query.get("filters", [{"values": []}])[0]["values"]
        pairs = [(n, f"eu-west-1{z}") for n in names for z in "abcdef" if (n, f"eu-west-1{z}") not in self.not_offered]
        return {"instanceTypes": [n for n, _ in pairs], "locations": [z for _, z in pairs], "locationTypes": []}

    def quotas(self, query: dict[Any, Any]) -> Any:
        """A thousand vCPUs of everything, but for what a test says; None: nobody may ask."""
        value = self.vcpus.get(query["quotaCode"], 1000.0)
        if value is None:
            return {}, [("", "not authorized to perform: servicequotas:GetServiceQuota")]
        return {"value": value, "quotaCode": query["quotaCode"], "serviceCode": query["serviceCode"]}

    def types_by_name(self) -> dict[str, str]:
        """Type by name of everything that was registered."""
        return {args.name: args.typ for args in self.resources}

    def inputs(self, name: str) -> dict[str, Any]:
        """The inputs of one resource."""
        (inputs,) = [args.inputs for args in self.resources if args.name == name]
        return inputs

    def of_type(self, kind: str) -> list[pulumi.runtime.MockResourceArgs]:
        """The resources of one type."""
        return [args for args in self.resources if args.typ == kind]


@cache
def _freeze_modules(modules: int) -> None:
    gc.freeze()


def keep() -> None:
    """All that was imported stays: what is left of a program is then found without a look at ten thousand classes. The
    SDK of a cloud comes piece by piece, with the first programs."""
    _freeze_modules(len(sys.modules))


@pytest.fixture(scope="session", autouse=True)
def loaded() -> None:
    """What was imported until now stays."""
    gc.collect()
    keep()


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Recorder, dict[str, Any]]]:
    """Run a program under mocks: what it registered, and what the outputs that it returned came to."""

    def run(
        program: Callable[[], dict[str, Any]],
        *,
        preview: bool = False,
        endpoints: tuple[str, ...] | None = None,
        routes: Sequence[dict[str, str]] = (),
        vcpus: dict[str, float | None] | None = None,
    ) -> tuple[Recorder, dict[str, Any]]:
        recorder, outputs = Recorder(), dict[str, Any]()
        recorder.vcpus = vcpus or {}
        recorder.routes = list(routes)
        if endpoints is not None:
            recorder.endpoints = endpoints

        async def body() -> None:
            await pulumi.Output.all(**program()).apply(outputs.update).future()

        async def main() -> None:
            pulumi.runtime.set_mocks(recorder, preview=preview)
            settings.SETTINGS.rpc_manager.clear()
            settings.SETTINGS.outputs.clear()
            await stack.run_pulumi_func(body)

        # Pulumi's mocks leave a loop behind in every thread that they use.
        loops: list[asyncio.AbstractEventLoop] = []
        new_loop = asyncio.new_event_loop
        monkeypatch.setattr(asyncio, "new_event_loop", lambda: loops.append(new_loop()) or loops[-1])
        # Where in a program each resource is: for who reads an engine's errors, and a quarter of the program's time.
        monkeypatch.setattr("pulumi.runtime.resource._get_stack_trace", StackTrace)
        try:
            asyncio.run(main())
        finally:
            monkeypatch.undo()
            for loop in loops:
                loop.close()
            gc.collect()  # their cycles must not be found later, in the midst of CPython 3.11's parser
            keep()
        return recorder, outputs

    return run


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """What each resource that a program registers comes after, by its name."""
    dependencies: dict[str, set[str]] = {}
    register = pulumi.runtime.mocks.MockMonitor.RegisterResource

    def spy(self: Any, request: Any) -> Any:
        dependencies[request.name] = {urn.rpartition("::")[2] for urn in request.dependencies}
        return register(self, request)

    monkeypatch.setattr(pulumi.runtime.mocks.MockMonitor, "RegisterResource", spy)
    return dependencies


@pytest.fixture
def former_names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Of every resource that is declared, by name: the other names by which the engine knows it."""
    former_names: dict[str, list[str]] = {}
    register = pulumi.runtime.mocks.MockMonitor.RegisterResource

    def spy(self: Any, request: Any) -> Any:
        former_names[request.name] = [alias.spec.name for alias in request.aliases if alias.spec.name]
        return register(self, request)

    monkeypatch.setattr(pulumi.runtime.mocks.MockMonitor, "RegisterResource", spy)
    return former_names


SPEC: AwsTrainingClusterArgs = {
    "tags": TAGS,
    "zones": ["eu-west-1a", "eu-west-1b"],
    "image_id": "ami-1",
    "capacity": {
        "instance_types": [{"type": "m6i.large"}, {"type": "c6i.large"}, {"type": "m7i.large"}],
        "standing": {"target": 5, "on_demand_base": 1},
    },
}


@pytest.fixture
def recorder_kind() -> type[Recorder]:
    """What answers in the cloud's place, for a test to have it answer otherwise."""
    return Recorder


@pytest.fixture
def spec() -> AwsTrainingClusterArgs:
    """A sound cluster, for a test to change."""
    return copy.deepcopy(SPEC)


@pytest.fixture
def pair(declare: Callable[..., tuple[Recorder, dict[str, Any]]], spec: AwsTrainingClusterArgs) -> Pair:
    """A cluster of each cloud, to be declared with peers."""
    return Pair(declare, spec)


@pytest.fixture
def protection(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[bool, bool]]:
    """Of every resource that is declared, by name: whether it is protected, and whether it outlives its stack."""
    protection: dict[str, tuple[bool, bool]] = {}
    register = pulumi.runtime.mocks.MockMonitor.RegisterResource

    def spy(self: Any, request: Any) -> Any:
        protection[request.name] = (request.protect, request.retainOnDelete)
        return register(self, request)

    monkeypatch.setattr(pulumi.runtime.mocks.MockMonitor, "RegisterResource", spy)
    return protection
