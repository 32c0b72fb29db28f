"""The cap on launched instances: their number and their cost an hour, running and coming ones together."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from everspot_core.schedule.actions import ReasonFigures
from everspot_core.schedule.tariff import EPSILON, Tariff
from everspot_core.schedule.view import ClusterView, InstanceView, instance_pool


class _Reservation(NamedTuple):
    """Room for instances that are launched at `since` at the latest, or at any moment (None)."""

    instances: int
    usd: float
    since: datetime | None


class CapRoom:
    """The room for launches under the cap in one round of planning.

    Prices are the present prices, by the `Tariff`. If a price rises, running instances may exceed the cap; then nothing
    more is launched. Nothing is launched either under a cap in dollars while instances run and no price is known.
    Released instances count until they are gone.
    """

    def __init__(self, view: ClusterView) -> None:
        self._cap = view.cap
        self._instances, self._usd = 0, 0.0
        self._reservations: list[_Reservation] = []
        self._closed = False
        if self._cap is None:  # and nothing has to be counted
            return
        self._tariff = Tariff(view)
        self._instances, usd = self._tariff.launched()
        self._usd = usd or 0.0
        self._closed = usd is None and self._cap.usd_per_hour is not None

    def fits(
        self,
        count: int,
        usd_per_hour: float,
        without: Iterable[InstanceView] = (),
        *,
        until: datetime | None = None,
    ) -> bool:
        """Return whether `count` instances may be launched at this price each.

        Args:
            without: Instances taken as gone.
            until: When they are gone again; None: nobody knows. Reservations from then on do not count.
        """
        if self._cap is None:
            return True
        given_up, reserved = list(without), self._reserved(until)
        instances = self._instances + sum(r.instances for r in reserved) - len(given_up)
        usd = self._usd + sum(r.usd for r in reserved) - (self._tariff.total(map(instance_pool, given_up)) or 0.0)
        if self._closed or instances + count > self._cap.instances:
            return False
        limit = self._cap.usd_per_hour
        return limit is None or usd + count * usd_per_hour <= limit + EPSILON

    def ever(self, count: int, usd_per_hour: float) -> bool:
        """Return whether that many instances would fit if nothing else ran."""
        cap = self._cap
        if cap is None:
            return True
        limit = cap.usd_per_hour
        return count <= cap.instances and (limit is None or count * usd_per_hour <= limit + EPSILON)

    def take(self, count: int, usd_per_hour: float) -> None:
        """Take room for instances that are launched now."""
        self._instances += count
        self._usd += count * usd_per_hour

    def reserve(self, count: int, usd_per_hour: float, since: datetime | None) -> None:
        """Reserve room for instances that are launched later, against later jobs that would still have theirs then.

        Args:
            since: When they are launched at the latest; None: at any moment.
        """
        self._reservations.append(_Reservation(count, count * usd_per_hour, since))

    def _reserved(self, until: datetime | None) -> list["_Reservation"]:
        return [r for r in self._reservations if until is None or r.since is None or r.since < until]

    def close(self) -> None:
        """Launch nothing more in this round."""
        self._closed = True

    def figures(self, count: int, usd_per_hour: float, until: datetime) -> ReasonFigures:
        """Return the figures for the reason of a job that does not fit."""
        assert self._cap is not None  # noqa: S101 - without a cap everything fits
        limit = self._cap.usd_per_hour
        return {
            "nodes": count,
            "needed_usd": count * usd_per_hour,
            "instances": self._instances,
            "most": self._cap.instances,
            "reserved": sum(r.instances for r in self._reserved(until)),
            "usd": self._usd,
            "most_usd": f"${limit:.2f}" if limit is not None else "any amount",
        }
