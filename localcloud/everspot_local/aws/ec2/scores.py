"""Stands in for GetSpotPlacementScores: how likely the market is to have the requested Spot capacity now.

EC2 does not publish how it scores. Here a score follows from what the market's pools would give now, all types
together, as a multiple of what is asked for: 5 where it is just enough, 10 from three times as much on, and from 4 down
to 1 where it is less. It knows no other region than its own, and leaves others out, as EC2 does in China; nor
attribute-based selection.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_core.jobs.records import Market
from moto.core.utils import get_service_model
from moto.ec2.exceptions import EC2ClientError, InvalidNextToken

from everspot_local.aws import account
from everspot_local.aws.ec2.exceptions import InvalidParameter, MissingParameter, UnknownInstanceType, UnsupportedHere
from everspot_local.aws.strict import strict

BEST, WORST, ENOUGH = 10, 1, 5
PLENTY = 3.0
FEW_TYPES, LOW = 3, 2
"""With fewer types "the returned placement score will always be low" (botocore, GetSpotPlacementScoresRequest)."""
MOST_CONFIGURATIONS = 10
"""New ones in 24 hours. EC2 User Guide, "Spot placement score", limitations, names no figure; as met it is "a few (10)"
(https://github.com/aws-solutions-library-samples/guidance-for-ec2-spot-placement-score-tracker)."""
DAY = timedelta(hours=24)
MOST_REGIONS, MOST_TYPES, MOST_SCORES, LARGEST_PAGE = 10, 1000, 10, 1000
UNITS = ("units", "vcpu", "memory-mib")


@dataclass
class Configurations:
    """The requests of the last day: each may be repeated, and only few new ones are allowed."""

    _admitted: dict[str, datetime] = field(default_factory=dict)

    def admit(self, question: str, now: datetime) -> bool:
        """Return whether a request is allowed."""
        self._admitted = {earlier_question: at for earlier_question, at in self._admitted.items() if now - at < DAY}
        if question not in self._admitted and len(self._admitted) >= MOST_CONFIGURATIONS:
            return False
        self._admitted[question] = now
        return True


def answer(configurations: Configurations, params: dict[str, Any]) -> dict[str, Any]:
    """Return the requested scores, the best first."""
    _check(params)
    kinds, here = sorted(set(params["InstanceTypes"])), account.current()
    unknown = [kind for kind in kinds if kind not in here.market.pools.catalogue.types]
    if unknown:
        raise UnknownInstanceType(", ".join(unknown))
    settings = {key: params.get(key) for key in ("TargetCapacity", "TargetCapacityUnitType", "SingleAvailabilityZone")}
    question = repr((kinds, sorted(settings.items()), sorted(params.get("RegionNames") or [])))
    if strict() and not configurations.admit(question, here.market.clock.now()):
        raise EC2ClientError(
            "MaxConfigLimitExceeded",
            "You have exceeded your maximum allowed Spot placement configurations. You can retry configurations that "
            "you used within the last 24 hours, or wait for 24 hours before specifying a new configuration.",
        )
    regions = params.get("RegionNames") or [here.region]
    scores = _scores(kinds, params) if here.region in regions else []
    return _page(sorted(scores, key=lambda s: (-int(s["Score"]), str(s)))[:MOST_SCORES], params)


def _check(params: dict[str, Any]) -> None:
    kinds, attributes = params.get("InstanceTypes") or [], params.get("InstanceRequirementsWithMetadata")
    if kinds and attributes:
        raise EC2ClientError(
            "InvalidParameterCombination",
            "You can't specify both InstanceTypes and InstanceRequirementsWithMetadata in the same request.",
        )
    if attributes:
        raise UnsupportedHere("InstanceRequirementsWithMetadata of GetSpotPlacementScores")
    if not kinds:
        raise MissingParameter("InstanceTypes")
    if params.get("TargetCapacity") is None:
        raise MissingParameter("TargetCapacity")
    regions = params.get("RegionNames") or []
    page, unit = params.get("MaxResults"), params.get("TargetCapacityUnitType") or "units"
    for name, value, allowed in (
        ("TargetCapacity", params["TargetCapacity"], 1 <= int(params["TargetCapacity"]) <= _largest_target()),
        ("TargetCapacityUnitType", unit, unit in UNITS),
        ("InstanceTypes", f"{len(kinds)} types", len(kinds) <= MOST_TYPES),
        ("RegionNames", f"{len(regions)} regions", len(regions) <= MOST_REGIONS),
        ("MaxResults", page, page is None or 10 <= int(page) <= LARGEST_PAGE),
    ):
        if not allowed:
            raise InvalidParameter(f"Invalid value '{value}' for {name}")


def _largest_target() -> int:
    shape = get_service_model("ec2").operation_model("GetSpotPlacementScores").input_shape
    return int(shape.members["TargetCapacity"].metadata["max"])


def _scores(kinds: list[str], params: dict[str, Any]) -> list[dict[str, Any]]:
    here = account.current()
    unit, target = params.get("TargetCapacityUnitType") or "units", int(params["TargetCapacity"])
    units_by_zone = {zone: sum(_units(kind, zone, unit) for kind in kinds) for zone in here.market.pools.zones}
    if not params.get("SingleAvailabilityZone"):
        return [{"Region": here.region, "Score": _score(sum(units_by_zone.values()) / target, len(kinds))}]
    return [
        {
            "Region": here.region,
            "AvailabilityZoneId": here.market.zone_ids[zone],
            "Score": _score(units / target, len(kinds)),
        }
        for zone, units in units_by_zone.items()
        if any(here.market.pools.offers(kind, zone) for kind in kinds)
    ]


def _units(kind: str, zone: str, unit: str) -> float:
    """Return the capacity units that one pool has now."""
    pools = account.current().market.pools
    if (pool := pools.get(kind, zone)) is None:
        return 0.0
    instance_type = pools.catalogue.types[kind]
    each = {"units": 1.0, "vcpu": float(instance_type.vcpus), "memory-mib": instance_type.memory_gib * 1024.0}[unit]
    return pool.available(Market.SPOT) * each


def _score(multiple: float, kinds: int) -> int:
    if multiple < 1:
        score = max(WORST, int(ENOUGH * multiple))
    else:
        score = min(BEST, ENOUGH + int((BEST - ENOUGH) * (multiple - 1) / (PLENTY - 1)))
    return min(score, LOW) if kinds < FEW_TYPES else score


def _page(scores: list[dict[str, Any]], params: dict[str, Any]) -> dict[str, Any]:
    token, size = str(params.get("NextToken") or "0"), int(params.get("MaxResults") or LARGEST_PAGE)
    if not token.isdigit() or int(token) > len(scores):
        raise InvalidNextToken(token)
    start = int(token)
    more = start + size < len(scores)
    return {"SpotPlacementScores": scores[start : start + size], "NextToken": str(start + size) if more else None}
