"""The heartbeat of a scheduler, with its view of its cluster's peers."""

from everspot_core.documents import Document, Stored, Utc
from pydantic import Field


class PeerSight(Stored):
    """A peer as a scheduler sees it, with the credentials that the scheduler has there. Moments are by this cluster's
    clock, unless another is named."""

    name: str
    seen_at: Utc = Field(description="When the peer was last asked.")
    heard_at: Utc | None = Field(default=None, description="When it last could be read; None: never.")
    beat_at: Utc | None = Field(default=None, description="The newest heartbeat there, by the peer's clock.")
    alive: bool = Field(default=False, description="Whether a scheduler there lives, as far as is known.")
    clock_apart_seconds: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Market time by which its clock is ahead, below zero if behind; None: less than a lease, or not "
        "known.",
    )
    down: bool = Field(default=False, description="Whether it is merely silent, does not answer, or is gone.")
    problem: str = Field(default="", description="Why no jobs are exchanged with it now; empty: they may be.")


class SchedulerBeat(Document):
    """A scheduler's description of itself, rewritten at most every 20 s. It is for people, and shows other clusters
    that the scheduler lives."""

    scheduler_id: str
    instance_id: str | None = None
    started_at: Utc
    updated_at: Utc
    ticks: int = 0
    agent_version: str = ""
    detail: str = Field(default="", description="What it last did, or the error that it last met.")
    peers: list[PeerSight] = Field(default_factory=list, description="The peers as it sees them.")
