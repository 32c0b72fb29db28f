"""The pure parts under the components: addresses, weights, the grid of pools, policies, settings."""

from ipaddress import IPv4Network
from typing import Any

import pytest
from everspot.aws import policies
from everspot_clouds.aws.fleet import Ec2Capacity, override_grid
from everspot_clouds.aws.network import ZONES_AT_MOST, network_problems, split
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.fleet import CapacitySpec, TypeChoice, WeightBy, derived_weights
from everspot_core.validation.problems import BadInputs, Problems
from hypothesis import given
from hypothesis import strategies as st

KNOWN = {
    "small": InstanceType(name="small", vcpus=4, memory_gib=16, gpus=1),
    "large": InstanceType(name="large", vcpus=48, memory_gib=192, gpus=4),
}


@given(prefix=st.integers(16, 24), zones=st.integers(1, ZONES_AT_MOST), start=st.integers(0, 255))
def test_subnets_lie_in_the_vpc_apart_from_each_other_and_stay_where_they_are(
    prefix: int, zones: int, start: int
) -> None:
    vpc = IPv4Network((f"10.{start}.0.0", prefix))
    blocks = split(vpc, zones)
    assert all(block.subnet_of(vpc) for block in blocks)
    assert not any(a.overlaps(b) for i, a in enumerate(blocks) for b in blocks[:i])
    assert split(vpc, ZONES_AT_MOST)[:zones] == blocks  # one more zone moves nothing


@pytest.mark.parametrize(
    "zones", [[], ["us-east-1a"] * 2, ["us-east-1a", "eu-west-1a"], [f"us-east-1{z}" for z in "abcdefghi"]]
)
def test_zones_that_cannot_be_are_problems(zones: list[str]) -> None:
    problems = Problems()
    network_problems(problems, zones=zones, vpc_cidr="10.0.0.0/16")
    assert {p.path for p in problems.collected} == {"zones"}


@pytest.mark.parametrize(
    ("by", "expected"),
    [(WeightBy.INSTANCE, (1, 1)), (WeightBy.VCPU, (1, 12)), (WeightBy.GPU, (1, 4)), (WeightBy.THROUGHPUT, (1, 3.333))],
)
def test_weights_are_in_proportion_to_the_smallest_type(by: WeightBy, expected: tuple[float, float]) -> None:
    types = (TypeChoice(name="small", throughput=30), TypeChoice(name="large", throughput=100))
    weights = derived_weights(CapacitySpec(target=4, types=types, weight_by=by), KNOWN)
    assert (weights["small"], weights["large"]) == expected


def test_a_given_weight_wins_over_a_derived_one() -> None:
    capacity = CapacitySpec(
        target=4, types=(TypeChoice(name="small"), TypeChoice(name="large", weight=2)), weight_by=WeightBy.GPU
    )
    assert derived_weights(capacity, KNOWN) == {"small": 1, "large": 2}


@given(target=st.integers(0, 500), base=st.integers(0, 500), percentage=st.floats(0, 100))
def test_on_demand_never_falls_under_its_base_nor_rises_over_the_target(
    target: int, base: int, percentage: float
) -> None:
    base = min(base, target)
    capacity = CapacitySpec(target=target, on_demand_base=base, on_demand_percentage=percentage, types=())
    assert base <= capacity.on_demand_target <= target


def test_a_tenth_of_thirty_is_three() -> None:
    assert CapacitySpec(target=30, on_demand_percentage=10, types=()).on_demand_target == 3


def test_the_grid_has_every_type_in_every_subnet_once() -> None:
    grid = override_grid(Ec2Capacity(target=1, types=(TypeChoice(name="small"), TypeChoice(name="large"))), KNOWN, 3)
    assert [(pool.instance_type, pool.subnet) for pool in grid] == [
        (t, s) for t in ("small", "large") for s in range(3)
    ]


def test_problems_are_told_with_their_whole_path() -> None:
    problems = Problems()
    problems.at("capacity").at("instanceTypes[2]").add("weight", "has to be greater than 0")
    with pytest.raises(BadInputs, match=r"Fleet x has 1 bad input:\n  - capacity.instanceTypes\[2\].weight: has to be"):
        problems.raise_any("Fleet x")


def allowed(document: Any) -> dict[str, set[str]]:
    """Resources by action."""
    resources: dict[str, set[str]] = {}
    for statement in document["Statement"]:
        assert statement["Effect"] == "Allow"
        for action in statement["Action"]:
            resources.setdefault(action, set()).update(statement["Resource"])
    return resources


def test_an_agent_writes_its_prefixes_and_nothing_else() -> None:
    permissions = allowed(policies.agent_policy(control_arn="C", data_arn="D"))
    assert permissions["s3:PutObject"] == {
        "C/records/*",
        "C/instances/*",
        "C/heads/*",
        "C/events/*",
        "D/jobs/*",
        "D/agents/*",
    }
    assert permissions["s3:DeleteObject"] == {"D/jobs/*"}
    assert not any("*" in action for action in permissions)
    assert {action.split(":")[0] for action in permissions} == {"s3"}


def test_jobs_write_their_documents_and_data_and_nothing_else() -> None:
    permissions = allowed(policies.job_policy(control_arn="C", data_arn="D"))
    assert permissions == {
        "s3:GetObject": {"C/heads/*", "C/events/*", "D/jobs/*", "D/datasets/*", "D/wheels/*"},
        "s3:PutObject": {"C/heads/*", "C/events/*", "D/jobs/*"},
        "s3:DeleteObject": {"D/jobs/*"},
        "s3:AbortMultipartUpload": {"D/jobs/*"},
        "s3:ListBucket": {"C", "D"},
    }


def test_jobs_list_nothing_without_a_prefix() -> None:
    document = policies.job_policy(control_arn="C", data_arn="D")
    listings = [s for s in document["Statement"] if "s3:ListBucket" in s["Action"]]
    assert len(listings) == 2 and all(list(s["Condition"]) == ["StringLike"] for s in listings)


def test_agents_alone_become_a_job() -> None:
    (statement,) = policies.trust_role("arn:aws:iam::1:role/agent")["Statement"]
    assert statement["Principal"] == {"AWS": "arn:aws:iam::1:role/agent"}
    assert allowed(policies.assume_policy("J")) == {"sts:AssumeRole": {"J"}}


def test_a_scheduler_has_no_word_in_the_data_bucket() -> None:
    permissions = allowed(policies.scheduler_policy(cluster="c", control_arn="C", queue_arn="Q"))
    assert not any(resource.startswith("D") for resources in permissions.values() for resource in resources)
    assert permissions["sqs:ReceiveMessage"] == permissions["sqs:DeleteMessage"] == {"Q"}
    assert "C/assignments/*" in permissions["s3:PutObject"]
    assert "C/heads/*" not in permissions["s3:PutObject"]


def test_a_scheduler_remembers_what_it_told_only_where_it_tells() -> None:
    silent = allowed(policies.scheduler_policy(cluster="c", control_arn="C", queue_arn="Q"))
    assert "C/told/*" not in silent["s3:PutObject"] | silent["s3:DeleteObject"]
    for way in ({"topic_arn": "T"}, {"webhook_secret_arn": "arn:aws:secretsmanager:eu-west-1:1:secret:hook"}):
        notifying = allowed(policies.scheduler_policy(cluster="c", control_arn="C", queue_arn="Q", **way))
        assert "C/told/*" in notifying["s3:PutObject"] & notifying["s3:DeleteObject"]


def test_only_describing_ec2_and_the_shell_are_allowed_on_everything() -> None:
    permissions = allowed(policies.scheduler_policy(cluster="c", control_arn="C", queue_arn="Q", session_manager=True))
    everywhere = {action for action, resources in permissions.items() if "*" in resources}
    looks = ("ec2:Describe", "ec2:GetSpotPlacementScores")
    assert all(action.startswith((*looks, "ssm:Update", "ssmmessages:")) for action in everywhere)
