"""Roles are held to their policies, and calls are logged."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_local.options import Options
from localcloud_worker import TRUST, Worker, enforcing, refused


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Options:
    return enforcing(Path(tmp_path_factory.mktemp("iam")))


@pytest.fixture
def worker(kit: Any) -> Worker:
    return Worker(kit)


def test_nothing_is_allowed_that_no_policy_allows(kit: Any, worker: Worker) -> None:
    queue = kit.client("sqs").create_queue(QueueName="q")["QueueUrl"]
    kit.client("s3").create_bucket(Bucket="control")
    assert refused(worker.client("ec2").describe_instances) == "UnauthorizedOperation"
    assert refused(worker.client("sqs").receive_message, QueueUrl=queue) == "AccessDenied"
    assert refused(worker.client("s3").list_objects_v2, Bucket="control") == "AccessDenied"
    assert refused(worker.client("s3").put_object, Bucket="control", Key="a", Body=b"1") == "AccessDenied"
    assert refused(worker.client("ssm").get_parameter, Name="/a") == "AccessDeniedException"
    assert worker.client("sts").get_caller_identity()["Account"] == "123456789012"


def test_objects_are_allowed_by_prefix(kit: Any, worker: Worker) -> None:
    kit.client("s3").create_bucket(Bucket="control")
    kit.client("s3").put_object(Bucket="control", Key="records/a", Body=b"1")
    bucket = "arn:aws:s3:::control"
    worker.may(
        {"Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], "Resource": f"{bucket}/records/*"},
        {
            "Action": "s3:ListBucket",
            "Resource": bucket,
            "Condition": {"StringLikeIfExists": {"s3:prefix": ["records/*"]}},
        },
    )
    s3 = worker.client("s3")
    assert s3.get_object(Bucket="control", Key="records/a")["Body"].read() == b"1"
    assert s3.head_object(Bucket="control", Key="records/a")["ContentLength"] == 1
    s3.put_object(Bucket="control", Key="records/b", Body=b"2", IfNoneMatch="*")
    assert len(s3.list_objects_v2(Bucket="control", Prefix="records/")["Contents"]) == 2
    assert refused(s3.list_objects_v2, Bucket="control", Prefix="heads/") == "AccessDenied"
    assert refused(s3.put_object, Bucket="control", Key="heads/a", Body=b"") == "AccessDenied"
    s3.delete_objects(Bucket="control", Delete={"Objects": [{"Key": "records/a"}, {"Key": "records/b"}]})
    assert kit.client("s3").list_objects_v2(Bucket="control")["KeyCount"] == 0


def test_who_may_not_list_is_told_403_for_what_is_missing(kit: Any, worker: Worker) -> None:
    kit.client("s3").create_bucket(Bucket="data")
    read = {"Action": "s3:GetObject", "Resource": "arn:aws:s3:::data/*"}
    worker.may(read)
    assert refused(worker.client("s3").get_object, Bucket="data", Key="none") == "AccessDenied"
    worker.may(read, {"Action": "s3:ListBucket", "Resource": "arn:aws:s3:::data"})
    assert refused(worker.client("s3").get_object, Bucket="data", Key="none") == "NoSuchKey"


def test_a_tls_only_bucket_still_answers(kit: Any) -> None:
    s3 = kit.client("s3")
    s3.create_bucket(Bucket="control")
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": ["arn:aws:s3:::control", "arn:aws:s3:::control/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    s3.put_bucket_policy(Bucket="control", Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    s3.put_object(Bucket="control", Key="a", Body=b"1")
    s3.put_object(Bucket="control", Key="a", Body=b"2")
    assert s3.get_object(Bucket="control", Key="a")["Body"].read() == b"2"


def test_queues_are_allowed_by_their_arn(kit: Any, worker: Worker) -> None:
    sqs = kit.client("sqs")
    own_url, other = (sqs.create_queue(QueueName=n)["QueueUrl"] for n in ("mine", "other"))
    worker.may({"Action": "sqs:ReceiveMessage", "Resource": "arn:aws:sqs:us-east-1:123456789012:mine"})
    assert "Messages" not in worker.client("sqs").receive_message(QueueUrl=own_url)
    assert refused(worker.client("sqs").receive_message, QueueUrl=other) == "AccessDenied"
    assert refused(worker.client("sqs").delete_message, QueueUrl=own_url, ReceiptHandle="x") == "AccessDenied"


def test_tagged_resources_are_listed_by_the_permission_that_aws_calls_tag(kit: Any, worker: Worker) -> None:
    owner = {"everspot:cluster": "train"}
    queue = kit.client("sqs").create_queue(QueueName="tagged", tags=owner)["QueueUrl"]
    kit.client("events").put_rule(
        Name="tagged", EventPattern='{"source": ["aws.ec2"]}', Tags=[{"Key": "everspot:cluster", "Value": "train"}]
    )
    filters = [{"Key": "everspot:cluster", "Values": ["train"]}]
    client = worker.client("resourcegroupstaggingapi")
    assert refused(client.get_resources, TagFilters=filters) == "AccessDeniedException"
    worker.may({"Action": "tag:GetResources", "Resource": "*"})
    arns = [mapping["ResourceARN"] for mapping in client.get_resources(TagFilters=filters)["ResourceTagMappingList"]]
    assert {arn.split(":")[2] for arn in arns} == {"sqs", "events"} and queue.endswith("/tagged")


def test_the_book_says_who_called_what_on_what(kit: Any, worker: Worker) -> None:
    queue = kit.client("sqs").create_queue(QueueName="mine")["QueueUrl"]
    refused(worker.client("sqs").receive_message, QueueUrl=queue)
    created, received = (c for c in kit.cloud.account.calls.read() if c["service"] == "sqs")
    assert (created["principal"], created["action"], created["allowed"]) == (
        "arn:aws:iam::123456789012:root", "CreateQueue", True,
    )  # fmt: skip
    assert received["principal"] == f"arn:aws:sts::123456789012:assumed-role/worker/{worker.instance_id}"
    assert (received["action"], received["allowed"]) == ("ReceiveMessage", False)
    resource = "arn:aws:sqs:us-east-1:123456789012:mine"
    assert received["checked"] == [{"action": "sqs:ReceiveMessage", "resource": resource}]


def test_the_parts_of_a_bucket_have_permissions_of_their_own(kit: Any) -> None:
    s3 = kit.client("s3")
    s3.create_bucket(Bucket="with-parts")
    closed = {"BlockPublicAcls": True}
    s3.put_public_access_block(Bucket="with-parts", PublicAccessBlockConfiguration=closed)
    s3.get_public_access_block(Bucket="with-parts")
    s3.delete_public_access_block(Bucket="with-parts")
    refused(s3.get_bucket_encryption, Bucket="with-parts")  # it has none
    actions = [call["checked"][0]["action"] for call in kit.cloud.account.calls.read() if call["service"] == "s3"]
    assert actions == [
        "s3:CreateBucket",
        "s3:PutBucketPublicAccessBlock",
        "s3:GetBucketPublicAccessBlock",
        "s3:PutBucketPublicAccessBlock",
        "s3:GetEncryptionConfiguration",
    ]


def test_launch_templates_are_allowed_by_their_tag_and_groups_and_rules_by_their_name(kit: Any, worker: Worker) -> None:
    own, ec2 = {"Key": "everspot:cluster", "Value": "dev"}, worker.client("ec2")
    data = {"LaunchTemplateData": {"InstanceType": "g6.xlarge"}}
    tagged = {**data, "TagSpecifications": [{"ResourceType": "launch-template", "Tags": [own]}]}
    kit.client("ec2").create_launch_template(LaunchTemplateName="theirs", **data)
    account = "us-east-1:123456789012"
    group = f"arn:aws:autoscaling:{account}:autoScalingGroup:*:autoScalingGroupName/dev-*"
    on_request, on_resource = (
        {"StringEquals": {f"aws:{kind}Tag/everspot:cluster": "dev"}} for kind in ("Request", "Resource")
    )
    versions = ["ec2:CreateLaunchTemplateVersion", "ec2:DeleteLaunchTemplate"]
    at_creation = {"Null": {"ec2:CreateAction": "false"}}
    worker.may(
        {"Action": "ec2:CreateLaunchTemplate", "Resource": "*", "Condition": on_request},
        {"Action": "ec2:CreateTags", "Resource": "*", "Condition": at_creation},
        {"Action": versions, "Resource": f"arn:aws:ec2:{account}:launch-template/*", "Condition": on_resource},
        {"Action": ["autoscaling:DeleteAutoScalingGroup", "autoscaling:CreateOrUpdateTags"], "Resource": group},
        {"Action": ["events:PutRule", "events:PutTargets"], "Resource": f"arn:aws:events:{account}:rule/dev-*"},
    )
    assert refused(ec2.create_launch_template, LaunchTemplateName="bare", **data) == "UnauthorizedOperation"
    template_id = ec2.create_launch_template(LaunchTemplateName="ours", **tagged)["LaunchTemplate"]["LaunchTemplateId"]
    ec2.create_launch_template_version(LaunchTemplateId=template_id, **data)
    denied = refused(ec2.create_launch_template_version, LaunchTemplateName="theirs", **data)
    assert denied == refused(ec2.create_tags, Resources=[template_id], Tags=[own]) == "UnauthorizedOperation"
    ec2.delete_launch_template(LaunchTemplateName="ours")
    groups, events = worker.client("autoscaling"), worker.client("events")
    denied = {name: refused(groups.delete_auto_scaling_group, AutoScalingGroupName=name) for name in ("dev-a", "web")}
    assert denied == {"dev-a": "ValidationError", "web": "AccessDenied"}  # the first is allowed, and is not there
    tag = {"ResourceType": "auto-scaling-group", "Key": "a", "Value": "b", "PropagateAtLaunch": False}
    assert refused(groups.create_or_update_tags, Tags=[{**tag, "ResourceId": "web"}]) == "AccessDenied"
    events.put_rule(Name="dev-a", EventPattern='{"source": ["aws.ec2"]}')
    events.put_targets(Rule="dev-a", Targets=[{"Id": "q", "Arn": f"arn:aws:sqs:{account}:q"}])
    assert refused(events.put_targets, Rule="web", Targets=[{"Id": "q", "Arn": "a"}]) == "AccessDeniedException"


def test_a_role_leaves_a_profile_once(kit: Any) -> None:
    iam = kit.client("iam")
    iam.create_role(RoleName="worker-once", AssumeRolePolicyDocument='{"Version": "2012-10-17", "Statement": []}')
    iam.create_instance_profile(InstanceProfileName="once")
    iam.add_role_to_instance_profile(InstanceProfileName="once", RoleName="worker-once")
    iam.remove_role_from_instance_profile(InstanceProfileName="once", RoleName="worker-once")
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.remove_role_from_instance_profile(InstanceProfileName="once", RoleName="worker-once")


def test_a_role_that_was_just_made_is_refused_for_some_seconds(kit: Any) -> None:
    kit.do("delays", propagation="1h")
    iam, sts = kit.client("iam"), kit.client("sts")
    iam.create_role(RoleName="young", AssumeRolePolicyDocument=TRUST)
    arn = "arn:aws:iam::123456789012:role/young"
    assert refused(sts.assume_role, RoleArn=arn, RoleSessionName="session") == "AccessDenied"
    kit.do("delays", propagation="10s")
    started = kit.cloud.market.clock.now()
    iam.create_role(RoleName="older", AssumeRolePolicyDocument=TRUST)
    kit.wait_for_role("older")
    assert kit.cloud.market.clock.now() >= started + timedelta(seconds=10)


def test_the_simulator_evaluates_a_roles_policies_and_its_boundary(kit: Any, worker: Worker) -> None:
    iam, role = kit.client("iam"), "arn:aws:iam::123456789012:role/worker"
    tagged = {"StringEquals": {"aws:RequestTag/team": "a"}}
    worker.may(
        {"Action": "s3:*", "Resource": "arn:aws:s3:::mine/*"},
        {"Action": "ec2:RunInstances", "Resource": "*", "Condition": tagged},
    )

    def decisions(actions: list[str], resource: str, tag: str = "a") -> list[str]:
        entry = {"ContextKeyName": "aws:RequestTag/team", "ContextKeyValues": [tag], "ContextKeyType": "string"}
        pages = iam.get_paginator("simulate_principal_policy").paginate(
            PolicySourceArn=role,
            ActionNames=actions,
            ResourceArns=[resource],
            ContextEntries=[entry],
            PaginationConfig={"PageSize": 1},
        )
        return [result["EvalDecision"] for page in pages for result in page["EvaluationResults"]]

    assert decisions(["s3:GetObject", "s3:PutObject"], "arn:aws:s3:::mine/a") == ["allowed", "allowed"]
    assert decisions(["s3:GetObject", "ec2:RunInstances"], "arn:aws:s3:::other/a") == ["implicitDeny", "allowed"]
    assert decisions(["ec2:RunInstances"], "*", tag="b") == ["implicitDeny"]
    statements = [
        {"Effect": "Deny", "Action": "s3:Put*", "Resource": "*"},
        {"Effect": "Allow", "Action": "*", "Resource": "*"},
    ]
    bound = {"Version": "2012-10-17", "Statement": statements}
    boundary = iam.create_policy(PolicyName="bound", PolicyDocument=json.dumps(bound))["Policy"]["Arn"]
    iam.put_role_permissions_boundary(RoleName="worker", PermissionsBoundary=boundary)
    assert decisions(["s3:PutObject", "s3:GetObject"], "arn:aws:s3:::mine/a") == ["explicitDeny", "allowed"]
    for source, code in (("arn:aws:iam::123456789012:root", "InvalidInput"), (f"{role}s", "NoSuchEntity")):
        assert refused(iam.simulate_principal_policy, PolicySourceArn=source, ActionNames=["s3:GetObject"]) == code
