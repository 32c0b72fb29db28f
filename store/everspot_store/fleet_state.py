"""The document `pools.json`: what a scheduler knows of the pools and of elastic capacity, for people and for the other
clusters of its federation."""

from collections.abc import Mapping
from datetime import timedelta

from everspot_core.catalogue import InstanceType
from everspot_core.changeover import Changeover
from everspot_core.documents import Document, Stored, Utc
from everspot_core.federation.market import ClusterMarket, Headroom
from everspot_core.market import Market
from everspot_core.schedule import Behaviour, PoolView
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
    open: bool = Field(default=True, description="Whether it may be asked now; false for a while after a refusal.")
    up: bool = Field(default=False, description="Whether it has capacity, as far as is known.")
    since: Utc | None = Field(default=None, description="Since when; None: it was never seen.")
    ups: list[float] = Field(default_factory=list, description="Hours of past spells with capacity, oldest first.")
    downs: list[float] = Field(default_factory=list, description="Hours of past spells without, oldest first.")
    changeover_seconds: float | None = Field(default=None, description="To an instance of it, as a rule.")
    changeover_upper_seconds: float | None = Field(default=None, description="At most.")

    def view(self, kind: InstanceType) -> PoolView:
        """The pool in the input of a plan. `kind`: its type."""
        return PoolView(
            instance_type=kind,
            zone=self.zone,
            market=self.market,
            usd_per_hour=self.usd_per_hour,
            available=None if self.open else 0,
            reserved=False,
            behaviour=Behaviour(
                up=self.up, since=self.since, first=self.since, ups=tuple(self.ups), downs=tuple(self.downs)
            ),
            placement_score=self.placement_score,
            refused_at=tuple(self.refused_at),
            noticed_at=self.noticed_at,
            changeover=self._changeover,
        )

    @property
    def _changeover(self) -> Changeover | None:
        if self.changeover_seconds is None or self.changeover_upper_seconds is None:
            return None
        seconds = self.changeover_seconds, self.changeover_upper_seconds
        return Changeover(*(timedelta(seconds=s) for s in seconds))


class ElasticUse(Stored):
    """The use of elastic capacity: instances that run or are on their way."""

    instances: int
    max_instances: int
    usd_per_hour: float | None = Field(
        description="What they cost an hour together, USD; one without a known price as much as the dearest. None: "
        "no price is known at all."
    )
    max_usd_per_hour: float | None = Field(default=None, description="None: no cap.")

    @property
    def headroom(self) -> Headroom:
        """What the cap still allows; nothing under a cap in dollars while instances run whose price nobody knows."""
        limit = self.max_usd_per_hour
        left = None if limit is None else limit - self.usd_per_hour if self.usd_per_hour is not None else 0.0
        return Headroom(instances=self.max_instances - self.instances, usd_per_hour=left)


class FleetState(Document):
    """The pools that a scheduler knows, and what it has launched, as of `updated_at`."""

    scheduler_id: str
    updated_at: Utc
    pools: list[PoolState] = Field(default_factory=list)
    elastic: ElasticUse | None = Field(default=None, description="None: nothing may be launched.")
    tick_seconds: float = Field(default=60.0, gt=0, description="The scheduler decides again after this at the latest.")
    promised: int = Field(default=0, ge=0, description="Instances that waiting jobs still need.")

    def market(self, cluster: str, types: Mapping[str, InstanceType], *, more: int = 0) -> ClusterMarket:
        """The market of this cluster for jobs of others.

        `types`: by name; pools of other types are left out. `more`: instances for jobs that were offered to it since.
        """
        pools = tuple(p.view(types[p.instance_type]) for p in self.pools if p.instance_type in types)
        known = [p.changeover for p in pools if p.changeover is not None]
        quickest = Changeover(min(c.expected for c in known), min(c.upper for c in known)) if known else None
        return ClusterMarket(
            cluster=cluster,
            pools=pools,
            unions={},
            tick=timedelta(seconds=self.tick_seconds),
            changeover=quickest,
            headroom=self.elastic.headroom if self.elastic is not None else None,
            promised=self.promised + more,
        )
