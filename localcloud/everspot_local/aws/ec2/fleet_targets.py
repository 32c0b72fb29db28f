"""The capacity units that a fleet wants of each market, as CreateFleet and ModifyFleet state them."""

from dataclasses import dataclass, replace
from typing import Any

from everspot_local.aws.ec2.exceptions import InvalidParameter, InvalidTargetCapacity, MissingParameter, UnsupportedHere

LARGEST_TARGET = 10_000


@dataclass(frozen=True)
class Targets:
    """The capacity units that a fleet should have. `default`: the market that changes of the total apply to."""

    total: int
    on_demand: int
    spot: int
    default: str

    def document(self) -> dict[str, Any]:
        """Return the targets as DescribeFleets shows them."""
        return {
            "TotalTargetCapacity": self.total,
            "OnDemandTargetCapacity": self.on_demand,
            "SpotTargetCapacity": self.spot,
            "DefaultTargetCapacityType": self.default,
        }

    def modified(self, specification: dict[str, Any]) -> "Targets":
        """Return the targets after a ModifyFleet (EC2 User Guide, "Modify an EC2 Fleet"), which may change each of
        them.

        A market that is not named keeps its part, and what changes of the total goes to the default market; so a
        fleet of one market is scaled by its total alone, down to 0.
        """
        total = _total({"TotalTargetCapacity": self.total, **{k: v for k, v in specification.items() if v is not None}})
        new_parts = {m: specification.get(f"{m}TargetCapacity") for m in ("OnDemand", "Spot")}
        current_parts = {"OnDemand": self.on_demand, "Spot": self.spot}
        standing = "OnDemand" if self.default == "spot" else "Spot"
        adjusted = "Spot" if standing == "OnDemand" else "OnDemand"
        fixed = int(new_parts[standing]) if new_parts[standing] is not None else current_parts[standing]  # type: ignore[arg-type]
        adjusted_target = new_parts[adjusted]
        if fixed > total or (adjusted_target is not None and int(adjusted_target) + fixed > total):
            raise InvalidTargetCapacity(
                f"The on-demand and Spot target capacities exceed the total target capacity of {total}."
            )
        parts = {standing: fixed, adjusted: total - fixed}
        return replace(self, total=total, on_demand=parts["OnDemand"], spot=parts["Spot"])


def read_targets(specification: dict[str, Any]) -> Targets:
    """Read the targets of a CreateFleet request."""
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
    unassigned = total - on_demand - spot
    return Targets(
        total=total,
        on_demand=on_demand + (unassigned if default == "on-demand" else 0),
        spot=spot + (unassigned if default == "spot" else 0),
        default=default,
    )


def _total(specification: dict[str, Any]) -> int:
    total = specification.get("TotalTargetCapacity")
    if total is None:
        raise MissingParameter("TargetCapacitySpecification.TotalTargetCapacity")
    if not 0 <= int(total) <= LARGEST_TARGET:
        raise InvalidTargetCapacity(f"The total target capacity must be between 0 and {LARGEST_TARGET}.")
    return int(total)
