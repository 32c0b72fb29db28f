"""The heartbeat of a scheduler, with its view of its cluster's peers."""

from everspot_core.documents import Document, Stored, Utc
from pydantic import Field


class PeerSight(Stored):
    """A peer as a scheduler sees it with its credentials there. Times are by this cluster's clock, except where a field
    names the peer's."""

    name: str
    seen_at: Utc = Field(description="When the peer was last asked.")
    heard_at: Utc | None = Field(default=None, description="When it last could be read; None: never.")
    beat_at: Utc | None = Field(default=None, description="The newest heartbeat there, by the peer's clock.")
    alive: bool = Field(default=False, description="Whether a scheduler there is alive, as far as is known.")
    clock_apart_seconds: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Market time by which its clock is ahead, negative if behind; None: less than a lease, or unknown.",
    )
    down: bool = Field(
        default=False, description="Whether its store does not answer or its scheduler's heartbeat has stopped."
    )
    problem: str = Field(default="", description="Why no jobs are exchanged with it now; empty if they are.")


class SchedulerBeat(Document):
    """A scheduler's description of itself, rewritten at most every 20 s. People read it, and other clusters, which see
    from it that the scheduler is alive."""

    scheduler_id: str
    instance_id: str | None = None
    started_at: Utc
    updated_at: Utc
    ticks: int = 0
    agent_version: str = ""
    detail: str = Field(default="", description="What it last did, or the error that it last met.")
    peers: list[PeerSight] = Field(default_factory=list, description="The peers as it sees them.")
