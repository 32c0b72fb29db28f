"""The monitors and budgets of an account's spending that a bootstrap declares on AWS."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from everspot import AwsBootstrap
from everspot.common import BadComponentInputs

Declare = Callable[..., tuple[Any, dict[str, Any]]]
TAGS = {"Project": "vision", "Team": "ml", "Environment": "bootstrap"}


def bootstrap(declare: Declare, spending: Any) -> Any:
    args: Any = {"tags": TAGS, "repository": {"name": "Org/fleets"}, "spending": spending}
    return declare(lambda: {"state": AwsBootstrap("everspot-bootstrap", args).state_url})[0]


SPENDING: Any = {
    "emails": ["a@example.com"],
    "budgets": [{"team": "research", "usd_per_month": 1500.0}, {"team": "vision lab", "usd_per_month": 20.5}],
    "anomalies": {"usd": 50.0},
    "allocation_tags": ["Team", "ModelVersion"],
}


def test_spending_is_watched_by_team(declare: Declare) -> None:
    recorder = bootstrap(declare, SPENDING)
    budget = recorder.inputs("everspot-bootstrap-budget-research")
    assert (budget["limitAmount"], budget["limitUnit"], budget["timeUnit"]) == ("1500.00", "USD", "MONTHLY")
    assert budget["costFilters"] == [{"name": "TagKeyValue", "values": ["user:Team$research"]}]
    assert [(n["notificationType"], n["threshold"]) for n in budget["notifications"]] == [
        ("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100),
    ]  # fmt: skip
    assert all(n["subscriberEmailAddresses"] == ["a@example.com"] for n in budget["notifications"])
    monitor = json.loads(recorder.inputs("everspot-bootstrap-anomalies")["monitorSpecification"])
    assert (monitor["Tags"]["Key"], monitor["Tags"]["Values"]) == ("Team", ["research", "vision lab"])
    subscription = recorder.inputs("everspot-bootstrap-anomalies-told")
    assert (subscription["frequency"], subscription["subscribers"]) == (
        "DAILY",
        [{"type": "EMAIL", "address": "a@example.com"}],
    )
    assert subscription["thresholdExpression"]["dimension"]["values"] == ["50.0"]
    tags = recorder.of_type("aws:costexplorer/costAllocationTag:CostAllocationTag")
    assert {tag.inputs["tagKey"] for tag in tags} == {"Team", "ModelVersion"}


def test_a_topic_is_told_at_once_and_a_monitor_that_exists_is_used(declare: Declare) -> None:
    topic, monitor = "arn:aws:sns:us-east-1:123456789012:costs", "arn:aws:ce::123456789012:anomalymonitor/1-2"
    spending = {"topic_arn": topic, "anomalies": {"usd": 10, "monitor_arn": monitor}}
    recorder = bootstrap(declare, spending)
    assert recorder.of_type("aws:costexplorer/anomalyMonitor:AnomalyMonitor") == []
    subscription = recorder.inputs("everspot-bootstrap-anomalies-told")
    assert (subscription["frequency"], subscription["monitorArnLists"]) == ("IMMEDIATE", [monitor])
    assert subscription["subscribers"] == [{"type": "SNS", "address": topic}]


def test_teams_whose_budgets_would_be_one_resource_are_refused(declare: Declare) -> None:
    teams = ["ml a", "ml b", "ml_a", "ml b"]
    budgets = [{"team": team, "usd_per_month": 10.0} for team in teams]
    with pytest.raises(BadComponentInputs) as refused:
        bootstrap(declare, {"emails": ["a@example.com"], "budgets": budgets})
    assert [problem["reason"] for problem in refused.value.errors] == [
        "'ml_a' and 'ml a' differ only in spaces and underscores: rename one of them",
        "'ml b' has a budget already",
    ]
    assert [problem["property_path"] for problem in refused.value.errors] == [
        "spending.budgets[2].team",
        "spending.budgets[3].team",
    ]
