"""The account's own watch over spending: budgets by team, unusual costs, and tags that bills are split by.

AWS reports costs hours after they arose, and stops nothing. This watch is the second net behind the budgets of
Everspot's own ledger, and also sees costs that are not Everspot's.
"""

import json
import re
from collections.abc import Sequence
from typing import NotRequired, TypedDict

import pulumi
from everspot_core.validation.problems import Problems, shown
from pulumi_aws import budgets, costexplorer

from everspot.aws import arns
from everspot.spending import TeamBudgetArgs, budget_suffix, check_budgets

WARNINGS = (("ACTUAL", 80.0), ("ACTUAL", 100.0), ("FORECASTED", 100.0))
"""When a budget notifies: spent or forecast costs of the month, in percent of the limit. AWS allows five."""

MOST_EMAILS = 10
"""Of one notification (AWS Budgets API Reference, `CreateNotification`)."""

MOST_TEAMS = 10
"""Values of a tag that one monitor looks at (AWS Cost Explorer API Reference, `AnomalyMonitor`)."""

UNSET = dict.fromkeys(("And", "CostCategories", "Dimensions", "Not", "Or"))
"""The unused parts of a monitor's expression. The provider reads an expression back with every part
(`ce/anomaly_monitor.go`), and replaces the monitor if the text differs."""

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


class AwsAnomaliesArgs(TypedDict):
    """The least size of reported unusual costs."""

    usd: float
    """The least excess over usual costs in dollars, 1 to 1,000,000."""
    monitor_arn: NotRequired[str]
    """ARN of a monitor that exists, such as the one over all services that AWS makes in new accounts. Default: a new
    one over the teams that have budgets."""


class AwsSpendingArgs(TypedDict):
    """The watch over the account's spending, and its recipients."""

    emails: NotRequired[list[str]]
    """Recipients, at most 10. Default: only the topic."""
    topic_arn: NotRequired[str]
    """ARN of an SNS topic that gets the messages; its policy has to let `budgets.amazonaws.com` and
    `costalerts.amazonaws.com` publish. Default: only the emails."""
    budgets: NotRequired[list[TeamBudgetArgs]]
    """The budgets, one for each team. Default: none."""
    anomalies: NotRequired[AwsAnomaliesArgs]
    """Whether unusual costs are reported. Default: they are not."""
    allocation_tags: NotRequired[list[str]]
    """Tags that the bill is split by: budgets see a tag only once it is active. Only the account that pays can activate
    them, and only once a resource has carried them for up to a day. Default: none."""


def check_spending(problems: Problems, settings: AwsSpendingArgs) -> None:
    """Add a problem for each mistake in the watched spending."""
    emails, teams = settings.get("emails", []), settings.get("budgets", [])
    problems.need(len(emails) <= MOST_EMAILS, "emails", f"at most {MOST_EMAILS}; {len(emails)} are given")
    for index, email in enumerate(emails):
        problems.need(bool(_EMAIL.fullmatch(email)), f"emails[{index}]", f"{shown(email)} is no address")
    arns.check_arn(problems, settings, "topic_arn", "sns", "")
    watched = bool(teams) or "anomalies" in settings
    notified = bool(emails) or "topic_arn" in settings
    problems.need(notified or not watched, "", "emails or topicArn: nobody would be told")
    check_budgets(problems, teams)
    if "anomalies" in settings:
        _check_anomalies(problems.at("anomalies"), settings["anomalies"], len(teams))
    tags = settings.get("allocation_tags", [])
    for index, tag in enumerate(tags):
        problems.need(bool(tag) and tag not in tags[:index], f"allocationTags[{index}]", f"{shown(tag)} is no new tag")


def _check_anomalies(problems: Problems, settings: AwsAnomaliesArgs, teams: int) -> None:
    problems.number(settings["usd"], "usd", 1, 1_000_000)
    arns.check_arn(problems, settings, "monitor_arn", "ce", "anomalymonitor/")
    if "monitor_arn" not in settings:
        fits = 1 <= teams <= MOST_TEAMS
        problems.need(fits, "", f"a new monitor looks at the teams of 1 to {MOST_TEAMS} budgets: or give monitorArn")


def add_spending(parent: pulumi.Resource, name: str, settings: AwsSpendingArgs, tags: dict[str, str]) -> None:
    """Declare the budgets, the monitor with its recipients, and the tags."""
    child = pulumi.ResourceOptions(parent=parent)
    for budget in settings.get("budgets", []):
        _budget(f"{name}-{budget_suffix(budget['team'])}", name, budget, settings, tags, child)
    for tag in settings.get("allocation_tags", []):
        costexplorer.CostAllocationTag(f"{name}-tag-{tag}", tag_key=tag, status="Active", opts=child)
    if "anomalies" in settings:
        _anomalies(name, settings, settings["anomalies"], tags, child)


def _budget(
    called: str,
    name: str,
    budget: TeamBudgetArgs,
    settings: AwsSpendingArgs,
    tags: dict[str, str],
    child: pulumi.ResourceOptions,
) -> None:
    topic = [settings["topic_arn"]] if "topic_arn" in settings else []
    budgets.Budget(
        called,
        name=f"{name}-{budget['team']}",
        budget_type="COST",
        time_unit="MONTHLY",
        limit_amount=f"{budget['usd_per_month']:.2f}",
        limit_unit="USD",
        # A tag that users set is known as `user:` to the bill (AWS Cost Management User Guide, "Budget filters").
        cost_filters=[{"name": "TagKeyValue", "values": [f"user:Team${budget['team']}"]}],
        notifications=[
            {
                "comparison_operator": "GREATER_THAN",
                "notification_type": kind,
                "threshold": percent,
                "threshold_type": "PERCENTAGE",
                "subscriber_email_addresses": settings.get("emails", []),
                "subscriber_sns_topic_arns": topic,
            }
            for kind, percent in WARNINGS
        ],
        tags=tags,
        opts=child,
    )


def _anomalies(
    name: str,
    settings: AwsSpendingArgs,
    anomalies: AwsAnomaliesArgs,
    tags: dict[str, str],
    child: pulumi.ResourceOptions,
) -> None:
    monitor: pulumi.Input[str] | None = anomalies.get("monitor_arn")
    if monitor is None:
        teams = [budget["team"] for budget in settings.get("budgets", [])]
        created = costexplorer.AnomalyMonitor(
            f"{name}-anomalies",
            name=f"{name}-teams",
            monitor_type="CUSTOM",
            monitor_specification=json.dumps(UNSET | {"Tags": {"Key": "Team", "MatchOptions": None, "Values": teams}}),
            tags=tags,
            opts=child,
        )
        monitor = created.arn
    costexplorer.AnomalySubscription(
        f"{name}-anomalies-told",
        name=f"{name}-anomalies",
        # Topics get messages immediately, people once a day (AWS Cost Explorer API Reference, `AnomalySubscription`).
        frequency="IMMEDIATE" if "topic_arn" in settings else "DAILY",
        monitor_arn_lists=[monitor],
        subscribers=_subscribers(settings),
        threshold_expression={
            "dimension": {
                "key": "ANOMALY_TOTAL_IMPACT_ABSOLUTE",
                "match_options": ["GREATER_THAN_OR_EQUAL"],
                "values": [str(float(anomalies["usd"]))],
            }
        },
        tags=tags,
        opts=child,
    )


def _subscribers(settings: AwsSpendingArgs) -> Sequence[costexplorer.AnomalySubscriptionSubscriberArgsDict]:
    """Return the topic alone if there is one: a subscription that reports immediately takes no emails."""
    if "topic_arn" in settings:
        return [{"type": "SNS", "address": settings["topic_arn"]}]
    return [{"type": "EMAIL", "address": email} for email in settings.get("emails", [])]
