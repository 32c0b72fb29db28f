"""Limits of AWS's services on a request's content: requests beyond them are refused and have no effect."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from localcloud_refusals import refused

ROOT = "arn:aws:iam::123456789012:root"
NOBODY = "arn:aws:iam::123456789012:role/nobody"


def document(**statement: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]})


@pytest.fixture
def bucket(kit: Any) -> Any:
    client = kit.client("s3")
    client.create_bucket(Bucket="control")
    return client


def test_objects_have_limits(bucket: Any) -> None:
    bucket.put_object(Bucket="control", Key="k" * 1024, Body=b"1", Metadata={"a": "x" * 2000})
    with refused("KeyTooLongError"):
        bucket.put_object(Bucket="control", Key="k" * 1025, Body=b"1")
    with refused("MetadataTooLarge"):
        bucket.put_object(Bucket="control", Key="k", Body=b"1", Metadata={"a": "x" * 2048})
    with refused("NotImplemented", status=501):
        bucket.put_object(Bucket="control", Key="k", Body=b"1", IfNoneMatch='"etag"')
    objects = [{"Key": str(number)} for number in range(1001)]
    with refused("MalformedXML"):
        bucket.delete_objects(Bucket="control", Delete={"Objects": objects})
    bucket.delete_objects(Bucket="control", Delete={"Objects": objects[1:]})


def test_a_policy_names_roles_that_exist(kit: Any, bucket: Any) -> None:
    iam = kit.client("iam")
    trust = document(Principal={"AWS": NOBODY}, Action="sts:AssumeRole")
    with refused("MalformedPolicyDocument", "Invalid principal in policy"):
        iam.create_role(RoleName="a", AssumeRolePolicyDocument=trust)
    with refused("MalformedPolicyDocument"):
        iam.create_role(RoleName="a", AssumeRolePolicyDocument="{}")
    with refused("MalformedPolicyDocument", "prohibited field Resource"):
        resource = document(Principal={"AWS": ROOT}, Action="sts:AssumeRole", Resource="*")
        iam.create_role(RoleName="a", AssumeRolePolicyDocument=resource)
    policy = document(Principal={"AWS": NOBODY}, Action="s3:GetObject", Resource="arn:aws:s3:::control/*")
    with refused("MalformedPolicy", "Invalid principal"):
        bucket.put_bucket_policy(Bucket="control", Policy=policy)
    ours = document(Principal={"AWS": ROOT}, Action="sts:AssumeRole")
    iam.create_role(RoleName="nobody", AssumeRolePolicyDocument=ours)
    iam.create_role(RoleName="a", AssumeRolePolicyDocument=trust)
    bucket.put_bucket_policy(Bucket="control", Policy=policy)
    foreign = document(Principal={"AWS": "arn:aws:iam::210987654321:role/theirs"}, Action="sts:AssumeRole")
    iam.create_role(RoleName="b", AssumeRolePolicyDocument=foreign)  # of another account nothing is known


def test_messages_have_limits(kit: Any) -> None:
    sqs = kit.client("sqs")
    queue = sqs.create_queue(QueueName="q")["QueueUrl"]
    with refused("InvalidMessageContents"):
        sqs.send_message(QueueUrl=queue, MessageBody="a\x01")
    with refused("MissingParameter"):
        sqs.send_message(QueueUrl=queue, MessageBody="")
    sqs.send_message(QueueUrl=queue, MessageBody="tab\t, line\n and 𝄞")


def test_a_message_is_deleted_by_its_last_handle(kit: Any) -> None:
    sqs = kit.client("sqs")
    queue = sqs.create_queue(QueueName="q")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="a")
    first, second = (
        sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0)["Messages"][0]["ReceiptHandle"] for _ in range(2)
    )
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=first)  # succeeds, and the message stays
    (third,) = (m["ReceiptHandle"] for m in sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0)["Messages"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=third)
    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=second)  # of a message that is gone: no error


@pytest.mark.parametrize(
    ("action", "least", "most"),
    [("describe_instances", 5, 1000), ("describe_subnets", 5, 1000), ("describe_launch_templates", 1, 200)],
)
def test_pages_have_a_least_and_a_largest_size(rig: Any, action: str, least: int, most: int) -> None:
    for size in (least, most):
        getattr(rig.ec2, action)(MaxResults=size)
    # botocore itself refuses less than the least that the model states.
    for size in (*([4] if action == "describe_instances" else []), most + 1):
        with refused("InvalidParameterValue", "maxResults"):
            getattr(rig.ec2, action)(MaxResults=size)


def test_instance_status_is_asked_of_a_hundred_instances_at_most(rig: Any) -> None:
    ids = [f"i-{number:017x}" for number in range(101)]
    with refused("InvalidParameterValue", "maximum number"):
        rig.ec2.describe_instance_status(InstanceIds=ids)


def test_launch_templates_have_names_that_ec2_takes(rig: Any) -> None:
    data = {"InstanceType": "m6i.large"}
    for name in ("ab", "a b!", "x" * 129):
        with refused("InvalidLaunchTemplateName.MalformedException"):
            rig.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    with refused("InvalidParameterValue", "VersionDescription"):
        rig.ec2.create_launch_template(LaunchTemplateName="fine", VersionDescription="d" * 256, LaunchTemplateData=data)


def test_a_key_policy_does_not_lock_its_author_out(kit: Any) -> None:
    kms = kit.client("kms")
    with refused("MalformedPolicyDocumentException", "in the future"):
        kms.create_key(Policy=document(Principal={"AWS": NOBODY}, Action="kms:*", Resource="*"))
    key = kms.create_key(Policy=document(Principal={"AWS": ROOT}, Action="kms:*", Resource="*"))["KeyMetadata"]
    with refused("MalformedPolicyDocumentException", "in the future"):
        policy = document(Principal={"AWS": ROOT}, Action="kms:Decrypt", Resource="*")
        kms.put_key_policy(KeyId=key["KeyId"], PolicyName="default", Policy=policy)


def test_a_key_that_is_to_be_deleted_is_of_no_use(kit: Any) -> None:
    kms = kit.client("kms")
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    cipher = kms.encrypt(KeyId=key, Plaintext=b"a")["CiphertextBlob"]
    for days in (6, 31):
        with refused("ValidationException", "PendingWindowInDays"):
            kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=days)
    kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    with refused("KMSInvalidStateException", "pending deletion"):
        kms.encrypt(KeyId=key, Plaintext=b"a")
    with refused("KMSInvalidStateException", "pending deletion"):
        kms.decrypt(KeyId=key, CiphertextBlob=cipher)


def test_parameters_and_metrics_have_limits(kit: Any) -> None:
    ssm, cloudwatch = kit.client("ssm"), kit.client("cloudwatch")
    ssm.put_parameter(Name="/a", Value="x" * 4096, Type="String")
    with refused("ValidationException", "4096"):
        ssm.put_parameter(Name="/a", Value="x" * 4097, Type="String", Overwrite=True)
    metric = {"MetricName": "a", "Value": 1.0}
    cloudwatch.put_metric_data(Namespace="Ours", MetricData=[metric])
    with refused("InvalidParameterValue", "Namespace"):
        cloudwatch.put_metric_data(Namespace="AWS/EC2", MetricData=[metric])
    now = kit.cloud.market.clock.now()
    for at in (now - timedelta(days=15), now + timedelta(hours=3), datetime(2020, 1, 1, tzinfo=UTC)):
        with refused("InvalidParameterValue", "Timestamp"):
            cloudwatch.put_metric_data(Namespace="Ours", MetricData=[{**metric, "Timestamp": at}])
    dimensions = [{"Name": str(number), "Value": "1"} for number in range(31)]
    with refused("InvalidParameterValue", "Dimensions"):
        cloudwatch.put_metric_data(Namespace="Ours", MetricData=[{**metric, "Dimensions": dimensions}])
