"""The AWS adapter: real boto3 against moto's server, and answers of AWS that moto does not make."""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from everspot_clouds.aws.cloud import AwsCloud
from everspot_clouds.aws.errors import trouble
from everspot_clouds.aws.instances import parse as parse_instance
from everspot_clouds.aws.messages import UnreadableMessage, parse
from everspot_clouds.aws.rules import EVENTS, NOTICE, EventPattern
from everspot_clouds.base import MessageKind, Phase, Trouble
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Market, Order, Reason, Role
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock, SystemClock
from scheduler_helpers import Cluster

AT = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)


def event(kind: str, detail: dict, source: str = "aws.ec2", at: datetime = AT) -> str:
    stamp = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    return json.dumps({"version": "0", "source": source, "detail-type": kind, "time": stamp, "detail": detail})


def warning(iid: str) -> str:
    detail = {"instance-id": iid, "instance-action": "terminate"}
    return event("EC2 Spot Instance Interruption Warning", detail)


@pytest.mark.parametrize(
    ("body", "kind", "deadline"),
    [
        (warning("i-1"), MessageKind.WARNING, AT + NOTICE),
        (event("EC2 Instance Rebalance Recommendation", {"instance-id": "i-1"}), MessageKind.REBALANCE, None),
        *[
            (event("EC2 Instance State-change Notification", {"instance-id": "i-1", "state": state}), kind, None)
            for state, kind in [
                ("pending", MessageKind.LAUNCHED),
                ("running", MessageKind.LAUNCHED),
                ("shutting-down", MessageKind.ENDING),
                ("stopping", MessageKind.ENDING),
                ("terminated", MessageKind.ENDED),
                ("stopped", MessageKind.ENDED),
            ]
        ],
    ],
)
def test_each_kind_of_event_is_read_as_what_it_means(body: str, kind: MessageKind, deadline: datetime | None) -> None:
    message = parse(body, "h")
    assert (message.kind, message.instance_id, message.at, message.deadline) == (kind, "i-1", AT, deadline)


@pytest.mark.parametrize("pattern", EVENTS.values(), ids=EVENTS)
def test_every_event_that_a_rule_sends_means_something(pattern: EventPattern) -> None:
    detail = {"instance-id": "i-1", "state": "running"}
    assert parse(event(pattern.detail_type, detail, pattern.source), "h").kind is not MessageKind.IGNORED


def test_events_that_are_no_business_of_ours_are_ignored_and_broken_ones_are_named() -> None:
    for body in ('{"source": "aws.s3", "detail-type": "Object Created"}', "{}", event("EC2 Something New", {})):
        assert parse(body, "h").kind is MessageKind.IGNORED
    error = event("EC2 Fleet Error", {"sub-type": "spotFleetRequestConfigurationInvalid"}, "aws.ec2fleet")
    assert parse(error, "h").kind is MessageKind.CAPACITY
    warned = "EC2 Spot Instance Interruption Warning"
    broken = ["not json", "[]", '"text"', event(warned, {}), event(warned, {"instance-id": 7})]
    broken.append(json.dumps({"source": "aws.ec2", "detail-type": warned, "detail": {"instance-id": "i-1"}}))
    for body in broken:
        with pytest.raises(UnreadableMessage):
            parse(body, "h")


def raw(state: str, **kw: object) -> dict:
    return {
        "InstanceId": "i-1",
        "InstanceType": "g5.xlarge",
        "Placement": {"AvailabilityZone": "us-east-1a"},
        "LaunchTime": AT,
        "State": {"Name": state},
        "Tags": [{"Key": "everspot:cluster", "Value": "c"}, {"Key": "everspot:role", "Value": "scheduler"}],
        **kw,
    }


@pytest.mark.parametrize(
    ("answer", "phase", "ended_at", "interrupted"),
    [
        (raw("running", StateTransitionReason=""), Phase.ALIVE, None, None),
        (
            raw(
                "terminated",
                InstanceLifecycle="spot",
                StateTransitionReason="Service initiated (2026-01-01 13:00:00 GMT)",
                StateReason={"Code": "Server.SpotInstanceTermination"},
            ),
            Phase.ENDED,
            datetime(2026, 1, 1, 13, tzinfo=UTC),
            True,
        ),
        (
            raw(
                "shutting-down",
                StateTransitionReason="User initiated (2026-01-01 13:00:00 GMT)",
                StateReason={"Code": "Client.UserInitiatedShutdown"},
            ),
            Phase.ENDING,
            datetime(2026, 1, 1, 13, tzinfo=UTC),
            False,
        ),
        (raw("terminated", StateTransitionReason="Server.SpotInstanceTermination"), Phase.ENDED, None, None),
        (raw("stopped", StateReason={"Code": "Client.InstanceInitiatedShutdown"}), Phase.ENDED, None, False),
    ],
)
def test_an_instance_is_read_with_its_end_and_its_author(
    answer: dict, phase: Phase, ended_at: datetime | None, interrupted: bool | None
) -> None:
    instance = parse_instance(answer)
    assert (instance.phase, instance.ended_at, instance.interrupted) == (phase, ended_at, interrupted)
    assert (instance.role, instance.launched_at) == (Role.SCHEDULER, AT)
    assert instance.market is (Market.SPOT if "InstanceLifecycle" in answer else Market.ON_DEMAND)


def refused(code: str, status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "DescribeInstances")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refused("RequestLimitExceeded", 503), Trouble.THROTTLED),
        (refused("InsufficientInstanceCapacity", 500), Trouble.CAPACITY),
        (refused("MaxSpotInstanceCountExceeded"), Trouble.QUOTA),
        (refused("UnauthorizedOperation", 403), Trouble.CREDENTIALS),
        (NoCredentialsError(), Trouble.CREDENTIALS),
        (refused("InvalidParameterValue"), Trouble.REQUEST),
        (refused("SomethingNew", 500), Trouble.TRANSIENT),
        (EndpointConnectionError(endpoint_url="http://x"), Trouble.TRANSIENT),
        (KeyError("a bug"), Trouble.REQUEST),
    ],
)
def test_errors_are_sorted_by_what_can_be_done_about_them(error: Exception, kind: Trouble) -> None:
    assert trouble(error) is kind


class Queue:
    """A real queue at moto's, and a cloud that listens to it."""

    def __init__(self) -> None:
        self.sqs = boto3.client("sqs", region_name="us-east-1")
        attributes = {"VisibilityTimeout": "1"}
        self.url = self.sqs.create_queue(QueueName=f"q-{uuid4().hex[:8]}", Attributes=attributes)["QueueUrl"]
        manifest = Manifest(
            cluster=f"c-{uuid4().hex[:8]}",
            cloud="aws",
            region="us-east-1",
            control_url="s3://c",
            data_url="s3://d",
            queue_url=self.url,
        )
        self.cluster = manifest.cluster
        self.cloud = AwsCloud.open(manifest, SystemClock(), long_poll=timedelta(seconds=1))

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def message_count(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[n]) for n in names)

    def receive(self, count: int) -> list:
        """Wait, 10 s at most, until so many messages were received."""
        clock, received = SystemClock(), []
        for _ in range(100):
            received += self.cloud.messages()
            if len(received) >= count:
                break
            clock.sleep(timedelta(milliseconds=100))
        return received


@pytest.fixture
def queue(aws: str) -> Iterator[Queue]:
    queue = Queue()
    yield queue
    queue.cloud.close()
    queue.sqs.close()


def test_poison_and_foreign_messages_are_deleted_and_the_others_wait_to_be_settled(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        queue.send("not json", event("EC2 Something New", {}), warning("i-1"), warning("i-2"))
        received = {m.instance_id: m for m in queue.receive(2)}
    assert received.keys() == {"i-1", "i-2"}
    assert queue.message_count() == 2
    assert "a message that cannot be read is deleted" in caplog.text
    again = queue.receive(2)  # an unacknowledged message is delivered again
    assert {m.instance_id for m in again} == {"i-1", "i-2"}
    queue.cloud.acknowledge(again)
    assert queue.message_count() == 0


def test_a_warning_on_the_queue_becomes_an_order_to_stop(queue: Queue, s3_cluster: Cluster, clock: ManualClock) -> None:
    s3_cluster.length = 50
    s3_cluster.agent("i-1")
    s3_cluster.submit("j")
    s3_cluster.run(4)
    assert s3_cluster.state("j") == "RUNNING"
    scheduler = Scheduler(s3_cluster.store, s3_cluster.manifest, queue.cloud, "s")
    queue.send("poison", warning("i-foreign"), warning("i-1"))
    assignment = None
    for _ in range(60):
        scheduler.tick()
        assignment = s3_cluster.store.assignments.get("i-1").value
        if assignment.order is Order.STOP and queue.message_count() == 0:
            break
        clock.advance(timedelta(seconds=1))
        SystemClock().sleep(timedelta(milliseconds=100))
    assert (assignment.order, assignment.reason, assignment.deadline) == (Order.STOP, Reason.NOTICE, AT + NOTICE)
    assert s3_cluster.store.assignments.get("i-foreign") is None
    assert queue.message_count() == 0


def test_instances_are_found_by_the_clusters_tag_and_spot_prices_by_pool(queue: Queue) -> None:
    ec2 = boto3.client("ec2", region_name="us-east-1")
    for cluster in (queue.cluster, "other"):
        tags = [{"Key": "everspot:cluster", "Value": cluster}]
        ec2.run_instances(
            ImageId="ami-12c6146b",
            InstanceType="c5.large",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
    (instance,) = queue.cloud.instances()
    assert (instance.instance_type, instance.market, instance.role, instance.phase) == (
        "c5.large",
        Market.ON_DEMAND,
        Role.AGENT,
        Phase.ALIVE,
    )
    ec2.terminate_instances(InstanceIds=[instance.instance_id])
    (instance,) = queue.cloud.instances()
    assert instance.phase is Phase.ENDED
    assert instance.ended_at is not None
    assert instance.interrupted is False
    ec2.close()
