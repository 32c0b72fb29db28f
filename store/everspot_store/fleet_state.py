"""The document `pools.json`: a scheduler's knowledge of the pools and of elastic capacity, for people and for the other
clusters of its federation.

Another cluster's scheduler wrote it, so every figure has bounds: an invalid figure would enter this cluster's plan.
"""

from typing import Annotated

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.market import Market
from everspot_core.documents import Document, Stored, Utc
from pydantic import Field

Price = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
"""USD an hour."""
Took = Annotated[float, Field(ge=0, le=1e8, allow_inf_nan=False)]
"""Seconds; three years at most."""
Spell = Annotated[float, Field(ge=0, le=1e5, allow_inf_nan=False)]
"""Hours; eleven years at most."""


class PoolState(Stored):
    """One pool as the scheduler sees it. Its past instances are in the ledger."""

    instance_type: str
    zone: str
    market: Market
    usd_per_hour: Price = Field(description="The present price of an instance, USD an hour.")
    placement_score: int | None = Field(
        default=None, ge=1, le=10, description="The cloud's placement score, 1 to 10; None: no recent one."
    )
    refused_at: list[Utc] = Field(
        default_factory=list, description="The recent times at which it refused a launch, oldest first."
    )
    noticed_at: Utc | None = Field(
        default=None, description="When the cloud last reclaimed an instance of it, or gave notice of that."
    )
    open: bool = Field(
        default=True, description="Whether it may be asked for an instance now; false for a while after a refusal."
    )
    up: bool = Field(default=False, description="Whether it has capacity, as far as is known.")
    since: Utc | None = Field(default=None, description="Since when `up` has its value; None: the pool was never seen.")
    ups: list[Spell] = Field(default_factory=list, description="Hours of past spells with capacity, oldest first.")
    downs: list[Spell] = Field(default_factory=list, description="Hours of past spells without, oldest first.")
    changeover_seconds: Took | None = Field(
        default=None, description="The usual duration of a changeover to one of its instances."
    )
    changeover_upper_seconds: Took | None = Field(default=None, description="The longest duration of a changeover.")


class ElasticUse(Stored):
    """The use of elastic capacity: instances that run or are on their way."""

    instances: int = Field(ge=0)
    max_instances: int = Field(ge=0)
    usd_per_hour: Price | None = Field(
        description="Their total cost an hour, USD; an instance without a known price counts at the highest known "
        "price. None: no price is known."
    )
    max_usd_per_hour: Price | None = Field(default=None, description="None: no cap.")


class IdleState(Stored):
    """Free instances of the standing fleets, of one type and market. They are paid for whether they are used or not."""

    instance_type: str
    market: Market
    count: int = Field(ge=0, le=1_000_000)
    memory_gib: float = Field(gt=0, le=1e6, allow_inf_nan=False, description="The memory of the smallest of them.")


class FleetState(Document):
    """The pools that a scheduler knows, and what it has launched, as of `updated_at`."""

    scheduler_id: str
    updated_at: Utc
    pools: list[PoolState] = Field(default_factory=list)
    elastic: ElasticUse | None = Field(default=None, description="None: nothing may be launched.")
    idle: list[IdleState] = Field(
        default_factory=list, description="Idle standing capacity, which jobs of peers may use."
    )
    tick_seconds: Took = Field(
        default=60.0, gt=0, description="The longest time between two decisions of the scheduler."
    )
    promised: int = Field(default=0, ge=0, description="Instances that waiting jobs still need.")


class PeerMarket(Document):
    """The published pools of a peer when a scheduler of this cluster last noted them."""

    fleet: FleetState
    instance_types: list[InstanceType] = Field(default_factory=list, description="The types that the peer declares.")
