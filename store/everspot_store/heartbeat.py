"""The heartbeat of a scheduler."""

from everspot_core.documents import Document, Utc
from pydantic import Field


class SchedulerBeat(Document):
    """A scheduler as it describes itself, rewritten at most every 20 s. Informs people; decides nothing."""

    scheduler_id: str
    instance_id: str | None = None
    started_at: Utc
    updated_at: Utc
    ticks: int = 0
    agent_version: str = ""
    detail: str = Field(default="", description="What it last did, or the error that it last met.")
