"""The cap on launched instances: their number and their cost an hour, running and coming ones together."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from everspot_core.schedule.actions import ReasonFigures
from everspot_core.schedule.tariff import EPSILON, Tariff
from everspot_core.schedule.view import ClusterView, InstanceView, instance_pool


class _Room(NamedTuple):
    """Instances, and their dollars an hour together."""

    instances: int
    usd: float

    def plus(self, other: "_Room") -> "_Room":
        return _Room(self.instances + other.instances, self.usd + other.usd)


class _Reservations:
    """Room for instances that are launched later, and its sums by time.

    Jobs reserve nearly in the order of their last safe moments. A reservation therefore changes few of the sums.
    """

    def __init__(self) -> None:
        self._undated = _Room(0, 0.0)
        self._times: list[datetime] = []
        self._rooms: list[_Room] = []
        self._sums = [_Room(0, 0.0)]  # of the first 0, 1, 2, ... rooms, as far as they were needed

    def add(self, room: _Room, since: datetime | None) -> None:
        """Add room for instances that are launched at `since` at the latest, or at any moment (None)."""
        if since is None:
            self._undated = self._undated.plus(room)
            return
        index = bisect_right(self._times, since)
        self._times.insert(index, since)
        self._rooms.insert(index, room)
        del self._sums[index + 1 :]

    def sum_before(self, until: datetime | None) -> _Room:
        """Return the room for the instances that may be launched before this moment; None: for all."""
        count = len(self._times) if until is None else bisect_left(self._times, until)
        while len(self._sums) <= count:
            self._sums.append(self._sums[-1].plus(self._rooms[len(self._sums) - 1]))
        return self._undated.plus(self._sums[count])


class CapRoom:
    """The room for launches under the cap in one round of planning.

    Prices are the present prices, by the `Tariff`. If a price rises, running instances may exceed the cap; then nothing
    more is launched. Nothing is launched either under a cap in dollars while instances run and no price is known.
    Released instances count until they are gone.
    """

    def __init__(self, view: ClusterView) -> None:
        self._cap = view.cap
        self._instances, self._usd = 0, 0.0
        self._reservations = _Reservations()
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
        given_up, reserved = list(without), self._reservations.sum_before(until)
        instances = self._instances + reserved.instances - len(given_up)
        usd = self._usd + reserved.usd - (self._tariff.total(map(instance_pool, given_up)) or 0.0)
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
        self._reservations.add(_Room(count, count * usd_per_hour), since)

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
            "reserved": self._reservations.sum_before(until).instances,
            "usd": self._usd,
            "most_usd": f"${limit:.2f}" if limit is not None else "any amount",
        }
