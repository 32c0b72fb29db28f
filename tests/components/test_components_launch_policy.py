"""Who may launch and end what: the scheduler's permissions, read as IAM reads them, for its own cluster and for others.

Each row is a call as IAM evaluates it: action, resource, and the request's condition keys.
"""

import json
from typing import Any

import pytest
from everspot.aws.launch_policy import launch_policy
from everspot.aws.policies import scheduler_policy
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide

EC2 = "arn:aws:ec2:eu-west-1:111122223333"
TEMPLATE, OTHERS = f"{EC2}:launch-template/lt-own", f"{EC2}:launch-template/lt-other"
AGENTS, SCHEDULERS = "arn:aws:iam::111122223333:role/agent", "arn:aws:iam::111122223333:role/scheduler"
PROFILE = "arn:aws:iam::111122223333:instance-profile/agent"
KEY = "arn:aws:kms:eu-west-1:111122223333:key/k"
LAUNCH = ["ec2:CreateFleet", "ec2:RunInstances"]


def policies(**more: Any) -> list[dict[str, Any]]:
    """Everything that a scheduler of the cluster `train` may do."""
    queue = "arn:aws:sqs:eu-west-1:111122223333:queue"
    launching = launch_policy(
        cluster="train",
        template_arn=TEMPLATE,
        image_id="ami-own",
        agent_role_arn=AGENTS,
        agent_profile_arn=PROFILE,
        subnet_ids=["subnet-a", "subnet-b"],
        security_group_ids=["sg-own"],
        **more,
    )
    return [scheduler_policy(cluster="train", control_arn="arn:aws:s3:::control", queue_arn=queue), launching]


def request_context(
    tags: dict[str, str] | None = None, have: dict[str, str] | None = None, **more: str
) -> dict[str, Any]:
    """The keys of a request. `tags`: the tags that it gives; `have`: the resource's; others with _ for the colon."""
    context = {f"aws:requesttag/{key.lower()}": (value,) for key, value in (tags or {}).items()}
    context |= {f"aws:resourcetag/{key.lower()}": (value,) for key, value in (have or {}).items()}
    return {**context, **{key.lower().replace("_", ":", 1): (value,) for key, value in more.items()}}


def may(action: str, resource: str, context: dict[str, Any] | None = None, **more: Any) -> bool:
    call = Call(action, resource, context or {})
    return decide(policies(**more), call) is PolicyDecision.ALLOW


OWN = {"everspot:cluster": "train", "everspot:role": "agent", "everspot:launch": "0" * 32}
FROM_TEMPLATE = {"ec2_LaunchTemplate": TEMPLATE}
LIKE_TEMPLATE = {"ec2_InstanceProfile": PROFILE, "ec2_MetadataHttpTokens": "required"}


@pytest.mark.parametrize("action", LAUNCH)
@pytest.mark.parametrize(
    "resource",
    [
        TEMPLATE,
        "arn:aws:ec2:eu-west-1::image/ami-own",
        f"{EC2}:subnet/subnet-a",
        "arn:aws:ec2:eu-west-1:999988887777:subnet/subnet-b",  # shared by another account
        f"{EC2}:security-group/sg-own",
        f"{EC2}:capacity-reservation/cr-1",
        f"{EC2}:spot-instances-request/*",
        f"{EC2}:instance/*",
    ],
)
def test_a_launch_of_ones_own_is_allowed_for_each_resource(action: str, resource: str) -> None:
    assert may(action, resource, request_context(OWN, **FROM_TEMPLATE))


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("ec2:CreateFleet", f"{EC2}:fleet/*", request_context(OWN)),
        ("ec2:RunInstances", f"{EC2}:volume/*", request_context(**FROM_TEMPLATE)),
        # A fleet's launch that does not bear the key of its launch template.
        ("ec2:RunInstances", f"{EC2}:instance/*", request_context(OWN, **LIKE_TEMPLATE)),
        ("ec2:RunInstances", f"{EC2}:volume/*", request_context()),
        ("ec2:RunInstances", f"{EC2}:network-interface/*", request_context()),
        ("ec2:RunInstances", f"{EC2}:network-interface/*", request_context(**FROM_TEMPLATE)),
        ("ec2:CreateTags", f"{EC2}:fleet/*", request_context(OWN, ec2_CreateAction="CreateFleet")),
        ("ec2:CreateTags", f"{EC2}:instance/*", request_context(OWN, ec2_CreateAction="RunInstances")),
        ("ec2:CreateTags", f"{EC2}:instance/*", request_context(OWN, ec2_CreateAction="CreateFleet")),
        ("ec2:CreateTags", f"{EC2}:volume/*", request_context(OWN, ec2_CreateAction="RunInstances")),
        ("iam:PassRole", AGENTS, request_context(iam_PassedToService="ec2.amazonaws.com")),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", request_context(have=OWN)),
        ("ec2:DescribeInstances", "*", request_context()),
        ("ec2:DescribeSpotPriceHistory", "*", request_context()),
        ("ec2:GetSpotPlacementScores", "*", request_context()),
        ("s3:PutObject", "arn:aws:s3:::control/launching/00000001.json", request_context()),
        ("s3:DeleteObject", "arn:aws:s3:::control/launching/00000001.json", request_context()),
        ("s3:GetObject", "arn:aws:s3:::control/budgets.json", request_context()),
    ],
)
def test_what_a_launch_and_its_end_need_besides_is_allowed(action: str, resource: str, context: Any) -> None:
    assert may(action, resource, context)


@pytest.mark.parametrize("action", LAUNCH)
@pytest.mark.parametrize(
    ("resource", "context"),
    [
        (OTHERS, request_context(OWN, ec2_LaunchTemplate=OTHERS)),
        (f"{EC2}:subnet/subnet-z", request_context(**FROM_TEMPLATE)),
        (f"{EC2}:security-group/sg-open", request_context(**FROM_TEMPLATE)),
        ("arn:aws:ec2:eu-west-1::image/ami-other", request_context(**FROM_TEMPLATE)),
        ("arn:aws:ec2:us-east-1:111122223333:instance/*", request_context(OWN, **FROM_TEMPLATE)),
        (f"{EC2}:instance/*", request_context(**FROM_TEMPLATE)),
        (f"{EC2}:instance/*", request_context({**OWN, "everspot:cluster": "other"}, **FROM_TEMPLATE)),
        (f"{EC2}:instance/*", request_context({**OWN, "everspot:role": "scheduler"}, **FROM_TEMPLATE)),
        (f"{EC2}:key-pair/mine", request_context(**FROM_TEMPLATE)),
    ],
    ids=["template", "subnet", "group", "image", "region", "untagged", "cluster", "role", "key pair"],
)
def test_what_is_not_the_clusters_launches_nothing(action: str, resource: str, context: Any) -> None:
    assert not may(action, resource, context)


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("ec2:RunInstances", f"{EC2}:instance/*", request_context(OWN)),  # without a launch template
        ("ec2:RunInstances", f"{EC2}:instance/*", request_context(OWN, ec2_LaunchTemplate=OTHERS)),
        ("ec2:RunInstances", f"{EC2}:volume/*", request_context(ec2_LaunchTemplate=OTHERS)),
        ("ec2:RunInstances", f"{EC2}:instance/*", request_context(OWN, ec2_LaunchTemplate=OTHERS, **LIKE_TEMPLATE)),
        ("ec2:RunInstances", f"{EC2}:instance/*", request_context(**LIKE_TEMPLATE)),  # untagged
        (
            "ec2:RunInstances",
            f"{EC2}:instance/*",
            request_context(OWN, **{**LIKE_TEMPLATE, "ec2_InstanceProfile": "a"}),
        ),
        (
            "ec2:RunInstances",
            f"{EC2}:instance/*",
            request_context(OWN, **{**LIKE_TEMPLATE, "ec2_MetadataHttpTokens": "optional"}),
        ),
        ("ec2:CreateFleet", f"{EC2}:fleet/*", request_context()),
        ("ec2:CreateFleet", f"{EC2}:fleet/*", request_context({**OWN, "everspot:cluster": "other"})),
        ("ec2:CreateTags", f"{EC2}:instance/i-1", request_context(OWN)),  # which exists
        ("ec2:CreateTags", f"{EC2}:instance/i-1", request_context(OWN, have=OWN)),
        ("ec2:CreateTags", f"{EC2}:instance/*", request_context({}, ec2_CreateAction="RunInstances")),
        ("ec2:CreateTags", f"{EC2}:instance/*", request_context(OWN, ec2_CreateAction="CreateImage")),
        ("ec2:DeleteTags", f"{EC2}:instance/i-1", request_context(OWN, have=OWN)),
        ("iam:PassRole", SCHEDULERS, request_context(iam_PassedToService="ec2.amazonaws.com")),
        ("iam:PassRole", AGENTS, request_context(iam_PassedToService="lambda.amazonaws.com")),
        ("iam:PassRole", AGENTS, request_context()),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", request_context()),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", request_context(have={**OWN, "everspot:cluster": "other"})),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", request_context(have={**OWN, "everspot:role": "scheduler"})),
        ("ec2:TerminateInstances", f"{EC2}:instance/i-1", request_context(have={k: OWN[k] for k in list(OWN)[:2]})),
        ("ec2:ModifyFleet", f"{EC2}:fleet/f-1", request_context(have=OWN)),
        ("ec2:DeleteFleets", f"{EC2}:fleet/f-1", request_context(have=OWN)),
        ("ec2:CreateLaunchTemplateVersion", TEMPLATE, request_context(have=OWN)),
        ("s3:PutObject", "arn:aws:s3:::control/budgets.json", request_context()),
        ("s3:PutObject", "arn:aws:s3:::control/cluster.json", request_context()),
        (
            "kms:CreateGrant",
            KEY,
            request_context(kms_ViaService="ec2.eu-west-1.amazonaws.com", kms_GrantIsForAWSResource="true"),
        ),
    ],
)
def test_nothing_else_is_allowed(action: str, resource: str, context: Any) -> None:
    assert not may(action, resource, context)


@pytest.mark.parametrize(
    ("action", "context", "allowed"),
    [
        ("kms:Decrypt", request_context(kms_ViaService="ec2.eu-west-1.amazonaws.com"), True),
        ("kms:GenerateDataKeyWithoutPlaintext", request_context(kms_ViaService="ec2.eu-west-1.amazonaws.com"), True),
        ("kms:Decrypt", request_context(kms_ViaService="s3.eu-west-1.amazonaws.com"), False),
        ("kms:Decrypt", request_context(), False),
        ("kms:CreateGrant", request_context(kms_ViaService="ec2.eu-west-1.amazonaws.com"), False),
        (
            "kms:CreateGrant",
            request_context(kms_ViaService="ec2.eu-west-1.amazonaws.com", kms_GrantIsForAWSResource="true"),
            True,
        ),
        ("kms:ScheduleKeyDeletion", request_context(kms_ViaService="ec2.eu-west-1.amazonaws.com"), False),
    ],
)
def test_a_customer_key_of_volumes_is_used_by_ec2_only(action: str, context: Any, allowed: bool) -> None:
    assert may(action, KEY, context, volume_key_arns=[KEY]) is allowed


def test_both_policies_of_the_role_fit_into_what_iam_takes_of_it() -> None:
    # IAM and STS quotas: the inline policies of a role have 10,240 characters together, white space not counted.
    subnets = [f"subnet-0123456789abcdef{n}" for n in range(8)]
    documents = policies(volume_key_arns=[KEY] * 3)
    documents[1] = launch_policy(
        cluster="t" * 32, template_arn=TEMPLATE, image_id="ami-0123456789abcdef0", agent_role_arn=AGENTS + "x" * 40,
        agent_profile_arn=PROFILE + "x" * 40,
        subnet_ids=subnets, security_group_ids=["sg-0123456789abcdef0"], volume_key_arns=[KEY] * 3,
    )  # fmt: skip
    assert sum(len(json.dumps(document, separators=(",", ":"))) for document in documents) < 10_240
