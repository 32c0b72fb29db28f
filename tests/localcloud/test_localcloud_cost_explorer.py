"""Cost Explorer, as far as a bootstrap declares it: anomaly monitors, subscribers, and cost allocation tags."""

from datetime import timedelta
from typing import Any

import pytest
from localcloud_refusals import outcome, refused

TOPIC = {"Type": "SNS", "Address": "arn:aws:sns:us-east-1:123456789012:costs"}
MAIL = {"Type": "EMAIL", "Address": "a@example.com"}
OVER = {"Dimensions": {"Key": "ANOMALY_TOTAL_IMPACT_ABSOLUTE", "MatchOptions": ["GREATER_THAN_OR_EQUAL"],
                       "Values": ["50.0"]}}  # fmt: skip
NONE = "arn:aws:ce::123456789012:anomalymonitor/00000000-0000-0000-0000-000000000000"


@pytest.fixture
def ce(kit: Any) -> Any:
    return kit.client("ce")


def teams(*values: str) -> dict[str, Any]:
    specification = {"Tags": {"Key": "Team", "Values": list(values)}}
    return {"MonitorName": "teams", "MonitorType": "CUSTOM", "MonitorSpecification": specification}


def test_a_monitor_and_its_subscription_are_made_changed_and_deleted(ce: Any) -> None:
    tags = [{"Key": "Team", "Value": "ml"}]
    monitor = ce.create_anomaly_monitor(AnomalyMonitor=teams("ml"), ResourceTags=tags)["MonitorArn"]
    ce.update_anomaly_monitor(MonitorArn=monitor, MonitorName="others")
    (changed_monitor,) = ce.get_anomaly_monitors(MonitorArnList=[monitor])["AnomalyMonitors"]
    assert (changed_monitor["MonitorName"], changed_monitor["MonitorSpecification"]["Tags"]["Values"]) == (
        "others",
        ["ml"],
    )
    assert ce.list_tags_for_resource(ResourceArn=monitor)["ResourceTags"] == tags
    subscription = {"SubscriptionName": "told", "MonitorArnList": [monitor], "ThresholdExpression": OVER}
    request = {"AnomalySubscription": {**subscription, "Frequency": "DAILY", "Subscribers": [MAIL]}}
    arn = ce.create_anomaly_subscription(**request)["SubscriptionArn"]
    with refused("ValidationException", "Daily or weekly frequencies only support Email subscriptions"):
        ce.update_anomaly_subscription(SubscriptionArn=arn, Subscribers=[TOPIC])
    ce.update_anomaly_subscription(SubscriptionArn=arn, Subscribers=[TOPIC], Frequency="IMMEDIATE")
    (stored,) = ce.get_anomaly_subscriptions()["AnomalySubscriptions"]
    assert (stored["Subscribers"], stored["Frequency"], stored["ThresholdExpression"]) == ([TOPIC], "IMMEDIATE", OVER)
    ce.delete_anomaly_subscription(SubscriptionArn=arn)
    ce.delete_anomaly_monitor(MonitorArn=monitor)
    assert outcome(ce.get_anomaly_monitors, MonitorArnList=[monitor]) == "UnknownMonitorException"
    assert outcome(ce.delete_anomaly_monitor, MonitorArn=monitor) == "UnknownMonitorException"
    assert outcome(ce.get_anomaly_subscriptions, SubscriptionArnList=[arn]) == "UnknownSubscriptionException"


def test_an_account_has_one_monitor_of_a_dimension(ce: Any) -> None:
    services = {"MonitorName": "a", "MonitorType": "DIMENSIONAL", "MonitorDimension": "SERVICE"}
    ce.create_anomaly_monitor(AnomalyMonitor=services)
    with refused("ValidationException", "Limit exceeded on dimensional spend monitor creation"):
        ce.create_anomaly_monitor(AnomalyMonitor={**services, "MonitorName": "b"})
    assert outcome(ce.create_anomaly_monitor, AnomalyMonitor=teams("a")) == "ok"
    many = teams(*(f"t{n}" for n in range(11)))
    assert outcome(ce.create_anomaly_monitor, AnomalyMonitor=many) == "ValidationException"
    with refused("ValidationException", "enum value set"):
        ce.create_anomaly_monitor(AnomalyMonitor={**services, "MonitorDimension": "REGION"})


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"Frequency": "IMMEDIATE"}, "ValidationException", "Immediate frequencies only support SNSTopic"),
        ({"Subscribers": [TOPIC]}, "ValidationException", "only support Email subscriptions"),
        ({"Subscribers": []}, "ValidationException", "empty"),
        ({"ThresholdExpression": None}, "ValidationException", "cannot both be null"),
        ({"MonitorArnList": [NONE]}, "UnknownMonitorException", "does not exist"),
    ],
)
def test_a_subscription_that_aws_does_not_take(ce: Any, changes: dict[str, Any], code: str, words: str) -> None:
    monitor = ce.create_anomaly_monitor(AnomalyMonitor=teams("ml"))["MonitorArn"]
    subscription = {"SubscriptionName": "told", "MonitorArnList": [monitor], "ThresholdExpression": OVER,
             "Frequency": "DAILY", "Subscribers": [MAIL], **changes}  # fmt: skip
    with refused(code, words):
        ce.create_anomaly_subscription(AnomalySubscription={k: v for k, v in subscription.items() if v is not None})


def test_a_tag_can_be_activated_a_day_after_its_first_use(kit: Any, ce: Any) -> None:
    tagged = [{"ResourceType": "instance", "Tags": [{"Key": "Team", "Value": "ml"}]}]
    activation = {"CostAllocationTagsStatus": [{"TagKey": "Team", "Status": "Active"}]}
    with kit.still() as later:
        kit.run(TagSpecifications=tagged)
        with refused("ValidationException", "Failed to update Cost Allocation Tag: Tag keys not found: Team"):
            ce.update_cost_allocation_tags_status(**activation)
        assert ce.list_cost_allocation_tags()["CostAllocationTags"] == []
        later(timedelta(hours=24).total_seconds())
        (tag,) = ce.list_cost_allocation_tags(TagKeys=["Team"])["CostAllocationTags"]
        assert tag["Status"] == "Inactive"
        assert ce.update_cost_allocation_tags_status(**activation)["Errors"] == []
        (tag,) = ce.list_cost_allocation_tags(Status="Active")["CostAllocationTags"]
        assert (tag["TagKey"], tag["Type"]) == ("Team", "UserDefined")
        activation["CostAllocationTagsStatus"][0]["Status"] = "Inactive"
        ce.update_cost_allocation_tags_status(**activation)
        assert ce.list_cost_allocation_tags(Status="Active")["CostAllocationTags"] == []
