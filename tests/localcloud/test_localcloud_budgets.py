"""AWS Budgets, as far as the provider reads a budget back: subscribers and tags."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

ACCOUNT = "123456789012"


def test_a_budget_keeps_whom_it_tells_and_its_tags(kit: Any) -> None:
    budgets = kit.client("budgets")
    limit = {"Amount": "10", "Unit": "USD"}
    budget = {"BudgetName": "team", "BudgetLimit": limit, "TimeUnit": "MONTHLY", "BudgetType": "COST"}
    notification = {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80.0}
    subscribers = [{"SubscriptionType": "EMAIL", "Address": "a@example.com"}]
    tags = [{"Key": "Team", "Value": "team"}]
    creation_options = {
        "NotificationsWithSubscribers": [{"Notification": notification, "Subscribers": subscribers}],
        "ResourceTags": tags,
    }
    budgets.create_budget(AccountId=ACCOUNT, Budget=budget, **creation_options)
    subscriber_query = {"AccountId": ACCOUNT, "BudgetName": "team", "Notification": notification}
    assert budgets.describe_subscribers_for_notification(**subscriber_query)["Subscribers"] == subscribers
    arn = f"arn:aws:budgets::{ACCOUNT}:budget/team"
    assert budgets.list_tags_for_resource(ResourceARN=arn)["ResourceTags"] == tags
    for call, words in (
        (
            budgets.describe_subscribers_for_notification,
            {**subscriber_query, "Notification": {**notification, "Threshold": 90.0}},
        ),
        (budgets.list_tags_for_resource, {"ResourceARN": f"{arn}-other"}),
    ):
        with pytest.raises(ClientError) as refused:
            call(**words)
        assert refused.value.response["Error"]["Code"] == "NotFoundException"
