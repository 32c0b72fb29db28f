"""Launching elastic instances: regionInstances.bulkInsert.

One attempt gives one answer: the operation is done when the instances exist, or when there is no capacity for them.
Sources: Compute API, BulkInsertInstanceResource (count, minCount, perInstanceProperties, sourceInstanceTemplate merged
with instanceProperties by JSON Merge Patch, instanceFlexibilityPolicy, locationPolicy) and Operation (operationGroupId,
requestId as clientOperationId); slurm-gcp's resume.py, which uses the same method, and names both the allowed and the
denied zones.

The request depends on the intent alone, so that it stays the same. Its id and the names of its instances come from the
intent's token: a repeated request is answered by the operation of the first one; if Google has forgotten that one, the
names are taken.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from everspot_core.capacity.catalogue import zone_region
from everspot_core.capacity.launching import LaunchError, LaunchIntent, LaunchPool, LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.jobs.records import Role

from everspot_clouds.base import CloudInstance, LaunchAnswer, Launched, Phase, Trouble
from everspot_clouds.gcp import errors, instances
from everspot_clouds.gcp.errors import ApiError, OperationError, StillUnderWay
from everspot_clouds.gcp.fleet import NO_FLEXIBILITY, SELECTIONS_AT_MOST, GcpShape, selections
from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.machines import description, parse_type
from everspot_clouds.gcp.quotas import gpu_family, list_metrics
from everspot_clouds.gcp.rules import CLUSTER_LABEL, LAUNCH_LABEL, ROLE_LABEL, instance_name
from everspot_clouds.gcp.terminations import RETRYABLE
from everspot_clouds.gcp.zones import Zones

WAIT = timedelta(seconds=10)
"""The longest wait, real time, for an operation in one call. If it takes longer, the scheduler asks for it again by the
same intent, and does its other work in between."""
LOOK_FIRST, LOOK_EVERY = timedelta(milliseconds=100), timedelta(seconds=1)
"""The pause between two reads of an operation, real time: the first one, which then doubles, and the longest."""
SHORT = "RESOURCE_POOL_EXHAUSTED"
"""The code for a shortage if an operation created fewer instances than asked for and gives no reason."""


class BulkLaunches:
    """Launches and ends instances of one cluster. `notice`: the notice to request for Spot, from the manifest."""

    def __init__(self, api: Api, cluster: str, clock: Clock, notice: timedelta | None, zones: Zones) -> None:
        self._api, self._cluster, self._clock, self._notice = api, cluster, clock, notice
        self._operations: dict[str, str] = {}
        self._zones = zones

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """See `Cloud.launch`.

        Raises:
            StillUnderWay: if the operation takes longer than `WAIT`, or is not found.
            The errors of `Api`, if the request may have been carried out.
        """
        path = f"projects/{_project(intent, self._api)}/regions/{zone_region(intent.pools[0].zone)}"
        earlier = self._operations.get(intent.token)
        try:
            operation = self._send(intent, path) if earlier is None else {"name": earlier}
        except ApiError as error:
            kind = errors.trouble(error)
            if kind in RETRYABLE:
                raise
            if error.exists:  # Google no longer remembers the request: return what it created
                if brought := _alive(instances.of_launch(self._api, zone_region(intent.pools[0].zone), intent.token)):
                    return LaunchAnswer(instances=tuple(map(_to_launched, brought)))
                kind = Trouble.TRANSIENT  # the next request has names of its own
            return LaunchAnswer(errors=(_refused(error, kind, intent),))
        done = self._done(operation, path, intent)
        self._operations.pop(intent.token, None)
        return self._read(done, intent)

    def _send(self, intent: LaunchIntent, path: str) -> dict[str, Any]:
        """Send the request of an intent. The answer is its operation, which an earlier attempt may have created."""
        body = request(
            self._cluster,
            intent,
            self._zones.list_zones(zone_region(intent.pools[0].zone), _project(intent, self._api)),
            self._notice,
        )
        operation = self._api.post("compute", f"{path}/instances/bulkInsert", body, requestId=request_id(intent.token))
        self._operations[intent.token] = str(operation["name"])
        return operation

    def _done(self, operation: dict[str, Any], path: str, intent: LaunchIntent) -> dict[str, Any]:
        """Wait for the operation, and return it when it is done. No answer to a read of it refuses the request: that
        has been accepted."""
        end, pause = self._clock.monotonic() + WAIT, timedelta(0) if "status" not in operation else LOOK_FIRST
        while operation.get("status") != "DONE":
            if self._clock.monotonic() >= end:
                words = (
                    f"the launch is still under way after {WAIT.total_seconds():.0f} s (operation {operation['name']})"
                )
                raise StillUnderWay(words)
            self._clock.sleep(pause)
            pause = min(max(2 * pause, LOOK_FIRST), LOOK_EVERY)
            operation = self._looked_at(str(operation["name"]), path, intent)
        return operation

    def _looked_at(self, name: str, path: str, intent: LaunchIntent) -> dict[str, Any]:
        """Return the operation as it is now. One that is not found may be found later (the Terraform provider retries
        this 404, `tpgresource/common_operation.go`) or be forgotten, and so the next attempt sends the request again,
        which its id makes safe."""
        try:
            return self._api.get("compute", f"{path}/operations/{name}")
        except ApiError as error:
            if not error.missing:
                raise
            self._operations.pop(intent.token, None)
            raise StillUnderWay(f"the launch is under way, but its operation {name} is not found") from error

    def _read(self, done: dict[str, Any], intent: LaunchIntent) -> LaunchAnswer:
        brought = _alive(instances.of_launch(self._api, zone_region(intent.pools[0].zone), intent.token))
        operation_errors = (done.get("error") or {}).get("errors") or []
        if len(brought) >= intent.count:
            return LaunchAnswer(instances=tuple(map(_to_launched, brought)))
        own = [raw for op in self._inserts(done, intent) for raw in _with_zone(op)]
        failures = errors.read_failures([*operation_errors, *own]) or [
            OperationError(SHORT, "the operation does not say why fewer came")
        ]
        launch_errors = dict.fromkeys(error for failure in failures for error in _errors(failure, intent))
        return LaunchAnswer(instances=tuple(map(_to_launched, brought)), errors=tuple(launch_errors))

    def _inserts(self, done: Mapping[str, Any], intent: LaunchIntent) -> list[Mapping[str, Any]]:
        """Return the operations of the single instances of a failed bulk operation. They contain the reasons."""
        group, project = done.get("operationGroupId"), _project(intent, self._api)
        if not group:
            return []
        # slurm-gcp's resume.py and util.py read them by the same filter.
        query = f'(operationType="insert") AND (operationGroupId="{group}")'
        return [
            op
            for zone in dict.fromkeys(pool.zone for pool in block(intent))
            for page in self._api.pages("compute", f"projects/{project}/zones/{zone}/operations", filter=query)
            for op in page.get("items") or ()
            if op.get("error")
        ]


def request_id(token: str) -> str:
    """Return the id of a token's request: a UUID, as the API demands (`requestId`)."""
    return str(uuid.UUID(hex=token, version=4))


def request(cluster: str, intent: LaunchIntent, zones: Sequence[str], notice: timedelta | None) -> dict[str, Any]:
    """Return the body of bulkInsert. `zones`: all zones of the region; those without a pool are denied."""
    chosen = block(intent)
    types = list(dict.fromkeys(pool.instance_type for pool in chosen))
    allowed = {pool.zone for pool in chosen}
    properties: dict[str, Any] = {"labels": _labels(cluster, intent), "scheduling": _scheduling(intent.market, notice)}
    body: dict[str, Any] = {
        "count": str(intent.count),
        "minCount": str(intent.count if intent.whole else 1),
        "sourceInstanceTemplate": intent.template,
        "perInstanceProperties": {instance_name(cluster, intent.token, n): {} for n in range(intent.count)},
        "instanceProperties": properties,
        "locationPolicy": {
            "locations": {
                f"zones/{zone}": {"preference": "ALLOW" if zone in allowed else "DENY"}
                for zone in sorted({*zones, *allowed})
            },
            "targetShape": (GcpShape.ANY_SINGLE_ZONE if intent.whole else GcpShape.ANY).value,
        },
    }
    if len(types) > 1:
        body["instanceFlexibilityPolicy"] = {
            "instanceSelections": selections({name: rank for rank, name in enumerate(types, start=1)})
        }
        return body
    machine = parse_type(types[0])
    properties["machineType"], properties["description"] = machine.machine, description(types[0])
    if machine.attached:
        properties["guestAccelerators"] = [{"acceleratorType": machine.accelerator, "acceleratorCount": machine.count}]
    return body


def block(intent: LaunchIntent) -> list[LaunchPool]:
    """Return the pools for one request: every one of its types in every one of its zones, including the best pool.

    The API takes types and zones, and not pairs of them. So the result is the largest block of types and zones whose
    pairs are all in the intent and that contains its best pool; among equal ones, that of the better pools. A type that
    no flexibility policy accepts is requested alone, and so is the type of a gang's nodes, which have to be alike.
    """
    best, zones = intent.pools[0], dict[str, set[str]]()
    for pool in intent.pools:
        zones.setdefault(pool.instance_type, set()).add(pool.zone)
    if intent.whole or _alone(best.instance_type):
        return [pool for pool in intent.pools if pool.instance_type == best.instance_type]
    others = [name for name in zones if not _alone(name) and best.zone in zones[name]]
    shapes = [zones[best.instance_type] & zones[name] for name in others]
    blocks: list[tuple[int, set[str], list[str]]] = []
    for shape in shapes:
        types = [name for name in others if zones[name] >= shape][:SELECTIONS_AT_MOST]
        blocks.append((len(shape) * len(types), shape, types))
    _, shape, types = max(blocks, key=lambda one: one[0])
    return [pool for pool in intent.pools if pool.instance_type in types and pool.zone in shape]


def _alone(instance_type: str) -> bool:
    machine = parse_type(instance_type)
    return machine.attached or machine.machine.startswith(NO_FLEXIBILITY)


def _labels(cluster: str, intent: LaunchIntent) -> dict[str, str]:
    return {**intent.tags, CLUSTER_LABEL: cluster, ROLE_LABEL: Role.AGENT.value, LAUNCH_LABEL: intent.token}


def _scheduling(market: Market, notice: timedelta | None) -> dict[str, Any]:
    """Return the market of the instances, which the template leaves open. Spot needs all three of its settings
    together."""
    if market is not Market.SPOT:
        return {"provisioningModel": "STANDARD"}
    settings: dict[str, Any] = {
        "provisioningModel": "SPOT",
        "preemptible": True,
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
        "instanceTerminationAction": "DELETE",
    }
    if notice:
        settings["preemptionNoticeDuration"] = {"seconds": str(int(notice.total_seconds()))}
    return settings


def _project(intent: LaunchIntent, api: Api) -> str:
    """Return the project in the template's name, if there is one."""
    parts = intent.template.split("/")
    return parts[parts.index("projects") + 1] if "projects" in parts[:-1] else api.project


def _alive(candidates: Iterable[CloudInstance]) -> list[CloudInstance]:
    return [instance for instance in candidates if instance.phase is Phase.ALIVE]


def _to_launched(instance: CloudInstance) -> Launched:
    return Launched(instance_id=instance.instance_id, instance_type=instance.instance_type, zone=instance.zone)


def _with_zone(operation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the errors of an instance's operation, each with the operation's zone in its details."""
    zone = {"errorInfo": {"metadatas": {"zone": instances.last(str(operation.get("zone") or ""))}}}
    operation_errors = (operation.get("error") or {}).get("errors") or []
    return [{**raw, "errorDetails": [zone, *(raw.get("errorDetails") or ())]} for raw in operation_errors]


def _errors(failure: OperationError, intent: LaunchIntent) -> list[LaunchError]:
    """Return an error in the terms of an intent. It concerns the type and the zone that it names, or the pools whose
    quota is full, else all requested pools."""
    chosen = block(intent)
    types = list(dict.fromkeys(p.instance_type for p in chosen))
    zones = list(dict.fromkeys(p.zone for p in chosen))
    affected = [name for name in types if parse_type(name).machine == failure.machine]
    if not affected and failure.metric:
        affected = [name for name in types if failure.metric in list_metrics(name, intent.market)]
    if not affected and failure.family:
        affected = [name for name in types if gpu_family(name) == failure.family]
    quota = ", ".join(filter(None, (failure.metric, failure.family)))
    where = [failure.zone] if failure.zone in zones else zones
    # Empty stands for all of the intent's: said only where all of them were asked for.
    every_zone = len(where) == len({p.zone for p in intent.pools})
    every_type = not affected and len(types) == len({p.instance_type for p in intent.pools})
    return [
        LaunchError(
            instance_type=name,
            zone=zone,
            market=intent.market,
            kind=errors.launch_trouble(failure.code, failure.message),
            code=f"{failure.code} ({quota})" if quota else failure.code,
            message=failure.message,
            unresolved=errors.is_unresolved(failure.code),
        )
        for name in (("",) if every_type else affected or types)
        for zone in (("",) if every_zone else where)
    ]


def _refused(error: ApiError, kind: Trouble, intent: LaunchIntent) -> LaunchError:
    """Return a refusal of the whole request, which concerns every pool."""
    metric = errors.read_failures([{"code": error.code, "message": error.refusal.message}])[0].metric
    code = f"{error.code} ({metric})" if metric else error.code
    return LaunchError(
        market=intent.market,
        kind=LaunchTrouble(kind.value),
        code=code,
        message=error.refusal.message,
        unresolved=errors.is_unresolved(error.code),
    )
