"""Stands in for what EC2 checks of a CreateFleet or ModifyFleet request, and reads it into values.

What EC2 offers and the local cloud does not is refused by name: attribute-based selection, capacity rebalancing,
capacity reservations, the strategy `diversified`, single-pool fleets,
price caps on the total, validity periods, and interruption by stop or hibernation.
"""

from dataclasses import dataclass, replace
from typing import Any

from everspot_clouds.aws.fleet import AwsSpotAllocation
from everspot_core.allocation import Launchable
from everspot_core.fleet import Prefer

from everspot_local.aws.ec2.exceptions import (
    InvalidFleetConfig,
    InvalidParameter,
    InvalidTargetCapacity,
    MissingParameter,
    UnknownInstanceType,
    UnsupportedHere,
)
from everspot_local.aws.strict import strict

TYPES = ("instant", "request", "maintain")
SPOT_PLAYED = {
    "lowest-price": Prefer.PRICE, "capacity-optimized": Prefer.DEPTH, "price-capacity-optimized": Prefer.BALANCE,
    "capacity-optimized-prioritized": Prefer.ORDER,
}  # fmt: skip
ON_DEMAND_PLAYED = {"lowest-price": Prefer.PRICE, "prioritized": Prefer.ORDER}
LARGEST_TARGET = 10_000
MOST_OVERRIDES = 300
LEAST_PRICE = 0.001
_REQUEST = {
    "DryRun", "ClientToken", "SpotOptions", "OnDemandOptions", "ExcessCapacityTerminationPolicy",
    "LaunchTemplateConfigs", "TargetCapacitySpecification", "TerminateInstancesWithExpiration", "Type",
    "ReplaceUnhealthyInstances", "TagSpecifications", "Context",
}  # fmt: skip
_SPOT = {"AllocationStrategy", "InstanceInterruptionBehavior", "InstancePoolsToUseCount"}
_ON_DEMAND = {"AllocationStrategy"}
_OVERRIDE = {
    "InstanceType", "MaxPrice", "SubnetId", "AvailabilityZone", "WeightedCapacity", "Priority", "ImageId",
}  # fmt: skip


@dataclass(frozen=True)
class Targets:
    """Capacity units wanted. `default`: the market to which a change of the total goes."""

    total: int
    on_demand: int
    spot: int
    default: str

    def document(self) -> dict[str, Any]:
        """As DescribeFleets tells it."""
        return {
            "TotalTargetCapacity": self.total,
            "OnDemandTargetCapacity": self.on_demand,
            "SpotTargetCapacity": self.spot,
            "DefaultTargetCapacityType": self.default,
        }

    def modified(self, specification: dict[str, Any]) -> "Targets":
        """After a ModifyFleet (EC2 User Guide, "Modify an EC2 Fleet"): each target may change.

        A market that is not named keeps its part, and what changes of the total goes to the default market; so a
        fleet of one market is scaled by its total alone, down to 0.
        """
        total = _total({"TotalTargetCapacity": self.total, **{k: v for k, v in specification.items() if v is not None}})
        given = {m: specification.get(f"{m}TargetCapacity") for m in ("OnDemand", "Spot")}
        kept = {"OnDemand": self.on_demand, "Spot": self.spot}
        standing = "OnDemand" if self.default == "spot" else "Spot"
        rest = "Spot" if standing == "OnDemand" else "OnDemand"
        fixed = int(given[standing]) if given[standing] is not None else kept[standing]  # type: ignore[arg-type]
        asked = given[rest]
        if fixed > total or (asked is not None and int(asked) + fixed > total):
            raise InvalidTargetCapacity(
                f"The on-demand and Spot target capacities exceed the total target capacity of {total}."
            )
        parts = {standing: fixed, rest: total - fixed}
        return replace(self, total=total, on_demand=parts["OnDemand"], spot=parts["Spot"])


@dataclass(frozen=True)
class Override:
    """One way to launch: a position in the request, and what to launch by it."""

    launch_template: dict[str, Any]
    specification: dict[str, Any]
    override: dict[str, Any]
    candidate: Launchable
    subnet_id: str | None
    image_id: str


def read_targets(specification: dict[str, Any]) -> Targets:
    """The targets of a CreateFleet request."""
    default = specification.get("DefaultTargetCapacityType") or "on-demand"
    if default not in ("spot", "on-demand"):
        raise InvalidParameter(f"Invalid value '{default}' for DefaultTargetCapacityType")
    if specification.get("TargetCapacityUnitType", "units") != "units":
        raise UnsupportedHere("TargetCapacityUnitType other than units")
    total = _total(specification)
    on_demand = int(specification.get("OnDemandTargetCapacity") or 0)
    spot = int(specification.get("SpotTargetCapacity") or 0)
    if min(on_demand, spot) < 0 or on_demand + spot > total:
        raise InvalidTargetCapacity(
            "The sum of the on-demand and Spot target capacities must not exceed the total target capacity."
        )
    rest = total - on_demand - spot
    return Targets(
        total=total,
        on_demand=on_demand + (rest if default == "on-demand" else 0),
        spot=spot + (rest if default == "spot" else 0),
        default=default,
    )


def check(request: dict[str, Any]) -> None:
    """Refuse what EC2 refuses, and what the local cloud does not know."""
    _only(request, _REQUEST, "CreateFleet")
    fleet_type = request.get("Type") or "maintain"
    if fleet_type not in TYPES:
        raise InvalidParameter(f"Invalid value '{fleet_type}' for Type")
    if not request.get("TargetCapacitySpecification"):
        raise MissingParameter("TargetCapacitySpecification")
    if strict() and fleet_type != "maintain" and _total(request["TargetCapacitySpecification"]) == 0:
        # botocore, TargetCapacitySpecificationRequest: a target of 0 is for the request type `maintain`.
        raise InvalidTargetCapacity(f"A fleet of type {fleet_type} needs a total target capacity of at least 1.")
    spot, on_demand = request.get("SpotOptions") or {}, request.get("OnDemandOptions") or {}
    _only(spot, _SPOT, "SpotOptions")
    _only(on_demand, _ON_DEMAND, "OnDemandOptions")
    strategy = spot_strategy(request)
    on_demand_strategy(request)
    if "InstancePoolsToUseCount" in spot and strategy is not Prefer.PRICE:
        raise InvalidFleetConfig(
            "InstancePoolsToUseCount option is only available with the lowestPrice allocation strategy."
        )
    if spot.get("InstanceInterruptionBehavior", "terminate") != "terminate":
        raise UnsupportedHere(f"the interruption behavior '{spot['InstanceInterruptionBehavior']}'")
    policy = request.get("ExcessCapacityTerminationPolicy")
    if policy is not None and fleet_type != "maintain":
        raise InvalidFleetConfig("ExcessCapacityTerminationPolicy is only available for fleets of type maintain.")
    if policy not in (None, "termination", "no-termination"):
        raise InvalidParameter(f"Invalid value '{policy}' for ExcessCapacityTerminationPolicy")
    for tags in request.get("TagSpecifications") or []:
        if tags.get("ResourceType") not in (("fleet", "instance") if fleet_type == "instant" else ("fleet",)):
            raise InvalidParameter(
                f"'{tags.get('ResourceType')}' is not a valid taggable resource type for a fleet of type {fleet_type}."
            )


def spot_strategy(request: dict[str, Any]) -> Prefer:
    """The strategy asked for, or EC2's default."""
    name = _strategy_name(request, "SpotOptions")
    if name not in tuple(AwsSpotAllocation):
        raise InvalidParameter(f"Invalid value '{name}' for SpotOptions.AllocationStrategy")
    if name not in SPOT_PLAYED:
        raise UnsupportedHere(f"the Spot allocation strategy '{name}'; it knows {', '.join(SPOT_PLAYED)}")
    return SPOT_PLAYED[name]


def on_demand_strategy(request: dict[str, Any]) -> Prefer:
    """The strategy asked for, or EC2's default."""
    name = _strategy_name(request, "OnDemandOptions")
    if name not in ON_DEMAND_PLAYED:
        raise InvalidParameter(f"Invalid value '{name}' for OnDemandOptions.AllocationStrategy")
    return ON_DEMAND_PLAYED[name]


def _strategy_name(request: dict[str, Any], options: str) -> str:
    """EC2 takes this one strategy in its older spelling too, which is the one that the provider's default sends."""
    name = (request.get(options) or {}).get("AllocationStrategy") or "lowest-price"
    return "lowest-price" if name == "lowestPrice" else str(name)


def read_overrides(backend: Any, configs: list[dict[str, Any]], known_types: Any) -> list[Override]:
    """Every way to launch that a request names, in its order."""
    if not configs:
        raise MissingParameter("LaunchTemplateConfigs")
    found: list[Override] = []
    for config in configs:
        specification = config.get("LaunchTemplateSpecification")
        if not specification:
            raise MissingParameter("LaunchTemplateConfigs.LaunchTemplateSpecification")
        version = backend._get_template_from_args(specification)
        pinned = {"LaunchTemplateId": version.template.id, "Version": str(version.number)}
        for override in config.get("Overrides") or [{}]:
            found.extend(_read_override(backend, specification, pinned, version.data, override, known_types))
    if len(found) > MOST_OVERRIDES:
        raise InvalidFleetConfig(f"A fleet may have at most {MOST_OVERRIDES} launch specifications.")
    if strict():
        _check_pools(found)
    return found


def _check_pools(overrides: list[Override]) -> None:
    """A fleet names a pool once: not by two subnets of one zone either (EC2 User Guide, "EC2 Fleet quotas")."""
    pools = [(o.candidate.instance_type, o.candidate.zone) for o in overrides]
    if len(set(pools)) != len(pools):
        raise InvalidFleetConfig("The fleet configuration contains duplicate instance pools.")


def _read_override(
    backend: Any,
    specification: dict[str, Any],
    pinned: dict[str, Any],
    template: dict[str, Any],
    override: dict[str, Any],
    known_types: Any,
) -> list[Override]:
    _only(override, _OVERRIDE, "LaunchTemplateConfigs.Overrides")
    instance_type = override.get("InstanceType") or template.get("InstanceType")
    image_id = override.get("ImageId") or template.get("ImageId")
    if not instance_type:
        raise InvalidFleetConfig("The fleet configuration needs an instance type in the override or the template.")
    if not image_id:
        raise InvalidFleetConfig("The fleet configuration needs an image in the override or the launch template.")
    if instance_type not in known_types:
        raise UnknownInstanceType(instance_type)
    interfaces = template.get("NetworkInterfaces") or [{}]
    subnet_id = override.get("SubnetId") or interfaces[0].get("SubnetId")
    if subnet_id:
        zones = [backend.get_subnet(subnet_id).availability_zone]
    else:
        zones = [override["AvailabilityZone"]] if override.get("AvailabilityZone") else _default_zones(backend)
    max_price = _max_price(override.get("MaxPrice"))
    weight = float(override.get("WeightedCapacity") or 1)
    if weight <= 0:
        raise InvalidParameter(f"Invalid value '{weight:g}' for WeightedCapacity; it must be greater than 0")
    return [
        Override(
            launch_template=pinned,
            specification=specification,
            override=override,
            candidate=Launchable(
                instance_type=instance_type,
                zone=zone,
                weight=weight,
                priority=_priority(override.get("Priority")),
                max_price=max_price,
            ),
            subnet_id=subnet_id,
            image_id=image_id,
        )
        for zone in zones
    ]


def _priority(value: Any) -> float | None:
    """botocore, FleetLaunchTemplateOverridesRequest: "Valid values are whole numbers starting at 0", of type Double."""
    if value is None:
        return None
    priority = float(value)
    if strict() and not (priority >= 0 and priority.is_integer()):
        raise InvalidParameter(f"Invalid value '{value}' for Priority; it must be a whole number starting at 0")
    return priority


def _max_price(text: Any) -> float | None:
    """Dollars per unit hour. botocore, FleetLaunchTemplateOverridesRequest: it must be more than $0.001."""
    if not text:
        return None
    try:
        price = float(text)
    except ValueError:
        raise InvalidParameter(f"Invalid value '{text}' for MaxPrice") from None
    if strict() and not LEAST_PRICE < price < float("inf"):
        raise InvalidParameter(f"Invalid value '{text}' for MaxPrice; it must be more than {LEAST_PRICE}")
    return price


def _default_zones(backend: Any) -> list[str]:
    return sorted(backend.get_default_subnets())


def _total(specification: dict[str, Any]) -> int:
    total = specification.get("TotalTargetCapacity")
    if total is None:
        raise MissingParameter("TargetCapacitySpecification.TotalTargetCapacity")
    if not 0 <= int(total) <= LARGEST_TARGET:
        raise InvalidTargetCapacity(f"The total target capacity must be between 0 and {LARGEST_TARGET}.")
    return int(total)


def _only(given: dict[str, Any], known: set[str], where: str) -> None:
    # The upstream provider sends 0 and false for what nobody asked for.
    unset = (None, "", 0, False, "0", "false")
    unknown = sorted(key for key, value in given.items() if key not in known and value not in unset)
    if unknown:
        raise UnsupportedHere(f"{', '.join(unknown)} of {where}")
