"""How the scheduler learns of interruptions: EventBridge rules send to a queue of the cluster's own."""

import json
from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.aws.rules import EVENTS
from everspot_core.validation.problems import Problems
from pulumi_aws import cloudwatch, sqs

from everspot import common
from everspot.aws import policies, tagging
from everspot.parts import outputs

VISIBILITY_SECONDS = 30
"""Seconds after which a message that a scheduler received and did not delete is delivered again."""

RETENTION_SECONDS = 24 * 3600
"""Seconds for which a message waits for a scheduler. The scheduler reads older events from EC2 itself."""

ATTEMPTS = 5
"""A message that was received this many times without being deleted goes to the dead-letter queue."""


class AwsInterruptionEventsArgs(TypedDict):
    """Inputs of `AwsInterruptionEvents`."""

    cluster: str
    """Name of the cluster, for tags."""
    tags: dict[str, str]
    """Tags of queues and rules; Project, Team and Environment are mandatory."""
    dead_letter_days: NotRequired[int]
    """Days for which messages that no scheduler could handle are kept, 1 to 14. Default: 14."""


class AwsInterruptionEvents(pulumi.ComponentResource):
    """Rules that send Spot warnings, rebalance recommendations, state changes and fleet errors to one encrypted queue.

    Only these rules may send to the queue, and only over TLS. Messages that cannot be handled go to a dead-letter
    queue.
    """

    queue_url: pulumi.Output[str]
    """URL of the queue."""
    queue_arn: pulumi.Output[str]
    """ARN of the queue."""
    dead_letter_queue_url: pulumi.Output[str]
    """URL of the dead-letter queue."""

    def __init__(self, name: str, args: AwsInterruptionEventsArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("AwsInterruptionEvents"), name, {}, opts)
        days = args.get("dead_letter_days", 14)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        common.check_name(problems, name, "-interruption", 64, "rules")
        problems.number(days, "deadLetterDays", 1, 14, whole=True)
        common.raise_bad(problems, f"AwsInterruptionEvents {name}")
        child = pulumi.ResourceOptions(parent=self)
        tags = tagging.cluster_tags(args["cluster"], args["tags"])
        queue = sqs.Queue(
            f"{name}-queue",
            visibility_timeout_seconds=VISIBILITY_SECONDS,
            message_retention_seconds=RETENTION_SECONDS,
            receive_wait_time_seconds=20,
            sqs_managed_sse_enabled=True,
            tags=tags,
            opts=child,
        )
        dead = sqs.Queue(
            f"{name}-dead",
            message_retention_seconds=int(days) * 24 * 3600,
            sqs_managed_sse_enabled=True,
            tags=tags,
            opts=child,
        )
        # The queue's settings are deleted with the queue; deleting them first would take half a minute more.
        with_queue = pulumi.ResourceOptions(parent=self, deleted_with=queue)
        # As a resource of its own: within the queue it would make the queue wait for the other one, half a minute each.
        sqs.RedrivePolicy(
            f"{name}-redrive",
            queue_url=queue.id,
            redrive_policy=dead.arn.apply(
                lambda arn: json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": ATTEMPTS})
            ),
            opts=with_queue,
        )
        rules = []
        for suffix, pattern in EVENTS.items():
            rule = cloudwatch.EventRule(
                f"{name}-{suffix}",
                description=f"Everspot {args['cluster']}: {suffix}",
                event_pattern=json.dumps(pattern.as_dict()),
                tags=tags,
                opts=child,
            )
            cloudwatch.EventTarget(f"{name}-{suffix}-target", rule=rule.name, arn=queue.arn, opts=child)
            rules.append(rule.arn)
        sqs.QueuePolicy(
            f"{name}-policy",
            queue_url=queue.id,
            policy=pulumi.Output.all(queue.arn, *rules).apply(
                lambda arns: json.dumps(policies.interruption_queue(arns[0], arns[1:]))
            ),
            opts=with_queue,
        )
        self.queue_url, self.queue_arn, self.dead_letter_queue_url = queue.url, queue.arn, dead.url
        self.register_outputs(outputs(self))
