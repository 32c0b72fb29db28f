"""What may still be launched under the cap: counted before each launch, against what runs and what is intended."""

from collections.abc import Callable
from dataclasses import replace

from everspot_core.schedule import Cap, PoolKey

from everspot_scheduler.elastic.groups import Group

TINY = 1e-9


class Room:
    """What the cap leaves. Everything that is cut from it is taken.

    `instances` and `usd_per_hour`: what runs and what is on its way.
    """

    def __init__(self, cap: Cap, instances: int, usd_per_hour: float) -> None:
        self._instances = cap.instances - instances
        self._usd = cap.usd_per_hour - usd_per_hour if cap.usd_per_hour is not None else None

    def cut(self, group: Group, price: Callable[[PoolKey], float | None]) -> tuple[Group, float] | None:
        """As much of the group as there is room for, and the most that it costs an hour; None if there is none.

        A pool that would be too dear for a single one of them is left out, rather than all the others with it. One
        without a known price cannot be held against the cap.
        """
        dearest = [p for p in (price(pool) for pool in group.pools) if p is not None]
        if len(dearest) < len(group.pools) or self._instances < 1:
            return None
        pools, least = group.pools, group.jobs if group.whole else group.jobs[:1]
        if self._usd is not None:
            room = self._usd + TINY
            pools = tuple(p for p, usd in zip(group.pools, dearest, strict=True) if usd * len(least) <= room)
        if not pools:
            return None
        most = max(usd for usd in (price(pool) for pool in pools) if usd is not None)
        count = min(len(group.jobs), self._instances)
        if self._usd is not None and most > 0:
            count = min(count, int((self._usd + TINY) / most))
        if count < len(least):
            return None
        self._instances -= count
        self._usd = self._usd - most * count if self._usd is not None else None
        return replace(group, jobs=group.jobs[:count], pools=pools), most * count
