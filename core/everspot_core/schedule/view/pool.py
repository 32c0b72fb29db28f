"""A pool of capacity in the plan's input."""

from dataclasses import dataclass, field
from datetime import datetime

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.market import Market
from everspot_core.capacity.market import PoolKey as PoolKey
from everspot_core.jobs.changeover import Changeover
from everspot_core.schedule.market.behaviour import Behaviour


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """A pool of capacity: its price, its free capacity, and how it has behaved.

    - `available`: how many more instances it has now; None: as many as are asked for, as far as is known.
    - `reserved`: the capacity is paid for whether it is used or not.
    - `placement_score`: the cloud's own score, 1 to 10; None if it was not asked.
    - `refused_at`: when it lately had no capacity, oldest first.
    - `noticed_at`: when it last gave notice to an instance, or took one; None: never, as far as is known.
    - `changeover`: the estimate of a changeover to an instance of it; None: not known, so as long as any.
    """

    instance_type: InstanceType
    zone: str
    market: Market
    usd_per_hour: float
    available: int | None
    reserved: bool
    behaviour: Behaviour
    placement_score: int | None
    refused_at: tuple[datetime, ...]
    noticed_at: datetime | None
    changeover: Changeover | None
    key: PoolKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", PoolKey(self.instance_type.name, self.zone, self.market))

    def has_capacity(self, count: int) -> bool:
        """Return whether it has `count` instances now, as far as is known."""
        return self.available is None or self.available >= count
