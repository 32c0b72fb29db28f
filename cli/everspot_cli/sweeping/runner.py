"""Runs a sweep: begins trials as jobs, reports their results to Optuna, and ends unpromising trials.

The whole state is in the store: the journal and the jobs, whose ids follow from the trials' numbers. So the command may
be ended at any moment. Run again on any machine, it continues.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from everspot_core.costs.team_budgets import Amount
from everspot_core.experiments.fidelity import choose_promoted
from everspot_core.experiments.sweep import (
    SWEEP_TAG,
    Direction,
    EndedTrial,
    SweepCost,
    SweepSpec,
    end_sweep,
    is_useful,
    retried_sweep,
    trial_job,
)
from everspot_core.jobs.curves import read_metric
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.records import JobState, Request
from everspot_store import JobExists, NothingLeft, StoreUnavailable
from everspot_store.studies import TRIES, JournalChanged

from everspot_cli.commands.submit.command import note_submitted, send
from everspot_cli.commands.submit.context import inherit_team
from everspot_cli.dependencies import set_start
from everspot_cli.errors import CliError
from everspot_cli.job_inputs import copy_inputs
from everspot_cli.job_results import compute_spending, read_dossiers, read_last_value
from everspot_cli.requests import user
from everspot_cli.rows import latest_progress
from everspot_cli.session import Session
from everspot_cli.specs import Overrides, read_spec
from everspot_cli.sweeping import study as optuna
from everspot_cli.sweeping.reading import trial_fields

NOTHING = Amount()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The state of one trial. `value`: the last value of the metric that its job has reported. `useful`: see
    `is_useful`."""

    number: int
    job_id: str
    state: str
    value: float | None
    step: int
    fields: dict[str, Any]
    spent: Amount
    useful: bool
    rung: int = 0


@dataclass(frozen=True, kw_only=True)
class SweepStanding:
    """The state of a sweep.

    Attributes:
        retried: the spending of jobs by which people ran trials again. Their results are of no trial.
        over: no trial runs, and none will begin.
        exhausted: its budget is used up.
        stopped: why its `stop` lets no trial begin, in words.
    """

    trials: tuple[Trial, ...]
    retried: Amount
    over: bool
    exhausted: bool
    stopped: str | None

    @property
    def spent(self) -> Amount:
        """The spending of all trials together, and of their retries by hand."""
        return sum((trial.spent for trial in self.trials), self.retried)

    @property
    def useful(self) -> list[Trial]:
        """The useful trials."""
        return [trial for trial in self.trials if trial.useful]

    @property
    def cost(self) -> SweepCost:
        """The cost so far."""
        return SweepCost(trials=len(self.trials), useful=len(self.useful), dollars=self.spent.dollars)

    def rung_costs(self, rungs: int) -> list[SweepCost]:
        """Return the cost of each rung so far."""
        by_rung = [[trial for trial in self.trials if trial.rung == rung] for rung in range(rungs)]
        return [
            SweepCost(
                trials=len(trials),
                useful=sum(trial.useful for trial in trials),
                dollars=sum((trial.spent for trial in trials), NOTHING).dollars,
            )
            for trials in by_rung
        ]


class SweepRun:
    """One sweep. `file`: of the job."""

    def __init__(self, session: Session, spec: SweepSpec, file: Path) -> None:
        self._session, self._spec, self._file = session, spec, file
        self._journal = session.store.studies.journal(spec.name)
        self._study: Any = None
        self._spent: dict[int, Amount] = {}
        self._settled: set[int] = set()
        self._retries: dict[str, Amount] = {}
        self._settled_retries: set[str] | None = None
        self._last_reports: dict[int, tuple[float | None, int]] = {}
        self._useful: set[int] = set()

    def turn(self, *, act: bool = True) -> SweepStanding:
        """Read the trials once, and act on them: begin and end trials. Without `act` only read.

        Raises:
            CliError: if a trial's job is refused, or if no trial reports the metric.
        """
        if self._study is None:
            self._study = optuna.open_study(self._spec, self._journal, create=act)
        trials = self._trials() if self._study is not None else []
        dossiers = self._dossiers([t for t in trials if t.state.name == "RUNNING" or t.number not in self._settled])
        self._reckon(trials, dossiers)
        standing = self._read_standing(trials, dossiers)
        if not act:
            return standing
        for trial in trials:
            if trial.state.name == "RUNNING":
                dossier = dossiers.get(trial.number)
                self._look_after(trial, dossier)
                if standing.exhausted and not _is_over(dossier):
                    self._cancel(self._job_id(trial), "the sweep's budget is used up")
        if not any(trial.value is not None for trial in standing.trials):
            self._refuse_unreported(dossiers)
        if not standing.exhausted:
            is_stopped = self._is_stopped(dossiers)
            self._begin(0 if is_stopped else self._spec.trials)
        return standing

    def _trials(self) -> list[Any]:
        """Return the trials of the study. Of two processes that promoted the same trial, the first one's counts."""
        trials, keys = [], set()
        for trial in self._study.get_trials(deepcopy=False):
            key = optuna.root(trial), optuna.rung(trial)
            if key in keys:
                if trial.state.name == "RUNNING":
                    optuna.fail(self._study, trial)
                continue
            keys.add(key)
            trials.append(trial)
        return trials

    def _job_id(self, trial: Any) -> str:
        return trial_job(self._spec.name, optuna.root(trial), optuna.rung(trial))

    def _is_stopped(self, dossiers: dict[int, Dossier]) -> bool:
        """Return whether the sweep's `stop` lets no trial begin, trials that have ended in this turn included."""
        if self._spec.stop is None:
            return False
        return self._read_standing(self._trials(), dossiers).stopped is not None

    def _refuse_unreported(self, dossiers: Mapping[int, Dossier]) -> None:
        """Begin no further trials if one has run to its end and none has ever reported the metric.

        Raises:
            CliError: naming the metrics that it did report.
        """
        for dossier in dossiers.values():
            if dossier.record is not None and dossier.record.state is JobState.SUCCEEDED:
                if read_last_value(self._session, dossier.job_id, self._spec.metric) is not None:
                    continue
                metrics = latest_progress(dossier.record, dossier.events).metrics
                raise _unreported(dossier.job_id, self._spec.metric, metrics)

    def _begin(self, most: int) -> None:
        """Begin as many trials as there is room for: of the first rung up to `most`, then of the next ones."""
        while (trial := self._claim_trial(most)) is not None:
            self._submit(trial)

    def _claim_trial(self, most: int) -> Any:
        """Add one running trial to the study if there is room for it, and return it, or None. Of several commands that
        count the same trials, the journal takes the trial of one, and the others count again.

        Raises:
            StoreUnavailable: if others wrote to the journal during every try.
        """
        for _ in range(TRIES):
            entries = self._journal.count_entries()
            trials = self._trials()
            if sum(t.state.name == "RUNNING" for t in trials) >= self._spec.parallel:
                return None
            if sum(optuna.rung(t) == 0 for t in trials) < most:
                trial = optuna.choose_trial(self._study, self._spec)
            elif promotable := self._promotable(trials):
                trial = optuna.promote(promotable[0])
            else:
                return None
            with self._journal.refuse_after(entries), suppress(JournalChanged):
                number = len(self._study.get_trials(deepcopy=False))
                self._study.add_trial(trial)
                return self._study.get_trials(deepcopy=False)[number]
        raise StoreUnavailable(f"the trials of {self._spec.name} were changed by others {TRIES} times in a row")

    def _promotable(self, trials: list[Any]) -> list[Any]:
        """Return the trials that come to the next rung and are not there yet. Trials of a rung are compared when all of
        them have ended."""
        fidelity = self._spec.fidelity
        if fidelity is None:
            return []
        rungs = [[t for t in trials if optuna.rung(t) == rung] for rung in range(self._spec.rungs)]
        sizes = fidelity.rung_sizes(len(rungs[0]))
        for rung, size in zip(rungs, sizes[1:], strict=False):
            if any(t.state.name == "RUNNING" for t in rung):
                return []
            values = [(optuna.root(t), t.value) for t in rung if t.state.name == "COMPLETE"]
            roots = choose_promoted(values, size, maximize=self._spec.direction is Direction.MAXIMIZE)
            above = {optuna.root(t) for t in trials if optuna.rung(t) == optuna.rung(rung[0]) + 1} if rung else set()
            if missing := [root for root in roots if root not in above]:
                return [t for root in missing for t in rung if optuna.root(t) == root]
        return []

    def _look_after(self, trial: Any, dossier: Dossier | None) -> None:
        if dossier is None:  # the command was ended between choosing the values and submitting the job
            if optuna.rung(trial) or set(trial.params) == set(self._spec.fields):
                self._submit(trial)
            else:
                optuna.fail(self._study, trial)
            return
        record = dossier.record
        if record is None:
            return
        progress = latest_progress(record, dossier.events)
        value = progress.metrics.get(self._spec.metric)
        if value is None and record.state is JobState.SUCCEEDED:  # a record leaves metrics out if there are too many
            value = read_last_value(self._session, dossier.job_id, self._spec.metric)
        if not record.state.final:
            optuna.lasts(self._study, self._spec, progress.total_steps)
            points = self._rung_points(trial, dossier.job_id, value, progress.step)
            if optuna.report(self._study, trial, points):
                self._cancel(dossier.job_id, "other trials of the sweep do better")
        elif value is not None and math.isfinite(value) and is_useful(record.state, value):
            optuna.lasts(self._study, self._spec, progress.step)
            points = self._rung_points(trial, dossier.job_id, value, progress.step, ended=True)
            optuna.complete(self._study, trial, value, points)
        else:
            optuna.fail(self._study, trial)

    def _rung_points(
        self, trial: Any, job_id: str, value: float | None, step: int, *, ended: bool = False
    ) -> list[tuple[int, float]]:
        """Return the values with which a trial is compared with others: for each rung the first one at its step or
        later. They are read from the stored metrics, because the command may see a trial long after a rung.

        Args:
            value: the newest value, at `step`. It counts for a trial that has ended, and where no metrics are stored.
            ended: whether the trial has ended. The metrics of a running one may be stored later than its progress.
        """
        rungs = optuna.pending_rungs(self._study, self._spec, trial, step)
        if not rungs:
            return []
        chunks = self._session.store.read_metrics(job_id)
        values = dict(point for chunk in chunks for point in read_metric(chunk.data, self._spec.metric))
        if value is not None and (ended or not values):
            values[step] = value
        steps = sorted(at for at, each in values.items() if math.isfinite(each))
        firsts = {next((at for at in steps if at >= rung), None) for rung in rungs}
        return [(at, values[at]) for at in steps if at in firsts]

    def _submit(self, trial: Any) -> None:
        """Submit the job of a trial. A trial whose job is refused fails, so that the next command goes on with others.

        Raises:
            CliError: if the job is refused.
        """
        try:
            submission = build_trial_job(
                self._session, self._spec, self._file, optuna.root(trial), trial.params, optuna.rung(trial)
            )
        except CliError:
            optuna.fail(self._study, trial)
            raise
        try:
            note_submitted(self._session, self._send(submission, trial))
        except JobExists:  # by another command that goes on with the same sweep
            return

    def _send(self, submission: JobSubmission, trial: Any) -> JobSubmission:
        """Create the job of a trial; of a promoted one from its checkpoint in the rung before, if that is wanted and
        there."""
        fidelity, rung = self._spec.fidelity, optuna.rung(trial)
        if fidelity is None or not fidelity.warm_start or rung == 0:
            return send(self._session, submission)
        source = trial_job(self._spec.name, optuna.root(trial), rung - 1)
        dossier = self._session.store.dossier(source, brief=True)
        if dossier is None:
            return send(self._session, submission)
        submission = inherit_team(submission, self._session.manifest.team)
        copy = copy_inputs(submission, dossier.submission)
        try:
            return self._session.store.retry(copy.model_copy(update={"retry_of": source, "warm_start": True}), source)
        except NothingLeft:
            return send(self._session, submission)

    def _cancel(self, job: str, reason: str) -> None:
        self._session.store.cancels.create(job, Request(at=self._session.now, by=user(), note=reason))

    def _dossiers(self, trials: list[Any]) -> dict[int, Dossier]:
        """Return the dossiers of the trials' jobs, archived ones included, by the trials' numbers."""
        numbers = {self._job_id(t): t.number for t in trials}
        return {numbers[job]: dossier for job, dossier in read_dossiers(self._session, numbers).items()}

    def _reckon(self, trials: list[Any], dossiers: dict[int, Dossier]) -> None:
        """The cost of each trial. For trials that are over it is computed once."""
        spending = compute_spending(self._session, {str(number): dossier for number, dossier in dossiers.items()})
        self._spent |= {int(number): amount for number, amount in spending.items()}
        self._settled |= {t.number for t in trials if t.state.name != "RUNNING"}
        self._reckon_retries()

    def _reckon_retries(self) -> None:
        """The cost of each job by which somebody ran a trial again. The archive is read once."""
        store, settled = self._session.store, self._settled_retries
        ids = {*store.jobs.names(), *(store.archive.keys() if settled is None else ())}
        settled = settled or set()
        ids = {job for job in ids if retried_sweep(job, {SWEEP_TAG: self._spec.name}) is not None} - settled
        dossiers = read_dossiers(self._session, ids)
        others = {job for job, d in dossiers.items() if d.submission.spec.tags.get(SWEEP_TAG) != self._spec.name}
        retries = {job: dossier for job, dossier in dossiers.items() if job not in others}
        self._retries |= compute_spending(self._session, retries)
        ended = {job for job, d in retries.items() if d.record is not None and d.record.state.final}
        self._settled_retries = settled | ended | others

    def _read_standing(self, trials: list[Any], dossiers: dict[int, Dossier]) -> SweepStanding:
        summaries = []
        for trial in trials:
            dossier = dossiers.get(trial.number)
            if dossier is not None and dossier.record is not None:
                progress = latest_progress(dossier.record, dossier.events)
                self._last_reports[trial.number] = progress.metrics.get(self._spec.metric), progress.step
                if is_useful(dossier.record.state, self._last_reports[trial.number][0]):
                    self._useful.add(trial.number)
            value, step = self._last_reports.get(trial.number, (None, 0))
            summaries.append(
                Trial(
                    number=trial.number,
                    job_id=self._job_id(trial),
                    state=trial.state.name,
                    value=value if trial.state.name == "RUNNING" or trial.value is None else trial.value,
                    step=step,
                    fields={**trial.params, **self._spec.rung_fields(optuna.rung(trial))},
                    rung=optuna.rung(trial),
                    spent=self._spent.get(trial.number, NOTHING),
                    # The reports of a trial whose job is deleted are in the study alone.
                    useful=trial.number in self._useful or trial.state.name == "COMPLETE",
                )
            )
        retried = sum(self._retries.values(), NOTHING)
        total, budget = sum((trial.spent for trial in summaries), retried), self._spec.budget
        exhausted = (budget.dollars is not None and total.dollars >= budget.dollars) or (
            budget.gpu_hours is not None and total.gpu_hours >= budget.gpu_hours
        )
        runs = any(trial.state == "RUNNING" for trial in summaries)
        first = [trial for trial in summaries if trial.rung == 0]
        stopped = end_sweep(self._spec, [_result(trial) for trial in first if trial.state != "RUNNING"])
        is_begun = stopped is not None or len(first) >= self._spec.trials
        over = not runs and (exhausted or (is_begun and not self._promotable(trials)))
        return SweepStanding(trials=tuple(summaries), retried=retried, over=over, exhausted=exhausted, stopped=stopped)


def _result(trial: Trial) -> EndedTrial:
    value = trial.value if trial.state == "COMPLETE" else None
    return EndedTrial(value=value, dollars=trial.spent.dollars, failed=trial.state == "FAIL")


def _unreported(job_id: str, metric: str, reported: Mapping[str, float]) -> CliError:
    """Return the error for a trial that ended well without the metric: its values cannot be compared with others."""
    names = ", ".join(sorted(reported)) or "no metric at all"
    return CliError(
        f"{job_id} succeeded and never reported {metric}: it reported {names}",
        hint=f"have the program report it (`run.log({metric}=…)`), and the next `everspot sweep` goes on; for another "
        "`metric` the sweep needs another name",
    )


def _is_over(dossier: Dossier | None) -> bool:
    return dossier is not None and dossier.record is not None and dossier.record.state.final


def build_trial_job(
    session: Session, spec: SweepSpec, file: Path, number: int, fields: dict[str, Any], rung: int = 0
) -> JobSubmission:
    """Return the job of a trial: the file's job with these values, named and tagged for the sweep.

    Raises:
        CliError: if the result is no valid job.
    """
    fields = {**spec.rung_fields(rung), **fields}
    job = read_spec(file, Overrides({**trial_fields(spec.name, fields), f"tags.{SWEEP_TAG}": spec.name}))
    now = session.submission_time
    deadline = now + job.deadline if isinstance(job.deadline, timedelta) else job.deadline
    submission = JobSubmission(
        job_id=trial_job(spec.name, number, rung), spec=job, submitted_at=now, deadline_at=deadline, submitted_by=user()
    )
    return set_start(submission)
