"""The resources that cost money in a cluster on AWS, from its settings alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from everspot_core.capacity.catalogue import Catalogue, zone_region
from everspot_core.capacity.fleet import WeightBy
from everspot_core.capacity.market import Market
from everspot_core.cluster.declared import UNKNOWN, DeclaredResource
from everspot_core.validation.problems import Problems

from everspot_clouds.aws.alarms import ALARMS
from everspot_clouds.aws.endpoints import SHELL_SERVICES, base_services, needs_internet, services_for
from everspot_clouds.aws.fleet import (
    AwsOnDemandAllocation,
    AwsSpotAllocation,
    Ec2Capacity,
    capacity_problems,
    max_unit_price,
    override_grid,
)
from everspot_clouds.aws.root_volume import IMAGE_GIB
from everspot_clouds.aws.tags import ZONE, arn_problem
from everspot_clouds.costing import choices
from everspot_clouds.price_files import load_catalogue
from everspot_clouds.settings_estimate import ClusterOutline, check_listed

SCHEDULER_TYPE = "t3.small"
"""Type of the scheduler's instance when none is given."""

_FLEET, _ELASTIC = "everspot:index:AwsTrainingFleet", "everspot:index:AwsElasticCapacity"
_SCHEDULER, _NETWORK = "everspot:index:AwsSchedulerService", "everspot:index:AwsNetwork"
_MONITORING, _STORE = "everspot:index:AwsMonitoring", "everspot:index:AwsStore"
_EVENTS = "everspot:index:AwsInterruptionEvents"
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def outline_cluster(problems: Problems, stack: str, settings: Mapping[str, Any]) -> list[DeclaredResource]:
    """Return the resources of a cluster. If its capacity is invalid, add the problems and return no resources."""
    whole = ClusterOutline(stack, settings, "everspot:index:AwsTrainingCluster")
    zones = [str(zone) for zone in settings.get("zones", ())]
    subnets = len(zones) or len(settings.get("subnetIds", ())) or 1
    capacity, catalogue = read_capacity(problems, whole.capacity)
    if capacity is None:
        return []
    here = problems.at("capacity")
    listed = check_listed(here, capacity.types, catalogue.types)
    before = len(problems.collected)
    capacity_problems(here, capacity, catalogue.types, subnets)
    if len(problems.collected) > before or not listed:
        return []
    _machines(whole, capacity, override_grid(capacity, catalogue.types, subnets, zones))
    _network(whole, zones)
    _storage_and_monitoring(whole)
    return whole.resources


_ARNS = (
    ("readBucketArns", "s3", ""), ("volumeKeyArns", "kms", "key/"), ("permissionsBoundaryArn", "iam", "policy/"),
    ("kmsKeyArn", "kms", "key/"), ("flowLogBucketArn", "s3", ""),
)  # fmt: skip
"""Settings that are the ARNs of one kind of resource."""


def check_arns(problems: Problems, settings: Mapping[str, Any]) -> None:
    """Add a problem for each invalid ARN, and for each that matches several resources."""
    for name, service, resource in _ARNS:
        value = settings.get(name, [])
        for index, arn in enumerate(value if isinstance(value, list) else [value]):
            reason = arn_problem(arn, service, resource) if isinstance(arn, str) else None
            if reason is not None:
                problems.add(f"{name}[{index}]" if isinstance(value, list) else name, reason)


def read_capacity(problems: Problems, settings: Mapping[str, Any]) -> tuple[Ec2Capacity | None, Catalogue]:
    """Return the fleets' shape, and the catalogue with the types that the settings declare. No shape if a value is of
    the wrong kind. `settings`: the section `capacity`."""
    standing = settings.get("standing", {"target": 0})
    try:
        types, declared = choices(settings)
        spot, on_demand = standing.get("spotAllocation"), standing.get("onDemandAllocation")
        capacity = Ec2Capacity(
            target=int(standing["target"]),
            on_demand_base=int(standing.get("onDemandBase", 0)),
            on_demand_percentage=standing.get("onDemandPercentage", 0),
            weight_by=WeightBy(standing.get("weightBy", WeightBy.INSTANCE)),
            spot_allocation=None if spot is None else AwsSpotAllocation(spot),
            on_demand_allocation=None if on_demand is None else AwsOnDemandAllocation(on_demand),
            max_price=settings.get("maxPrice"),
            types=tuple(types),
        )
    except ValueError as error:
        problems.add("capacity", f"cannot be read: {' '.join(str(error).split())}")
        return None, Catalogue((), ())
    return capacity, load_catalogue().with_types(declared)


def _machines(whole: ClusterOutline, capacity: Ec2Capacity, grid: Sequence[Any]) -> None:
    whole.component(_FLEET, "fleet", leaving="elastic")
    _template(whole, "fleet-template", _FLEET)
    for market, units in ((Market.ON_DEMAND, capacity.on_demand_target), (Market.SPOT, capacity.spot_target)):
        spot = market is Market.SPOT
        inputs: dict[str, Any] = {
            "tags": whole.tags,
            "launchTemplateConfigs": [{"overrides": [_override(pool, spot=spot) for pool in grid]}],
            "targetCapacitySpecification": {
                "defaultTargetCapacityType": market.value,
                "totalTargetCapacity": units,
            },
        }
        if spot:
            pools = whole.capacity.get("standing", {}).get("lowestPricePools")
            options = {"allocationStrategy": capacity.spot_strategy.value}
            inputs["spotOptions"] = options | ({} if pools is None else {"instancePoolsToUseCount": pools})
        elif capacity.on_demand_strategy is not AwsOnDemandAllocation.LOWEST_PRICE:
            inputs["onDemandOptions"] = {"allocationStrategy": capacity.on_demand_strategy.value}
        whole.add("aws:ec2/fleet:Fleet", f"fleet-{market.value}", inputs, _FLEET)
    if "elastic" in whole.capacity:
        whole.component(_ELASTIC, "elastic", leaving="standing")
        _template(whole, "elastic-template", _ELASTIC)
    kind = whole.settings.get("schedulerType", SCHEDULER_TYPE)
    _template(whole, "scheduler-template", _SCHEDULER, own_volume=True, instanceType=kind)
    whole.add(_SCHEDULER, "scheduler", {})
    group = {"minSize": 1, "maxSize": 1, "tags": whole.tags}
    whole.add("aws:autoscaling/group:Group", "scheduler-group", group, _SCHEDULER)


def _override(pool: Any, *, spot: bool) -> dict[str, Any]:
    override = {"instanceType": pool.instance_type, "weightedCapacity": pool.weight}
    if pool.priority is not None:
        override["priority"] = pool.priority
    if pool.max_price is not None and spot:
        override["maxPrice"] = max_unit_price(pool.max_price, pool.weight)
    return override


_VOLUME = (
    ("volumeSize", "volumeGib"),
    ("iops", "volumeIops"),
    ("throughput", "volumeThroughput"),
    ("volumeInitializationRate", "volumeInitializationRate"),
)
"""Inputs of an agent's volume, and their settings."""


def _template(whole: ClusterOutline, suffix: str, parent: str, *, own_volume: bool = False, **more: Any) -> None:
    """Add a launch template. `own_volume`: it has the image's volume, whatever the settings say of the agents'."""
    settings = {} if own_volume else whole.settings
    ebs = {"volumeType": "gp3", "volumeSize": IMAGE_GIB}
    ebs.update({key: settings[setting] for key, setting in _VOLUME if setting in settings})
    inputs = {"tags": whole.tags, "blockDeviceMappings": [{"ebs": ebs}], **more}
    whole.add(_TEMPLATE, suffix, inputs, parent)


def _network(whole: ClusterOutline, zones: Sequence[str]) -> None:
    """The new network of a cluster; one that exists already costs nothing more."""
    settings = whole.settings
    if "vpcId" in settings:
        return
    for zone in zones:
        inputs = {"availabilityZone": zone, "tags": whole.tags}
        whole.add("aws:ec2/subnet:Subnet", f"network-subnet-{zone}", inputs, _NETWORK)
    region = zone_region(zones[0]) if zones and ZONE.match(zones[0]) else ""
    nat = settings.get("nat", False) or needs_internet(region, settings.get("federation", ()))
    notifications = settings.get("notifications", {})
    channels = (("sns", "topicArn"), ("secretsmanager", "webhookSecretArn"))
    notified = [service for service, key in channels if key in notifications]
    requested = services_for(settings, "secretArns", "imageRepositories", notified)
    shell = SHELL_SERVICES if settings.get("sessionManager") else ()
    base = base_services(events=settings.get("interruptionEvents", True), job_role=settings.get("jobRole", True))
    for service in dict.fromkeys((*base, *shell, *settings.get("services", ()), *requested)):
        inputs = {"vpcEndpointType": "Interface", "subnetIds": [UNKNOWN] * len(zones), "tags": whole.tags}
        whole.add("aws:ec2/vpcEndpoint:VpcEndpoint", f"network-endpoint-{service}", inputs, _NETWORK)
    if nat:
        for kind in ("aws:ec2/natGateway:NatGateway", "aws:ec2/eip:Eip"):
            whole.add(kind, "network-nat", {"tags": whole.tags}, _NETWORK)
    if "flowLogBucketArn" in settings:
        whole.add("aws:ec2/flowLog:FlowLog", "network-flow-log", {"tags": whole.tags}, _NETWORK)


def _storage_and_monitoring(whole: ClusterOutline) -> None:
    for bucket in ("control", "data"):
        whole.add("aws:s3/bucket:Bucket", f"store-{bucket}", {}, _STORE)
    for queue in ("dead", "queue") if whole.settings.get("interruptionEvents", True) else ():
        whole.add("aws:sqs/queue:Queue", f"events-{queue}", {}, _EVENTS)
    if "monitoring" in whole.settings:
        whole.add(_MONITORING, "monitoring", {})
        whole.add("aws:cloudwatch/dashboard:Dashboard", "monitoring-dashboard", {}, _MONITORING)
        for alarm in ALARMS:
            inputs = {"period": alarm.period.total_seconds(), "tags": whole.tags}
            whole.add("aws:cloudwatch/metricAlarm:MetricAlarm", f"monitoring-{alarm.about.name}", inputs, _MONITORING)
