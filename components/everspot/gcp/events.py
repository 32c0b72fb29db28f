"""How the scheduler learns of interruptions: a sink of the project's log sends to a topic of the cluster's own."""

from typing import NotRequired, TypedDict

import pulumi
from everspot_clouds.gcp.rules import LOG_FILTER
from everspot_core.validation.problems import Problems
from pulumi_gcp import logging, pubsub

from everspot import common
from everspot.gcp import preview_queries, tagging
from everspot.gcp.network import check_resource_name
from everspot.parts import outputs

ACK_SECONDS = 30
"""Seconds after which a message that a scheduler received and did not acknowledge is delivered again."""

RETENTION = "86400s"
"""Time for which a message waits for a scheduler. The scheduler reads older events from Compute Engine itself."""

ATTEMPTS = 5
"""A message that was received this many times without being acknowledged goes to the dead-letter topic."""


class GcpInterruptionEventsArgs(TypedDict):
    """Inputs of `GcpInterruptionEvents`."""

    cluster: str
    """Name of the cluster, for labels."""
    tags: dict[str, str]
    """Tags of topic and subscription, as labels; Project, Team and Environment are mandatory."""
    dead_letter_days: NotRequired[int]
    """Days for which messages that no scheduler could handle are kept, 1 to 14. Default: 14."""


class GcpInterruptionEvents(pulumi.ComponentResource):
    """A logging sink that sends preemptions and other ends of instances to a topic with one subscription.

    Only this sink may publish to the topic. Entries are of the whole project, and the scheduler ignores instances that
    it does not know. They arrive after the event: the notice itself reaches an instance by its metadata server.
    Messages that cannot be handled go to a dead-letter topic, whose one subscription keeps them.
    """

    queue_url: pulumi.Output[str]
    """The subscription, projects/PROJECT/subscriptions/NAME."""
    topic: pulumi.Output[str]
    """The topic, projects/PROJECT/topics/NAME."""
    dead_letter_subscription: pulumi.Output[str]
    """The subscription of the dead-letter topic, projects/PROJECT/subscriptions/NAME."""

    def __init__(self, name: str, args: GcpInterruptionEventsArgs, opts: pulumi.ResourceOptions | None = None):
        super().__init__(common.token("GcpInterruptionEvents"), name, {}, opts)
        days = args.get("dead_letter_days", 14)
        problems = Problems()
        tagging.check_common(problems, args["cluster"], args["tags"])
        check_resource_name(problems, name, "-subscription", "subscription")
        problems.number(days, "deadLetterDays", 1, 14, whole=True)
        common.raise_bad(problems, f"GcpInterruptionEvents {name}")
        self._name, self._child = name, pulumi.ResourceOptions(parent=self)
        self._labels = tagging.cluster_labels(args["cluster"], args["tags"])
        topic = self._topic("")
        dead = self._topic("dead-")
        subscription = self._subscription("", topic, RETENTION, dead)
        dead_letters = self._subscription("dead-", dead, f"{int(days) * 86400}s", None)
        self._forward(subscription, dead)
        self._sink(args["cluster"], topic)
        self.queue_url, self.topic, self.dead_letter_subscription = subscription.id, topic.id, dead_letters.id
        self.register_outputs(outputs(self))

    def _topic(self, which: str) -> "pubsub.Topic":
        return pubsub.Topic(f"{self._name}-{which}topic", labels=self._labels, opts=self._child)

    def _subscription(
        self, which: str, topic: "pubsub.Topic", retention: str, dead: "pubsub.Topic | None"
    ) -> "pubsub.Subscription":
        policy = None if dead is None else {"dead_letter_topic": dead.id, "max_delivery_attempts": ATTEMPTS}
        return pubsub.Subscription(
            f"{self._name}-{which}subscription",
            topic=topic.id,
            ack_deadline_seconds=ACK_SECONDS,
            message_retention_duration=retention,
            # A subscription that nobody pulls from for 31 days would be deleted.
            expiration_policy={"ttl": ""},
            retry_policy={"minimum_backoff": "10s", "maximum_backoff": "600s"},
            dead_letter_policy=policy,
            labels=self._labels,
            opts=self._child,
        )

    def _forward(self, source: "pubsub.Subscription", dead: "pubsub.Topic") -> None:
        """Let Pub/Sub's service agent take messages from the subscription and publish them to the dead-letter topic, by
        the roles that Google's documentation names ("Handle message failures", grant forwarding permissions)."""
        message = "The project's number cannot be read (resourcemanager.projects.get)."
        project = preview_queries.invoke(self, "organizations/getProject:getProject", {}, failed=message)
        agent = project.apply(
            lambda found: f"serviceAccount:service-{found['number']}@gcp-sa-pubsub.iam.gserviceaccount.com"
        )
        # In a new project Google makes the agent when Pub/Sub is used, and grants it nothing before.
        used = pulumi.ResourceOptions.merge(self._child, pulumi.ResourceOptions(depends_on=[source]))
        pubsub.SubscriptionIAMMember(
            f"{self._name}-dead-taker",
            subscription=source.id,
            role="roles/pubsub.subscriber",
            member=agent,
            opts=used,
        )
        self._let_publish("dead-publisher", dead, agent, used)

    def _sink(self, cluster: str, topic: "pubsub.Topic") -> None:
        sink = logging.ProjectSink(
            f"{self._name}-sink",
            destination=pulumi.Output.concat("pubsub.googleapis.com/", topic.id),
            filter=LOG_FILTER,
            description=f"Ends of instances, for Everspot cluster {cluster}",
            unique_writer_identity=True,
            opts=self._child,
        )
        # The role that Google's documentation names ("Set destination permissions"), on this topic alone.
        self._let_publish("publisher", topic, sink.writer_identity)

    def _let_publish(
        self,
        suffix: str,
        topic: "pubsub.Topic",
        member: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        pubsub.TopicIAMMember(
            f"{self._name}-{suffix}",
            topic=topic.id,
            role="roles/pubsub.publisher",
            member=member,
            opts=opts or self._child,
        )
