"""Runs a comparison: submits each arm with each seed as a job, and reads their results.

The whole state is in the store: the comparison's record and the jobs, whose ids follow from arm and seed. So the
command may be ended at any moment. Run again on any machine, it continues.
"""

import hashlib
import json
import math
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from everspot_core.costs.attempts import attempts
from everspot_core.costs.team_budgets import Amount
from everspot_core.experiments.arm_results import ArmResult, compare_arms
from everspot_core.experiments.precision_comparison import AB_TAG, ComparisonRecord, ComparisonSpec
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.job_parts import Precision
from everspot_core.jobs.records import JobState
from everspot_core.jobs.smaller_types import Footprint, SmallerType, smaller_types
from everspot_store import JobExists, code

from everspot_cli.commands.submit.command import create_job, note_submitted, send
from everspot_cli.commands.submit.context import inherit_team
from everspot_cli.commands.submit.deadline import warn
from everspot_cli.commands.submit.ignore_file import ignored_in
from everspot_cli.dependencies import set_start
from everspot_cli.errors import CliError
from everspot_cli.job_inputs import copy_inputs, pin
from everspot_cli.job_results import compute_spending, read_dossiers, read_last_value
from everspot_cli.requests import user
from everspot_cli.rows import latest_progress
from everspot_cli.session import Session
from everspot_cli.specs import Overrides, read_spec

NOTHING = Amount()


@dataclass(frozen=True, kw_only=True)
class ArmRun:
    """One run of a comparison: an arm with a seed.

    Attributes:
        number: of the seed, from 0.
        state: of its job; PENDING before it is submitted.
        value: the last value of the metric.
        seconds: market time for which it has had an instance.
        epochs: how often it has read its data; None if it does not report that.
        skipped_steps: steps that the gradient scaler skipped; None without a scaler.
        instance_type: its last instance type.
    """

    precision: Precision
    number: int
    job_id: str
    state: JobState
    value: float | None
    diverged: bool
    step: int
    spent: Amount
    seconds: float
    epochs: float | None
    footprint: Footprint
    skipped_steps: int | None
    interruptions: int
    instance_type: str | None


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm: its runs, its result, and what it took.

    Attributes:
        footprint: the most of any run.
        epoch_seconds: market time of an epoch, with starts and interruptions; None if no run reports its epochs.
        epoch_usd: dollars of an epoch, likewise.
    """

    runs: tuple[ArmRun, ...]
    result: ArmResult
    footprint: Footprint
    epoch_seconds: float | None
    epoch_usd: float | None
    smaller: tuple[SmallerType, ...]

    @property
    def precision(self) -> Precision:
        """The arm's number format."""
        return self.result.precision

    @property
    def failed(self) -> list[ArmRun]:
        """The runs that have ended without success."""
        return [run for run in self.runs if run.state.final and run.state is not JobState.SUCCEEDED]

    @property
    def diverged(self) -> list[ArmRun]:
        """The runs that ended well, and whose last value of the metric is not finite."""
        return [run for run in self.runs if run.diverged]

    @property
    def skipped_steps(self) -> int | None:
        """Steps that the gradient scaler left out, of all runs together; None without a scaler."""
        counts = [run.skipped_steps for run in self.runs if run.skipped_steps is not None]
        return sum(counts) if counts else None


@dataclass(frozen=True, kw_only=True)
class ComparisonStanding:
    """The state of a comparison. The first arm is the one that the others are compared with."""

    arms: tuple[Arm, ...]

    @property
    def runs(self) -> list[ArmRun]:
        """All runs."""
        return [run for arm in self.arms for run in arm.runs]

    @property
    def over(self) -> bool:
        """Whether every run has ended."""
        return all(run.state.final for run in self.runs)

    @property
    def passed(self) -> bool:
        """Whether every run has ended, and every other arm may replace the first one."""
        return self.over and all(arm.result.verdict is not None and arm.result.verdict.passed for arm in self.arms[1:])

    @property
    def winner(self) -> Arm | None:
        """The arm that may replace the first one and has the cheapest epochs; None if none may."""
        passing = [arm for arm in self.arms[1:] if arm.result.verdict is not None and arm.result.verdict.passed]
        return min(passing, key=lambda arm: (arm.epoch_usd is None, arm.epoch_usd or 0.0), default=None)


class ComparisonRun:
    """One comparison. `file`: of the job; `overrides`: of the command line."""

    def __init__(self, session: Session, spec: ComparisonSpec, file: Path, overrides: Overrides) -> None:
        self._session, self._spec, self._file, self._overrides = session, spec, file, overrides
        self._first: JobSubmission | None = None
        self._last_values: dict[str, float | None] = {}

    def begin(self) -> None:
        """Record the comparison, or check that it is the one that was begun. Seeds and arms may have been added.

        Raises:
            CliError: if another comparison or another job has this name.
        """
        studies = self._session.store.studies
        record = ComparisonRecord(
            spec=self._spec, job_digest=self.job_digest(), made_at=self._session.now, made_by=user()
        )
        existing = studies.begin_comparison(record)
        different = self._spec.differs(existing.spec)
        if existing.job_digest != record.job_digest:
            different.append("the job")
        if different:
            raise CliError(
                f"another comparison named {self._spec.name} was begun at {existing.made_at:%Y-%m-%d %H:%M} UTC",
                hint="give it another name with --name, or put back what differs",
                problems=[{"field": name, "problem": "is not what it was begun with"} for name in different],
            )
        if existing.spec != self._spec:
            studies.change_comparison(existing.model_copy(update={"spec": self._spec}))
        self._warn_of_changes()

    def job_digest(self) -> str:
        """A digest of the job that all runs share, apart from format and seed and from where its files lie. Fields with
        their defaults do not count: a later version of Everspot may have more of them."""
        spec = self.build(self._spec.arms[0], 0).spec
        fields = spec.model_dump(mode="json", exclude={"code", "requirements"}, exclude_defaults=True)
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def build(
        self, precision: Precision, number: int, *, job_id: str | None = None, more: Mapping[str, Any] | None = None
    ) -> JobSubmission:
        """Return the job of an arm with a seed. `more`: further fields that differ from the file's.

        Raises:
            CliError: if the result is no valid job.
        """
        spec, session = self._spec, self._session
        seed = spec.seed(number)
        fields = {
            **self._overrides.fields,
            "name": spec.name,
            "precision": precision.value,
            "cache": False,  # each run is measured
            "mixed_on_failover": False,  # it would change the format in the middle of a run
            spec.seed_field: str(seed) if spec.seed_field.startswith("env.") else seed,
            f"tags.{AB_TAG}": spec.name,
            **(more or {}),
        }
        overrides = Overrides(fields, self._overrides.problems, self._overrides.code)
        job = read_spec(self._file, overrides)
        if job.every is not None:
            raise CliError(f"{self._file}: every: a run of a comparison is run once, and this would begin a series")
        now = session.submission_time
        deadline = now + job.deadline if isinstance(job.deadline, timedelta) else job.deadline
        return set_start(
            JobSubmission(
                job_id=job_id or spec.job_id(precision, number),
                spec=job,
                submitted_at=now,
                deadline_at=deadline,
                submitted_by=user(),
            )
        )

    def submit(self, submission: JobSubmission) -> None:
        """Submit a run's job with the code, datasets and wheels of the comparison's first run, unless another command
        that goes on with the same comparison has submitted it."""
        try:
            note_submitted(self._session, self._send(submission))
        except JobExists:
            return

    def _send(self, submission: JobSubmission) -> JobSubmission:
        session, first = self._session, self._first_run()
        if first is None:
            return send(session, submission)
        submission = inherit_team(copy_inputs(submission, first), session.manifest.team)
        return create_job(session, submission, lambda: session.store.submit(submission, code_of=first.job_id))

    def _first_run(self) -> JobSubmission | None:
        """Return the run that was submitted first, in any format. Each format begins with the first seed."""
        if self._first is None:
            ids = [self._spec.job_id(precision, 0) for precision in Precision if precision is not Precision.AUTO]
            runs = [dossier.submission for dossier in read_dossiers(self._session, ids).values()]
            self._first = min(runs, key=lambda run: (run.submitted_at, run.job_id), default=None)
        return self._first

    def _warn_of_changes(self) -> None:
        """Warn if the job's folder or the newest versions of its datasets are not those of the first run."""
        first = self._first_run()
        if first is None:
            return
        now = self.build(first.spec.precision, 0)
        changes = []
        if now.spec.code is not None and _digest_code(Path(now.spec.code)) != first.code_digest:
            changes.append("the code")
        pins = [pin(self._session, reference) for reference in now.spec.datasets]
        changes += [
            reference for reference, id in zip(now.spec.datasets, pins, strict=True) if id not in first.datasets
        ]
        if changes:
            words = f"{' and '.join(changes)} changed since the comparison began: its runs get what {first.job_id} got"
            warn(self._session, [f"{words}; to compare with the new state, give another --name"])

    def refuse_mixed(self, dossiers: Mapping[str, Dossier]) -> None:
        """Refuse to compare runs with different code, datasets or wheels, as earlier releases submitted them.

        Raises:
            CliError: naming each run, and what differs.
        """
        first = self._first_run() if dossiers else None
        problems = []
        for job, dossier in sorted(dossiers.items()):
            names = [
                words
                for field, words in {"code_digest": "code", "datasets": "datasets", "wheels": "requirements"}.items()
                if first is not None and getattr(dossier.submission, field) != getattr(first, field)
            ]
            if first is not None and names:
                problems.append({"field": job, "problem": f"has other {' and '.join(names)} than {first.job_id}"})
        if problems:
            raise CliError(
                f"the runs of {self._spec.name} cannot be compared: they differ in more than format and seed",
                hint="begin again under another --name",
                problems=problems,
            )

    def turn(self, *, act: bool = True) -> ComparisonStanding:
        """Read the runs once. With `act`, submit the missing ones.

        Raises:
            CliError: if a run's job is refused.
        """
        ids = {self._spec.job_id(arm, n): (arm, n) for arm in self._spec.arms for n in range(self._spec.seeds)}
        dossiers = read_dossiers(self._session, ids)
        self.refuse_mixed(dossiers)
        if act:
            for job, (arm, number) in ids.items():
                if job not in dossiers:
                    self.submit(self.build(arm, number))
        spending = compute_spending(self._session, dossiers)
        runs = {
            job: self.read_run(arm, number, job, dossiers.get(job), spending.get(job, NOTHING))
            for job, (arm, number) in ids.items()
        }
        return self._standing(list(runs.values()))

    def read_run(self, precision: Precision, number: int, job: str, dossier: Dossier | None, cost: Amount) -> ArmRun:
        """Return what a run has reported and used."""
        record = dossier.record if dossier is not None else None
        if dossier is None or record is None:
            return ArmRun(
                precision=precision, number=number, job_id=job, state=JobState.PENDING, value=None,
                diverged=False, step=0, spent=cost,
                seconds=0.0, epochs=None, footprint=Footprint(), skipped_steps=None, interruptions=0,
                instance_type=None,
            )  # fmt: skip
        progress = latest_progress(record, dossier.events)
        now = self._session.now
        until = record.changed_at if record.state.final else now
        occupied = record.held_time(until)
        history = attempts(dossier.events, record=record)
        if occupied is None:
            occupied = sum((max(timedelta(0), min(a.end or until, until) - a.start) for a in history), timedelta(0))
        skipped, value = progress.metrics.get("skipped_steps"), progress.metrics.get(self._spec.metric)
        if value is None and record.state is JobState.SUCCEEDED:
            value = self._read_last_value(job)
        return ArmRun(
            precision=precision,
            number=number,
            job_id=job,
            state=record.state,
            value=value if value is None or math.isfinite(value) else None,
            diverged=value is not None and not math.isfinite(value),
            step=progress.step,
            spent=cost,
            seconds=occupied.total_seconds(),
            epochs=progress.step / progress.steps_per_epoch if progress.steps_per_epoch else None,
            footprint=Footprint(progress.memory_gib, progress.gpu_memory_gib),
            skipped_steps=int(skipped) if skipped is not None else None,
            interruptions=record.preemptions,
            instance_type=history[-1].instance_type if history else None,
        )

    def _read_last_value(self, job: str) -> float | None:
        """Return the last stored value of the metric of a run that has ended. It is read once."""
        if job not in self._last_values:
            self._last_values[job] = read_last_value(self._session, job, self._spec.metric)
        return self._last_values[job]

    def _standing(self, runs: list[ArmRun]) -> ComparisonStanding:
        values = {
            arm: {
                run.number: run.value
                for run in runs
                if run.precision is arm and run.state is JobState.SUCCEEDED and run.value is not None
            }
            for arm in self._spec.arms
        }
        arms: list[Arm] = []
        diverged = {
            arm: {run.number for run in runs if run.precision is arm and run.diverged} for arm in self._spec.arms
        }
        for result in compare_arms(self._spec, values, diverged):
            own = tuple(run for run in runs if run.precision is result.precision)
            footprint = _largest([run.footprint for run in own])
            seconds, usd = _per_epoch(own)
            first = arms[0].footprint if arms else footprint
            smaller = self._smaller_types(own, footprint, first, seconds)
            arms.append(
                Arm(runs=own, result=result, footprint=footprint, epoch_seconds=seconds, epoch_usd=usd, smaller=smaller)
            )
        return ComparisonStanding(arms=tuple(arms))

    def _smaller_types(
        self, runs: tuple[ArmRun, ...], footprint: Footprint, first: Footprint, seconds: float | None
    ) -> tuple[SmallerType, ...]:
        types = Counter(run.instance_type for run in runs if run.instance_type is not None)
        catalogue = self._session.catalogue
        current = catalogue.types.get(types.most_common(1)[0][0]) if types else None
        if current is None:
            return ()
        declared = self.build(runs[0].precision, 0).spec.resources
        region = self._session.manifest.region
        return tuple(smaller_types(catalogue, region, current, declared, footprint, first, seconds))


def _digest_code(folder: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="everspot-code-") as scratch:
        return code.pack(folder, Path(scratch, "code.tar.gz"), ignored_in(folder))


def refuse_unreported(spec: ComparisonSpec, standing: ComparisonStanding) -> None:
    """Refuse to wait for further runs if one has succeeded without the metric.

    Raises:
        CliError: naming the run.
    """
    for run in standing.runs:
        if run.state is JobState.SUCCEEDED and run.value is None and not run.diverged:
            raise CliError(
                f"{run.job_id} succeeded and never reported {spec.metric}",
                hint=f"`everspot job {run.job_id}` shows its metrics: name one with --metric, and no run is repeated",
            )


def _largest(footprints: list[Footprint]) -> Footprint:
    memory = [f.memory_gib for f in footprints if f.memory_gib is not None]
    gpu = [f.gpu_gib for f in footprints if f.gpu_gib is not None]
    return Footprint(max(memory, default=None), max(gpu, default=None))


def _per_epoch(runs: tuple[ArmRun, ...]) -> tuple[float | None, float | None]:
    """Return seconds and dollars of an epoch, over the runs that have succeeded."""
    whole = [run for run in runs if run.state is JobState.SUCCEEDED and run.epochs]
    epochs = sum(run.epochs or 0.0 for run in whole)
    if not epochs:
        return None, None
    return sum(run.seconds for run in whole) / epochs, sum(run.spent.dollars for run in whole) / epochs
