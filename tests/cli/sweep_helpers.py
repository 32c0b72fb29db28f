"""A sweep on the cluster of the command's tests, with scripted results of its jobs."""

import json
from pathlib import Path
from typing import Any

from everspot_cli.session import Session
from everspot_cli.sweeping.runner import SweepRun, SweepStanding
from everspot_core.experiments.sweep import SweepRecord, SweepSpec
from everspot_core.jobs.records import EventKind, Progress, Reason

SWEEP: dict[str, Any] = {
    "name": "rates",
    "job": "train.yaml",
    "metric": "test_accuracy",
    "fields": {"parameters.learning_rate": {"low": 0.001, "high": 0.1, "log": True}, "env.SEED": {"choices": [1, 2]}},
    "trials": 6,
    "parallel": 2,
    "seed": 1,
}
ENDS = {
    Reason.FINISHED: EventKind.FINISHED,
    Reason.NOTICE: EventKind.INTERRUPTED,
    Reason.BUDGET: EventKind.FAILED,
    Reason.CANCEL: EventKind.CANCELLED,
}


class Playground:
    """The cluster, a sweep on it, and what its jobs do."""

    def __init__(self, world: Any, folder: Path) -> None:
        self.world, self.folder = world, folder
        (folder / "train.yaml").write_text("name: train\nrecipe: image-classification\n")
        world.launch("i-base", 0)
        self.seconds = 10

    def write(self, **more: Any) -> Path:
        path = self.folder / "sweep.yaml"
        path.write_text(json.dumps(SWEEP | more).replace("Infinity", ".inf").replace("NaN", ".nan"))  # as YAML has them
        return path

    def sweep(self, **more: Any) -> SweepRun:
        """Return the sweep as a newly started command reads it."""
        session = Session()
        session.store_option = self.world.url
        return SweepRun(session, SweepSpec.model_validate(SWEEP | more), self.folder / "train.yaml")

    def start(self, job: str) -> None:
        self.seconds += 10
        self.world.assign(job, "i-base", self.seconds)
        self.world.start(job, self.seconds + 1)

    def reports(self, job: str, step: int, value: float, total: int | None = 100) -> None:
        record = self.world.record(job)
        progress = Progress(step=step, total_steps=total, metrics={"test_accuracy": value})
        self.world.save(record.model_copy(update={"progress": progress}))

    def renews(self, job: str) -> None:
        """The job's owner renews its lease at the moment of the commands."""
        record = self.world.record(job)
        self.world.save(record.model_copy(update={"changed_at": Session().now}))

    def ends(self, job: str, reason: Reason) -> None:
        self.seconds += 3600
        record, kind = self.world.record(job), ENDS[reason]
        self.world.to(self.seconds)
        data = {"step": record.progress.step, "metrics": record.progress.metrics}
        self.world.emit(job, kind, reason=reason.value, **data)
        self.world.leave(job, self.seconds, reason)

    def waiting(self) -> list[str]:
        return sorted(job for job in self.world.store.jobs.names() if self.world.record(job) is None)


def under_way(standing: SweepStanding) -> list[str]:
    return [t.job_id for t in standing.trials if t.state == "RUNNING"]


def record(play: Playground, **more: Any) -> SweepRecord:
    return SweepRecord(spec=SweepSpec.model_validate(SWEEP | more), made_at=play.world.clock.now())
