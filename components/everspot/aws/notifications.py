"""Whom the scheduler tells what became of jobs, as settings."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from everspot_core.notify import Notifications, Occasion
from everspot_core.problems import Problems

from everspot.aws import arns


class AwsNotificationsArgs(TypedDict):
    """Where the scheduler sends a word when a job has failed or missed its deadline, and on what else."""

    topic_arn: NotRequired[str]
    """An SNS topic. One that is encrypted by a customer key needs the scheduler's role in that key's policy."""
    webhook_secret_arn: NotRequired[str]
    """A secret of Secrets Manager whose value is the https address of a webhook, which gets JSON with a `text`. A new
    network has no way out to it: an existing one needs `egress`."""
    on: NotRequired[list[str]]
    """What to tell of: failed, late, succeeded, cancelled. Default: failed and late."""


def check_notifications(problems: Problems, args: AwsNotificationsArgs) -> None:
    """Add what is wrong with the settings."""
    arns.check_arn(problems, args, "topic_arn", "sns", "")
    arns.check_arn(problems, args, "webhook_secret_arn", "secretsmanager", "secret:")
    problems.need(
        "topic_arn" in args or "webhook_secret_arn" in args, "topicArn", "topicArn or webhookSecretArn has to be given"
    )
    for index, word in enumerate(args.get("on", [])):
        problems.choice(Occasion, word, f"on[{index}]")


def notifications_of(args: AwsNotificationsArgs | None) -> Notifications | None:
    """The settings as the manifest carries them; None without any."""
    return None if args is None else Notifications.model_validate(args)


def services_of(args: AwsNotificationsArgs | None) -> Sequence[str]:
    """The services that the scheduler calls for them, by their endpoints' names."""
    given = args or {}
    named = (("sns", "topic_arn"), ("secretsmanager", "webhook_secret_arn"))
    return [service for service, key in named if key in given]
