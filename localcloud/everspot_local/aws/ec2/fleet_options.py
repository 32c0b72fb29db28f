"""Holds a CreateFleet request's options to EC2's rules, and reads them into values.

What EC2 offers and the local cloud does not is refused by name: attribute-based selection, capacity rebalancing,
reserved capacity, the strategy `diversified`, price caps on the total, validity periods, and interruption by stop or
hibernation. There are no capacity reservations here: `use-capacity-reservations-first` finds none, and on-demand
capacity is launched by its allocation strategy, as it is on AWS.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everspot_clouds.aws.fleet import ON_DEMAND_PREFERS, SPOT_PREFERS, AwsSpotAllocation
from everspot_core.capacity.allocation import Prefer
from everspot_core.jobs.records import Market

from everspot_local.aws.ec2.exceptions import (
    InvalidFleetConfig,
    InvalidParameter,
    InvalidTargetCapacity,
    MissingParameter,
    UnsupportedHere,
)
from everspot_local.aws.ec2.fleet_targets import read_targets
from everspot_local.aws.strict import strict

TYPES = ("instant", "request", "maintain")
RESERVATIONS_FIRST = "use-capacity-reservations-first"
# botocore, SpotOptionsRequest and OnDemandOptionsRequest: "Constraints: Maximum value of 1000."
LARGEST_MINIMUM = 1000
# botocore, CreateFleetRequest.TagSpecifications.
TAGGABLE = {"instant": ("fleet", "instance", "volume", "network-interface")}
LONGEST_TOKEN = 64
_REQUEST = {
    "DryRun", "ClientToken", "SpotOptions", "OnDemandOptions", "ExcessCapacityTerminationPolicy",
    "LaunchTemplateConfigs", "TargetCapacitySpecification", "TerminateInstancesWithExpiration", "Type",
    "ReplaceUnhealthyInstances", "TagSpecifications", "Context",
}  # fmt: skip
_INSTANT = {"SingleInstanceType", "SingleAvailabilityZone", "MinTargetCapacity"}
_SPOT = {"AllocationStrategy", "InstanceInterruptionBehavior", "InstancePoolsToUseCount", *_INSTANT}
_ON_DEMAND = {"AllocationStrategy", "CapacityReservationOptions", *_INSTANT}


@dataclass(frozen=True)
class MarketOptions:
    """How the part of a fleet in one market is launched.

    Attributes:
        single_type: whether all of it must have one type.
        single_zone: whether all of it must be in one zone.
        minimum: capacity units below which nothing is launched; 0 for any number.
    """

    prefer: Prefer
    single_type: bool = False
    single_zone: bool = False
    minimum: int = 0
    pools_to_use: int = 1


def read_options(request: dict[str, Any]) -> dict[Market, MarketOptions]:
    """Return the options by market."""
    options_by_market = {}
    for market, name, played in (
        (Market.SPOT, "SpotOptions", SPOT_PREFERS),
        (Market.ON_DEMAND, "OnDemandOptions", ON_DEMAND_PREFERS),
    ):
        options = request.get(name) or {}
        options_by_market[market] = MarketOptions(
            prefer=_strategy(name, options, played),
            single_type=bool(options.get("SingleInstanceType")),
            single_zone=bool(options.get("SingleAvailabilityZone")),
            minimum=int(options.get("MinTargetCapacity") or 0),
            pools_to_use=int(options.get("InstancePoolsToUseCount") or 1),
        )
    return options_by_market


def check(request: dict[str, Any]) -> None:
    """Refuse what EC2 refuses, and what the local cloud does not support."""
    only(request, _REQUEST, "CreateFleet")
    fleet_type = request.get("Type") or "maintain"
    if fleet_type not in TYPES:
        raise InvalidParameter(f"Invalid value '{fleet_type}' for Type")
    if not request.get("TargetCapacitySpecification"):
        raise MissingParameter("TargetCapacitySpecification")
    if strict() and fleet_type != "maintain" and read_targets(request["TargetCapacitySpecification"]).total == 0:
        # botocore, TargetCapacitySpecificationRequest: a target of 0 is for the request type `maintain`.
        raise InvalidTargetCapacity(f"A fleet of type {fleet_type} needs a total target capacity of at least 1.")
    policy = request.get("ExcessCapacityTerminationPolicy")
    if policy is not None and fleet_type != "maintain":
        raise InvalidFleetConfig("ExcessCapacityTerminationPolicy is only available for fleets of type maintain.")
    if policy not in (None, "termination", "no-termination"):
        raise InvalidParameter(f"Invalid value '{policy}' for ExcessCapacityTerminationPolicy")
    if strict() and request.get("ReplaceUnhealthyInstances") and fleet_type != "maintain":
        raise InvalidFleetConfig("ReplaceUnhealthyInstances is only available for fleets of type maintain.")
    _check_token(request.get("ClientToken"))
    _check_spot(request.get("SpotOptions") or {}, fleet_type)
    _check_on_demand(request.get("OnDemandOptions") or {}, fleet_type)
    for tags in request.get("TagSpecifications") or []:
        if tags.get("ResourceType") not in TAGGABLE.get(fleet_type, ("fleet",)):
            raise InvalidParameter(
                f"'{tags.get('ResourceType')}' is not a valid taggable resource type for a fleet of type {fleet_type}."
            )


def _check_token(token: Any) -> None:
    """EC2 Developer Guide, "Ensuring idempotency": up to 64 ASCII characters."""
    if token and (len(str(token)) > LONGEST_TOKEN or not str(token).isascii()):
        raise InvalidParameter(f"Invalid value '{token}' for clientToken: it must be up to 64 ASCII characters")


def _check_spot(options: dict[str, Any], fleet_type: str) -> None:
    only(options, _SPOT, "SpotOptions")
    strategy = _strategy("SpotOptions", options, SPOT_PREFERS)
    if "InstancePoolsToUseCount" in options and strategy is not Prefer.PRICE:
        raise InvalidFleetConfig(
            "InstancePoolsToUseCount option is only available with the lowestPrice allocation strategy."
        )
    if options.get("InstanceInterruptionBehavior", "terminate") != "terminate":
        raise UnsupportedHere(f"the interruption behavior '{options['InstanceInterruptionBehavior']}'")
    _check_whole("SpotOptions", options, fleet_type)


def _check_on_demand(options: dict[str, Any], fleet_type: str) -> None:
    only(options, _ON_DEMAND, "OnDemandOptions")
    _strategy("OnDemandOptions", options, ON_DEMAND_PREFERS)
    reservations = options.get("CapacityReservationOptions") or {}
    usage = reservations.get("UsageStrategy")
    if usage not in (None, RESERVATIONS_FIRST):
        raise InvalidParameter(f"Invalid value '{usage}' for CapacityReservationOptions.UsageStrategy")
    if usage and fleet_type != "instant":
        raise _instant_only("CapacityReservationOptions")
    _check_whole("OnDemandOptions", options, fleet_type)


def _check_whole(name: str, options: dict[str, Any], fleet_type: str) -> None:
    """botocore, SpotOptionsRequest: all are for `instant` fleets, and a minimum needs one of the others."""
    instant_options = sorted(key for key in _INSTANT if options.get(key))
    if instant_options and fleet_type != "instant":
        raise _instant_only(f"{name}.{instant_options[0]}")
    if "MinTargetCapacity" not in instant_options:
        return
    if not 1 <= int(options["MinTargetCapacity"]) <= LARGEST_MINIMUM:
        raise InvalidParameter(
            f"Invalid value '{options['MinTargetCapacity']}' for {name}.MinTargetCapacity; "
            f"it must be between 1 and {LARGEST_MINIMUM}"
        )
    if len(instant_options) == 1:
        raise InvalidFleetConfig(
            "MinTargetCapacity needs at least one of SingleInstanceType and SingleAvailabilityZone."
        )


def _instant_only(option: str) -> InvalidFleetConfig:
    return InvalidFleetConfig(f"{option} can only be specified for fleets of type instant.")


def _strategy(name: str, options: dict[str, Any], played: Mapping[str, Prefer]) -> Prefer:
    """Return the requested strategy, or EC2's default. EC2 accepts its older spelling too, which the provider sends."""
    strategy = str(options.get("AllocationStrategy") or "lowest-price")
    strategy = "lowest-price" if strategy == "lowestPrice" else strategy
    if strategy in played:
        return played[strategy]
    if played is SPOT_PREFERS and strategy in tuple(AwsSpotAllocation):
        raise UnsupportedHere(f"the Spot allocation strategy '{strategy}'; it knows {', '.join(played)}")
    raise InvalidParameter(f"Invalid value '{strategy}' for {name}.AllocationStrategy")


def only(fields: dict[str, Any], supported: set[str], where: str) -> None:
    """Refuse by name what is requested and not supported. The upstream provider sends 0 and false for what nobody
    set."""
    unset = (None, "", 0, False, "0", "false")
    unknown = sorted(key for key, value in fields.items() if key not in supported and value not in unset)
    if unknown:
        raise UnsupportedHere(f"{', '.join(unknown)} of {where}")
