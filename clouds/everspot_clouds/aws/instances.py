"""The cluster's instances as EC2 describes them."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from everspot_core.capacity.launching import LaunchError, LaunchTrouble, has_mark
from everspot_core.jobs.records import Market, Role

from everspot_clouds.aws import errors
from everspot_clouds.aws.rules import CLUSTER_TAG, FLEET_TAG, GROUP_TAG, LAUNCH_TAG, ROLE_TAG, STORE_TAG
from everspot_clouds.base import CloudInstance, Phase

KARPENTER = ("karpenter.sh/", "karpenter.k8s.aws/")
"""Beginnings of the keys of tags that Karpenter gives what it makes (Karpenter, "NodeClasses", spec.tags)."""

Ownership = Callable[[Mapping[str, str]], bool | None]
"""Returns whether a resource with the cluster's tag is this cluster's, by its tags; None: they do not say."""

INTERRUPTED = "Server.SpotInstanceTermination"
_CLIENT_ERROR = "Client.InternalError"
_FAILURES = ("InternalError", "InsufficientInstanceCapacity", "VolumeLimitExceeded", "Invalid")
"""Beginnings of the codes of instances that EC2 ended for an error, without `Client.` and `Server.` (API reference,
"StateReason"; EC2 User Guide, "Instance terminates immediately")."""
_PHASES = {
    "pending": Phase.ALIVE,
    "running": Phase.ALIVE,
    "shutting-down": Phase.ENDING,
    "stopping": Phase.ENDING,
    "terminated": Phase.ENDED,
    "stopped": Phase.ENDED,
}
_STATED_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? (?:GMT|UTC)\)")


def described(ec2: Any, cluster: str, is_own: Ownership) -> list[dict[str, Any]]:
    """Return every instance with the cluster's tag, in the form of DescribeInstances. Ended instances are included
    while EC2 still describes them. Those of another cluster of the same name are left out.

    Raises:
        botocore's errors.
    """
    return [raw for raw in _pages(ec2, CLUSTER_TAG, cluster) if is_own(read_tags(raw)) is not False]


def read_tags(description: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a resource of EC2 by their keys."""
    return {tag["Key"]: tag.get("Value", "") for tag in description.get("Tags") or ()}


def owned_by_store(control_url: str) -> Ownership:
    """Return the ownership of a cluster's resources by the mark of its store. Karpenter's belong to another cluster of
    the same name, on Kubernetes: its nodes, with their volumes and launch templates, have the tag and no mark."""
    return lambda tags: (
        False
        if is_karpenters(tags)
        else has_mark(control_url, store=tags.get(STORE_TAG, ""), launch=tags.get(LAUNCH_TAG, ""))
    )


def is_karpenters(tags: Mapping[str, str]) -> bool:
    """Return whether Karpenter made the resource."""
    return any(key.startswith(KARPENTER) for key in tags)


def of_launch(ec2: Any, token: str) -> list[CloudInstance]:
    """Return every instance of the launch with this token that EC2 describes. Raises botocore's errors."""
    return [parse(raw) for raw in _pages(ec2, LAUNCH_TAG, token)]


def _pages(ec2: Any, tag: str, value: str) -> Iterator[dict[str, Any]]:
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": f"tag:{tag}", "Values": [value]}], PaginationConfig={"PageSize": 500}
    )
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def parse(raw: dict[str, Any]) -> CloudInstance:
    """Return one instance of DescribeInstances."""
    tags = read_tags(raw)
    phase = _PHASES.get(raw["State"]["Name"], Phase.ALIVE)
    transition = raw.get("StateTransitionReason") or ""
    code = (raw.get("StateReason") or {}).get("Code") or ""
    spot = raw.get("InstanceLifecycle") == "spot"
    return CloudInstance(
        instance_id=raw["InstanceId"],
        instance_type=raw["InstanceType"],
        zone=raw["Placement"]["AvailabilityZone"],
        market=Market.SPOT if spot else Market.ON_DEMAND,
        role=Role.SCHEDULER if tags.get(ROLE_TAG) == Role.SCHEDULER else Role.AGENT,
        launched_at=raw["LaunchTime"].astimezone(UTC),
        image=raw.get("ImageId") or "",
        phase=phase,
        ended_at=stated_time(transition) if phase is not Phase.ALIVE else None,
        interrupted=code == INTERRUPTED if code and phase is not Phase.ALIVE else None,
        launch=tags.get(LAUNCH_TAG, ""),
        part_of=tags.get(FLEET_TAG) or tags.get(GROUP_TAG) or "",
        failure=_failure(raw) if phase is not Phase.ALIVE else None,
    )


def _failure(raw: dict[str, Any]) -> LaunchError | None:
    """Return the error for which EC2 ended an instance; None if it was ended for another reason.

    A client's error is in the message, and the code is `Server.InternalError` then. `Client.InternalError` is typically
    a role that may not use the key of a volume (both: EC2 User Guide, "Instance terminates immediately").
    """
    reason = raw.get("StateReason") or {}
    first, _, detail = str(reason.get("Message") or "").partition(": ")
    code = first if first.startswith(("Client.", "Server.")) else str(reason.get("Code") or "")
    if not code.partition(".")[2].startswith(_FAILURES):
        return None
    kind = LaunchTrouble.CREDENTIALS if code == _CLIENT_ERROR else errors.launch_trouble(code)
    spot = raw.get("InstanceLifecycle") == "spot"
    return LaunchError(
        instance_type=raw["InstanceType"],
        zone=raw["Placement"]["AvailabilityZone"],
        market=Market.SPOT if spot else Market.ON_DEMAND,
        kind=kind,
        code=code,
        message=detail or str(reason.get("Message") or ""),
    )


def stated_time(transition: str) -> datetime | None:
    """Return the moment in a StateTransitionReason such as `User initiated (2026-01-31 12:00:00 GMT)`. None: it states
    none."""
    match = _STATED_TIME.search(transition)
    return datetime.strptime(match.group(1), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if match else None
