"""Stands in for EC2 and EC2 Fleet as sources of EventBridge: puts their events on the default bus of moto's backend.

A share of the events arrives late (EventBridge user guide, "Event delivery": best effort, in no guaranteed time or
order). It does not retry, and knows no targets but queues; and it delivers to a queue only what the queue's policy
lets EventBridge send.
"""

import json
import logging
import uuid
from datetime import datetime
from functools import partial
from typing import Any

from moto.events.models import events_backends
from moto.events.utils import EventMessageType
from moto.sqs.models import sqs_backends

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide
from everspot_local.market.clock import stamp

log = logging.getLogger(__name__)


def instance_event(region: str, instance_id: str, detail_type: str, detail: dict[str, Any], at: datetime) -> None:
    """Send an event of source `aws.ec2` about one instance."""
    arn = f"arn:aws:ec2:{region}:{ACCOUNT}:instance/{instance_id}"
    emit(region, "aws.ec2", detail_type, [arn], {"instance-id": instance_id, **detail}, at)


def fleet_event(region: str, fleet_id: str, detail_type: str, detail: dict[str, Any], at: datetime) -> None:
    """Send an event of source `aws.ec2fleet` about one fleet."""
    arn = f"arn:aws:ec2:{region}:{ACCOUNT}:fleet/{fleet_id}"
    emit(region, "aws.ec2fleet", detail_type, [arn], detail, at)


def emit(
    region: str, source: str, detail_type: str, resources: list[str], detail: dict[str, Any], at: datetime
) -> None:
    """Match an event against every enabled rule of the default bus and send it to their targets. `at` becomes its
    `time`."""
    event: EventMessageType = {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": source,
        "account": ACCOUNT,
        "time": stamp(at),
        "ingestion-time": at.timestamp(),  # asked for by moto when it fills a target's template in; not sent
        "region": region,
        "resources": resources,
        "detail": detail,
    }
    for rule in list(events_backends[ACCOUNT][region].event_buses["default"].rules.values()):
        if rule.state == "ENABLED" and rule.event_pattern.matches_event(event):
            for target in rule.targets:
                _deliver(region, rule.arn, target, event)


def _deliver(region: str, rule_arn: str, target: dict[str, Any], event: EventMessageType) -> None:
    """Send the event to a target now, or later if this delivery is disturbed."""
    market = account.current().market
    if market.disturbances.occurs("late"):
        lateness = market.delays.late * market.disturbances.fraction()
        market.timeline.after(lateness, partial(_send, region, rule_arn, target, event))
    else:
        _send(region, rule_arn, target, event)


def _send(region: str, rule_arn: str, target: dict[str, Any], event: EventMessageType) -> None:
    """Send the event to a queue unchanged; moto's own delivery omits the account and distorts the time."""
    arn = target["Arn"]
    if ":sqs:" not in arn or {"Input", "InputPath", "InputTransformer"} & set(target):
        log.warning("rule %s: the local cloud sends whole events to SQS queues only, not to %s", rule_arn, arn)
    elif _may_send(region, rule_arn, arn):
        group = (target.get("SqsParameters") or {}).get("MessageGroupId")
        sqs_backends[ACCOUNT][region].send_message(
            queue_name=arn.rsplit(":", 1)[1], message_body=json.dumps(event), group_id=group
        )


def _may_send(region: str, rule_arn: str, target_arn: str) -> bool:
    """Return whether a queue's own policy lets this rule send to it; without that, AWS drops the event silently."""
    queue = sqs_backends[ACCOUNT][region].queues.get(target_arn.rsplit(":", 1)[1])
    if queue is None:
        log.warning("rule %s: there is no queue %s", rule_arn, target_arn)
        return False
    policy = json.loads(queue.policy) if queue.policy else {"Statement": []}
    context = {"aws:sourcearn": (rule_arn,), "aws:sourceaccount": (ACCOUNT,), "aws:securetransport": ("true",)}
    call = Call("sqs:SendMessage", target_arn, context)
    if decide([policy], call, principal="events.amazonaws.com") is PolicyDecision.ALLOW:
        return True
    log.warning("rule %s: the policy of %s does not let events.amazonaws.com send to it", rule_arn, target_arn)
    return False
