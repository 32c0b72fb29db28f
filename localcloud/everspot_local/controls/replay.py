"""Replays schedules of pools' depths and prices. After its last tick a schedule starts again, as in the simulator.

A market that reclaims instances gives notice first: a pool's depth falls one `notice` earlier than its schedule. So the
reclaimed instances have ended when the schedule falls, and no instance is launched that would be reclaimed within the
notice.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from everspot_core.jobs.records import Market

from everspot_local.market.market import LocalMarket

T = TypeVar("T")


@dataclass(frozen=True)
class PoolSchedule:
    """The schedule of one pool.

    Attributes:
        pool: name of the pool.
        market: Spot or on-demand.
        gap: time between two ticks.
        data: depth, in instances, at each tick; may be empty.
        prices: dollars per hour at each tick; may be empty.
        notice: how much earlier than `data` the pool's depth falls.
    """

    pool: str
    market: Market
    gap: timedelta
    data: tuple[int, ...] = ()
    prices: tuple[float, ...] = ()
    notice: timedelta = timedelta()

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "PoolSchedule":
        """Read the schedule from an action's document.

        Raises:
            ValueError: for a field that is missing or wrong.
        """
        field_names = {"pool", "market", "gap_seconds", "data", "prices", "notice_seconds"}
        if unknown := sorted(set(document) - field_names):
            raise ValueError(f"action replay: unknown fields {', '.join(unknown)} of a pool")
        try:
            gap = timedelta(seconds=float(document.get("gap_seconds", 300)))
            data = tuple(int(n) for n in document.get("data", ()))
            prices = tuple(float(usd) for usd in document.get("prices", ()))
            notice = timedelta(seconds=float(document.get("notice_seconds", 0)))
            schedule = cls(str(document["pool"]), Market(document.get("market", "spot")), gap, data, prices, notice)
        except (KeyError, TypeError) as error:
            raise ValueError(f"action replay: a pool needs `pool`, and lists `data` and `prices`: {error}") from None
        if gap <= timedelta() or min(data, default=0) < 0 or min(prices, default=1) <= 0 or notice < timedelta():
            raise ValueError(
                f"action replay: {schedule.pool} needs a gap and prices above 0, data and notice not below"
            )
        return schedule

    def document(self) -> dict[str, Any]:
        """Return the schedule in the form that `parse` reads."""
        return {
            "pool": self.pool,
            "market": self.market.value,
            "gap_seconds": self.gap.total_seconds(),
            "data": list(self.data),
            "prices": list(self.prices),
            "notice_seconds": self.notice.total_seconds(),
        }

    def steps(self) -> list[tuple[timedelta, int]]:
        """Return the pool's depth from each moment of the schedule on, in order; the schedule must have `data`."""
        whole, ticks = self.gap * len(self.data), range(len(self.data))
        moments = {self.gap * tick for tick in ticks} | {(self.gap * tick - self.notice) % whole for tick in ticks}
        return [(moment, self._least(moment)) for moment in sorted(moments)]

    def _least(self, moment: timedelta) -> int:
        first, last = moment // self.gap, (moment + self.notice) // self.gap
        return min(self.data[tick % len(self.data)] for tick in range(first, last + 1))


class Replay:
    """Plays schedules. `depth` and `price`: the actions, called with a pool, a value and a market."""

    def __init__(
        self,
        market: LocalMarket,
        depth: Callable[[str, int, Market], None],
        price: Callable[[str, float], None],
    ) -> None:
        self._market, self._depth, self._price = market, depth, price
        self._stopped = False

    def begin(self, schedules: list[PoolSchedule], at: datetime) -> None:
        """Start playing at a moment."""
        for schedule in schedules:
            self._play_depth(schedule, at)
            self._play_prices(schedule, at)

    def stop(self) -> None:
        """Stop playing; the pools stay as they are."""
        self._stopped = True

    def _play_depth(self, schedule: PoolSchedule, at: datetime) -> None:
        steps = schedule.steps() if schedule.data else []
        self._play(
            steps, schedule.gap * len(schedule.data), at, 0, lambda n: self._depth(schedule.pool, n, schedule.market)
        )

    def _play_prices(self, schedule: PoolSchedule, at: datetime) -> None:
        if schedule.market is Market.SPOT:  # on-demand prices come from the catalogue
            steps = [(schedule.gap * tick, usd) for tick, usd in enumerate(schedule.prices)]
            self._play(steps, schedule.gap * len(schedule.prices), at, 0, lambda usd: self._price(schedule.pool, usd))

    def _play(
        self, steps: list[tuple[timedelta, T]], whole: timedelta, at: datetime, n: int, act: Callable[[T], None]
    ) -> None:
        """Set the value of a step and schedule the next change, which may be past the schedule's end."""
        if self._stopped or not steps:
            return
        value = steps[n % len(steps)][1]
        act(value)
        ahead = next((m for m in range(n + 1, n + 1 + len(steps)) if steps[m % len(steps)][1] != value), None)
        if ahead is not None:
            rounds, step = divmod(ahead, len(steps))
            later = at + rounds * whole + steps[step][0]
            self._market.timeline.at(later, lambda: self._play(steps, whole, at, ahead, act))
