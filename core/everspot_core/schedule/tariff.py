"""The cost of launched instances in an hour. The cap, the check before a launch and the reports for people all use it.

An instance of unknown price counts at the highest known price. If it counted as free, a cap in dollars would not limit
it.
"""

from collections.abc import Iterable
from functools import cached_property

from everspot_core.schedule.view import ClusterView, PoolKey, instance_pool

EPSILON = 1e-9
"""Dollars below which a difference is rounding."""


class Tariff:
    """The prices in one view of a cluster."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def pool_price(self, pool: PoolKey) -> float | None:
        """Return the pool's own price in dollars an hour; None if it is not known."""
        return self._pools.get(pool)

    def hourly_price(self, pool: PoolKey | None) -> float | None:
        """Return the dollars an hour that an instance of the pool counts for.

        It is the pool's price, else the on-demand price of its type, else the highest price that is known.

        `pool`: None if the pool is not known. Returns None if no price is known at all.
        """
        if pool is None:
            return self._highest_price
        usd = self._pools.get(pool)
        return usd if usd is not None else self._types.get(pool.instance_type, self._highest_price)

    def total(self, pools: Iterable[PoolKey | None]) -> float | None:
        """Return dollars an hour for instances of these pools together; None if there are any and no price is known."""
        each = [self.hourly_price(pool) for pool in pools]
        prices = [usd for usd in each if usd is not None]
        return sum(prices) if len(prices) == len(each) else None

    def launched(self) -> tuple[int, float | None]:
        """Return the number of launched instances that run or come, and their dollars an hour together, as `total`
        counts them. Released instances count until they are gone."""
        pools = [instance_pool(i) for i in self._view.instances if i.launched]
        return len(pools), self.total(pools)

    @cached_property
    def _pools(self) -> dict[PoolKey, float]:
        return {p.key: p.usd_per_hour for p in self._view.pools}

    @cached_property
    def _types(self) -> dict[str, float]:
        listed = (*self._view.types, *(p.instance_type for p in self._view.pools))
        return {t.name: t.on_demand_usd_per_hour for t in listed if t.on_demand_usd_per_hour is not None}

    @cached_property
    def _highest_price(self) -> float | None:
        return max([*self._pools.values(), *self._types.values()], default=None)
