"""What a cluster costs, estimated from the resources that its components declare under mocks."""

import copy
from collections.abc import Callable
from datetime import date
from typing import Any

import gcp_helpers
import pulumi
import pytest
from everspot import AwsKubernetesPool, AwsTrainingCluster, AwsTrainingClusterArgs, GcpTrainingCluster
from everspot.capacity import spelt
from everspot_clouds.estimating import environment, estimated
from everspot_core.cluster.declared import DeclaredResource
from everspot_core.estimate.model import Estimate
from test_components_kubernetes import pool_args

Declare = Callable[..., tuple[Any, dict[str, Any]]]


@pytest.fixture
def urns(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """The URN of each resource that a program registers as the engine makes it, by type and name: mocks' own have no
    more than one parent."""
    by_resource: dict[tuple[str, str], str] = {}
    chains: dict[str, str] = {}
    register = pulumi.runtime.mocks.MockMonitor.RegisterResource

    def spy(self: Any, request: Any) -> Any:
        answer = register(self, request)
        types = f"{chains[request.parent]}${request.type}" if request.parent in chains else request.type
        if request.type != "pulumi:pulumi:Stack":
            chains[answer.urn] = types
        by_resource[request.type, request.name] = f"urn:pulumi:dev::everspot::{types}::{request.name}"
        return answer

    monkeypatch.setattr(pulumi.runtime.mocks.MockMonitor, "RegisterResource", spy)
    return by_resource


@pytest.fixture
def declared(declare: Declare, urns: dict[tuple[str, str], str]) -> Callable[..., list[DeclaredResource]]:
    """The resources of a cluster as a preview has them."""

    def run(kind: Any, spec: Any, *, preview: bool = True) -> list[DeclaredResource]:
        recorder, _ = declare(lambda: {"cluster": kind("everspot-dev", spec).cluster}, preview=preview)
        return [DeclaredResource(urns[args.typ, args.name], args.typ, args.inputs) for args in recorder.resources]

    return run


AWS_MONTH = {
    # 1 unit of c6i.large at $0.0912, to m7i.large at $0.11235; 4 on Spot; the scheduler's t3.small at $0.0228
    ("everspot-dev-fleet-on-demand", "on-demand instances"): (66.58, 66.58, 82.02, 66.58),
    ("everspot-dev-fleet-spot", "spot instances"): (146.88, 157.83, 181.04, 266.30),
    ("everspot-dev-scheduler-group", "on-demand instances"): (16.64, 16.64, 16.64, 16.64),
    ("everspot-dev-scheduler", "store requests"): (1.12, 1.12, 1.12, 1.12),
    # nothing, to 4 of m7i.large
    ("everspot-dev-elastic", "elastic instances"): (0, 0, 328.06, 0),
    # 100 GiB at $0.08 an instance; the scheduler's disk is the image's own, of 75 GiB
    ("everspot-dev-fleet-on-demand", "volumes"): (8, 8, 8, 8),
    ("everspot-dev-fleet-spot", "volumes"): (32, 32, 32, 32),
    ("everspot-dev-scheduler-group", "volumes"): (6, 6, 6, 6),
    ("everspot-dev-elastic", "volumes"): (0, 0, 32, 0),
    # two zones, $0.01 an hour each
    **{
        (f"everspot-dev-network-endpoint-{service}", "interface endpoints"): (14.6, 14.6, 14.6, 14.6)
        for service in ("ec2", "sqs", "sts", "monitoring")
    },
    **{
        (f"everspot-dev-monitoring-{alarm}", "alarms"): (0.1, 0.1, 0.1, 0.1)
        for alarm in ("budget-at-80", "job-over-estimate", "pool-over-norm", "scheduler-silent")
    },
    ("everspot-dev-monitoring-dashboard", "dashboards"): (3, 3, 3, 3),
    ("everspot-dev-monitoring", "metrics"): (2.84, 2.84, 2.84, 2.84),
}
"""Each part of a cluster on AWS: low, expected, high, all on demand."""


def parts(estimate: Estimate) -> dict[tuple[str, str], tuple[float, ...]]:
    assert estimate.after is not None
    return {(p.name, p.kind): tuple(p.range.model_dump().values()) for p in estimate.after.parts}


@pytest.fixture
def aws_spec(spec: AwsTrainingClusterArgs) -> AwsTrainingClusterArgs:
    spec["monitoring"], spec["volume_gib"] = {}, 100
    spec["capacity"]["elastic"] = {"max_instances": 4}
    return spec


@pytest.mark.parametrize("preview", [True, False])
def test_a_cluster_on_aws(declared: Callable[..., list[DeclaredResource]], aws_spec: Any, preview: bool) -> None:
    estimate = estimated([], declared(AwsTrainingCluster, aws_spec, preview=preview), regions={"aws": "eu-west-1"})
    assert parts(estimate) == AWS_MONTH
    assert estimate.before is not None and estimate.before.total.high == 0
    assert estimate.by_use == (
        "S3 by storage, and by the requests of jobs: everspot-dev-store-control, everspot-dev-store-data",
        "SQS by requests: everspot-dev-events-dead, everspot-dev-events-queue",
        "interface endpoints also by the GB: everspot-dev-network-endpoint-ec2, "
        "everspot-dev-network-endpoint-monitoring, everspot-dev-network-endpoint-sqs, "
        "everspot-dev-network-endpoint-sts",
    )
    (stand_in,) = estimate.unknown
    listed = "eu-west-1: its list prices of endpoints, monitoring, store requests and volumes are not known here"
    assert stand_in.startswith(listed) and "us-east-1's stand in" in stand_in
    assert estimate.prices_as_of == date(2025, 10, 1)


def test_a_cluster_on_google_cloud(declared: Callable[..., list[DeclaredResource]]) -> None:
    spec = copy.deepcopy(gcp_helpers.SPEC)
    spec["monitoring"], spec["nat"] = {}, True
    spec["capacity"]["elastic"] = {"max_instances": 4, "max_usd_per_hour": 10}
    costs = parts(estimated([], declared(GcpTrainingCluster, spec)))
    alarms = {name: cost for (name, kind), cost in costs.items() if kind == "alarms"}
    assert len(alarms) == 4 and set(alarms.values()) == {(0, 1.5, 1.5, 1.5)}
    assert {key: cost for key, cost in costs.items() if key[0] not in alarms} == {
        # g2-standard-4 is of the lowest rank; a3-highgpu-1g of the highest
        ("everspot-dev-fleet-on-demand", "on-demand instances"): (541.90, 541.90, 10203.32, 541.90),
        ("everspot-dev-fleet-spot", "spot instances"): (920.68, 920.68, 9330.98, 2167.60),
        ("everspot-dev-scheduler-group", "on-demand instances"): (13.46, 13.46, 13.46, 13.46),
        ("everspot-dev-elastic", "elastic instances"): (0, 0, 7300, 0),  # $10 an hour
        # 60 GiB of pd-balanced at $0.10
        ("everspot-dev-fleet-on-demand", "volumes"): (6, 6, 6, 6),
        ("everspot-dev-fleet-spot", "volumes"): (24, 24, 24, 24),
        ("everspot-dev-scheduler-group", "volumes"): (6, 6, 6, 6),
        ("everspot-dev-elastic", "volumes"): (0, 0, 24, 0),
        ("everspot-dev-scheduler", "store requests"): (1.12, 1.12, 1.12, 1.12),
        # six machines at $0.0014 and an address at $0.005; one machine at the least, $0.044 at the most
        ("everspot-dev-network-nat", "NAT gateway"): (4.67, 9.78, 35.77, 9.78),
    }


def test_a_cluster_on_kubernetes(declared: Callable[..., list[DeclaredResource]]) -> None:
    spec: Any = pool_args()
    estimate = estimated([], declared(AwsKubernetesPool, spec), regions={"aws": "eu-west-1"})
    assert parts(estimate) == {
        ("everspot-dev", "elastic instances"): (0, 0, 312.44, 0),  # nothing, to 4 of m6i.large at $0.107
        ("everspot-dev", "volumes"): (0, 0, 32, 0),  # 100 GiB at $0.08 an instance
        ("everspot-dev", "store requests"): (1.12, 1.12, 1.12, 1.12),
    }
    assert estimate.by_use == (
        "S3 by storage, and by the requests of jobs: everspot-dev-store-control, everspot-dev-store-data",
        "the Kubernetes cluster by its control plane, its add-ons and the node of the scheduler: everspot-dev",
    )
    section = {"cloud": "kubernetes", **spelt(spec)}
    parsed = environment("dev", {"aws:region": "eu-west-1", "everspot:cluster": section}, "everspot")
    assert estimated([], parsed.resources, regions=parsed.regions) == estimate


def test_a_change_of_nothing_costs_nothing(declared: Callable[..., list[DeclaredResource]], aws_spec: Any) -> None:
    resources = declared(AwsTrainingCluster, aws_spec)
    estimate = estimated(resources, resources, regions={"aws": "eu-west-1"})
    assert estimate.before == estimate.after


def test_types_declared_in_place_have_the_price_that_they_declare(
    declared: Callable[..., list[DeclaredResource]], spec: AwsTrainingClusterArgs
) -> None:
    own: Any = {"type": "m9z.large", "vcpus": 2, "memory_gib": 8.0, "on_demand_usd_per_hour": 0.05}
    spec["capacity"] = {"instance_types": [own], "standing": {"target": 2, "on_demand_base": 2}}
    costs = parts(estimated([], declared(AwsTrainingCluster, spec), regions={"aws": "eu-west-1"}))
    assert costs["everspot-dev-fleet-on-demand", "on-demand instances"] == (73, 73, 73, 73)


def of_settings(cloud: str, region: str, spec: Any) -> Estimate:
    """The estimate from a settings file that says the same as a component's inputs."""
    section = {"cloud": cloud, **spelt(spec)}
    parsed = environment("dev", {f"{cloud}:region": region, "everspot:cluster": section}, "everspot")
    return estimated([], parsed.resources, regions=parsed.regions)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "monitoring": {},
            "session_manager": True,
            "services": ["logs"],
            "volume_iops": 4000,
            "volume_throughput": 250,
            "volume_initialization_rate": 200,
        },
        {"secret_arns": ["arn:aws:ssm:eu-west-1:123456789012:parameter/x"], "volume_gib": 200},
        {"nat": True},
        {
            "capacity": {
                "instance_types": [
                    {"type": "m6i.large", "max_price": 0.06},
                    {"type": "c6i.2xlarge", "throughput": 3.5},
                ],
                "standing": {"target": 9, "on_demand_percentage": 25.0, "weight_by": "vcpu"},
                "elastic": {"max_instances": 7, "max_usd_per_hour": 2.0, "markets": ["spot"]},
                "max_price": 0.2,
            }
        },
    ],
)
def test_the_settings_alone_give_the_same_figures_on_aws(
    declared: Callable[..., list[DeclaredResource]], spec: AwsTrainingClusterArgs, more: Any
) -> None:
    whole: Any = {"volume_gib": 80, **spec, **more}
    resources = declared(AwsTrainingCluster, whole)
    assert of_settings("aws", "eu-west-1", whole) == estimated([], resources, regions={"aws": "eu-west-1"})


@pytest.mark.parametrize("more", [{}, {"monitoring": {}, "nat": True, "volume_gib": 100, "flow_logs": True}])
def test_the_settings_alone_give_the_same_figures_on_google_cloud(
    declared: Callable[..., list[DeclaredResource]], more: Any
) -> None:
    whole: Any = {"volume_gib": 75, **copy.deepcopy(gcp_helpers.SPEC), **more}
    whole["capacity"]["elastic"] = {"max_instances": 4, "max_usd_per_hour": 10.0}
    resources = declared(GcpTrainingCluster, whole)
    from_settings, from_components = of_settings("gcp", "europe-west4", whole), estimated([], resources)
    assert from_settings.model_dump() == from_components.model_dump()
