"""Courses of pools, from a moment on and without end: past its last tick each begins anew, as in the simulator."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from everspot_core.records import Market

from everspot_local.market.market import LocalMarket


@dataclass(frozen=True)
class Course:
    """One pool's. `data`: instances at each tick, `prices`: dollars an hour; each may be absent."""

    pool: str
    market: Market
    gap: timedelta
    data: tuple[int, ...] = ()
    prices: tuple[float, ...] = ()

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Course":
        """From an action's document.

        Raises:
            ValueError: for a field that is missing or wrong.
        """
        known = {"pool", "market", "gap_seconds", "data", "prices"}
        if unknown := sorted(set(document) - known):
            raise ValueError(f"action replay: unknown fields {', '.join(unknown)} of a pool")
        try:
            gap = timedelta(seconds=float(document.get("gap_seconds", 300)))
            data = tuple(int(n) for n in document.get("data", ()))
            prices = tuple(float(usd) for usd in document.get("prices", ()))
            course = cls(str(document["pool"]), Market(document.get("market", "spot")), gap, data, prices)
        except (KeyError, TypeError) as error:
            raise ValueError(f"action replay: a pool needs `pool`, and lists `data` and `prices`: {error}") from None
        if gap <= timedelta() or min(data, default=0) < 0 or min(prices, default=1) <= 0:
            raise ValueError(f"action replay: {course.pool} needs a gap and prices above 0, and data not below")
        return course

    def document(self) -> dict[str, Any]:
        """As `of` takes it."""
        return {
            "pool": self.pool,
            "market": self.market.value,
            "gap_seconds": self.gap.total_seconds(),
            "data": list(self.data),
            "prices": list(self.prices),
        }


class Replay:
    """Courses being played. `depth` and `price`: the actions, called with a pool, a value and a market."""

    def __init__(
        self,
        market: LocalMarket,
        depth: Callable[[str, int, Market], None],
        price: Callable[[str, float], None],
    ) -> None:
        self._market, self._depth, self._price = market, depth, price
        self._stopped = False

    def begin(self, courses: list[Course], at: datetime) -> None:
        """Play from a moment on."""
        for course in courses:
            self._play(course, course.data, at, 0, lambda c, n: self._depth(c.pool, n, c.market))
            if course.market is Market.SPOT:  # on-demand prices stand in the catalogue
                self._play(course, course.prices, at, 0, lambda c, usd: self._price(c.pool, usd))

    def stop(self) -> None:
        """Play nothing more; the pools stay as they are."""
        self._stopped = True

    def _play(
        self, course: Course, values: tuple[Any, ...], at: datetime, tick: int, act: Callable[[Course, Any], None]
    ) -> None:
        """Set the value of a tick, and put down the next change, which may be past the trace's end."""
        if self._stopped or not values:
            return
        act(course, values[tick % len(values)])
        ahead = next((n for n in range(1, len(values) + 1) if _at(values, tick + n) != _at(values, tick)), None)
        if ahead is not None:
            later = tick + ahead
            self._market.timeline.at(at + course.gap * later, lambda: self._play(course, values, at, later, act))


def _at(values: tuple[Any, ...], tick: int) -> Any:
    return values[tick % len(values)]
