"""Runs a program that uses the trainer library, undisturbed and interrupted, and collects its records."""

import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.records import JobRecord, JobState

from everspot_train.rehearsal_orders import AT_END, REHEARSAL_VARIABLE, Orders
from everspot_train.rehearse.cluster import Instance, RehearsalCluster, RehearsalError
from everspot_train.rehearse.places import PlannedInterruption
from everspot_train.rehearse.records import Record, read_lines, read_records

_DURABLE_SECONDS = 300.0


@dataclass(frozen=True)
class RehearsedAttempt:
    """The records of one attempt by rank. `expected_step`: the step at which it should have begun."""

    records: dict[int, Record]
    expected_step: int = 0


@dataclass(frozen=True)
class Played:
    """One run from its beginning to its end, over all its attempts.

    Attributes:
        failure: how the program failed; empty if it ended well.
        output: the end of its output, if it failed.
        folder: a copy of its folder `outputs/`.
    """

    attempts: list[RehearsedAttempt] = field(default_factory=list)
    failure: str = ""
    output: str = ""
    folder: Path | None = None


class Player:
    """Runs one job repeatedly.

    Args:
        code: the folder of the program; None for a recipe.
        limit: the longest time of one attempt.
    """

    def __init__(self, cluster: RehearsalCluster, spec: JobSpec, code: Path | None, limit: timedelta) -> None:
        self._cluster, self._spec, self._code, self._limit = cluster, spec, code, limit
        self._runs = 0
        self._attempts = 0

    def play(self, interruptions: list[PlannedInterruption], steps: int | None) -> Played:
        """Run the job with these interruptions, one per attempt. `steps`: of each run; None: the trainer's default."""
        self._runs += 1
        job_id = f"r{self._runs}"
        self._cluster.submit(job_id, self._spec, self._code)
        attempts: list[RehearsedAttempt] = []
        durable = 0
        for interruption in [*interruptions, None]:
            record, ended = self._attempt(job_id, interruption, steps)
            attempts.append(RehearsedAttempt(read_records(record), durable))
            if ended is None or ended.state is JobState.PENDING:  # interrupted, as it should be
                if interruption is None:
                    return Played(attempts, "it stopped although nobody asked it to", self._cluster.output(job_id))
                durable = self._cluster.durable_step(job_id) or 0
                continue
            if ended.state is not JobState.SUCCEEDED:
                return Played(attempts, ended.detail.strip() or "it failed", self._cluster.output(job_id))
            if interruption is not None and interruption.step is not None:
                return Played(attempts, "it ended before it could be interrupted", self._cluster.output(job_id))
            break
        folder = self._cluster.root / "left" / job_id
        self._cluster.fetch_outputs(job_id, folder)
        return Played(attempts, folder=folder)

    def _attempt(
        self, job_id: str, interruption: PlannedInterruption | None, steps: int | None
    ) -> tuple[Path, JobRecord | None]:
        self._attempts += 1
        path = self._cluster.root / "records" / f"{self._attempts}.jsonl"
        Orders(steps, plan_pauses(interruption)).write(path)
        # As on a real machine, the order of a set of texts differs between processes.
        environ = {REHEARSAL_VARIABLE: str(path), "PYTHONHASHSEED": str(self._attempts)}
        with self._cluster.instance(job_id, environ) as instance:
            follower = _Follower(self._cluster, instance, job_id, path)
            try:
                record = self._cluster.wait(instance, job_id, self._limit, follower.look)
            except TimeoutError:
                raise RehearsalError(
                    f"one run takes longer than {self._limit}: rehearse with fewer steps (--steps), smaller settings "
                    "(--set), or a longer --timeout"
                ) from None
        if record is None:
            self._cluster.expire(job_id)
        return path, record


def plan_pauses(interruption: PlannedInterruption | None) -> dict[str, str]:
    """Return the variable with the steps after which the trainer waits, each with the event that it waits for."""
    if interruption is None:
        return {}
    pauses = {} if interruption.checkpoint_at is None else {str(interruption.checkpoint_at): "checkpoint"}
    place = AT_END if interruption.step is None else str(interruption.step)
    return pauses | {place: "stop" if interruption.notice else "death"}


class _Follower:
    """Follows the record of one attempt, and triggers the events that the trainer waits for."""

    def __init__(self, cluster: RehearsalCluster, instance: Instance, job_id: str, path: Path) -> None:
        self._cluster, self._instance, self._job_id, self._path = cluster, instance, job_id, path
        self._size = -1
        self._handled: set[int] = set()
        self._checkpoint: int | None = None
        self._death: float | None = None

    def look(self) -> bool:
        """Act on new lines. Returns True when the machine has to die now."""
        if self._death is not None:
            return self._is_durable()
        size = self._path.stat().st_size if self._path.exists() else 0
        if size == self._size:
            return False
        self._size = size
        for place, line in enumerate(read_lines(self._path)):
            if line["event"] != "pause" or place in self._handled:
                continue
            self._handled.add(place)
            if line["what"] == "checkpoint":
                self._checkpoint = line["step"]
                self._instance.recommend()
            elif line["what"] == "stop":
                self._instance.notify()
            else:
                self._death = time.monotonic() + _DURABLE_SECONDS
                self._checkpoint = self._checkpoint or line["step"]
        return False

    def _is_durable(self) -> bool:
        """Return whether the checkpoint before the sudden end is durable."""
        assert self._death is not None and self._checkpoint is not None  # noqa: S101  set together
        if time.monotonic() > self._death:
            raise RehearsalError(f"the checkpoint of step {self._checkpoint} did not become durable")
        return (self._cluster.durable_step(self._job_id) or -1) >= self._checkpoint
