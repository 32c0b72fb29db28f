"""Adds to moto's Cost Explorer what it lacks: anomaly monitors, anomaly subscriptions and cost allocation tags.

It examines no costs and notifies nobody. A tag becomes billable once an instance has carried it for the market's delay
`billed`; the instance must still be described. AWS needs a charge with the tag, and documents up to 24 hours (Billing
User Guide, "Activating user-defined cost allocation tags"). The texts of the refusals come from users' reports, since
AWS's reference documents only the codes.
"""

import json
from typing import Any
from uuid import uuid4

from moto.ce.responses import CostExplorerResponse
from moto.ec2.models import ec2_backends

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.refusals import Refused
from everspot_local.aws.strict import strict
from everspot_local.market.clock import stamp

MOST_TAGS, MOST_VALUES = 20, 10
"""Tags of one UpdateCostAllocationTagsStatus, and values that a customer's own monitor looks at."""

Document = dict[str, Any]


def create_anomaly_monitor(self: CostExplorerResponse) -> str:
    """CreateAnomalyMonitor: one over AWS's own dimensions in an account, and any number of a customer's own.

    Raises:
        Refused: ValidationException.
    """
    request = json.loads(self.body)
    monitor, monitors = request["AnomalyMonitor"], _stored_documents(self, "monitors")
    if monitor["MonitorType"] == "DIMENSIONAL":
        dimension = monitor.get("MonitorDimension")
        _need(dimension, "MonitorDimension is required for a DIMENSIONAL monitor")
        same = [each for each in monitors.values() if each.get("MonitorDimension") == dimension]
        _need(not same or not strict(), "Limit exceeded on dimensional spend monitor creation")
    else:
        _need(monitor.get("MonitorSpecification"), "MonitorSpecification is required for a CUSTOM monitor")
        values = (monitor["MonitorSpecification"].get("Tags") or {}).get("Values") or []
        _need(len(values) <= MOST_VALUES or not strict(), f"A monitor looks at {MOST_VALUES} values at most")
    arn = _new_arn("anomalymonitor")
    monitors[arn] = {**monitor, "MonitorArn": arn, "CreationDate": _now(), "LastUpdatedDate": _now()}
    self.ce_backend.tag_resource(arn, request.get("ResourceTags") or [])
    return json.dumps({"MonitorArn": arn})


def get_anomaly_monitors(self: CostExplorerResponse) -> str:
    """GetAnomalyMonitors, in a single page.

    Raises:
        Refused: UnknownMonitorException.
    """
    return json.dumps(
        {"AnomalyMonitors": _requested_documents(self, "monitors", "MonitorArnList", "UnknownMonitorException")}
    )


def update_anomaly_monitor(self: CostExplorerResponse) -> str:
    """UpdateAnomalyMonitor: its name, which is all that can change.

    Raises:
        Refused: UnknownMonitorException.
    """
    request = json.loads(self.body)
    monitor = _find_document(self, "monitors", request["MonitorArn"], "UnknownMonitorException")
    monitor |= {"MonitorName": request.get("MonitorName") or monitor["MonitorName"], "LastUpdatedDate": _now()}
    return json.dumps({"MonitorArn": monitor["MonitorArn"]})


def delete_anomaly_monitor(self: CostExplorerResponse) -> str:
    """DeleteAnomalyMonitor.

    Raises:
        Refused: UnknownMonitorException.
    """
    monitor = _find_document(self, "monitors", json.loads(self.body)["MonitorArn"], "UnknownMonitorException")
    del _stored_documents(self, "monitors")[monitor["MonitorArn"]]
    return "{}"


def create_anomaly_subscription(self: CostExplorerResponse) -> str:
    """CreateAnomalySubscription. Whether the topic lets AWS publish is not looked at, as AWS does not either.

    Raises:
        Refused: ValidationException, or UnknownMonitorException.
    """
    request = json.loads(self.body)
    subscription_fields = dict(request["AnomalySubscription"])
    arn = _new_arn("anomalysubscription")
    subscription = {"AccountId": ACCOUNT, **subscription_fields, "SubscriptionArn": arn}
    _check_subscription(self, subscription)
    _stored_documents(self, "subscriptions")[arn] = subscription
    self.ce_backend.tag_resource(arn, request.get("ResourceTags") or [])
    return json.dumps({"SubscriptionArn": arn})


def get_anomaly_subscriptions(self: CostExplorerResponse) -> str:
    """GetAnomalySubscriptions, in a single page.

    Raises:
        Refused: UnknownSubscriptionException.
    """
    subscriptions = _requested_documents(self, "subscriptions", "SubscriptionArnList", "UnknownSubscriptionException")
    return json.dumps({"AnomalySubscriptions": subscriptions})


def update_anomaly_subscription(self: CostExplorerResponse) -> str:
    """UpdateAnomalySubscription: all but its account.

    Raises:
        Refused: UnknownSubscriptionException, ValidationException, or UnknownMonitorException.
    """
    request = json.loads(self.body)
    subscription = _find_document(self, "subscriptions", request["SubscriptionArn"], "UnknownSubscriptionException")
    changed = {**subscription, **{name: value for name, value in request.items() if value is not None}}
    _check_subscription(self, changed)
    subscription.update(changed)
    return json.dumps({"SubscriptionArn": subscription["SubscriptionArn"]})


def delete_anomaly_subscription(self: CostExplorerResponse) -> str:
    """DeleteAnomalySubscription.

    Raises:
        Refused: UnknownSubscriptionException.
    """
    arn = json.loads(self.body)["SubscriptionArn"]
    subscription = _find_document(self, "subscriptions", arn, "UnknownSubscriptionException")
    del _stored_documents(self, "subscriptions")[subscription["SubscriptionArn"]]
    return "{}"


def list_cost_allocation_tags(self: CostExplorerResponse) -> str:
    """ListCostAllocationTags: all billable tags, in a single page."""
    request, active = json.loads(self.body), _stored_documents(self, "active")
    tags = [
        {"TagKey": key, "Type": "UserDefined", "Status": "Active" if key in active else "Inactive"}
        for key in sorted(_billed() | set(active))
        if key in (request.get("TagKeys") or [key])
    ]
    status_filter = request.get("Status")
    return json.dumps({"CostAllocationTags": [each for each in tags if status_filter in (None, each["Status"])]})


def update_cost_allocation_tags_status(self: CostExplorerResponse) -> str:
    """UpdateCostAllocationTagsStatus, of billable tags.

    Raises:
        Refused: ValidationException, naming the unknown tags.
    """
    entries, active = json.loads(self.body)["CostAllocationTagsStatus"], _stored_documents(self, "active")
    _need(1 <= len(entries) <= MOST_TAGS, f"1 to {MOST_TAGS} tags can be changed at once")
    billable_keys = _billed() | set(active)
    unknown = [each["TagKey"] for each in entries if each["TagKey"] not in billable_keys]
    message = f"Failed to update Cost Allocation Tag: Tag keys not found: {','.join(unknown)}"
    _need(not unknown or not strict(), message)
    for each in entries:
        if each["Status"] == "Active":
            active[each["TagKey"]] = {}
        else:
            active.pop(each["TagKey"], None)
    return json.dumps({"Errors": []})


def _check_subscription(handler: CostExplorerResponse, subscription: Document) -> None:
    has_threshold = subscription.get("Threshold") is not None or subscription.get("ThresholdExpression") is not None
    _need(has_threshold, "Threshold and ThresholdExpression cannot both be null")
    _need(subscription.get("Subscribers"), "Subscribers cannot be empty")
    kinds = {each["Type"] for each in subscription["Subscribers"]}
    if subscription["Frequency"] == "IMMEDIATE":
        _need(kinds == {"SNS"}, "Immediate frequencies only support SNSTopic subscriptions")
    else:
        _need(kinds == {"EMAIL"}, "Daily or weekly frequencies only support Email subscriptions")
    for arn in subscription["MonitorArnList"]:
        _find_document(handler, "monitors", arn, "UnknownMonitorException")


def _billed() -> set[str]:
    """Return the tags that instances, also ended ones, have carried for long enough."""
    here = account.current()
    until = here.market.clock.now() - here.market.delays.billed
    region = ec2_backends[ACCOUNT][here.region]
    instances = [each for reservation in region.reservations.values() for each in reservation.instances]
    old = [each for each in instances if each.launch_time <= until]
    return {tag["key"] for each in old for tag in each.get_tags() if not tag["key"].startswith("aws:")}


def _stored_documents(handler: CostExplorerResponse, kind: str) -> dict[str, Document]:
    """Return the documents that are stored beside moto's own state; they are deleted when moto is reset."""
    documents: dict[str, Document] = handler.ce_backend.__dict__.setdefault(f"everspot_{kind}", {})
    return documents


def _requested_documents(handler: CostExplorerResponse, kind: str, parameter: str, code: str) -> list[Document]:
    arns = json.loads(handler.body).get(parameter)
    return (
        [_find_document(handler, kind, arn, code) for arn in arns]
        if arns
        else list(_stored_documents(handler, kind).values())
    )


def _find_document(handler: CostExplorerResponse, kind: str, arn: str, code: str) -> Document:
    document = _stored_documents(handler, kind).get(arn)
    if document is None:
        raise Refused(code, f"{arn} does not exist")
    return document


def _new_arn(kind: str) -> str:
    return f"arn:aws:ce::{ACCOUNT}:{kind}/{uuid4()}"


def _now() -> str:
    return stamp(account.current().market.clock.now())


def _need(right: Any, message: str) -> None:
    if not right:
        raise Refused("ValidationException", message)


METHODS = (
    create_anomaly_monitor,
    get_anomaly_monitors,
    update_anomaly_monitor,
    delete_anomaly_monitor,
    create_anomaly_subscription,
    get_anomaly_subscriptions,
    update_anomaly_subscription,
    delete_anomaly_subscription,
    list_cost_allocation_tags,
    update_cost_allocation_tags_status,
)
"""Each is named as its call, which is how moto finds it."""
