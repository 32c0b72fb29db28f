"""What launched instances cost an hour: one answer for the cap, for the check before a launch and for what people read.

Of what nobody knows the price it is as much as the dearest that is known: what is not known must not look free, or a
cap in dollars would hold nothing back.
"""

from collections.abc import Iterable
from functools import cached_property

from everspot_core.schedule.view import ClusterView, PoolKey


class Tariff:
    """The prices of one view, at its moment."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def known(self, pool: PoolKey) -> float | None:
        """Dollars an hour by the pool's own price; None if that is not known."""
        return self._pools.get(pool)

    def of(self, pool: PoolKey | None) -> float | None:
        """Dollars an hour to reckon with: by the pool's price, else by that of its type on-demand, else by the dearest.

        `pool` None: nobody knows which. None: no price is known at all.
        """
        if pool is None:
            return self._dearest
        usd = self._pools.get(pool)
        return usd if usd is not None else self._types.get(pool.instance_type, self._dearest)

    def total(self, pools: Iterable[PoolKey | None]) -> float | None:
        """Dollars an hour of instances of these pools together; None if there are any and no price is known at all."""
        each = [self.of(pool) for pool in pools]
        known = [usd for usd in each if usd is not None]
        return sum(known) if len(known) == len(each) else None

    @cached_property
    def _pools(self) -> dict[PoolKey, float]:
        return {p.key: p.usd_per_hour for p in self._view.pools}

    @cached_property
    def _types(self) -> dict[str, float]:
        listed = (*self._view.types, *(p.instance_type for p in self._view.pools))
        return {t.name: t.on_demand_usd_per_hour for t in listed if t.on_demand_usd_per_hour is not None}

    @cached_property
    def _dearest(self) -> float | None:
        return max([*self._pools.values(), *self._types.values()], default=None)
