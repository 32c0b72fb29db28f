"""Helpers for tests of the agent's decisions: the agent's observations and actions."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from everspot_core.cluster.manifest import Limits
from everspot_core.jobs.records import Assignment, Notice, NoticeKind
from everspot_train.agent.actions import Action, JobKey
from everspot_train.agent.decide import decide_actions
from everspot_train.agent.world import LeaseView, Memory, World
from everspot_train.rundir import Status, TrainingPhase

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = Limits(stop_margin=timedelta(seconds=4), orphan_limit=timedelta(minutes=5))
JOB = JobKey("job-1", 1)
TRAINING = Status(phase=TrainingPhase.TRAINING, step=7)


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def assignment(job: JobKey | None = JOB, **fields: object) -> Assignment:
    job_fields = {"job_id": job.job_id, "epoch": job.epoch} if job else {}
    return Assignment.model_validate({"instance_id": "i-1", "changed_at": NOON, **job_fields, **fields})


def interruption(after: float) -> Notice:
    return Notice(kind=NoticeKind.INTERRUPTION, source="metadata", seen_at=NOON, action_at=NOON + seconds(after))


def world(now: float = 100, **fields: object) -> World:
    base = World(now=seconds(now), market=NOON + seconds(now - 100), store_seen=seconds(now))
    return replace(base, **fields)  # type: ignore[arg-type]


def running(now: float = 100, **fields: object) -> World:
    defaults = {"assignment": assignment(), "lease": LeaseView.VALID, "running": True, "status": TRAINING}
    return world(now, **{**defaults, **fields})


def acts(memory: Memory, observed_world: World, limits: Limits = LIMITS) -> list[Action]:
    return decide_actions(memory, observed_world, limits)[1]


BUSY = Memory(job=JOB)
