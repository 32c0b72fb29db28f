"""Whether a job should move, by what the plan sees of its home and what the peers publish."""

from collections.abc import Mapping
from datetime import datetime

from everspot_core.federation.decision import Move
from everspot_core.schedule import ClusterView, JobView

from everspot_scheduler.federation.peers import News


def choose(job: JobView, view: ClusterView, news: Mapping[str, News], home: str, now: datetime) -> Move | None:
    """The move that a job should make now; None: it stays."""
    return None
