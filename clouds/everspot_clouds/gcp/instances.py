"""The cluster's instances as Compute Engine describes them, and their ends by its operations.

A deleted instance is no longer described, and no description says who ended an instance. Zone operations have both: a
preemption is the operation `compute.instances.preempted` of the user `system`, and every operation has the numeric id
of the instance (`targetId`: "a specific incarnation of the target resource"). Names and URLs are used again after a
repair, so that only the id is a key.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from everspot_core.capacity.launching import has_mark
from everspot_core.capacity.market import Market
from everspot_core.jobs.records import Role

from everspot_clouds.base import CloudEnd, CloudInstance, Phase
from everspot_clouds.gcp.http_api import Api, Unreachable
from everspot_clouds.gcp.machines import type_name
from everspot_clouds.gcp.rules import (
    BARE_METAL_PREEMPTED,
    CLUSTER_LABEL,
    ENDS,
    IMAGE_LABEL,
    LAUNCH_LABEL,
    PREEMPTED,
    ROLE_LABEL,
    STORE_LABEL,
)

_PHASES = {
    "PROVISIONING": Phase.ALIVE,
    "STAGING": Phase.ALIVE,
    "PENDING": Phase.ALIVE,
    "RUNNING": Phase.ALIVE,
    "REPAIRING": Phase.ALIVE,
    "STOPPING": Phase.ENDING,
    "PENDING_STOP": Phase.ENDING,
    "SUSPENDING": Phase.ENDING,
    "DEPROVISIONING": Phase.ENDING,
    "STOPPED": Phase.ENDED,
    "SUSPENDED": Phase.ENDED,
    "TERMINATED": Phase.ENDED,
}
"""Compute API, Instance.status. A stopped instance costs only its disks."""


class Whereabouts(NamedTuple):
    """The place of an instance, for calls about it."""

    zone: str
    name: str


def described(api: Api, region: str, label: str, value: str) -> Iterator[dict[str, Any]]:
    """Yield every instance of the project with a label, in the form of the API: all of the region's, and those of
    other regions that can be reached. Raises the errors of `Api`; `Unreachable` comes after the last instance."""
    path = f"projects/{api.project}/aggregated/instances"
    for page in api.aggregated("compute", path, region, filter=f"labels.{label}={value}"):
        for scope in (page.get("items") or {}).values():
            yield from scope.get("instances") or ()


def of_cluster(api: Api, region: str, cluster: str, control_url: str) -> Iterator[dict[str, Any]]:
    """Yield every instance with the cluster's label, as `described` does. Ended ones are included while they have not
    been deleted, and those of another cluster of the same name are left out."""
    return (raw for raw in described(api, region, CLUSTER_LABEL, cluster) if is_own(raw, control_url) is not False)


def is_own(document: Mapping[str, Any], control_url: str) -> bool | None:
    """Return whether a resource with the cluster's label bears the mark of this cluster's store. None: it bears
    none."""
    labels = document.get("labels") or {}
    return has_mark(control_url, store=labels.get(STORE_LABEL, ""), launch=labels.get(LAUNCH_LABEL, ""))


def of_launch(api: Api, region: str, token: str) -> list[CloudInstance]:
    """Return every instance of the launch with this token that the cloud describes."""
    return [parse(raw) for raw in described(api, region, LAUNCH_LABEL, token)]


def parse(raw: Mapping[str, Any]) -> CloudInstance:
    """Return one instance of the API."""
    labels = raw.get("labels") or {}
    scheduling = raw.get("scheduling") or {}
    phase = _PHASES.get(str(raw.get("status")), Phase.ALIVE)
    spot = scheduling.get("provisioningModel") == "SPOT" or bool(scheduling.get("preemptible"))
    ended = raw.get("lastStopTimestamp") if phase is Phase.ENDED else None
    return CloudInstance(
        instance_id=str(raw["id"]),
        instance_type=_type(raw),
        zone=last(raw["zone"]),
        market=Market.SPOT if spot else Market.ON_DEMAND,
        role=Role.SCHEDULER if labels.get(ROLE_LABEL) == Role.SCHEDULER.value else Role.AGENT,
        launched_at=moment(raw["creationTimestamp"]),
        image=labels.get(IMAGE_LABEL, ""),
        phase=phase,
        ended_at=moment(ended) if ended else None,
        launch=labels.get(LAUNCH_LABEL, ""),
        part_of=_group(raw),
    )


def _group(instance: Mapping[str, Any]) -> str:
    """Return the group that an instance belongs to; empty if none. Compute Engine, "Check if a VM is part of a MIG"."""
    items = (instance.get("metadata") or {}).get("items") or ()
    return next((last(str(item.get("value") or "")) for item in items if item.get("key") == "created-by"), "")


def find_places(
    api: Api, region: str, cluster: str, control_url: str
) -> tuple[dict[str, Whereabouts], Unreachable | None]:
    """Return the zone and name of each of the cluster's instances now, by its id, and the error if a part of the region
    cannot be reached, whose instances are missing then. Raises the other errors of `Api`."""
    places: dict[str, Whereabouts] = {}
    try:
        for raw in of_cluster(api, region, cluster, control_url):
            places[str(raw["id"])] = Whereabouts(last(raw["zone"]), str(raw["name"]))
    except Unreachable as error:
        return places, error
    return places, None


def _type(raw: Mapping[str, Any]) -> str:
    attached: Mapping[str, Any] = next(iter(raw.get("guestAccelerators") or ()), {})
    kind, count = str(attached.get("acceleratorType") or ""), int(attached.get("acceleratorCount") or 0)
    return type_name(last(raw["machineType"]), last(kind), count)


def ended(api: Api, zones: Iterable[str], since: datetime) -> tuple[list[CloudEnd], datetime | None]:
    """Return the ends of the project's instances by the operations of these zones since a moment, each once, and when
    the oldest operation began that ends an instance and is not done; None if all are.

    The first operation that ended an instance gives the time; if any of them is a preemption, the cloud took it.
    Raises the errors of `Api`.
    """
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    unfinished: list[datetime] = []
    for zone in zones:
        for op in _operations(api, zone, since):
            if op.get("status") == "DONE":
                by_id.setdefault(str(op["targetId"]), []).append(op)
            else:
                unfinished.append(moment(op["insertTime"]))
    return [_end(name, ops) for name, ops in sorted(by_id.items())], min(unfinished, default=None)


def _operations(api: Api, zone: str, since: datetime) -> Iterator[Mapping[str, Any]]:
    """Operations that end instances, newest first. Times and types are filtered here and not by the API: its filters
    order only numbers (googleapis/google-api-go-client issue 256: ">=" of a time is refused), and `:` does not match
    parts of links. So the operations are read in the order of creation. The zones are read one by one, because nothing
    says that the order of an aggregated list holds across zones."""
    path = f"projects/{api.project}/zones/{zone}/operations"
    for page in api.pages("compute", path, orderBy="creationTimestamp desc"):
        for op in page.get("items") or ():
            if moment(op["insertTime"]) < since:
                return
            is_end = op.get("operationType") in ENDS and "/instances/" in str(op.get("targetLink"))
            if is_end and not op.get("error"):
                yield op


def _end(name: str, operations: list[Mapping[str, Any]]) -> CloudEnd:
    times = [moment(op.get("endTime") or op.get("insertTime")) for op in operations]
    preempted = any(op.get("operationType") in (PREEMPTED, BARE_METAL_PREEMPTED) for op in operations)
    return CloudEnd(instance_id=name, ended_at=min(times), interrupted=preempted)


def last(link: str) -> str:
    """Return the name at the end of a link."""
    return link.rsplit("/", 1)[-1]


def moment(text: Any) -> datetime:
    """Return a moment of the API, such as 2026-01-31T04:00:00.123-08:00. Raises ValueError."""
    return datetime.fromisoformat(str(text)).astimezone(UTC)
