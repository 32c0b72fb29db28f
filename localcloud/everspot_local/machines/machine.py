"""One machine, as the market and its processes know it, and what its cloud makes of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from everspot_core.records import Market

from everspot_local.market.pools import MarketPool


class MachinePhase(Enum):
    """Where a machine is on its way. It costs until it begins to end, or has ended: as its cloud has it."""

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
    """What a cloud makes of a machine: the part of it that the cloud's users see.

    Every method is called with the market's lock held. `at`: the moment that is told, of market time.
    """

    def environment(self) -> dict[str, str]:
        """Return what its programs find in their environment, beside what those of every machine find there."""

    def labels(self) -> dict[str, str]:
        """Return the tags by which its users know it."""

    def entered(self, at: datetime) -> None:
        """Tell that the machine is in another phase; at the last one, give back what the instance held."""

    def rebalance_recommended(self, at: datetime) -> None:
        """Tell that its pool is at risk."""

    def noticed(self, at: datetime) -> None:
        """Tell that the market will take it, and when."""


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
        """Whether it is pending or running."""
        return self.phase in (MachinePhase.PENDING, MachinePhase.RUNNING)
