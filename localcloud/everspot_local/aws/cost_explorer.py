"""Stands in for what moto's Cost Explorer lacks: monitors of unusual costs, who is told, and cost tags.

It looks at no costs and tells nobody. A tag is known to the bill once an instance that is still told of has carried it
for as long as the market's delay `billed` says; AWS needs a charge with the tag, and says up to 24 hours (Billing User
Guide, "Activating user-defined cost allocation tags"). The words of the refusals are those that people met: AWS's
reference names the codes alone.
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
    asked = json.loads(self.body)
    given, held = asked["AnomalyMonitor"], _kept(self, "monitors")
    if given["MonitorType"] == "DIMENSIONAL":
        dimension = given.get("MonitorDimension")
        _need(dimension, "MonitorDimension is required for a DIMENSIONAL monitor")
        same = [each for each in held.values() if each.get("MonitorDimension") == dimension]
        _need(not same or not strict(), "Limit exceeded on dimensional spend monitor creation")
    else:
        _need(given.get("MonitorSpecification"), "MonitorSpecification is required for a CUSTOM monitor")
        values = (given["MonitorSpecification"].get("Tags") or {}).get("Values") or []
        _need(len(values) <= MOST_VALUES or not strict(), f"A monitor looks at {MOST_VALUES} values at most")
    arn = _named("anomalymonitor")
    held[arn] = {**given, "MonitorArn": arn, "CreationDate": _now(), "LastUpdatedDate": _now()}
    self.ce_backend.tag_resource(arn, asked.get("ResourceTags") or [])
    return json.dumps({"MonitorArn": arn})


def get_anomaly_monitors(self: CostExplorerResponse) -> str:
    """GetAnomalyMonitors, all at once.

    Raises:
        Refused: UnknownMonitorException.
    """
    return json.dumps({"AnomalyMonitors": _asked(self, "monitors", "MonitorArnList", "UnknownMonitorException")})


def update_anomaly_monitor(self: CostExplorerResponse) -> str:
    """UpdateAnomalyMonitor: its name, which is all that can change.

    Raises:
        Refused: UnknownMonitorException.
    """
    asked = json.loads(self.body)
    found = _one(self, "monitors", asked["MonitorArn"], "UnknownMonitorException")
    found |= {"MonitorName": asked.get("MonitorName") or found["MonitorName"], "LastUpdatedDate": _now()}
    return json.dumps({"MonitorArn": found["MonitorArn"]})


def delete_anomaly_monitor(self: CostExplorerResponse) -> str:
    """DeleteAnomalyMonitor.

    Raises:
        Refused: UnknownMonitorException.
    """
    found = _one(self, "monitors", json.loads(self.body)["MonitorArn"], "UnknownMonitorException")
    del _kept(self, "monitors")[found["MonitorArn"]]
    return "{}"


def create_anomaly_subscription(self: CostExplorerResponse) -> str:
    """CreateAnomalySubscription. Whether the topic lets AWS publish is not looked at, as AWS does not either.

    Raises:
        Refused: ValidationException, or UnknownMonitorException.
    """
    asked = json.loads(self.body)
    given = dict(asked["AnomalySubscription"])
    arn = _named("anomalysubscription")
    made = {"AccountId": ACCOUNT, **given, "SubscriptionArn": arn}
    _check_subscription(self, made)
    _kept(self, "subscriptions")[arn] = made
    self.ce_backend.tag_resource(arn, asked.get("ResourceTags") or [])
    return json.dumps({"SubscriptionArn": arn})


def get_anomaly_subscriptions(self: CostExplorerResponse) -> str:
    """GetAnomalySubscriptions, all at once.

    Raises:
        Refused: UnknownSubscriptionException.
    """
    found = _asked(self, "subscriptions", "SubscriptionArnList", "UnknownSubscriptionException")
    return json.dumps({"AnomalySubscriptions": found})


def update_anomaly_subscription(self: CostExplorerResponse) -> str:
    """UpdateAnomalySubscription: all but its account.

    Raises:
        Refused: UnknownSubscriptionException, ValidationException, or UnknownMonitorException.
    """
    asked = json.loads(self.body)
    found = _one(self, "subscriptions", asked["SubscriptionArn"], "UnknownSubscriptionException")
    changed = {**found, **{name: value for name, value in asked.items() if value is not None}}
    _check_subscription(self, changed)
    found.update(changed)
    return json.dumps({"SubscriptionArn": found["SubscriptionArn"]})


def delete_anomaly_subscription(self: CostExplorerResponse) -> str:
    """DeleteAnomalySubscription.

    Raises:
        Refused: UnknownSubscriptionException.
    """
    named = json.loads(self.body)["SubscriptionArn"]
    found = _one(self, "subscriptions", named, "UnknownSubscriptionException")
    del _kept(self, "subscriptions")[found["SubscriptionArn"]]
    return "{}"


def list_cost_allocation_tags(self: CostExplorerResponse) -> str:
    """ListCostAllocationTags: those that the bill knows, all at once."""
    asked, active = json.loads(self.body), _kept(self, "active")
    found = [
        {"TagKey": key, "Type": "UserDefined", "Status": "Active" if key in active else "Inactive"}
        for key in sorted(_billed() | set(active))
        if key in (asked.get("TagKeys") or [key])
    ]
    wanted = asked.get("Status")
    return json.dumps({"CostAllocationTags": [each for each in found if wanted in (None, each["Status"])]})


def update_cost_allocation_tags_status(self: CostExplorerResponse) -> str:
    """UpdateCostAllocationTagsStatus, of tags that the bill knows.

    Raises:
        Refused: ValidationException, naming those that it does not know.
    """
    entries, active = json.loads(self.body)["CostAllocationTagsStatus"], _kept(self, "active")
    _need(1 <= len(entries) <= MOST_TAGS, f"1 to {MOST_TAGS} tags can be changed at once")
    known = _billed() | set(active)
    unknown = [each["TagKey"] for each in entries if each["TagKey"] not in known]
    told = f"Failed to update Cost Allocation Tag: Tag keys not found: {','.join(unknown)}"
    _need(not unknown or not strict(), told)
    for each in entries:
        if each["Status"] == "Active":
            active[each["TagKey"]] = {}
        else:
            active.pop(each["TagKey"], None)
    return json.dumps({"Errors": []})


def _check_subscription(handler: CostExplorerResponse, made: Document) -> None:
    given = made.get("Threshold") is not None or made.get("ThresholdExpression") is not None
    _need(given, "Threshold and ThresholdExpression cannot both be null")
    _need(made.get("Subscribers"), "Subscribers cannot be empty")
    kinds = {each["Type"] for each in made["Subscribers"]}
    if made["Frequency"] == "IMMEDIATE":
        _need(kinds == {"SNS"}, "Immediate frequencies only support SNSTopic subscriptions")
    else:
        _need(kinds == {"EMAIL"}, "Daily or weekly frequencies only support Email subscriptions")
    for arn in made["MonitorArnList"]:
        _one(handler, "monitors", arn, "UnknownMonitorException")


def _billed() -> set[str]:
    """Return the tags that instances, also ended ones, have carried for long enough."""
    here = account.current()
    until = here.market.clock.now() - here.market.delays.billed
    region = ec2_backends[ACCOUNT][here.region]
    instances = [each for made in region.reservations.values() for each in made.instances]
    old = [each for each in instances if each.launch_time <= until]
    return {tag["key"] for each in old for tag in each.get_tags() if not tag["key"].startswith("aws:")}


def _kept(handler: CostExplorerResponse, kind: str) -> dict[str, Document]:
    """Return what is stored beside moto's own state; it is deleted when moto is reset."""
    found: dict[str, Document] = handler.ce_backend.__dict__.setdefault(f"everspot_{kind}", {})
    return found


def _asked(handler: CostExplorerResponse, kind: str, parameter: str, code: str) -> list[Document]:
    asked = json.loads(handler.body).get(parameter)
    return [_one(handler, kind, arn, code) for arn in asked] if asked else list(_kept(handler, kind).values())


def _one(handler: CostExplorerResponse, kind: str, arn: str, code: str) -> Document:
    found = _kept(handler, kind).get(arn)
    if found is None:
        raise Refused(code, f"{arn} does not exist")
    return found


def _named(kind: str) -> str:
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
