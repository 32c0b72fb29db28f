"""The cap on launched instances: their number and their cost an hour, running and coming ones together."""

from collections.abc import Iterable

from everspot_core.schedule.actions import Figures
from everspot_core.schedule.view import ClusterView, InstanceView, pool_of

EPSILON = 1e-9
"""Dollars below which a difference is rounding."""


class CapRoom:
    """What may still be launched in one round of planning.

    Prices are those of the moment. If a price rises, running instances may exceed the cap, and then nothing more is
    launched. A released instance counts until it is gone.
    """

    def __init__(self, view: ClusterView) -> None:
        self._cap = view.cap
        self._reserved, self._reserved_usd, self._instances, self._usd = 0, 0.0, 0, 0.0
        self._closed = False
        if self._cap is None:  # and nothing has to be counted
            return
        self._pools = {p.key: p.usd_per_hour for p in view.pools}
        listed = [*view.types, *(p.instance_type for p in view.pools)]
        self._types = {t.name: t.on_demand_usd_per_hour for t in listed if t.on_demand_usd_per_hour is not None}
        launched = [i for i in view.instances if i.launched]
        self._instances, self._usd = len(launched), sum(map(self._rate, launched))

    def fits(self, count: int, usd_per_hour: float, without: Iterable[InstanceView] = ()) -> bool:
        """Whether `count` instances may be launched at this price each. `without`: instances taken as gone."""
        if self._cap is None:
            return True
        given_up = list(without)
        instances = self._instances + self._reserved - len(given_up)
        usd = self._usd + self._reserved_usd - sum(map(self._rate, given_up))
        if self._closed or instances + count > self._cap.instances:
            return False
        limit = self._cap.usd_per_hour
        return limit is None or usd + count * usd_per_hour <= limit + EPSILON

    def ever(self, count: int, usd_per_hour: float) -> bool:
        """Whether that many would fit if nothing else ran."""
        cap = self._cap
        if cap is None:
            return True
        limit = cap.usd_per_hour
        return count <= cap.instances and (limit is None or count * usd_per_hour <= limit + EPSILON)

    def take(self, count: int, usd_per_hour: float) -> None:
        """Take room for instances that are launched now."""
        self._instances += count
        self._usd += count * usd_per_hour

    def reserve(self, count: int, usd_per_hour: float) -> None:
        """Reserve room for instances that are not launched yet, against later jobs."""
        self._reserved += count
        self._reserved_usd += count * usd_per_hour

    def close(self) -> None:
        """Launch nothing more in this round."""
        self._closed = True

    def figures(self, count: int, usd_per_hour: float) -> Figures:
        """The figures for the reason of a job that does not fit."""
        assert self._cap is not None  # noqa: S101 - without a cap everything fits
        limit = self._cap.usd_per_hour
        return {
            "nodes": count,
            "needed_usd": count * usd_per_hour,
            "instances": self._instances,
            "most": self._cap.instances,
            "reserved": self._reserved,
            "usd": self._usd,
            "most_usd": f"${limit:.2f}" if limit is not None else "any amount",
        }

    def _rate(self, instance: InstanceView) -> float:
        """The instance's dollars an hour; the highest known price if its own is unknown."""
        pool = pool_of(instance)
        dearest = max([*self._pools.values(), *self._types.values()], default=0.0)
        if pool is None:
            return dearest
        return self._pools.get(pool, self._types.get(pool.instance_type, dearest))
