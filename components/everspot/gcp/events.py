"""How the scheduler learns of interruptions: a sink of the project's log sends to a topic of the cluster's own."""

from typing import TypedDict

import pulumi
from everspot_clouds.gcp.rules import LOG_FILTER
from everspot_core.problems import Problems
from pulumi_gcp import logging, pubsub

from everspot import common
from everspot.gcp import tagging
from everspot.gcp.network import check_resource_name
from everspot.parts import outputs

ACK_SECONDS = 30
"""Seconds after which a message that a scheduler received and did not acknowledge is delivered again."""

RETENTION = "86400s"
"""Time for which a message waits for a scheduler. The scheduler reads older events from Compute Engine itself."""


class GcpInterruptionEventsArgs(TypedDict):
    """Inputs of `GcpInterruptionEvents`."""

    cluster: str
    """Name of the cluster, for labels."""
    tags: dict[str, str]
    """Tags of topic and subscription, as labels; Project, Team and Environment are mandatory."""


class GcpInterruptionEvents(pulumi.ComponentResource):
    """A logging sink that sends preemptions and other ends of instances to a topic with one subscription.

    Only this sink may publish to the topic. Entries are of the whole project, and the scheduler ignores instances that
    it does not know. They arrive after the event: the notice itself reaches an instance by its metadata server.
    """

    queue_url: pulumi.Output[str]
    """The subscription, projects/PROJECT/subscriptions/NAME."""
    topic: pulumi.Output[str]
    """The topic, projects/PROJECT/topics/NAME."""

    def __init__(self, name: str, args: GcpInterruptionEventsArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpInterruptionEvents"), name, {}, opts)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_resource_name(problems, name, "-subscription", "subscription")
        common.raise_bad(problems, f"GcpInterruptionEvents {name}")
        child = pulumi.ResourceOptions(parent=self)
        labels = tagging.cluster_labels(args["cluster"], args["tags"])
        topic = pubsub.Topic(f"{name}-topic", labels=labels, opts=child)
        subscription = pubsub.Subscription(
            f"{name}-subscription",
            topic=topic.id,
            ack_deadline_seconds=ACK_SECONDS,
            message_retention_duration=RETENTION,
            # A subscription that nobody pulls from for 31 days would be deleted.
            expiration_policy={"ttl": ""},
            retry_policy={"minimum_backoff": "10s", "maximum_backoff": "600s"},
            labels=labels,
            opts=child,
        )
        sink = logging.ProjectSink(
            f"{name}-sink",
            destination=pulumi.Output.concat("pubsub.googleapis.com/", topic.id),
            filter=LOG_FILTER,
            description=f"Ends of instances, for Everspot cluster {args['cluster']}",
            unique_writer_identity=True,
            opts=child,
        )
        # The role that Google's documentation names ("Set destination permissions"), on this topic alone.
        pubsub.TopicIAMMember(
            f"{name}-publisher",
            topic=topic.id,
            role="roles/pubsub.publisher",
            member=sink.writer_identity,
            opts=child,
        )
        self.queue_url, self.topic = subscription.id, topic.id
        self.register_outputs(outputs(self))
