"""Brings the metrics of jobs from the store into a folder of TensorBoard's event files: a run for each job, and one
for each folder of the event files that its program writes itself.

A run has each step once. An attempt that goes on from a checkpoint does some steps again: what the attempt before has
reported of them is left out, or marked as replaced where it is in the file already.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from everspot_core.experiments.sweep import SWEEP_TAG, trial_sweep
from everspot_core.jobs.curves import MetricSample, read_samples
from everspot_core.jobs.records import JobRecord, JobState
from everspot_store import Chunk

from everspot_cli.errors import CliError
from everspot_cli.job_lookup import find_job, read_record
from everspot_cli.session import Session
from everspot_cli.tensorboard.event_file import EventFile
from everspot_cli.tensorboard.program_files import ProgramFiles

FILE = "events.out.tfevents.0000000000.everspot"
"""The name of a run's file. TensorBoard reads every file whose name has `tfevents`."""


class CurveFile:
    """The event file of one job, written anew: a reader of an earlier one keeps what it has opened."""

    def __init__(self, folder: Path, began_at: datetime) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        with suppress(FileNotFoundError):
            path.unlink()
        self._began_at = began_at
        self._events = EventFile(path.open("xb"), began_at.timestamp())
        self._last_steps: dict[str, int] = {}
        self._newest_epoch = 0
        self._is_provisional = False
        self.points = 0

    @property
    def last_step(self) -> int | None:
        """The highest step of the run; None: it is empty."""
        return max(self._last_steps.values(), default=None)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Add pieces of the job's stream of metrics, in their order."""
        attempts: dict[int, list[MetricSample]] = {}
        for chunk in chunks:
            attempts.setdefault(chunk.epoch, []).extend(read_samples(chunk.data))
        redone_from: float = math.inf
        remaining_attempts: list[tuple[int, list[MetricSample]]] = []
        for epoch in sorted(attempts, reverse=True):
            samples = attempts[epoch]
            remaining_attempts.append((epoch, [sample for sample in samples if sample.step < redone_from]))
            redone_from = min(redone_from, samples[0].step if samples else math.inf)
        for epoch, samples in reversed(remaining_attempts):
            self._add_attempt(epoch, samples)
        self._events.flush()

    def add_newest(self, step: int, metrics: dict[str, float], at: datetime) -> None:
        """Add what the job's record says of this moment. The stream has it later, with the steps before it."""
        if step > (self.last_step or 0):
            self._write(MetricSample(step, metrics, at))
            self._is_provisional = True
            self._events.flush()

    def close(self) -> None:
        """Close the file."""
        self._events.close()

    def _add_attempt(self, epoch: int, samples: Sequence[MetricSample]) -> None:
        if not samples:
            return
        first, last_step = samples[0], self.last_step
        if last_step is not None and first.step <= last_step and (epoch > self._newest_epoch or self._is_provisional):
            self._events.restart((first.at or self._began_at).timestamp(), first.step)
            self._last_steps = {name: min(step, first.step - 1) for name, step in self._last_steps.items()}
        self._newest_epoch, self._is_provisional = max(self._newest_epoch, epoch), False
        for sample in samples:
            self._write(sample)

    def _write(self, sample: MetricSample) -> None:
        new = {name: value for name, value in sample.metrics.items() if sample.step > self._last_steps.get(name, -1)}
        if new:
            self._events.add_scalars((sample.at or self._began_at).timestamp(), sample.step, new)
            self._last_steps |= dict.fromkeys(new, sample.step)
            self.points += len(new)


@dataclass
class JobRun:
    """One job's run.

    Attributes:
        state: of the job, as of the last look.
        is_complete: whether the job has ended, and all of its metrics are in the file.
        after: the position of the last piece that was read.
        program: the files that its program has written itself.
        program_after: the position of the last piece of them that was read.
    """

    job_id: str
    file: CurveFile
    program: ProgramFiles
    state: JobState = JobState.PENDING
    is_complete: bool = False
    after: tuple[int, int] | None = None
    program_after: tuple[int, int] | None = None


class Runs:
    """The runs of some jobs, and of all trials of some sweeps, in one folder.

    Args:
        logdir: the folder, with a folder for each run.
        names: jobs, the beginnings of their ids, or sweeps.

    Raises:
        CliError: if a name is no job and no sweep.
    """

    def __init__(self, session: Session, logdir: Path, names: Iterable[str]) -> None:
        self._session = session
        self._logdir = logdir
        self._sweeps: list[str] = []
        self._runs: dict[str, JobRun] = {}
        for name in names:
            if session.store.jobs.get(name) is None and session.store.studies.get(name) is not None:
                self._sweeps.append(name)
            else:
                self._add(find_job(session, name).job_id)

    def __iter__(self) -> Iterator[JobRun]:
        return iter(self._runs.values())

    @property
    def are_complete(self) -> bool:
        """Whether every job has ended, and all metrics are here. A sweep may submit further trials."""
        return all(run.is_complete for run in self)

    def read(self) -> None:
        """Bring what is new. Raises `StoreError`; another call goes on from there."""
        self._add_trials()
        for run in self:
            if not run.is_complete:
                self._read_run(run)

    def close(self) -> None:
        """Close the files."""
        for run in self:
            run.file.close()

    def _read_run(self, run: JobRun) -> None:
        # The record is read first: what a job wrote before it ended is then surely among what is read.
        record = read_record(self._session, run.job_id)
        source = record.reused_from if record is not None and record.reused_from is not None else run.job_id
        chunks = list(self._session.store.metrics.read(source, run.after))
        run.file.add(chunks)
        run.after = chunks[-1].position if chunks else run.after
        for chunk in self._session.store.event_files.read(source, run.program_after):
            run.program.add([chunk])
            run.program_after = chunk.position
        if record is not None:
            _add_newest(run.file, record)
            run.state, run.is_complete = record.state, record.state.final

    def _add_trials(self) -> None:
        if not self._sweeps:
            return
        store = self._session.store
        for job in sorted({*store.jobs.names(), *store.archive.keys()}):
            if any(trial_sweep(job, {SWEEP_TAG: sweep}) == sweep for sweep in self._sweeps):
                self._add(job)

    def _add(self, job_id: str) -> None:
        if job_id in self._runs:
            return
        try:
            file = CurveFile(self._logdir / job_id, self._session.now)
        except OSError as error:
            raise CliError(f"{self._logdir / job_id} cannot be written: {error.strerror or error}") from None
        self._runs[job_id] = JobRun(job_id, file, ProgramFiles(self._logdir / job_id))


def _add_newest(file: CurveFile, record: JobRecord) -> None:
    progress = record.progress
    if record.state is JobState.RUNNING and progress.metrics:
        file.add_newest(progress.step, dict(progress.metrics), record.changed_at)
