"""The document `pools.json`: what a scheduler knows of the pools and of elastic capacity, for people."""

from everspot_core.documents import Document, Stored, Utc
from everspot_core.market import Market
from pydantic import Field


class PoolState(Stored):
    """One pool as the scheduler sees it. Its past instances are in the ledger."""

    instance_type: str
    zone: str
    market: Market
    usd_per_hour: float = Field(description="What an hour of an instance costs now, USD.")
    placement_score: int | None = Field(default=None, description="The cloud's own, 1 to 10; None: none is fresh.")
    refused_at: list[Utc] = Field(default_factory=list, description="When it lately gave nothing, oldest first.")
    noticed_at: Utc | None = Field(default=None, description="When it last took an instance, or said that it will.")


class ElasticUse(Stored):
    """The use of elastic capacity: instances that run or are on their way."""

    instances: int
    max_instances: int
    usd_per_hour: float | None = Field(
        description="What they cost an hour together, USD; one without a known price as much as the dearest. None: "
        "no price is known at all."
    )
    max_usd_per_hour: float | None = Field(default=None, description="None: no cap.")


class FleetState(Document):
    """The pools that a scheduler knows, and what it has launched, as of `updated_at`."""

    scheduler_id: str
    updated_at: Utc
    pools: list[PoolState] = Field(default_factory=list)
    elastic: ElasticUse | None = Field(default=None, description="None: nothing may be launched.")
