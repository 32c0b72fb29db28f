"""Prices of pools for an estimate: from the catalogue, from a ledger, or from a market."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction

from everspot_core.capacity.catalogue import Catalogue, Price
from everspot_core.costs.prices import exact
from everspot_core.estimate.requested import TypeOption
from everspot_core.estimate.usage_history import Recent, SeenPrice


@dataclass(frozen=True, slots=True)
class PoolRate:
    """A candidate in a zone, USD per instance hour: lowest, recent and highest known price."""

    candidate: TypeOption
    zone: str
    low: Fraction
    expected: Fraction
    high: Fraction


class PoolRates:
    """Prices in a region. `dates`: those of all prices that were asked for."""

    def __init__(self, catalogue: Catalogue, recent: Recent | None = None) -> None:
        """`recent`: what a ledger or a market has seen lately; None if neither is known."""
        self._catalogue = catalogue
        self._recent_prices = {} if recent is None else recent.spot
        self.dates: set[date] = set()

    def on_demand(self, instance_type: str, region: str) -> Fraction | None:
        """Return the list price; None if it is unknown."""
        price = self._catalogue.on_demand(instance_type, region)
        return None if price is None else self._noted(price)

    def pool(self, candidate: TypeOption, zone: str, region: str) -> PoolRate | None:
        """Return the spot prices of a candidate in a zone; None if no price is known, or if its limit is below all
        prices.

        A pool whose price is above the candidate's limit gives nothing. Nobody pays more than that limit, or without a
        limit more than the on-demand price. `zone`: empty if it is unknown.
        """
        seen_price = self._price_range(candidate.instance_type, zone, region)
        limit = candidate.max_price
        if seen_price is None or (limit is not None and seen_price.low > limit):
            return None
        if limit is None:
            limit = self.on_demand(candidate.instance_type, region)
        low, expected, high = (
            price if limit is None else min(price, limit)
            for price in (seen_price.low, seen_price.mean, seen_price.high)
        )
        return PoolRate(candidate, zone, low, expected, high)

    def pools(self, candidate: TypeOption, zones: Sequence[str], region: str) -> list[PoolRate]:
        """Return the spot pools of a candidate that have a price, in those of the zones that it is for."""
        allowed = [zone for zone in zones if not candidate.zones or zone in candidate.zones]
        pool_rates = [self.pool(candidate, zone, region) for zone in allowed or ("",)]
        return [rate for rate in pool_rates if rate is not None]

    def beyond_limit(self, candidate: TypeOption, zones: Sequence[str], region: str) -> str:
        """Return the sentence that a candidate gets no Spot because of its limit, with both prices; empty if it gets
        some."""
        limit = candidate.max_price
        free = self.pools(replace(candidate, max_price=None), zones, region) if limit is not None else []
        lowest = min((pool.low for pool in free), default=None)
        if limit is None or lowest is None or lowest <= limit:
            return ""
        return (
            f"no spot {candidate.instance_type} is bought: its maxPrice allows ${_hourly(limit)} an hour, and its "
            f"lowest known price is ${_hourly(lowest)}"
        )

    def on_demand_pool(self, candidate: TypeOption, region: str) -> PoolRate | None:
        """Return the on-demand price of a candidate as that of a pool; None if it is unknown."""
        price = self.on_demand(candidate.instance_type, region)
        return None if price is None else PoolRate(candidate, "", price, price, price)

    def _price_range(self, name: str, zone: str, region: str) -> SeenPrice | None:
        listed = self._catalogue.spot_range(name, region)
        recent_prices = [
            price for place, price in self._recent_prices.items() if place[0] == name and zone in ("", place[1])
        ]
        lows, highs = [price.low for price in recent_prices], [price.high for price in recent_prices]
        if listed is not None:
            lows.append(self._noted(listed[0]))
            highs.append(self._noted(listed[1]))
        if not lows:
            return None
        low, high = min(lows), max(highs)
        mean = (
            sum((price.mean for price in recent_prices), Fraction(0)) / len(recent_prices)
            if recent_prices
            else (low + high) / 2
        )
        return SeenPrice(low, mean, high)

    def _noted(self, price: Price) -> Fraction:
        if price.as_of is not None:
            self.dates.add(price.as_of)
        return exact(price.usd_per_hour)


def _hourly(usd: Fraction) -> str:
    """Return dollars of an hour as a list of prices has them, without zeros at their end."""
    return f"{float(usd):.6f}".rstrip("0").rstrip(".")
