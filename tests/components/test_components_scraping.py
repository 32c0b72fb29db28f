"""Access to the scheduler's metrics, under mocks: only named readers, and only the scheduler's port."""

import base64
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from everspot import AwsTrainingCluster
from everspot_core.cluster.manifest import Manifest, Metrics

Declare = Callable[..., tuple[Any, dict[str, Any]]]
GROUP = "aws:ec2/securityGroup:SecurityGroup"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
READERS = {"cidrs": ["10.1.0.0/16"], "security_group_ids": ["sg-0abc"]}


@pytest.fixture
def cluster(declare: Declare, spec: Any) -> Callable[..., Any]:
    """Return the resources that a cluster registers. Keywords change its settings."""

    def build(**changes: Any) -> Any:
        return declare(lambda: {"urn": AwsTrainingCluster("train", {**spec, **changes}).control_url})[0]

    return build


def manifest_in(template: dict[str, Any]) -> Manifest:
    return Manifest.read(base64.b64decode(template["userData"]))


def test_nothing_is_opened_unless_somebody_is_named(cluster: Callable[..., Any]) -> None:
    before, after = cluster(), cluster(prometheus=READERS)
    names = before.types_by_name()
    assert {name: kind for name, kind in after.types_by_name().items() if name not in names} == {
        "train-metrics": GROUP,
        "train-metrics-in-cidr-10.1.0.0/16": RULE,
        "train-metrics-in-group-sg-0abc": RULE,
    }
    inward = [name for name, kind in names.items() if kind == RULE]
    assert inward == ["train-network-in-endpoints"], "into the endpoints alone"
    assert manifest_in(before.inputs("train-scheduler-template")).metrics is None


def test_those_named_reach_the_port_and_the_scheduler_alone(cluster: Callable[..., Any]) -> None:
    recorder = cluster(prometheus={**READERS, "port": 9500.0})
    for name, source in (
        ("cidr-10.1.0.0/16", {"cidrIpv4": "10.1.0.0/16"}),
        ("group-sg-0abc", {"referencedSecurityGroupId": "sg-0abc"}),
    ):
        rule = recorder.inputs(f"train-metrics-in-{name}")
        assert {key: rule[key] for key in ("ipProtocol", "fromPort", "toPort", *source)} == {
            "ipProtocol": "tcp", "fromPort": 9500, "toPort": 9500, **source,
        }  # fmt: skip
        assert len([key for key in rule if key in ("cidrIpv4", "cidrIpv6", "referencedSecurityGroupId")]) == 1
    group = recorder.inputs("train-metrics")
    assert "ingress" not in group and "egress" not in group
    assert group["tags"]["Project"]
    scheduler = recorder.inputs("train-scheduler-template")
    agents = recorder.inputs("train-fleet-template")
    assert len(security_groups(scheduler)) == len(security_groups(agents)) + 1 == 2
    assert set(security_groups(agents)) < set(security_groups(scheduler))
    assert manifest_in(scheduler).metrics == Metrics(port=9500)
    assert manifest_in(agents).metrics is None
    published = Manifest.read(recorder.inputs("train-manifest")["content"])
    assert published.metrics is None
    assert published.generation == manifest_in(cluster().inputs("train-fleet-template")).generation


def security_groups(template: dict[str, Any]) -> list[str]:
    return [group for card in template["networkInterfaces"] for group in card["securityGroups"]]


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({}, "cidrs"),
        ({"port": 9494}, "cidrs"),
        ({"cidrs": ["10.0.0.0/16"], "port": 80}, "port"),
        ({"cidrs": ["0.0.0.0/0"]}, r"cidrs\[0\]"),
        ({"cidrs": ["10.0.0.0/16", "10.0.0.1/16"]}, r"cidrs\[1\]"),
        ({"security_group_ids": ["default"]}, r"securityGroupIds\[0\]"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(cluster: Callable[..., Any], settings: dict[str, Any], path: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=rf"prometheus\.{path}"):
        cluster(prometheus=settings)
