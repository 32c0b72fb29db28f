"""Stands in for DescribeInstanceStatus: the state and the health of instances, by its documented filters.

An instance here is never impaired and has no scheduled events, so that filters of events select nothing. Its checks
have passed once it runs. EC2 API Reference, "DescribeInstanceStatus": without `IncludeAllInstances` the answer has
running instances only.
"""

from collections.abc import Callable, Iterable
from typing import Any

from everspot_local.aws import account
from everspot_local.aws.ec2.exceptions import UnsupportedHere

RUNNING = "running"
EVENTS = "event."


def status_document(instance: Any) -> dict[str, Any]:
    """Return EC2's document of one instance."""
    health = _health(instance)
    zone = str(instance.availability_zone)
    summary = {"Status": health, "Details": [{"Name": "reachability", "Status": _reachability(health)}]}
    return {
        "InstanceId": instance.id,
        "AvailabilityZone": zone,
        "AvailabilityZoneId": account.current().market.zone_ids.get(zone, ""),
        "InstanceState": {"Code": instance.state_code, "Name": instance.state},
        "InstanceStatus": summary,
        "SystemStatus": summary,
        "AttachedEbsStatus": summary,
    }


def select(instances: Iterable[Any], filters: dict[str, list[str]]) -> list[Any]:
    """Return the instances that match every filter.

    Raises:
        UnsupportedHere: for a filter that EC2 has and the local cloud does not.
    """
    if any(name.startswith(EVENTS) for name in filters):
        return []
    for name in filters:
        if name not in _VALUES:
            raise UnsupportedHere(f"the filter '{name}' of DescribeInstanceStatus")
    return [i for i in instances if all(_VALUES[name](i) in values for name, values in filters.items())]


def _health(instance: Any) -> str:
    return "ok" if instance.state == RUNNING else "not-applicable"


def _reachability(health: str) -> str:
    return "passed" if health == "ok" else "insufficient-data"


_VALUES: dict[str, Callable[[Any], str]] = {
    "availability-zone": lambda instance: str(instance.availability_zone),
    "availability-zone-id": lambda instance: status_document(instance)["AvailabilityZoneId"],
    "instance-state-code": lambda instance: str(instance.state_code),
    "instance-state-name": lambda instance: str(instance.state),
    **{f"{kind}-status.status": _health for kind in ("instance", "system", "attached-ebs")},
    **{f"{kind}-status.reachability": lambda i: _reachability(_health(i)) for kind in ("instance", "system")},
}
