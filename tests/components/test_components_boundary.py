"""The boundary of clusters' roles on AWS: all that clusters do passes it, and nothing of other applications."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from everspot import AwsBootstrap
from everspot.aws import bootstrap_policies, federation, launch_policy, policies
from everspot.aws.bootstrap_policies import BootstrapPlace
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide

ACCOUNT = "123456789012"
STATE, STATE_KEY = "arn:aws:s3:::everspot-state-123456789012", f"arn:aws:kms:us-east-2:{ACCOUNT}:key/state"
KEY, OTHER_KEY = (f"arn:aws:kms:us-east-2:{ACCOUNT}:key/{name}" for name in ("own", "web"))
REPOSITORY = f"arn:aws:ecr:us-east-2:{ACCOUNT}:repository/team/train"
PLACE = BootstrapPlace(
    "aws", ACCOUNT, "everspot-bootstrap", "bootstrap", STATE, STATE_KEY, (KEY,), ("arn:aws:s3:::corpus",),
    repositories=(REPOSITORY,),
)  # fmt: skip
CONTROL, DATA = (f"arn:aws:s3:::everspot-dev-store-{kind}-1" for kind in ("control", "data"))
ROLES = f"arn:aws:iam::{ACCOUNT}:role/everspot-"
here = f"arn:aws:{{}}:us-east-2:{ACCOUNT}:{{}}".format
OURS, THEIRS = ({"aws:resourcetag/everspot:cluster": (name,)} for name in ("everspot-dev", "web"))
NEW, OF_AWS = {"aws:requesttag/everspot:cluster": ("everspot-dev",)}, {"kms:resourcealiases": ("alias/aws/ebs",)}
TO_EC2 = {"iam:passedtoservice": ("ec2.amazonaws.com",)}


def passes(action: str, resource: str, context: Any = None, place: BootstrapPlace = PLACE) -> bool:
    call = Call(action, resource, context or {})
    return decide([bootstrap_policies.boundary(place)], call) is PolicyDecision.ALLOW


def met(statement: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """A context in which the conditions of a statement hold."""
    conditions = statement.get("Condition", {})
    alike = {**conditions.get("StringEquals", {}), **conditions.get("StringEqualsIfExists", {})}
    return {key.lower(): tuple(value if isinstance(value, list) else [value]) for key, value in alike.items()}


def test_it_lets_clusters_do_all_that_their_policies_say() -> None:
    name = "everspot-dev"
    secrets = [here("secretsmanager", "secret:everspot/wandb-AbCdEf"), here("ssm", "parameter/everspot/p")]
    written = [
        policies.agent_policy(control_arn=CONTROL, data_arn=DATA, key_arn=KEY, read_arns=["arn:aws:s3:::corpus"],
                              secret_arns=secrets, repository_arns=[REPOSITORY], session_manager=True),
        policies.scheduler_policy(cluster=name, control_arn=CONTROL, queue_arn=here("sqs", "everspot-dev-queue-1"),
                                  key_arn=KEY, topic_arn=here("sns", "t"), webhook_secret_arn=secrets[0],
                                  session_manager=True),
        policies.assume_policy(f"{ROLES}dev-job-1", tagged=True),
        policies.job_policy(control_arn=CONTROL, data_arn=DATA, key_arn=KEY, read_arns=["arn:aws:s3:::corpus"]),
        policies.monitoring_policy("Everspot"),
        launch_policy.launch_policy(cluster=name, template_arn=here("ec2", "launch-template/lt-1"), image_id="ami-1",
                                    subnet_ids=["s"], security_group_ids=["g"], agent_role_arn=f"{ROLES}dev-agent-1",
                                    agent_profile_arn="arn:aws:iam::1:instance-profile/everspot-dev-agent-1",
                                    volume_key_arns=[KEY]),
        federation.visitor_policy(CONTROL, DATA, KEY, "home"),
        federation.home_policy(CONTROL, DATA, ["arn:aws:iam::2:role/everspot-visit-1"]),
    ]  # fmt: skip
    calls = [(a, r, met(s)) for d in written for s in d["Statement"] for a in s["Action"] for r in s["Resource"]]
    assert len(calls) > 60
    assert [(action, resource) for action, resource, context in calls if not passes(action, resource, context)] == []


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("s3:GetObject", f"{STATE}/x", {}),
        ("kms:Decrypt", STATE_KEY, {}),
        ("sts:AssumeRole", f"{ROLES}bootstrap-deploy", {}),
        ("iam:CreateRole", f"{ROLES}x", {}),
        ("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/web", TO_EC2),
        ("ec2:AuthorizeSecurityGroupIngress", "*", {}),
        ("secretsmanager:GetSecretValue", here("secretsmanager", "secret:web/password-AbCdEf"), {}),
        ("secretsmanager:GetSecretValue", "arn:aws:secretsmanager:us-east-2:210987654321:secret:everspot-x", {}),
        ("ssm:GetParameter", here("ssm", "parameter/web/password"), {}),
        *((f"s3:{call}Object", "arn:aws:s3:::web/x", {}) for call in ("Get", "Put", "Delete")),
        ("s3:ListBucket", "arn:aws:s3:::web", {}),
        ("s3:PutObject", "arn:aws:s3:::corpus/x", {}),
        ("s3:DeleteObject", "arn:aws:s3:::corpus/x", {}),
        ("kms:Decrypt", OTHER_KEY, {}),
        ("kms:Decrypt", OTHER_KEY, {"kms:resourcealiases": ("alias/web",)}),
        ("kms:CreateGrant", OTHER_KEY, {}),
        ("sqs:ReceiveMessage", here("sqs", "orders"), {}),
        ("ec2:TerminateInstances", here("ec2", "instance/i-1"), THEIRS),
        ("ec2:TerminateInstances", here("ec2", "instance/i-1"), {}),
        ("ec2:CreateTags", here("ec2", "launch-template/lt-1"), NEW),
        ("ec2:CreateTags", here("ec2", "instance/i-1"), NEW),
    ],
)
def test_it_lets_nothing_of_others_pass_whatever_a_role_says(action: str, resource: str, context: Any) -> None:
    assert not passes(action, resource, context)


@pytest.mark.parametrize(
    ("action", "resource", "context"),
    [
        ("secretsmanager:GetSecretValue", here("secretsmanager", "secret:everspot-wandb-AbCdEf"), {}),
        ("ssm:GetParameter", here("ssm", "parameter/everspot/dev/wandb"), {}),
        ("s3:PutObject", f"{DATA}/jobs/1/checkpoint", {}),
        ("s3:GetObject", "arn:aws:s3:::corpus/x", {}),
        ("kms:Decrypt", KEY, {}),
        ("kms:CreateGrant", OTHER_KEY, OF_AWS),  # a key that AWS manages
        ("ec2:TerminateInstances", here("ec2", "instance/i-1"), OURS),
        ("ec2:CreateTags", here("ec2", "instance/i-1"), {**NEW, "ec2:createaction": ("RunInstances",)}),
    ],
)
def test_what_is_of_clusters_passes(action: str, resource: str, context: Any) -> None:
    assert passes(action, resource, context)


def test_repositories_that_are_named_pass_and_no_others() -> None:
    assert passes("ecr:BatchGetImage", REPOSITORY) and not passes("ecr:BatchGetImage", f"{REPOSITORY}-2")
    assert not passes("ecr:PutImage", REPOSITORY)


def test_secrets_that_are_named_pass_and_no_others() -> None:
    other, own = here("secretsmanager", "secret:hook-AbCdEf"), here("secretsmanager", "secret:everspot-x-AbCdEf")
    for secrets, expected in (((here("secretsmanager", "secret:hook-*"),), [True, False]), ((), [False, False])):
        place = replace(PLACE, secrets=secrets)
        assert [passes("secretsmanager:GetSecretValue", arn, place=place) for arn in (other, own)] == expected


def test_what_the_inputs_name_stands_in_the_policies(declare: Callable[..., tuple[Any, dict[str, Any]]]) -> None:
    args: Any = {
        "tags": {"Project": "vision", "Team": "ml", "Environment": "bootstrap"},
        "repository": {"name": "Org/fleets"},
        "key_arns": [KEY],
        "bucket_arns": ["arn:aws:s3:::corpus"],
        "secret_arns": [here("ssm", "parameter/hook")],
        "image_repositories": ["123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train"],
        "image_parameter_arns": [here("ssm", "parameter/images/gpu")],
    }
    recorder, _ = declare(lambda: {"arn": AwsBootstrap("everspot-bootstrap", args).boundary_arn})
    bound, reads = (
        {
            s["Sid"]: s["Resource"]
            for s in json.loads(recorder.inputs(f"everspot-bootstrap-{name}")["policy"])["Statement"]
        }
        for name in ("boundary", "preview-reads")
    )
    assert (bound["ReadSecrets"], bound["UseKeys"]) == (args["secret_arns"], args["key_arns"])
    assert bound["ReadFurtherBuckets"] == ["arn:aws:s3:::corpus", "arn:aws:s3:::corpus/*"]
    assert bound["PullImages"] == ["arn:aws:ecr:eu-west-1:123456789012:repository/team/train"]
    assert args["image_parameter_arns"][0] in reads["ReadIdsOfImages"]
