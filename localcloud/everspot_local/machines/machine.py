"""One machine as the market and its processes know it, and its cloud's view of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from everspot_core.records import Market

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
    LIMIT = "limit"  # it had run for as long as it was to run at the most


class Instance(Protocol):
    """A cloud's view of a machine: what the cloud's users see.

    Every method is called with the market's lock held. `at`: the moment that is told, of market time.
    """

    def environment(self) -> dict[str, str]:
        """Return the variables for its programs, beside those of every machine."""

    def labels(self) -> dict[str, str]:
        """Return its tags, by which users find it."""

    def entered(self, at: datetime) -> None:
        """Report that the machine is in another phase; at the last one, release what the instance held."""

    def rebalance_recommended(self, at: datetime) -> None:
        """Report that its pool is at risk."""

    def noticed(self, at: datetime) -> None:
        """Report that the market will take it back, and when."""


@dataclass(eq=False)
class Machine:
    """What is known of one machine. Moments are of market time.

    `fleet`: id of what launched it, if that was a fleet. `max_usd`: the most that is paid for an hour of it on the Spot
    market; None for any price. `reclaim_at`: when the market takes it, after its notice. `notice`: how long before
    that it is told, where that is not the market's. `off_before`: so long before it is taken its programs are asked to
    end; zero where they are not asked. `shutdown`: how long they have when it is ended, where that is not the market's.
    `costs_to_the_last`: whether it costs until it has ended, and not just until it begins to.
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
    notice: timedelta | None = None
    off_before: timedelta = timedelta()
    shutdown: timedelta | None = None
    costs_to_the_last: bool = False
    told_off: bool = False  # its programs were asked to end, as it is being taken

    @property
    def alive(self) -> bool:
        """Return whether the machine is pending or running."""
        return self.phase in (MachinePhase.PENDING, MachinePhase.RUNNING)
