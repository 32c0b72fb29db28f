"""The history of each pool by the ledger: how many instances it gave, how long they ran, and who ended them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.capacity.market import Market, PoolKey
from everspot_core.costs.ledger import EndRecord, LaunchRecord
from everspot_core.jobs.records import Role

_HOUR = timedelta(hours=1)

LEAST_HOURS = 0.001
"""The shortest time between two interruptions that is reported, hours. It is rounded to this, and is never zero."""
USUAL_HOURS = {Market.SPOT: 4.4, Market.ON_DEMAND: 6000.0}
"""Hours between two interruptions of an instance, where nothing is known of its pool.

Spot: a spell that has lasted an hour lasts 4.4 hours more on average, by the prior of `schedule.market.lifetimes`,
which was tuned on recorded traces of capacity. On-demand: the failures of machines. 419 unexpected interruptions of
16,384 GPUs in 54 days are one in 6,000 hours of a machine with 8 GPUs ("The Llama 3 Herd of Models", 2024, 3.3.4).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHistory:
    """The history of one pool's instances. Hours are market time.

    - `launches`: how many instances it has given; `alive`: how many of them live.
    - `hours`: how long all of them have run, together.
    - `lifetimes`: the hours of the instances that the cloud took, in the order in which it took them.
    """

    launches: int = 0
    alive: int = 0
    hours: float = 0.0
    lifetimes: tuple[float, ...] = ()

    @property
    def interrupted(self) -> int:
        """The number of instances that the cloud took."""
        return len(self.lifetimes)

    @property
    def hours_per_interruption(self) -> float | None:
        """Hours of running instances per instance that the cloud took; None if it took none.

        The hours of instances that we ended count too. Without them every pool would seem worse than it is.
        """
        return self.hours / self.interrupted if self.interrupted else None

    def __add__(self, other: "PoolHistory") -> "PoolHistory":
        """Return the history of two pools together."""
        return PoolHistory(
            launches=self.launches + other.launches,
            alive=self.alive + other.alive,
            hours=self.hours + other.hours,
            lifetimes=self.lifetimes + other.lifetimes,
        )


def expected_hours(history: PoolHistory, market: Market) -> float:
    """Return the hours between two interruptions of an instance of a pool, by its history. The usual hours weigh as
    much as one interruption, so that a pool with few hours is judged by others of its market."""
    hours = (USUAL_HOURS[market] + history.hours) / (1 + history.interrupted)
    return max(LEAST_HOURS, round(hours, 3))


def histories(
    launches: Iterable[LaunchRecord], ends: Mapping[str, EndRecord], now: datetime
) -> dict[PoolKey, PoolHistory]:
    """Return the history of each pool until `now`, by the ledger. Only instances of agents count."""
    by_pool: dict[PoolKey, PoolHistory] = {}
    agents = [launch for launch in launches if launch.role is Role.AGENT]
    for launch in sorted(agents, key=lambda launch: _until(launch, ends, now)):
        end, pool = ends.get(launch.instance_id), PoolKey(launch.instance_type, launch.zone, launch.market)
        hours = max(0.0, (_until(launch, ends, now) - launch.launched_at) / _HOUR)
        history = PoolHistory(
            launches=1,
            alive=end is None,
            hours=hours,
            lifetimes=(hours,) if end is not None and end.interrupted else (),
        )
        by_pool[pool] = by_pool.get(pool, PoolHistory()) + history
    return by_pool


def _until(launch: LaunchRecord, ends: Mapping[str, EndRecord], now: datetime) -> datetime:
    end = ends.get(launch.instance_id)
    return end.ended_at if end is not None else now
