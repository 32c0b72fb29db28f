"""Stands in for one launch attempt of a fleet: chooses the pool of each instance, and says why other pools gave none.

Every launch is planned and checked before the first instance is there, so that a part that has a minimum
(MinTargetCapacity) either comes whole or costs nothing.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from everspot_core.capacity.allocation import Allocation, AllocationRequest, Placement, Pool, Prefer, Refusal, allocate
from everspot_core.jobs.records import Market
from moto.ec2.exceptions import EC2ClientError

from everspot_local.aws import account
from everspot_local.aws.ec2 import fleet_errors, quota_rules
from everspot_local.aws.ec2.fleet_options import MarketOptions
from everspot_local.aws.ec2.fleet_request import Override
from everspot_local.aws.strict import strict


class Launching(Protocol):
    """The fleet that launches."""

    overrides: list[Override]
    options: dict[Market, MarketOptions]

    def check_way(self, override: Override, market: Market) -> None:
        """Raise the error that EC2 would answer to one launch by this override."""

    def check_addresses(self, override: Override, instances: int) -> None:
        """Raise EC2's error if the override's subnet has no room for this many instances."""

    def afford(self, instances: int) -> EC2ClientError | None:
        """Take the request tokens of this many launches; return an error if there are too few."""

    def launch_one(self, override: Override, market: Market) -> None:
        """Launch an instance."""


@dataclass
class _Plan:
    """The planned launches of a set of overrides, and the errors that limit them.

    Attributes:
        ways: positions of the overrides in the request.
        placements: the planned launches.
        errors: one for each override that cannot launch its part.
        refused: overrides that already have an error.
    """

    ways: list[int]
    placements: list[Placement] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)

    @property
    def units(self) -> float:
        return sum(p.weight for p in self.placements)


class Attempt:
    """One launch attempt. `errors`: as the answer of an `instant` fleet shows them."""

    def __init__(self, fleet: Launching) -> None:
        self._fleet = fleet
        self._passed: set[tuple[int, Market]] = set()
        self.errors: list[dict[str, Any]] = []

    def launch(self, market: Market, units: float) -> bool:
        """Launch this many capacity units of a market; return whether all of them were launched."""
        if units <= 0:
            return True
        options = self._fleet.options[market]
        plans = [self._plan(market, units, ways) for ways in self._groups(options)]
        enough = [p for p in plans if p.placements and p.units >= options.minimum]
        if not enough:
            self._tell_too_little(plans, market)
            return False
        most = max(min(p.units, units) for p in enough)
        chosen = self._preferred([p for p in enough if min(p.units, units) >= most], market)
        self._add_errors(chosen.errors)
        return self._carry_out(chosen, market, options.minimum) >= units

    def _groups(self, options: MarketOptions) -> list[list[int]]:
        """Yield the sets of overrides that may be used together: all of them, or those of one type, of one zone, or of
        both."""
        groups: dict[tuple[str, str], list[int]] = {}
        for way, override in enumerate(self._fleet.overrides):
            kind, zone = override.candidate.instance_type, override.candidate.zone
            key = (kind if options.single_type else "", zone if options.single_zone else "")
            groups.setdefault(key, []).append(way)
        return list(groups.values())

    def _plan(self, market: Market, units: float, ways: list[int]) -> _Plan:
        """Return the launches of these overrides. Units that one of them cannot give are asked of the others."""
        plan = _Plan(ways)
        for way in ways:
            if (fault := self._fleet.overrides[way].fault) is not None:
                self._refuse(plan, way, market, fault)
        while plan.units < units:
            open_ways = [way for way in ways if way not in plan.refused]
            allocation = self._allocate(market, units - plan.units, open_ways, plan.placements)
            before = len(plan.refused)
            for placement in allocation.placements:
                way = open_ways[placement.candidate]
                if way in plan.refused:
                    continue
                if (error := self._check(way, market, plan.placements)) is not None:
                    self._refuse(plan, way, market, error)
                else:
                    plan.placements.append(placement.model_copy(update={"candidate": way}))
            if len(plan.refused) == before:
                for refusal in allocation.refusals:
                    self._refuse(plan, open_ways[refusal.candidate], market, self._refusal(refusal, open_ways))
                break
        return plan

    def _refuse(self, plan: _Plan, way: int, market: Market, error: EC2ClientError) -> None:
        plan.refused.add(way)
        plan.errors.append(self._error(way, market, error))

    def _allocate(self, market: Market, units: float, ways: list[int], planned: list[Placement]) -> Allocation:
        """Allocate units to the market's pools as they will be once the units taken so far are launched."""
        if not ways:
            return Allocation(placements=(), refusals=(), on_demand_shortfall=0, spot_shortfall=0)
        pools, candidates = account.current().market.pools, [self._fleet.overrides[way].candidate for way in ways]
        planned_counts = Counter((p.instance_type, p.zone) for p in planned)
        views: list[Pool] = []
        for key in dict.fromkeys((c.instance_type, c.zone) for c in candidates):
            if (pool := pools.get(*key)) is not None and (view := pool.view(market)) is not None:
                views.append(view.model_copy(update={"available": max(0, view.available - planned_counts[key])}))
        spot, on_demand = self._fleet.options[Market.SPOT], self._fleet.options[Market.ON_DEMAND]
        request = AllocationRequest(
            candidates=tuple(candidates),
            on_demand=units if market is Market.ON_DEMAND else 0,
            spot=units if market is Market.SPOT else 0,
            spot_strategy=spot.prefer,
            on_demand_strategy=on_demand.prefer,
            instance_pools_to_use=spot.pools_to_use if spot.prefer is Prefer.PRICE else 1,
        )
        return allocate(request, views)

    def _check(self, way: int, market: Market, planned: list[Placement]) -> EC2ClientError | None:
        """Return the error of one more launch by an override, in addition to the planned launches."""
        override, key = self._fleet.overrides[way], (way, market)
        try:
            if key not in self._passed:
                self._fleet.check_way(override, market)
                self._passed.add(key)
            if strict():
                subnets = [self._fleet.overrides[p.candidate].subnet_id for p in planned]
                self._fleet.check_addresses(override, 1 + subnets.count(override.subnet_id))
                quota_rules.check_vcpus(override.candidate.instance_type, market, 1, [p.instance_type for p in planned])
        except EC2ClientError as error:
            return error
        return None

    def _preferred(self, plans: list[_Plan], market: Market) -> _Plan:
        """Return the plan with which the strategy would begin if the overrides of all plans could be used together."""
        if len(plans) == 1:
            return plans[0]
        ways = sorted({p.candidate for plan in plans for p in plan.placements})
        first = self._allocate(market, 1, ways, [])
        way = ways[first.placements[0].candidate]
        return next(plan for plan in plans if way in plan.ways)

    def _carry_out(self, plan: _Plan, market: Market, minimum: int) -> float:
        """Launch what is planned, and return the units that were launched."""
        came = 0.0
        if minimum and (error := self._fleet.afford(len(plan.placements))) is not None:
            self._add_errors(
                [self._error(way, market, error) for way in sorted({p.candidate for p in plan.placements})]
            )
            return came
        for placement in plan.placements:
            error = None if minimum else self._fleet.afford(1)
            if error is not None:
                self._add_errors([self._error(placement.candidate, market, error)])
                continue
            self._fleet.launch_one(self._fleet.overrides[placement.candidate], market)
            came += placement.weight
        return came

    def _tell_too_little(self, plans: list[_Plan], market: Market) -> None:
        """Record why each override gives less than its part; one that could give some, but not enough, is
        unfulfillable."""
        for plan in plans:
            self._add_errors(plan.errors)
            short = {p.candidate for p in plan.placements} - plan.refused
            self._add_errors([self._error(way, market, fleet_errors.Unfulfillable()) for way in sorted(short)])

    def _add_errors(self, errors: list[dict[str, Any]]) -> None:
        self.errors += [e for e in errors if e not in self.errors]

    def _refusal(self, refusal: Refusal, ways: list[int]) -> EC2ClientError:
        candidate = self._fleet.overrides[ways[refusal.candidate]].candidate
        pool = account.current().market.pools.get(candidate.instance_type, candidate.zone)
        return fleet_errors.of_refusal(refusal, candidate, pool)

    def _error(self, way: int, market: Market, error: EC2ClientError) -> dict[str, Any]:
        return {
            "LaunchTemplateAndOverrides": override_document(self._fleet.overrides[way]),
            "Lifecycle": market.value,
            "ErrorCode": error.code,
            "ErrorMessage": error.message,
        }


def override_document(override: Override) -> dict[str, Any]:
    """Return an override as EC2's answers show it."""
    document: dict[str, Any] = {"LaunchTemplateSpecification": override.launch_template}
    if override.override:
        document["Overrides"] = override.override
    return document
