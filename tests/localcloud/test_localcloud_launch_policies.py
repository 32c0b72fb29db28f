"""The permissions that a role needs to launch through a fleet and to end its launched instances, condition by
condition."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from everspot_local.options import Options
from localcloud_worker import ARN, Worker, enforcing, refused

ROLE = "arn:aws:iam::123456789012:role/worker"
TAGS = {"everspot:cluster": "mine", "everspot:launch": "t"}
BOTH = ["RunInstances", "CreateFleet"]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return enforcing(Path(tmp_path_factory.mktemp("iam")))


class Scheduler(Worker):
    """A role that launches from one template into one subnet."""

    def __init__(self, kit: Any) -> None:
        super().__init__(kit)
        self.subnet, other = (s["SubnetId"] for s in kit.ec2.describe_subnets()["Subnets"][:2])
        self.group = kit.ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
        data = {
            "IamInstanceProfile": {"Arn": "arn:aws:iam::123456789012:instance-profile/workers"},
            "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [self.group], "SubnetId": other}],
            "TagSpecifications": [{"ResourceType": "volume", "Tags": tagged({"everspot:cluster": "mine"})}],
        }
        self.template, self.other = kit.template(**data), kit.template(**data)

    def statements(self, **changed: dict[str, Any]) -> list[dict[str, Any]]:
        """All that is needed, by name; None leaves one out."""
        own_tag = {"aws:RequestTag/everspot:cluster": "mine"}
        by_name = {
            "fleet": {
                "Action": "ec2:CreateFleet",
                "Resource": f"{ARN}:fleet/*",
                "Condition": {"StringEquals": own_tag},
            },
            "template": {
                "Action": ["ec2:CreateFleet", "ec2:RunInstances"],
                "Resource": f"{ARN}:launch-template/{self.template}",
            },
            "instance": {
                "Action": "ec2:RunInstances",
                "Resource": f"{ARN}:instance/*",
                "Condition": {
                    "StringEquals": own_tag,
                    "ArnEqualsIfExists": {"ec2:LaunchTemplate": f"{ARN}:launch-template/{self.template}"},
                },
            },
            "made": {"Action": "ec2:RunInstances", "Resource": [f"{ARN}:network-interface/*", f"{ARN}:volume/*"]},
            "fixed": {
                "Action": "ec2:RunInstances",
                "Resource": ["arn:aws:ec2:us-east-1::image/*", f"{ARN}:security-group/*"],
                "Condition": {"Bool": {"ec2:IsLaunchTemplateResource": "true"}},
            },
            "subnet": {"Action": "ec2:RunInstances", "Resource": f"{ARN}:subnet/{self.subnet}"},
            "tags": {
                "Action": "ec2:CreateTags",
                "Resource": [f"{ARN}:{kind}/*" for kind in ("fleet", "instance", "volume")],
                "Condition": {"StringEquals": {"ec2:CreateAction": BOTH, **own_tag}},
            },
            "role": {
                "Action": "iam:PassRole",
                "Resource": ROLE,
                "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
            },
            **changed,
        }
        return [s for s in by_name.values() if s]

    def fleet_request(self, tags: dict[str, str] = TAGS, template: str | None = None, **more: Any) -> dict[str, Any]:
        return {
            "Type": "instant",
            "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": template or self.template, "Version": "1"},
                    "Overrides": [{"SubnetId": self.subnet, "InstanceType": "m6i.large"}],
                }
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tagged(tags)} for kind in ("fleet", "instance") if tags
            ],
            **more,
        }


def tagged(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


@pytest.fixture
def scheduler(kit: Any) -> Scheduler:
    return Scheduler(kit)


def denied(answer: Any) -> str:
    """Action and resource that an instant fleet was denied, of all overrides the same."""
    assert answer["Instances"] == []
    assert {e["ErrorCode"] for e in answer["Errors"]} == {"UnauthorizedOperation"}
    (message,) = {e["ErrorMessage"] for e in answer["Errors"]}
    words, _, encoded = message.partition(" Encoded authorization failure message: ")
    details = json.loads(base64.urlsafe_b64decode(encoded))
    assert words.startswith("You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed")
    reason = f"because no identity-based policy allows the {details['action']} action."
    assert f"perform: {details['action']} on resource: {details['resource']} {reason}" in words
    return f"{details['action']} {details['resource'].rpartition(':')[2]}"


def test_a_launch_of_an_instant_fleet_needs_every_permission(scheduler: Scheduler) -> None:
    scheduler.may(*scheduler.statements())
    assert scheduler.client("ec2").create_fleet(**scheduler.fleet_request())["Errors"] == []
    lacks = {
        "instance": "ec2:RunInstances instance/*",
        "made": "ec2:RunInstances network-interface/*",
        "fixed": "ec2:RunInstances image/ami-12c6146b",
        "subnet": f"ec2:RunInstances subnet/{scheduler.subnet}",
        "role": "iam:PassRole role/worker",
    }
    for name, expected in lacks.items():
        scheduler.may(*scheduler.statements(**{name: {}}))
        assert denied(scheduler.client("ec2").create_fleet(**scheduler.fleet_request())) == expected
    for name in ("fleet", "template", "tags"):
        scheduler.may(*scheduler.statements(**{name: {}}))
        assert refused(scheduler.client("ec2").create_fleet, **scheduler.fleet_request()) == "UnauthorizedOperation"
    scheduler.may(*scheduler.statements(template={"Action": "ec2:CreateFleet", "Resource": "*"}))
    answer = scheduler.client("ec2").create_fleet(**scheduler.fleet_request())
    assert denied(answer) == f"ec2:RunInstances launch-template/{scheduler.template}"


def test_a_fleets_launch_is_allowed_with_the_key_of_its_template_and_without_it(scheduler: Scheduler) -> None:
    ec2, resource = scheduler.client("ec2"), {"Action": "ec2:RunInstances", "Resource": f"{ARN}:instance/*"}
    with_key = {**resource, "Condition": {"ArnLike": {"ec2:LaunchTemplate": f"{ARN}:launch-template/*"}}}
    without = {**resource, "Condition": {"Null": {"ec2:LaunchTemplate": "true"}}}
    for statement in (with_key, without):
        scheduler.may(*scheduler.statements(instance=statement))
        assert denied(ec2.create_fleet(**scheduler.fleet_request())) == "ec2:RunInstances instance/*"
    scheduler.may(*scheduler.statements(instance=with_key, more=without))
    assert ec2.create_fleet(**scheduler.fleet_request())["Errors"] == []


def test_a_launch_is_held_to_the_conditions_of_its_permissions(scheduler: Scheduler) -> None:
    ec2 = scheduler.client("ec2")
    any_template = {"Action": ["ec2:CreateFleet", "ec2:RunInstances"], "Resource": f"{ARN}:launch-template/*"}
    scheduler.may(*scheduler.statements(template=any_template))
    assert (
        denied(ec2.create_fleet(**scheduler.fleet_request(template=scheduler.other))) == "ec2:RunInstances instance/*"
    )
    assert (
        refused(ec2.create_fleet, **scheduler.fleet_request({"everspot:cluster": "other"})) == "UnauthorizedOperation"
    )
    fleet_only = scheduler.fleet_request()
    fleet_only["TagSpecifications"] = fleet_only["TagSpecifications"][:1]
    assert denied(ec2.create_fleet(**fleet_only)) == "ec2:RunInstances instance/*"
    whole = {
        "Action": "ec2:RunInstances",
        "Resource": "*",
        "Condition": {"Bool": {"ec2:IsLaunchTemplateResource": "true"}},
    }
    scheduler.may(*scheduler.statements(subnet=whole))
    assert denied(ec2.create_fleet(**scheduler.fleet_request())) == f"ec2:RunInstances subnet/{scheduler.subnet}"
    other = {"Action": "iam:PassRole", "Resource": ROLE}
    other["Condition"] = {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}  # type: ignore[assignment]
    scheduler.may(*scheduler.statements(role=other))
    assert denied(ec2.create_fleet(**scheduler.fleet_request())) == "iam:PassRole role/worker"


@pytest.mark.parametrize("action", BOTH)
def test_tags_of_what_a_fleet_launches_are_allowed_by_either_action(scheduler: Scheduler, action: str) -> None:
    """AWS does not say which of the two it is: a policy that names one alone does not do."""
    single_action = {"Action": "ec2:CreateTags", "Resource": [f"{ARN}:instance/*", f"{ARN}:volume/*"]}
    single_action["Condition"] = {"StringEquals": {"ec2:CreateAction": action}}  # type: ignore[assignment]
    fleet = {"Action": "ec2:CreateTags", "Resource": f"{ARN}:fleet/*"}
    scheduler.may(*scheduler.statements(tags=single_action), fleet)
    assert denied(scheduler.client("ec2").create_fleet(**scheduler.fleet_request())) == "ec2:CreateTags instance/*"


def test_a_dry_run_asks_for_create_fleet_alone(scheduler: Scheduler) -> None:
    scheduler.may(*scheduler.statements(instance={}, role={}))
    assert refused(scheduler.client("ec2").create_fleet, **scheduler.fleet_request(), DryRun=True) == "DryRunOperation"


def test_a_fleet_that_is_maintained_is_refused_as_a_whole(kit: Any, scheduler: Scheduler) -> None:
    request = scheduler.fleet_request(Type="maintain")
    request["TagSpecifications"] = request["TagSpecifications"][:1]
    scheduler.may(*scheduler.statements(role={}))
    assert refused(scheduler.client("ec2").create_fleet, **request) == "UnauthorizedOperation"


def test_run_instances_is_checked_by_resource(kit: Any, scheduler: Scheduler) -> None:
    launch = {"LaunchTemplate": {"LaunchTemplateId": scheduler.template}, "MinCount": 1, "MaxCount": 1}
    tags = [{"ResourceType": "instance", "Tags": tagged(TAGS)}]
    scheduler.may(*scheduler.statements())
    ec2 = scheduler.client("ec2")
    assert refused(ec2.run_instances, **launch, TagSpecifications=tags) == "UnauthorizedOperation"  # the other subnet
    assert refused(ec2.run_instances, **launch, SubnetId=scheduler.subnet) == "UnauthorizedOperation"  # no tags
    assert ec2.run_instances(**launch, SubnetId=scheduler.subnet, TagSpecifications=tags)["Instances"]


def test_instances_may_be_ended_by_their_tags(kit: Any, worker: Worker) -> None:
    def run(cluster: str) -> str:
        return str(kit.run(TagSpecifications=[{"ResourceType": "instance", "Tags": tagged({"cluster": cluster})}]))

    own_id, other = run("mine"), run("other")
    for key in ("aws:ResourceTag/cluster", "ec2:ResourceTag/cluster"):
        condition = {"StringEquals": {key: "mine"}}
        worker.may({"Action": "ec2:TerminateInstances", "Resource": f"{ARN}:instance/*", "Condition": condition})
        ec2 = worker.client("ec2")
        assert refused(ec2.terminate_instances, InstanceIds=[own_id, other]) == "UnauthorizedOperation"
        # an unknown instance has no tags that a condition could match (aws/karpenter-provider-aws, 2100)
        missing_id = "i-00000000000000000"
        assert refused(ec2.terminate_instances, InstanceIds=[missing_id]) == "UnauthorizedOperation"
        ec2.terminate_instances(InstanceIds=[own_id])


@pytest.fixture
def worker(kit: Any) -> Worker:
    return Worker(kit)
