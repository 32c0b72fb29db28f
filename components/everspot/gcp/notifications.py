"""Settings of the scheduler's notifications."""

from typing import NotRequired, TypedDict

from everspot_clouds.gcp.network import resource_problem
from everspot_core.cluster.notify import Notifications, Occasion
from everspot_core.validation.problems import Problems, camel

TOPIC_FORM, SECRET_FORM = "projects/PROJECT/topics/NAME", "projects/PROJECT/secrets/NAME"


class GcpNotificationsArgs(TypedDict):
    """Where and when the scheduler sends notifications about jobs."""

    topic: NotRequired[str]
    """A Pub/Sub topic, projects/PROJECT/topics/NAME."""
    webhook_secret: NotRequired[str]
    """A secret, projects/PROJECT/secrets/NAME, whose newest value is the https address of a webhook. The webhook gets
    JSON with a field `text`. Only a network with a way to it, as with `nat`, can reach it."""
    on: NotRequired[list[str]]
    """Occasions of a notification: failed, late, anomaly, succeeded, cancelled. Default: failed, late and anomaly."""


def check_notifications(problems: Problems, args: GcpNotificationsArgs) -> None:
    """Add a problem for each mistake in the settings."""
    for key, name, form in (
        ("topic", args.get("topic"), TOPIC_FORM),
        ("webhook_secret", args.get("webhook_secret"), SECRET_FORM),
    ):
        reason = resource_problem(name, form) if name is not None else None
        problems.need(reason is None, camel(key), reason or "")
    problems.need("topic" in args or "webhook_secret" in args, "topic", "topic or webhookSecret has to be given")
    for index, occasion in enumerate(args.get("on", [])):
        problems.choice(Occasion, occasion, f"on[{index}]")


def build_notifications(args: GcpNotificationsArgs | None) -> Notifications | None:
    """Return the settings as the manifest carries them; None without any."""
    if args is None:
        return None
    arns = {"topic_arn": args.get("topic"), "webhook_secret_arn": args.get("webhook_secret")}
    return Notifications.model_validate({**arns, **({"on": args["on"]} if "on" in args else {})})
