"""What the cap leaves for launches, computed before each launch."""

from collections.abc import Callable
from dataclasses import replace

from everspot_core.schedule import Cap, PoolKey
from everspot_core.schedule.tariff import EPSILON

from everspot_scheduler.elastic.groups import Group


class RemainingCap:
    """The rest of the cap; each cut takes its part of it.

    `instances` and `usd_per_hour`: those of all running and coming launched instances.
    """

    def __init__(self, cap: Cap, instances: int, usd_per_hour: float) -> None:
        self._instances = cap.instances - instances
        self._usd = cap.usd_per_hour - usd_per_hour if cap.usd_per_hour is not None else None

    def cut(self, group: Group, price: Callable[[PoolKey], float | None]) -> tuple[Group, float] | None:
        """Return as much of the group as fits, and its highest cost an hour; None if nothing fits.

        A pool is left out if even one instance of it is too expensive, or the instances of a whole gang, so that the
        other pools may still serve. If a pool has no known price, the cost cannot be checked, and nothing is launched.
        """
        pool_prices = [p for p in (price(pool) for pool in group.pools) if p is not None]
        if len(pool_prices) < len(group.pools) or self._instances < 1:
            return None
        pools, minimum = group.pools, len(group.jobs) if group.whole else 1
        if self._usd is not None:
            usd_left = self._usd + EPSILON
            pools = tuple(p for p, usd in zip(group.pools, pool_prices, strict=True) if usd * minimum <= usd_left)
        if not pools:
            return None
        highest_price = max(usd for usd in (price(pool) for pool in pools) if usd is not None)
        count = min(len(group.jobs), self._instances)
        if self._usd is not None and highest_price > 0:
            count = min(count, int((self._usd + EPSILON) / highest_price))
        if count < minimum:
            return None
        self._instances -= count
        self._usd = self._usd - highest_price * count if self._usd is not None else None
        return replace(group, jobs=group.jobs[:count], pools=pools), highest_price * count
