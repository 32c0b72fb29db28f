"""Settings of the scheduler's notifications."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from everspot_core.cluster.notify import Notifications, Occasion
from everspot_core.validation.problems import Problems

from everspot.aws import arns


class AwsNotificationsArgs(TypedDict):
    """Where and when the scheduler sends notifications about jobs."""

    topic_arn: NotRequired[str]
    """ARN of an SNS topic. If a customer-managed key encrypts it, that key's policy has to allow the scheduler's
    role."""
    webhook_secret_arn: NotRequired[str]
    """ARN of a Secrets Manager secret whose value is the https address of a webhook. The webhook gets JSON with a field
    `text`. Only an existing VPC whose `egress` leads there can reach it; a new network cannot."""
    on: NotRequired[list[str]]
    """Occasions of a notification: failed, late, anomaly, succeeded, cancelled. Default: failed, late and anomaly."""


def check_notifications(problems: Problems, args: AwsNotificationsArgs) -> None:
    """Add a problem for each mistake in the settings."""
    arns.check_arn(problems, args, "topic_arn", "sns", "")
    arns.check_arn(problems, args, "webhook_secret_arn", "secretsmanager", "secret:")
    problems.need(
        "topic_arn" in args or "webhook_secret_arn" in args, "topicArn", "topicArn or webhookSecretArn has to be given"
    )
    for index, occasion in enumerate(args.get("on", [])):
        problems.choice(Occasion, occasion, f"on[{index}]")


def build_notifications(args: AwsNotificationsArgs | None) -> Notifications | None:
    """Return the settings as the manifest carries them; None without any."""
    return None if args is None else Notifications.model_validate(args)


def list_services(args: AwsNotificationsArgs | None) -> Sequence[str]:
    """Return the services that the scheduler calls for notifications, by the names of their endpoints."""
    settings = args or {}
    services = (("sns", "topic_arn"), ("secretsmanager", "webhook_secret_arn"))
    return [service for service, key in services if key in settings]
