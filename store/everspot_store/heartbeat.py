"""The heartbeat of a scheduler."""

from everspot_core.documents import Document, Utc
from pydantic import Field


class SchedulerBeat(Document):
    """A scheduler's description of itself, rewritten at most every 20 s. It is for people; nothing is decided by it."""

    scheduler_id: str
    instance_id: str | None = None
    started_at: Utc
    updated_at: Utc
    ticks: int = 0
    agent_version: str = ""
    detail: str = Field(default="", description="What it last did, or the error that it last met.")
