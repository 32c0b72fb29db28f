"""Disturbances of requests, messages and events by the services, at an adjustable rate."""

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from everspot_clouds.aws.errors import trouble
from everspot_clouds.base import Trouble
from everspot_local.market.disturbances import CALM, DisturbanceRates
from everspot_local.options import DISTURBANCES, Options


def code(call: Any, **arguments: Any) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    answer = caught.value.response
    return str(answer["Error"]["Code"]), int(answer["ResponseMetadata"]["HTTPStatusCode"])


def test_a_conditional_write_meets_another_one(kit: Any) -> None:
    s3 = kit.client("s3")
    s3.create_bucket(Bucket="control")
    kit.do("disturbances", conflict=1)
    conflict = ("ConditionalRequestConflict", 409)
    assert code(s3.put_object, Bucket="control", Key="a", Body=b"1", IfNoneMatch="*") == conflict
    s3.put_object(Bucket="control", Key="a", Body=b"1")  # without a condition
    etag = s3.head_object(Bucket="control", Key="a")["ETag"]
    assert code(s3.put_object, Bucket="control", Key="a", Body=b"2", IfMatch=etag) == conflict
    assert s3.get_object(Bucket="control", Key="a", IfMatch=etag)["Body"].read() == b"1"  # the write had no effect
    kit.do("disturbances", conflict=0)
    s3.put_object(Bucket="control", Key="a", Body=b"2", IfMatch=etag)


def test_s3_asks_for_fewer_requests(kit: Any) -> None:
    s3 = kit.client("s3")
    s3.create_bucket(Bucket="control")
    kit.do("disturbances", slow_down=1)
    assert code(s3.put_object, Bucket="control", Key="a", Body=b"1" * 100_000) == ("SlowDown", 503)
    assert code(s3.list_objects_v2, Bucket="control") == ("SlowDown", 503)
    assert code(s3.head_object, Bucket="control", Key="a")[1] == 503
    kit.client("sqs").create_queue(QueueName="q")  # other services are not S3
    kit.do("disturbances", slow_down=0)
    assert s3.list_objects_v2(Bucket="control")["KeyCount"] == 0


THROTTLED = {
    "sqs": ("list_queues", "RequestThrottled"),
    "iam": ("list_roles", "Throttling"),
    "sts": ("get_caller_identity", "Throttling"),
    "ssm": ("describe_parameters", "ThrottlingException"),
    "events": ("list_rules", "ThrottlingException"),
    "autoscaling": ("describe_auto_scaling_groups", "Throttling"),
    "service-quotas": ("list_services", "TooManyRequestsException"),
}


@pytest.mark.parametrize("service", THROTTLED)
def test_services_are_throttled_each_by_its_own_code(kit: Any, service: str) -> None:
    call, expected = THROTTLED[service]
    kit.do("disturbances", throttle=1)
    assert code(getattr(kit.client(service), call))[0] == expected
    assert trouble(ClientError({"Error": {"Code": expected}}, call)) is Trouble.THROTTLED
    kit.ec2.describe_vpcs()  # EC2's own buckets decide over its calls
    kit.client("s3").list_buckets()


def test_a_client_that_tries_again_is_not_disturbed_by_some_throttling(kit: Any) -> None:
    kit.do("disturbances", throttle=0.3)
    iam = boto3.client(
        "iam", endpoint_url=kit.cloud.endpoint, aws_access_key_id="a", aws_secret_access_key="b",
        region_name="us-east-1", config=Config(retries={"mode": "standard", "total_max_attempts": 10}),
    )  # fmt: skip
    for _ in range(20):
        iam.list_roles()
    assert kit.cloud.market.disturbances.counts["throttle"] > 0


def test_a_share_of_the_requests_is_disturbed(kit: Any) -> None:
    s3 = kit.client("s3")
    s3.create_bucket(Bucket="control")
    kit.do("disturbances", slow_down=0.1)
    refused = 0
    for _ in range(200):
        try:
            s3.list_objects_v2(Bucket="control")
        except ClientError:
            refused += 1
    assert 5 <= refused <= 40  # of 20 on average
    assert kit.cloud.market.disturbances.counts["slow_down"] == refused


def test_a_queue_delivers_twice(kit: Any) -> None:
    sqs = kit.client("sqs")
    kit.do("disturbances", duplicate=1)
    standard = sqs.create_queue(QueueName="standard")["QueueUrl"]
    sent = sqs.send_message(QueueUrl=standard, MessageBody="once")["MessageId"]
    first = sqs.receive_message(QueueUrl=standard)["Messages"][0]
    sqs.delete_message(QueueUrl=standard, ReceiptHandle=first["ReceiptHandle"])
    second = sqs.receive_message(QueueUrl=standard)["Messages"][0]
    assert [first["MessageId"], second["MessageId"]] == [sent, sent]
    sqs.delete_message(QueueUrl=standard, ReceiptHandle=second["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=standard)
    fifo = sqs.create_queue(QueueName="exact.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    sqs.send_message(QueueUrl=fifo, MessageBody="once", MessageGroupId="a", MessageDeduplicationId="1")
    only = sqs.receive_message(QueueUrl=fifo)["Messages"][0]
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=only["ReceiptHandle"])
    assert "Messages" not in sqs.receive_message(QueueUrl=fifo)


@pytest.mark.parametrize(("name", "ordered"), [("standard", False), ("exact.fifo", True)])
def test_a_queue_delivers_in_another_order(kit: Any, name: str, ordered: bool) -> None:
    sqs = kit.client("sqs")
    kit.do("disturbances", reorder=1, duplicate=0)
    attributes = {"FifoQueue": "true"} if ordered else {}
    queue = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    bodies = [str(number) for number in range(9)]
    for body in bodies:
        more = {"MessageGroupId": body, "MessageDeduplicationId": body} if ordered else {}
        sqs.send_message(QueueUrl=queue, MessageBody=body, **more)
    received = [m["Body"] for m in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]]
    assert sorted(received) == bodies
    assert (received == bodies) is ordered


def test_rates_are_settings_of_the_cloud(kit: Any) -> None:
    assert DISTURBANCES["aws"].duplicate > 0 and DISTURBANCES["aws"].reorder > 0 and DISTURBANCES["aws"].late > 0
    with pytest.raises(ValueError, match=r"share from 0 to 1.*no disturbance 'rain'"):
        kit.do("disturbances", late=1.5, rain=0.1)
    with pytest.raises(ValueError, match="conflict, slow_down, duplicate, reorder, late, throttle"):
        kit.do("disturbances")
    kit.do("disturbances", late=0.5)
    kit.cloud.reset()
    assert kit.cloud.market.disturbances.rates == kit.cloud.options.rates


def test_a_lenient_cloud_disturbs_nothing(tmp_path: Path) -> None:
    assert Options(tmp_path, lenient=True).rates == CALM
    chosen = DisturbanceRates(slow_down=0.1)
    assert Options(tmp_path, lenient=True, disturbances=chosen).rates == chosen
