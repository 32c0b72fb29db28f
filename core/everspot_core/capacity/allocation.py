"""Decides which pool each instance of a fleet comes from, as a pure function.

A pool is an instance type in a zone in a market. A target is in capacity units, and a candidate's weight is the number
of units that one of its instances provides. Instances are added until the target is reached. So a fleet may exceed its
target, by less than the weight of the instance that was added last.

The local cloud uses it to choose what its fleets launch.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from pydantic import Field, model_validator

from everspot_core.capacity.market import Market
from everspot_core.documents import Frozen


class Prefer(StrEnum):
    """How to choose between suitable pools. Each cloud's rules translate it."""

    PRICE = "price"
    """The cheapest pools."""
    DEPTH = "depth"
    """The pools with the most spare capacity, whatever they cost: they are interrupted least."""
    BALANCE = "balance"
    """The cheapest of the pools with much spare capacity."""
    ORDER = "order"
    """The order in which the author lists the types, the preferred ones first."""


class Launchable(Frozen):
    """One override of a fleet: an instance type, its zone and market, and how many units it counts."""

    instance_type: str
    zone: str
    weight: float = Field(default=1, gt=0, description="Capacity units of one instance.")
    priority: float | None = Field(default=None, ge=0, description="Lower goes first; None goes last.")
    max_price: float | None = Field(default=None, gt=0, description="Dollars per unit hour; Spot only.")


class Pool(Frozen):
    """A pool as it is now: how many instances it can still give, and what one costs per hour."""

    instance_type: str
    zone: str
    market: Market
    available: int = Field(ge=0)
    usd_per_hour: float = Field(gt=0)


class AllocationRequest(Frozen):
    """A request for capacity units beyond those that already run."""

    candidates: tuple[Launchable, ...] = Field(min_length=1)
    on_demand: float = Field(default=0, ge=0)
    spot: float = Field(default=0, ge=0)
    spot_strategy: Prefer = Prefer.PRICE
    on_demand_strategy: Prefer = Prefer.PRICE
    instance_pools_to_use: int = Field(default=1, ge=1, description="By price only: spread over so many pools.")

    @model_validator(mode="after")
    def _pools_to_use(self) -> "AllocationRequest":
        if self.instance_pools_to_use != 1 and self.spot_strategy is not Prefer.PRICE:
            raise ValueError("instance_pools_to_use belongs to the preference for the price")
        if self.on_demand_strategy not in (Prefer.PRICE, Prefer.ORDER):
            raise ValueError("on-demand is chosen by price or order")
        return self


class Placement(Frozen):
    """One instance to launch. `candidate` is the position in the request's list."""

    candidate: int
    instance_type: str
    zone: str
    market: Market
    weight: float
    usd_per_hour: float


class Cause(StrEnum):
    """Why a candidate gave no instance."""

    NO_CAPACITY = "no-capacity"
    PRICE_TOO_HIGH = "price-too-high"
    NO_POOL = "no-pool"  # the type is not offered in that zone and market


class Refusal(Frozen):
    """A candidate that gave no further instance, although it was tried or would have been needed."""

    candidate: int
    market: Market
    cause: Cause


class Allocation(Frozen):
    """The instances to launch, in order, and what is missing. Shortfalls are in capacity units, 0 when the target is
    met."""

    placements: tuple[Placement, ...]
    refusals: tuple[Refusal, ...]
    on_demand_shortfall: float
    spot_shortfall: float


DEEP_ENOUGH = 0.5
"""price-capacity-optimized takes the cheapest of the pools whose spare capacity is at least this fraction of the
deepest pool's.

No cloud publishes its threshold; this one is the local cloud's.
"""

_PoolKey = tuple[str, str, Market]


def allocate(request: AllocationRequest, pools: Sequence[Pool]) -> Allocation:
    """Choose instances for a request: the on-demand part first, then Spot. Ties go to the earlier candidate.

    Raises:
        ValueError: if two pools are the same type, zone and market.
    """
    by_key: dict[_PoolKey, Pool] = {(p.instance_type, p.zone, p.market): p for p in pools}
    if len(by_key) != len(pools):
        raise ValueError("a pool is given twice")
    on_demand = _Filler(request, by_key, Market.ON_DEMAND, request.on_demand).fill()
    spot = _Filler(request, by_key, Market.SPOT, request.spot).fill()
    return Allocation(
        placements=(*on_demand.placements, *spot.placements),
        refusals=(*on_demand.refusals(), *spot.refusals()),
        on_demand_shortfall=on_demand.missing,
        spot_shortfall=spot.missing,
    )


class _Filler:
    """Fills one market's target, one instance at a time, because every instance reduces its pool's spare capacity."""

    def __init__(
        self, request: AllocationRequest, pools: Mapping[_PoolKey, Pool], market: Market, target: float
    ) -> None:
        self._request = request
        self._market = market
        self._target = target
        self._pools = pools
        self._available = {key: pool.available for key, pool in pools.items() if key[2] is market}
        self._filled = 0.0
        self.placements: list[Placement] = []

    @property
    def missing(self) -> float:
        return max(0.0, self._target - self._filled)

    def fill(self) -> "_Filler":
        while self._filled < self._target:
            open_ones = [i for i in range(len(self._request.candidates)) if self._cause(i) is None]
            if not open_ones:
                break
            chosen = self._choose(open_ones)
            candidate = self._request.candidates[chosen]
            key = self._key(chosen)
            self._available[key] -= 1
            self._filled += candidate.weight
            self.placements.append(
                Placement(
                    candidate=chosen,
                    instance_type=candidate.instance_type,
                    zone=candidate.zone,
                    market=self._market,
                    weight=candidate.weight,
                    usd_per_hour=self._pools[key].usd_per_hour,
                )
            )
        return self

    def refusals(self) -> list[Refusal]:
        """Return the candidates that gave no further instance.

        If the target was missed, these are all candidates. Otherwise they are the candidates that were tried first,
        because price or priority ranks them before a candidate that gave an instance.
        """
        if self._target <= 0:
            return []
        causes = {i: self._cause(i) for i in range(len(self._request.candidates))}
        used = {p.candidate for p in self.placements}
        last = max((self._rank(i) for i in used), default=None)
        refusal_list = []
        for i, cause in causes.items():
            tried_first = self._ordered() and last is not None and i not in used and self._rank(i) < last
            if cause is not None and (self.missing > 0 or tried_first):
                refusal_list.append(Refusal(candidate=i, market=self._market, cause=cause))
        return refusal_list

    def _ordered(self) -> bool:
        return self._market is Market.ON_DEMAND or self._request.spot_strategy is Prefer.PRICE

    def _key(self, index: int) -> _PoolKey:
        candidate = self._request.candidates[index]
        return (candidate.instance_type, candidate.zone, self._market)

    def _cause(self, index: int) -> Cause | None:
        key = self._key(index)
        pool = self._pools.get(key)
        if pool is None:
            return Cause.NO_POOL
        limit = self._request.candidates[index].max_price if self._market is Market.SPOT else None
        if limit is not None and self._unit_price(index) > limit:
            return Cause.PRICE_TOO_HIGH
        return Cause.NO_CAPACITY if self._available[key] <= 0 else None

    def _unit_price(self, index: int) -> float:
        pool = self._pools.get(self._key(index))
        return float("inf") if pool is None else pool.usd_per_hour / self._request.candidates[index].weight

    def _rank(self, index: int) -> tuple[float, float, int]:
        """Return the order in which candidates are tried where price or priority decides."""
        request, on_demand = self._request, self._market is Market.ON_DEMAND
        if (request.on_demand_strategy if on_demand else request.spot_strategy) is Prefer.ORDER:
            priority = self._request.candidates[index].priority
            return (float("inf") if priority is None else priority, 0.0, index)
        return (0.0, self._unit_price(index), index)

    def _choose(self, open_ones: list[int]) -> int:
        if self._ordered():
            return self._cheapest(open_ones)
        depth = {i: self._available[self._key(i)] for i in open_ones}
        deepest = max(depth.values())
        if self._request.spot_strategy is Prefer.DEPTH:
            return next(i for i in open_ones if depth[i] == deepest)
        # By balance the cheapest of these, by order the first of them: depth goes before both.
        deep = [i for i in open_ones if depth[i] >= deepest * DEEP_ENOUGH]
        return min(deep, key=self._rank)

    def _cheapest(self, open_ones: list[int]) -> int:
        ranked = sorted(open_ones, key=self._rank)
        if self._market is Market.ON_DEMAND or self._request.instance_pools_to_use == 1:
            return ranked[0]
        # Spread: of the N cheapest pools, the one that was used least so far.
        keys = list(dict.fromkeys(self._key(i) for i in ranked))[: self._request.instance_pools_to_use]
        use_counts = {key: sum(1 for p in self.placements if self._key(p.candidate) == key) for key in keys}
        least = min(keys, key=lambda key: use_counts[key])
        return next(i for i in ranked if self._key(i) == least)
