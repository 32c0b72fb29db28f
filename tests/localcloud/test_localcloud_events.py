"""EC2's events to EventBridge, as they arrive in a queue."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from everspot_local.market.clock import stamp

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE = "EC2 Instance State-change Notification"


class Inbox:
    """A queue with a dead-letter queue, a rule per detail type, and a policy that lets the rules send."""

    def __init__(self, kit: Any, *, policy: bool = True) -> None:
        self.sqs, self.events = kit.client("sqs"), kit.client("events")
        dead = self.sqs.create_queue(QueueName="dead")["QueueUrl"]
        self.dead, self.dead_arn = dead, self._arn(dead)
        redrive = json.dumps({"deadLetterTargetArn": self.dead_arn, "maxReceiveCount": 1})
        self.url = self.sqs.create_queue(
            QueueName="notices", Attributes={"RedrivePolicy": redrive, "VisibilityTimeout": "0"}
        )["QueueUrl"]
        self.arn = self._arn(self.url)
        self.rules: list[str] = []
        self.policy = policy

    def listen(self, name: str, pattern: dict[str, Any]) -> None:
        rule = self.events.put_rule(Name=name, EventPattern=json.dumps(pattern))["RuleArn"]
        self.events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": self.arn}])
        self.rules.append(rule)
        if self.policy:
            statement = {
                "Effect": "Allow",
                "Principal": {"Service": "events.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": self.arn,
                "Condition": {"ArnEquals": {"aws:SourceArn": self.rules}},
            }
            document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
            self.sqs.set_queue_attributes(QueueUrl=self.url, Attributes={"Policy": document})

    def read(self, url: str | None = None, *, delete: bool = True) -> list[dict[str, Any]]:
        events = []
        answer = self.sqs.receive_message(QueueUrl=url or self.url, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            events.append(json.loads(message["Body"]))
            if delete:
                self.sqs.delete_message(QueueUrl=url or self.url, ReceiptHandle=message["ReceiptHandle"])
        return events

    def _arn(self, url: str) -> str:
        answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])


@pytest.fixture
def inbox(kit: Any) -> Inbox:
    return Inbox(kit)


def test_a_warning_has_the_shape_that_ec2_sends(kit: Any, inbox: Inbox, helpers: Any) -> None:
    inbox.listen("warning", {"source": ["aws.ec2"], "detail-type": [WARNING]})
    (instance_id,) = kit.spot()
    with kit.still():
        now = kit.cloud.market.clock.now()
        kit.do("interrupt", instance=instance_id)
        mark = kit.mark(now + timedelta(seconds=120))
    (event,) = helpers.until(inbox.read)
    assert event["detail"] == {"instance-id": instance_id, "instance-action": "terminate"}
    assert event["resources"] == [f"arn:aws:ec2:us-east-1:123456789012:instance/{instance_id}"]
    assert (event["source"], event["account"], event["region"]) == ("aws.ec2", "123456789012", "us-east-1")
    assert event["time"] == stamp(now)
    kit.reaches(instance_id, "terminated")
    ended_at = datetime.fromisoformat(kit.log("end")[0]["at"])
    assert now + timedelta(seconds=120) <= ended_at <= helpers.until(lambda: mark)[0]


def test_states_are_told_at_the_times_that_the_log_knows(kit: Any, inbox: Inbox, helpers: Any) -> None:
    inbox.listen("states", {"source": ["aws.ec2"], "detail-type": [STATE]})
    instance_id = kit.run()
    kit.reaches(instance_id, "running")
    kit.ec2.terminate_instances(InstanceIds=[instance_id])
    kit.reaches(instance_id, "terminated")
    states: list[tuple[str, str]] = []
    helpers.until(lambda: states.extend((e["detail"]["state"], e["time"]) for e in inbox.read()) or len(states) == 4)
    times = dict(states)
    assert [state for state, _ in states] == ["pending", "running", "shutting-down", "terminated"]
    assert times["pending"] == kit.log("launch")[0]["at"]
    assert times["shutting-down"] == kit.log("end")[0]["at"]


def test_a_rebalance_recommendation_may_come_before_the_notice(kit: Any, inbox: Inbox, helpers: Any) -> None:
    inbox.listen("both", {"detail-type": [WARNING, REBALANCE]})
    (instance_id,) = kit.spot()
    kit.do("interrupt", instance=instance_id, rebalance="30s")
    events: list[dict[str, Any]] = []
    helpers.until(lambda: events.extend(inbox.read()) or len(events) == 2)
    assert [e["detail-type"] for e in events] == [REBALANCE, WARNING]
    first, second = (datetime.fromisoformat(e["time"]) for e in events)
    assert second - first >= timedelta(seconds=30)


def test_a_rebalance_recommendation_alone_takes_nothing(kit: Any, inbox: Inbox, helpers: Any) -> None:
    inbox.listen("rebalance", {"detail-type": [REBALANCE]})
    (instance_id,) = kit.spot()
    kit.do("rebalance", instance=instance_id)
    assert helpers.until(inbox.read)[0]["detail"] == {"instance-id": instance_id}
    assert kit.instance(instance_id)["State"]["Name"] in ("pending", "running")


def test_a_fleet_without_capacity_tells_an_error(kit: Any, inbox: Inbox, helpers: Any) -> None:
    inbox.listen("fleet", {"source": ["aws.ec2fleet"], "detail-type": ["EC2 Fleet Error"]})
    kit.do("drought", pool="m6i.large/us-east-1a")
    fleet_id = kit.fleet(1, helpers.override("m6i.large", "a"))["FleetId"]
    (event,) = helpers.until(inbox.read)
    assert event["detail"]["sub-type"] == "allLaunchSpecsTemporarilyBlacklisted"
    assert "InsufficientInstanceCapacity" in event["detail"]["description"]
    assert event["resources"] == [f"arn:aws:ec2:us-east-1:123456789012:fleet/{fleet_id}"]


def test_instant_fleets_tell_no_events_and_others_do(kit: Any, inbox: Inbox, helpers: Any) -> None:
    inbox.listen("fleets", {"source": ["aws.ec2fleet"]})
    kit.spot()
    assert inbox.read() == []
    kit.fleet(1)
    events: list[tuple[str, str]] = []
    helpers.until(
        lambda: events.extend((e["detail-type"], e["detail"]["sub-type"]) for e in inbox.read()) or len(events) >= 3
    )
    assert events == [
        ("EC2 Fleet State Change", "submitted"),
        ("EC2 Fleet State Change", "active"),
        ("EC2 Fleet Instance Change", "launched"),
    ]


def test_what_is_not_handled_ends_in_the_dead_letter_queue(kit: Any, inbox: Inbox, helpers: Any) -> None:
    inbox.listen("warning", {"detail-type": [WARNING]})
    (instance_id,) = kit.spot()
    kit.do("interrupt", instance=instance_id)
    helpers.until(lambda: inbox.read(delete=False))
    (event,) = helpers.until(lambda: inbox.read(delete=False) or inbox.read(inbox.dead))
    assert event["detail"]["instance-id"] == instance_id
    assert inbox.read() == []


def test_a_queue_whose_policy_does_not_name_the_rule_gets_nothing(kit: Any) -> None:
    closed = Inbox(kit, policy=False)
    closed.listen("states", {"detail-type": [STATE]})
    kit.run()
    assert closed.read() == []


def test_a_disabled_rule_sends_nothing(kit: Any, inbox: Inbox) -> None:
    inbox.listen("states", {"detail-type": [STATE]})
    inbox.events.disable_rule(Name="states")
    kit.run()
    assert inbox.read() == []


def test_a_late_event_arrives_after_its_time(kit: Any, inbox: Inbox, helpers: Any) -> None:
    inbox.listen("rebalance", {"detail-type": [REBALANCE]})
    instances = kit.spot(3)
    kit.do("disturbances", late=1)
    with kit.still() as pass_time:
        for each in instances:
            kit.do("rebalance", instance=each)
        assert inbox.read() == []
        pass_time(60)  # the longest lateness
        events: list[dict[str, Any]] = []
        helpers.until(lambda: events.extend(inbox.read()) or len(events) == 3)
    assert {event["detail"]["instance-id"] for event in events} == set(instances)
    assert kit.cloud.market.disturbances.counts["late"] == 3
