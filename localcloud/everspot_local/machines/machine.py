"""One machine as the market and its processes know it, and its cloud's view of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from everspot_core.jobs.records import Market

from everspot_local.market.pools import MarketPool


class MachinePhase(Enum):
    """The phase of a machine. It costs until it begins to end, or until it has ended: that depends on the cloud."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


class EndedBy(Enum):
    """Who ended a machine."""

    USER = "user"
    ITSELF = "itself"
    MARKET = "market"
    FAILURE = "failure"
    LIMIT = "limit"  # it reached its longest run time


class Instance(Protocol):
    """A cloud's view of a machine, which the cloud's users see.

    Every method is called with the market's lock held. `at`: the moment of the event, in market time.
    """

    def environment(self) -> dict[str, str]:
        """Return the environment of its programs, in addition to that of every machine."""

    def labels(self) -> dict[str, str]:
        """Return its tags."""

    def entered(self, at: datetime) -> None:
        """Report that the machine is in another phase; in the last phase, release the instance's resources."""

    def rebalance_recommended(self, at: datetime) -> None:
        """Report that its pool is at risk."""

    def noticed(self, at: datetime) -> None:
        """Report that the market will reclaim it, and when."""


@dataclass(eq=False)
class Machine:
    """The state of one machine. Moments are in market time.

    Attributes:
        fleet: id of the fleet that launched it, if any.
        max_usd: the highest Spot price per hour that is paid; None for any price.
        reclaim_at: when the market reclaims it, after its notice.
        failure: the cloud's error code if the launch fails; otherwise empty.
        notice: length of the notice; None for the market's.
        off_before: how long before it is reclaimed its programs get SIGTERM; zero for never.
        shutdown: time between SIGTERM and SIGKILL; None for the market's.
        costs_to_the_last: whether it costs until it has ended, not only until its end begins.
        stop_requested: whether its programs got SIGTERM because it is being reclaimed.
    """

    id: str
    pool: MarketPool
    market: Market
    launched_at: datetime
    instance: Instance
    fleet: str | None = None
    max_usd: float | None = None
    phase: MachinePhase = MachinePhase.PENDING
    ended_by: EndedBy | None = None
    rebalance_at: datetime | None = None
    reclaim_at: datetime | None = None
    ended_at: datetime | None = None
    failure: str = ""
    notice: timedelta | None = None
    off_before: timedelta = timedelta()
    shutdown: timedelta | None = None
    costs_to_the_last: bool = False
    stop_requested: bool = False

    @property
    def alive(self) -> bool:
        """Return whether the machine is pending or running."""
        return self.phase in (MachinePhase.PENDING, MachinePhase.RUNNING)
