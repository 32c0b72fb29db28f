"""Documents of a fleet, as EC2's answers show it."""

from collections.abc import Mapping
from typing import Any

from everspot_clouds.aws.fleet import ON_DEMAND_PREFERS, SPOT_PREFERS
from everspot_core.capacity.allocation import Prefer
from everspot_core.jobs.records import Market

from everspot_local.aws.ec2.fleet_launch import override_document
from everspot_local.aws.ec2.fleet_options import MarketOptions
from everspot_local.aws.ec2.fleets import LocalFleet, Member
from everspot_local.market.clock import stamp


def launched(fleet: LocalFleet) -> list[dict[str, Any]]:
    """Group instances by market and by the override that launched them."""
    groups: dict[tuple[int, Market], list[Member]] = {}
    for member in fleet.members.values():
        groups.setdefault((id(member.override), member.instance.market), []).append(member)
    return [
        {
            "InstanceIds": [m.instance.id for m in members],
            "InstanceType": members[0].instance.instance_type,
            "Lifecycle": market.value,
            "LaunchTemplateAndOverrides": override_document(members[0].override),
            "AvailabilityZone": members[0].instance.availability_zone,
            "SubnetId": members[0].instance.subnet_id,
        }
        for (_, market), members in groups.items()
    ]


def _spelled(played: Mapping[str, Prefer], strategy: Prefer) -> str:
    """Return the strategy in EC2's older spelling, which EC2 answers for this one and the upstream provider compares
    with."""
    name = next(name for name, candidate in played.items() if candidate is strategy)
    return "lowestPrice" if name == "lowest-price" else name


def _whole(options: MarketOptions) -> dict[str, Any]:
    """Return the fields that EC2 answers only for fleets that requested them."""
    fields = {
        "SingleInstanceType": options.single_type,
        "SingleAvailabilityZone": options.single_zone,
        "MinTargetCapacity": options.minimum,
    }
    return {key: value for key, value in fields.items() if value}


def _on_demand(fleet: LocalFleet) -> dict[str, Any]:
    options = fleet.options[Market.ON_DEMAND]
    document = {**_whole(options), "AllocationStrategy": _spelled(ON_DEMAND_PREFERS, options.prefer)}
    if usage := ((fleet.request.get("OnDemandOptions") or {}).get("CapacityReservationOptions") or {}).get(
        "UsageStrategy"
    ):
        document["CapacityReservationOptions"] = {"UsageStrategy": usage}
    return document


def fleet_document(fleet: LocalFleet) -> dict[str, Any]:
    """Return a fleet as DescribeFleets shows it."""
    options = fleet.options[Market.SPOT]
    spot: dict[str, Any] = {
        **_whole(options),
        "AllocationStrategy": _spelled(SPOT_PREFERS, options.prefer),
        "InstanceInterruptionBehavior": "terminate",
    }
    if options.prefer is Prefer.PRICE:
        spot["InstancePoolsToUseCount"] = options.pools_to_use
    fulfilled = fleet.fulfilled()
    document = {
        "FleetId": fleet.id,
        "FleetState": fleet.state,
        "ActivityStatus": "fulfilled" if fulfilled >= fleet.targets.total else "pending_fulfillment",
        "CreateTime": stamp(fleet.created),
        "ExcessCapacityTerminationPolicy": fleet.excess_policy if fleet.type == "maintain" else None,
        "FulfilledCapacity": fulfilled,
        "FulfilledOnDemandCapacity": fleet.fulfilled(Market.ON_DEMAND),
        "LaunchTemplateConfigs": fleet.configs,
        "TargetCapacitySpecification": fleet.targets.document(),
        "TerminateInstancesWithExpiration": fleet.with_expiration,
        "Type": fleet.type,
        "ReplaceUnhealthyInstances": fleet.replace_unhealthy,
        "SpotOptions": spot,
        "OnDemandOptions": _on_demand(fleet),
        "Tags": fleet.get_tags(),
        "Context": fleet.context,
    }
    if fleet.type == "instant":
        document.update(Instances=launched(fleet), Errors=fleet.errors)
    return document
