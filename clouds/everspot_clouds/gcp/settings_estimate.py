"""The resources that cost money in a cluster on Google Cloud, from its settings alone."""

from collections.abc import Mapping
from typing import Any

from everspot_core.capacity.allocation import Prefer
from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.fleet import ranks
from everspot_core.capacity.market import Market
from everspot_core.cluster.declared import DeclaredResource
from everspot_core.validation.problems import Problems

from everspot_clouds.costing import choices
from everspot_clouds.gcp import fixed_prices as fixed
from everspot_clouds.gcp.alarms import ALERTS
from everspot_clouds.gcp.fleet import GcpCapacity, GcpPrefer, GcpShape, capacity_problems, selections
from everspot_clouds.gcp.labels import to_labels
from everspot_clouds.gcp.machines import parse_type
from everspot_clouds.gcp.rules import ROLE_LABEL
from everspot_clouds.price_files import load_catalogue
from everspot_clouds.settings_estimate import ClusterOutline, check_listed

SCHEDULER_TYPE = "e2-small"
"""Type of the scheduler's instance when none is given."""

_FLEET, _ELASTIC = "everspot:index:GcpTrainingFleet", "everspot:index:GcpElasticCapacity"
_SCHEDULER, _NETWORK = "everspot:index:GcpSchedulerService", "everspot:index:GcpNetwork"
_MONITORING, _STORE = "everspot:index:GcpMonitoring", "everspot:index:GcpStore"
_EVENTS = "everspot:index:GcpInterruptionEvents"
_TEMPLATE = "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate"
_GROUP = "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager"


def outline_cluster(problems: Problems, stack: str, settings: Mapping[str, Any], region: str) -> list[DeclaredResource]:
    """Return the resources of a cluster in a region. If its capacity is invalid, add the problems and return none."""
    whole = ClusterOutline(stack, settings, "everspot:index:GcpTrainingCluster")
    capacity, catalogue = read_capacity(problems, whole.capacity)
    if capacity is None:
        return []
    here = problems.at("capacity")
    listed = check_listed(here, capacity.types, catalogue.types)
    before = len(problems.collected)
    capacity_problems(here, capacity, catalogue.types)
    if len(problems.collected) > before or not listed:
        return []
    _machines(whole, capacity, catalogue, region)
    _storage_and_monitoring(whole, region)
    return whole.resources


def read_capacity(problems: Problems, settings: Mapping[str, Any]) -> tuple[GcpCapacity | None, Catalogue]:
    """Return the groups' shape, and the catalogue with the types that the settings declare. No shape if a value is of
    the wrong kind. `settings`: the section `capacity`."""
    standing = settings.get("standing", {"target": 0})
    try:
        types, declared = choices(settings)
        capacity = GcpCapacity(
            target=int(standing["target"]),
            on_demand_base=int(standing.get("onDemandBase", 0)),
            on_demand_percentage=standing.get("onDemandPercentage", 0),
            prefer=Prefer(GcpPrefer(standing.get("prefer", GcpPrefer.BALANCE))),
            shape=GcpShape(standing.get("shape", GcpShape.ANY)),
            types=tuple(types),
        )
    except ValueError as error:
        problems.add("capacity", f"cannot be read: {' '.join(str(error).split())}")
        return None, Catalogue((), ())
    return capacity, load_catalogue().with_types(declared)


def _machines(whole: ClusterOutline, capacity: GcpCapacity, catalogue: Catalogue, region: str) -> None:
    whole.component(_FLEET, "fleet", leaving="elastic")
    first, zones = capacity.types[0].name, whole.settings.get("zones", [])
    for market, size in ((Market.ON_DEMAND, capacity.on_demand_target), (Market.SPOT, capacity.spot_target)):
        _template(whole, f"fleet-{market.value}-agent", _FLEET, region, first, market)
        inputs: dict[str, Any] = {"region": region, "targetSize": size, "distributionPolicyZones": zones}
        if len(capacity.types) > 1:
            chosen = selections(ranks(capacity, _usd_per_hour(capacity, catalogue, region, market)))
            inputs["instanceFlexibilityPolicy"] = {
                "instanceSelections": [
                    {"rank": int(str(selection["rank"])), "machineTypes": selection["machineTypes"]}
                    for selection in chosen.values()
                ]
            }
        whole.add(_GROUP, f"fleet-{market.value}", inputs, _FLEET)
    if "elastic" in whole.capacity:
        whole.component(_ELASTIC, "elastic", leaving="standing")
        _template(whole, "elastic-template", _ELASTIC, region, first)
    kind = whole.settings.get("schedulerType", SCHEDULER_TYPE)
    _template(whole, "scheduler-template", _SCHEDULER, region, kind, role="scheduler")
    whole.add(_SCHEDULER, "scheduler", {})
    whole.add(_GROUP, "scheduler-group", {"region": region, "targetSize": 1}, _SCHEDULER)


def _usd_per_hour(capacity: GcpCapacity, catalogue: Catalogue, region: str, market: Market) -> dict[str, float]:
    prices = {}
    for choice in capacity.types:
        price, spot = catalogue.on_demand(choice.name, region), catalogue.spot_range(choice.name, region)
        listed = spot[0] if market is Market.SPOT and spot is not None else price
        if listed is not None:
            prices[choice.name] = listed.usd_per_hour
    return prices


def _template(
    whole: ClusterOutline,
    suffix: str,
    parent: str,
    region: str,
    kind: str,
    market: Market = Market.ON_DEMAND,
    role: str = "agent",
) -> None:
    machine = parse_type(kind)
    settings = whole.settings if role == "agent" else {}  # the scheduler's disk is the image's own
    gpus = [{"type": machine.accelerator, "count": machine.count}] if machine.attached else None
    inputs = {
        "region": region,
        "machineType": machine.machine,
        "guestAccelerators": gpus,
        "disks": [
            {
                "diskSizeGb": settings.get("volumeGib", fixed.IMAGE_GIB),
                "diskType": settings.get("volumeType", "pd-balanced"),
            }
        ],
        "labels": {**to_labels(whole.tags), ROLE_LABEL: role},
        "scheduling": {"provisioningModel": "SPOT" if market is Market.SPOT else "STANDARD"},
    }
    whole.add(_TEMPLATE, suffix, inputs, parent)


def _storage_and_monitoring(whole: ClusterOutline, region: str) -> None:
    settings = whole.settings
    if "network" not in settings:
        flows: dict[str, Any] = {"logConfig": True} if settings.get("flowLogs") else {}
        for suffix in ("subnetwork", "scheduler"):
            whole.add("gcp:compute/subnetwork:Subnetwork", f"network-{suffix}", flows, _NETWORK)
        if settings.get("nat") or any(peer.get("cloud") != "gcp" for peer in settings.get("federation", ())):
            whole.add("gcp:compute/routerNat:RouterNat", "network-nat", {"region": region}, _NETWORK)
    for bucket in ("control", "data"):
        whole.add("gcp:storage/bucket:Bucket", f"store-{bucket}", {}, _STORE)
    for kind in ("topic", "subscription"):
        for which in ("", "dead-"):
            name = f"gcp:pubsub/{kind}:{kind.capitalize()}"
            whole.add(name, f"events-{which}{kind}", {}, _EVENTS)
    if "monitoring" in settings:
        whole.add(_MONITORING, "monitoring", {})
        for alert in ALERTS:
            inputs = {"conditions": [{}], "userLabels": to_labels(whole.tags)}
            whole.add("gcp:monitoring/alertPolicy:AlertPolicy", f"monitoring-{alert.about.name}", inputs, _MONITORING)
