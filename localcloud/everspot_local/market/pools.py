"""Stands in for the Spot market's pools: how many instances each has room for, and their prices.

It does not know why prices move: they follow a script, a trace, or a seeded walk around the catalogue's figures.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_core.capacity.allocation import Pool
from everspot_core.capacity.catalogue import Catalogue
from everspot_core.jobs.records import Market

UNBOUNDED = 10_000
"""How many on-demand instances a pool gives, unless it is scripted otherwise."""


@dataclass
class MarketPool:
    """One instance type in one zone, with its Spot side and its on-demand side."""

    instance_type: str
    zone: str
    on_demand_usd: float
    spot_bounds: tuple[float, float] | None
    depth: dict[Market, int]
    used: dict[Market, int] = field(default_factory=lambda: dict.fromkeys(Market, 0))
    dry_until: dict[Market, datetime] = field(default_factory=dict)
    prices: list[tuple[datetime, float]] = field(default_factory=list)
    scripted: bool = False  # its price does not walk by itself
    delays: dict[str, Any] = field(default_factory=dict)  # overrides of the market's delays, by name
    launch_failures: list[str] = field(default_factory=list)  # codes with which the next machines die, one each

    @property
    def name(self) -> str:
        """Return the name in scripts and commands: `m5.large/eu-west-1a`."""
        return f"{self.instance_type}/{self.zone}"

    @property
    def spot_usd(self) -> float | None:
        """Return the present Spot price, dollars per hour; None where there is no Spot market."""
        return self.prices[-1][1] if self.prices else None

    def hourly_usd(self, market: Market) -> float | None:
        """Return the present price per hour."""
        return self.on_demand_usd if market is Market.ON_DEMAND else self.spot_usd

    def available(self, market: Market) -> int:
        """Return how many more instances the pool has room for."""
        if market in self.dry_until or self.hourly_usd(market) is None:
            return 0
        return max(0, self.depth[market] - self.used[market])

    def view(self, market: Market) -> Pool | None:
        """Return the pool in the form that the allocation reads; None where there is no such market."""
        price = self.hourly_usd(market)
        if price is None:
            return None
        return Pool(
            instance_type=self.instance_type,
            zone=self.zone,
            market=market,
            available=self.available(market),
            usd_per_hour=price,
        )


class Pools:
    """All pools of a region, each made when it is first asked for, always the same for one seed.

    Args:
        catalogue: instance types with their prices and zones.
        region: the only region.
        zone_ids: zone ids by zone name.
        seed: of the depths, first prices and walks.
        opened: the market's first moment, from which the first prices hold.
        on_price: told of each new price, the first ones included.
        one_price: whether a type costs the same in all zones, unless a script says otherwise.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        region: str,
        zone_ids: dict[str, str],
        seed: int,
        opened: datetime,
        on_price: Callable[[MarketPool, float, datetime], None],
        *,
        one_price: bool = False,
    ) -> None:
        self.catalogue = catalogue
        self._region = region
        self._zone_ids = zone_ids
        self._seed = seed
        self._opened = opened
        self._on_price = on_price
        self._one_price = one_price
        self._pools: dict[tuple[str, str], MarketPool | None] = {}
        self._steps = 0
        self.spot_depth: int | None = None  # of Spot pools that are not open yet; None: by the seed

    def __iter__(self) -> Iterator[MarketPool]:
        return (pool for pool in list(self._pools.values()) if pool is not None)

    @property
    def zones(self) -> tuple[str, ...]:
        """Return the names of the region's zones."""
        return tuple(self._zone_ids)

    def get(self, instance_type: str, zone: str) -> MarketPool | None:
        """Return the pool, or None if the type is unknown, has no known price, or is not offered in that zone."""
        key = (instance_type, zone)
        if key not in self._pools:
            pool = self._pools[key] = self._make(instance_type, zone)
            if pool is not None:
                for at, usd in pool.prices:
                    self._on_price(pool, usd, at)
        return self._pools[key]

    def offered(self) -> Iterator[MarketPool]:
        """Yield every pool that the catalogue offers. A pool that nobody has asked for has its first price here, is not
        created, and leaves no line in the records."""
        for instance_type in sorted(self.catalogue.types):
            for zone in self.zones:
                key = (instance_type, zone)
                pool = self._pools[key] if key in self._pools else self._make(instance_type, zone)
                if pool is not None:
                    yield pool

    def offers(self, instance_type: str, zone: str) -> bool:
        """Return whether there is such a pool, without creating it."""
        if zone not in self._zone_ids or instance_type not in self.catalogue.types:
            return False
        offered = self.catalogue.zones(instance_type, self._region)
        priced = self.catalogue.on_demand(instance_type, self._region) is not None
        return priced and (not offered or self._zone_ids[zone] in offered)

    def matching(self, name: str) -> list[MarketPool]:
        """Return pools by `type/zone`, where either may be `*`; a bare type means all its zones, a bare zone all pools
        in use.

        Raises:
            ValueError: if the pool does not exist.
        """
        kind, _, zone = name.partition("/")
        if kind in self._zone_ids:
            kind, zone = "*", kind
        zone = zone or "*"
        if kind != "*":
            for each in self.zones if zone == "*" else (zone,):
                self.get(kind, each)
        matches = [p for p in self if kind in ("*", p.instance_type) and zone in ("*", p.zone)]
        if not matches:
            raise ValueError(f"there is no pool {name!r}: write type/zone, for example m5.large/{self.zones[0]}")
        return matches

    def set_price(self, pool: MarketPool, usd: float, at: datetime) -> None:
        """Set a Spot price from a moment on, to four decimals; a second price of one second takes effect a second
        later."""
        usd = round(usd, 4)
        if pool.prices and pool.prices[-1][1] == usd:
            return
        if pool.prices and pool.prices[-1][0] >= at:
            at = pool.prices[-1][0] + timedelta(seconds=1)
        pool.prices.append((at, usd))
        self._on_price(pool, usd, at)

    def walk(self, at: datetime) -> None:
        """Move every Spot price by one step of a seeded random walk that stays near the catalogue's range."""
        self._steps += 1
        for pool in self:
            if pool.spot_bounds is None or pool.spot_usd is None or pool.scripted:
                continue
            low, high = pool.spot_bounds
            name = pool.instance_type if self._one_price else pool.name
            draw = random.Random(f"{self._seed}/{name}/{self._steps}")  # noqa: S311 - a market, not a secret
            moved = pool.spot_usd * math.exp(draw.gauss(0, 0.03))
            self.set_price(pool, min(max(moved, low * 0.8), high * 1.2, pool.on_demand_usd), at)

    def _make(self, instance_type: str, zone: str) -> MarketPool | None:
        price = self.catalogue.on_demand(instance_type, self._region) if self.offers(instance_type, zone) else None
        if price is None:
            return None
        spot = self.catalogue.spot_range(instance_type, self._region)
        bounds = (spot[0].usd_per_hour, spot[1].usd_per_hour) if spot else None
        draw = random.Random(f"{self._seed}/{instance_type}/{zone}")  # noqa: S311 - a market, not a secret
        pool = MarketPool(
            instance_type=instance_type,
            zone=zone,
            on_demand_usd=price.usd_per_hour,
            spot_bounds=bounds,
            depth={Market.SPOT: draw.randint(4, 16), Market.ON_DEMAND: UNBOUNDED},
        )
        if self.spot_depth is not None:
            pool.depth[Market.SPOT] = self.spot_depth
        if bounds is not None:
            self._first_prices(pool, bounds, draw)
        return pool

    def _first_prices(self, pool: MarketPool, bounds: tuple[float, float], draw: random.Random) -> None:
        """Set the first prices by the seed, or copy those of the same type in another zone where it costs the same
        everywhere."""
        same = (p for p in self if p.instance_type == pool.instance_type and not p.scripted)
        sibling = next(same, None) if self._one_price else None
        if sibling is None:
            pool.prices.append((self._opened, round(draw.uniform(*bounds), 4)))
            return
        pool.prices.extend(sibling.prices)
