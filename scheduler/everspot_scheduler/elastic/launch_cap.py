"""The room for launches under the cap, computed before each launch."""

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

        A pool that is too expensive for even one instance (for the whole gang, if it is one) is left out, so that the
        others may still serve. If a pool has no known price, the cost cannot be checked, and nothing is launched.
        """
        pool_prices = [p for p in (price(pool) for pool in group.pools) if p is not None]
        if len(pool_prices) < len(group.pools) or self._instances < 1:
            return None
        pools, least = group.pools, group.jobs if group.whole else group.jobs[:1]
        if self._usd is not None:
            room = self._usd + EPSILON
            pools = tuple(p for p, usd in zip(group.pools, pool_prices, strict=True) if usd * len(least) <= room)
        if not pools:
            return None
        most = max(usd for usd in (price(pool) for pool in pools) if usd is not None)
        count = min(len(group.jobs), self._instances)
        if self._usd is not None and most > 0:
            count = min(count, int((self._usd + EPSILON) / most))
        if count < len(least):
            return None
        self._instances -= count
        self._usd = self._usd - most * count if self._usd is not None else None
        return replace(group, jobs=group.jobs[:count], pools=pools), most * count
