"""Refusals of IAM, SQS and EventBridge, by their error codes; `--lenient` accepts these requests."""

import dataclasses
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_local.aws.s3.rules import TAKEN
from everspot_local.cloud import LocalCloud
from localcloud_refusals import ACCOUNT, READ, TRUST, document, outcome

LONG_TRUST = document(*json.loads(TRUST)["Statement"] * 30)


def policy(characters: int, **more: Any) -> str:
    """A valid policy of exactly so many characters, and white space that does not count."""
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::", **more}
    short = len("".join(document(statement).split()))
    statement["Resource"] += "x" * (characters - short)
    return " " * 500 + document(statement)


@pytest.fixture
def iam(kit: Any) -> Any:
    client = kit.client("iam")
    client.create_role(RoleName="worker", AssumeRolePolicyDocument=TRUST)
    return client


def inline(text: str, **more: Any) -> dict[str, Any]:
    return {"RoleName": "worker", "PolicyName": "all", "PolicyDocument": text, **more}


def role(**more: Any) -> dict[str, Any]:
    return {"RoleName": "other", "AssumeRolePolicyDocument": TRUST, **more}


@pytest.mark.parametrize(
    ("call", "arguments", "code"),
    [
        ("create_role", role(RoleName="r" * 64), "ok"),
        ("create_role", role(RoleName="r" * 65), "ValidationError"),
        ("create_role", role(RoleName="a role"), "ValidationError"),
        ("create_role", role(RoleName="WORKER"), "EntityAlreadyExists"),
        ("create_role", role(Description="ü — no"), "ValidationError"),
        ("create_role", role(Tags=[{"Key": "Team", "Value": "a & b"}]), "ValidationError"),
        ("create_role", role(Tags=[{"Key": "k" * 129, "Value": ""}]), "ValidationError"),
        ("create_role", role(Tags=[{"Key": "k", "Value": "v" * 257}]), "ValidationError"),
        ("create_role", role(Tags=[{"Key": "aws:k", "Value": "v"}]), "InvalidInput"),
        ("create_role", role(Tags=[{"Key": f"k{n}", "Value": "v"} for n in range(51)]), "ValidationError"),
        ("create_role", role(Tags=[{"Key": "Größe", "Value": "München/1_a:b=c+d-e@f.g"}]), "ok"),
        ("create_role", role(PermissionsBoundary=f"arn:aws:iam::{ACCOUNT}:policy/none"), "NoSuchEntity"),
        ("create_role", role(AssumeRolePolicyDocument=TRUST[:-1] + " " * 3000 + "}"), "ok"),
        ("create_role", role(AssumeRolePolicyDocument=LONG_TRUST), "LimitExceeded"),
        ("put_role_permissions_boundary",
         {"RoleName": "worker", "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT}:policy/no"}, "NoSuchEntity"),
        ("put_role_policy", inline(policy(10_240)), "ok"),
        ("put_role_policy", inline(policy(10_241)), "LimitExceeded"),
        ("put_role_policy", inline(policy(200), PolicyName="p" * 129), "ValidationError"),
        ("create_policy", {"PolicyName": "all", "PolicyDocument": policy(6_144)}, "ok"),
        ("create_policy", {"PolicyName": "all", "PolicyDocument": policy(6_145)}, "LimitExceeded"),
        ("create_instance_profile", {"InstanceProfileName": "p" * 129}, "ValidationError"),
    ],
)  # fmt: skip
def test_iam(iam: Any, call: str, arguments: dict[str, Any], code: str) -> None:
    assert outcome(getattr(iam, call), **arguments) == code


def test_iam_counts_all_inline_policies_of_a_role_and_its_managed_ones(iam: Any) -> None:
    put = {"RoleName": "worker", "PolicyDocument": policy(6_000)}
    iam.put_role_policy(PolicyName="a", **put)
    assert outcome(iam.put_role_policy, PolicyName="b", **put) == "LimitExceeded"
    assert outcome(iam.put_role_policy, PolicyName="a", **put) == "ok", "a replacement counts once"
    arns = [iam.create_policy(PolicyName=f"p{n}", PolicyDocument=policy(200))["Policy"]["Arn"] for n in range(11)]
    outcomes = [outcome(iam.attach_role_policy, RoleName="worker", PolicyArn=arn) for arn in arns]
    assert outcomes == ["ok"] * 10 + ["LimitExceeded"]
    assert outcome(iam.create_role, **role(PermissionsBoundary=arns[0])) == "ok"


def test_iam_names_every_fault_of_a_request(iam: Any) -> None:
    with pytest.raises(
        ClientError, match="2 validation errors detected: Value 'a b' at 'roleName' failed to satisfy"
    ) as caught:
        iam.create_role(**role(RoleName="a b", Tags=[{"Key": "k", "Value": "&"}]))
    assert "Value '&' at 'tags.1.member.value' failed to satisfy constraint" in str(caught.value)


def test_ec2_hears_of_a_profile_after_a_while(kit: Any, iam: Any) -> None:
    with kit.still():
        arn = iam.create_instance_profile(InstanceProfileName="late")["InstanceProfile"]["Arn"]
        iam.add_role_to_instance_profile(InstanceProfileName="late", RoleName="worker")
        for profile in ({"Name": "late"}, {"Arn": arn}, {"Name": "never"}):
            with pytest.raises(ClientError, match="Invalid IAM Instance Profile") as caught:
                kit.run(IamInstanceProfile=profile)
            assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
        template = kit.template(IamInstanceProfile={"Name": "late"})
        group = {
            "AutoScalingGroupName": "g", "MinSize": 1, "MaxSize": 1, "AvailabilityZones": ["us-east-1a"],
            "LaunchTemplate": {"LaunchTemplateId": template, "Version": "$Latest"},
        }  # fmt: skip
        groups = kit.client("autoscaling")
        with pytest.raises(ClientError, match="Invalid IAM Instance Profile name"):
            groups.create_auto_scaling_group(**group)
        assert groups.describe_auto_scaling_groups()["AutoScalingGroups"] == []
    kit.wait_for_profile("late")
    groups.create_auto_scaling_group(**group)
    assert kit.run(IamInstanceProfile={"Arn": arn}).startswith("i-")


QUEUE_TAGS = {f"k{n}": "v" for n in range(51)}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"tags": {"Team": "a & b"}}, "InvalidParameterValue"),
        ({"tags": {"k" * 129: "v"}}, "InvalidParameterValue"),
        ({"tags": {"k": "v" * 257}}, "InvalidParameterValue"),
        ({"tags": {"aws:k": "v"}}, "InvalidParameterValue"),
        ({"tags": QUEUE_TAGS}, "InvalidParameterValue"),
        ({"QueueName": "q" * 81}, "InvalidParameterValue"),
        ({"QueueName": "a.b"}, "InvalidParameterValue"),
        ({"Attributes": {"VisibilityTimeout": "43201"}}, "InvalidAttributeValue"),
        ({"Attributes": {"MessageRetentionPeriod": "59"}}, "InvalidAttributeValue"),
        ({"Attributes": {"ReceiveMessageWaitTimeSeconds": "21"}}, "InvalidAttributeValue"),
        ({"Attributes": {"DelaySeconds": "soon"}}, "InvalidAttributeValue"),
        ({"Attributes": {"Policy": policy(8_200)}}, "InvalidAttributeValue"),
        ({"tags": {"Team": "München"}, "Attributes": {"DelaySeconds": "900"}}, "ok"),
    ],
)
def test_sqs(kit: Any, more: dict[str, Any], code: str) -> None:
    assert outcome(kit.client("sqs").create_queue, **{"QueueName": "q", **more}) == code


def test_sqs_keeps_the_name_of_a_deleted_queue_for_a_minute(kit: Any) -> None:
    sqs = kit.client("sqs")
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    with kit.still():
        sqs.delete_queue(QueueUrl=url)
        assert outcome(sqs.create_queue, QueueName="q") == "AWS.SimpleQueueService.QueueDeletedRecently"
        assert outcome(sqs.create_queue, QueueName="other") == "ok"


@pytest.fixture
def events(kit: Any) -> Any:
    client = kit.client("events")
    client.put_rule(Name="rule", EventPattern='{"source": ["aws.ec2"]}')
    return client


def targets(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"Id": f"t{n}", "Arn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:q{n}", **more} for n in range(count)]


@pytest.mark.parametrize(
    ("call", "arguments", "code"),
    [
        ("put_rule", {"Name": "r" * 64, "EventPattern": "{}"}, "ok"),
        ("put_rule", {"Name": "r" * 65, "EventPattern": "{}"}, "ValidationException"),
        ("put_rule", {"Name": "a rule", "EventPattern": "{}"}, "ValidationException"),
        ("put_rule", {"Name": "r", "EventPattern": "{}", "Description": "d" * 513}, "ValidationException"),
        ("put_rule", {"Name": "r", "EventPattern": json.dumps({"source": ["x" * 2040]})}, "LimitExceededException"),
        ("put_rule", {"Name": "r", "EventPattern": "{}", "Tags": [{"Key": "aws:k", "Value": "v"}]},
         "ValidationException"),
        ("put_rule", {"Name": "r", "EventPattern": "{}", "Tags": [{"Key": "k" * 129, "Value": ""}]},
         "ValidationException"),
        ("put_targets", {"Rule": "rule", "Targets": targets(5)}, "ok"),
        ("put_targets", {"Rule": "rule", "Targets": targets(6)}, "LimitExceededException"),
        ("put_targets", {"Rule": "rule", "Targets": targets(1, Id="i" * 65)}, "ValidationException"),
        ("put_targets", {"Rule": "rule", "Targets": targets(1, Arn="a queue")}, "ValidationException"),
        ("put_targets", {"Rule": "none", "Targets": targets(1)}, "ResourceNotFoundException"),
        ("remove_targets", {"Rule": "none", "Ids": ["t0"]}, "ResourceNotFoundException"),
        ("list_targets_by_rule", {"Rule": "none"}, "ResourceNotFoundException"),
    ],
)  # fmt: skip
def test_eventbridge(events: Any, call: str, arguments: dict[str, Any], code: str) -> None:
    assert outcome(getattr(events, call), **arguments) == code


def test_eventbridge_counts_the_targets_of_a_rule_over_its_calls(events: Any) -> None:
    events.put_targets(Rule="rule", Targets=targets(5))
    assert outcome(events.put_targets, Rule="rule", Targets=targets(5)) == "ok", "the same ones again"
    more = [{"Id": "more", "Arn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:q"}]
    assert outcome(events.put_targets, Rule="rule", Targets=more) == "LimitExceededException"
    assert outcome(events.delete_rule, Name="rule") == "ValidationException", "its targets go first"


def test_lists_come_a_page_at_a_time(bare: Any) -> None:
    iam, sqs, events, s3 = (bare.client(service) for service in ("iam", "sqs", "events", "s3"))
    events.put_rule(Name="rule", EventPattern="{}")
    events.put_targets(Rule="rule", Targets=targets(3))
    for n in range(3):
        iam.create_role(RoleName=f"r{n}", AssumeRolePolicyDocument=TRUST)
        iam.create_instance_profile(InstanceProfileName=f"p{n}")
        iam.put_role_policy(**inline(policy(100), RoleName="r0", PolicyName=f"i{n}"))
        events.put_rule(Name=f"r{n}", EventPattern="{}")
        sqs.create_queue(QueueName=f"q{n}")
        s3.create_bucket(Bucket=f"everspot-{n}")
        s3.put_object(Bucket="everspot-0", Key=f"k{n}")
    for client, call, arguments, key, count in (
        (iam, "list_roles", {}, "Roles", 3),
        (iam, "list_instance_profiles", {}, "InstanceProfiles", 3),
        (iam, "list_role_policies", {"RoleName": "r0"}, "PolicyNames", 3),
        (events, "list_rules", {}, "Rules", 4),
        (events, "list_targets_by_rule", {"Rule": "rule"}, "Targets", 3),
        (sqs, "list_queues", {}, "QueueUrls", 3),
        (s3, "list_buckets", {}, "Buckets", 3),
        (s3, "list_objects_v2", {"Bucket": "everspot-0"}, "Contents", 3),
    ):
        pages = client.get_paginator(call).paginate(**arguments, PaginationConfig={"PageSize": 2})
        assert [len(page[key]) for page in pages] == ([2, 2] if count == 4 else [2, 1]), call


# Regions


def test_a_signature_for_another_region_is_refused_as_each_service_does(kit: Any) -> None:
    elsewhere = {"region": "us-west-2"}
    assert outcome(kit.client("ec2", **elsewhere).describe_vpcs) == "AuthFailure"
    assert outcome(kit.client("autoscaling", **elsewhere).describe_auto_scaling_groups) == "SignatureDoesNotMatch"
    for service, call in (("sqs", "list_queues"), ("events", "list_rules"), ("ssm", "describe_parameters")):
        assert outcome(getattr(kit.client(service, **elsewhere), call)) == "InvalidSignatureException", service
    assert outcome(kit.client("iam", **elsewhere).list_roles) == "ok", "IAM is in no region"
    with pytest.raises(ClientError, match="Credential should be scoped to a valid region, not 'us-west-2'"):
        kit.client("sqs", **elsewhere).create_queue(QueueName="q")
    assert "QueueUrls" not in kit.client("sqs").list_queues()


def test_lenient_takes_it_all(kit: Any, module_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_cloud.account, "options", dataclasses.replace(module_cloud.options, lenient=True))
    iam, sqs, s3 = (kit.client(service) for service in ("iam", "sqs", "s3"))
    iam.create_role(RoleName="r" * 65, AssumeRolePolicyDocument=TRUST)
    iam.put_role_policy(RoleName="r" * 65, PolicyName="all", PolicyDocument=policy(20_000))
    iam.create_instance_profile(InstanceProfileName="workers")
    assert kit.run(IamInstanceProfile={"Name": "workers"})
    sqs.delete_queue(QueueUrl=sqs.create_queue(QueueName="q")["QueueUrl"])
    sqs.create_queue(QueueName="q")
    s3.create_bucket(Bucket=sorted(TAKEN)[0])
    s3.put_bucket_policy(Bucket=sorted(TAKEN)[0], Policy=document(READ))
    assert outcome(kit.client("sqs", region="us-west-2").list_queues) == "ok"
