"""Judges the `run_if` of waiting jobs by the metrics of other jobs: from their turn until they begin, whenever another
job of a name that they compare with has succeeded."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from everspot_core.jobs.final_metrics import final_metrics
from everspot_core.jobs.job import JobSubmission, Priority
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.records import JobRecord, JobState
from everspot_core.jobs.run_condition import ConditionResult, MetricRef, MetricSource, RunCondition
from everspot_core.jobs.series import continued_from
from everspot_core.schedule.stages import is_early
from everspot_store import Store

from everspot_scheduler.dependencies import Standing
from everspot_scheduler.observer import Observation

_SUFFIX = r"-[0-9a-f]{8}(-\d+)?"
"""What a submission, and a series, add to a job's name."""


@dataclass(frozen=True)
class JudgedCondition:
    """What a condition amounts to.

    Attributes:
        condition_result: None while it cannot be judged.
        missing: the metric for which it cannot be judged, in words.
        awaits: another job of the job's own name, by whose metrics the condition will be judged again.
    """

    condition_result: ConditionResult | None = None
    missing: str | None = None
    awaits: str | None = None


_NEVER = datetime.min.replace(tzinfo=UTC)
_UNJUDGED = JudgedCondition()


class _Missing(Exception):
    """A metric that no job has reported."""


class RunConditions:
    """The conditions of one cluster's waiting jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._judgements: dict[str, JudgedCondition] = {}
        self._judged_by: dict[str, frozenset[str]] = {}  # the jobs that had succeeded when a job was judged

    def look(self, observation: Observation, after: Mapping[str, Standing]) -> None:
        """Judge the jobs whose turn has come, as long as they have not begun. `after`: the states of the jobs that they
        come after.

        Raises:
            StoreError: if the store could not be asked.
        """
        now = self._store.clock.now()
        waiting = {
            name: document.value
            for name, document in observation.jobs.items()
            if document.value.spec.run_if is not None and _is_unbegun(name, observation)
        }
        self._judgements = {name: judgement for name, judgement in self._judgements.items() if name in waiting}
        self._judged_by = {name: basis for name, basis in self._judged_by.items() if name in waiting}
        if not waiting:
            return
        succeeded, under_way = _group_by_name(observation)
        for name, submission in sorted(waiting.items(), key=lambda item: (item[1].submitted_at, item[0])):
            ready = all(state is JobState.SUCCEEDED for _, state in after.get(name, ()))
            if not ready or is_early(submission, now):
                continue
            names = _compared_names(submission)
            basis = frozenset(job for other in names for job in succeeded[other])
            if name not in self._judgements or self._judged_by[name] != basis:
                self._judgements[name], self._judged_by[name] = self._judge(submission, observation), basis
            if submission.spec.name in names:
                awaited = self._find_awaited(submission, under_way[submission.spec.name], observation)
                self._judgements[name] = replace(self._judgements[name], awaits=awaited)

    def evaluate_run_if(self, job_id: str) -> JudgedCondition:
        """Return what the condition of a job amounts to."""
        return self._judgements.get(job_id, _UNJUDGED)

    def _find_awaited(self, submission: JobSubmission, others: Iterable[str], observation: Observation) -> str | None:
        """Return the job of the same name that is to end before this one begins: one that has begun, or whose turn came
        before. Else two of them could both be better than the last one, and the worse one begin last. An urgent job
        awaits none that has not begun."""
        urgent = submission.spec.priority is Priority.CRITICAL or submission.deadline_at is not None
        for job in others:
            if job == submission.job_id:
                continue
            if not _is_unbegun(job, observation):
                return job
            earlier, judgement = observation.jobs[job].value, self._judgements.get(job)
            is_ahead = (earlier.submitted_at, job) < (submission.submitted_at, submission.job_id)
            met = judgement is not None and judgement.condition_result is not None and judgement.condition_result.is_met
            if is_ahead and met and not urgent:
                return job
        return None

    def _judge(self, submission: JobSubmission, observation: Observation) -> JudgedCondition:
        condition = submission.spec.run_if
        assert isinstance(condition, RunCondition)  # noqa: S101 - `look` has chosen by it
        try:
            values = {ref: self._read(ref, submission, observation) for ref in condition.refs}
        except _Missing as error:
            return JudgedCondition(missing=str(error))
        return JudgedCondition(condition_result=condition.judge(values))

    def _read(self, ref: MetricRef, submission: JobSubmission, observation: Observation) -> float | None:
        """Return the value of a metric; None if no job of its name has succeeded so far.

        Raises:
            _Missing: if the job has not reported it.
        """
        if ref.source is MetricSource.LAST:
            dossier = self._find_last(ref.job, self._find_chain(submission, observation), observation)
            if dossier is None:
                return None
        else:
            job_id = next((earlier.job_id for earlier in submission.after if earlier.name == ref.job), None)
            dossier = self._store.dossier(job_id, brief=True) if job_id is not None else None
        metrics = (
            final_metrics(dossier.record, dossier.events) if dossier is not None and dossier.record is not None else {}
        )
        if ref.name not in metrics:
            job = dossier.job_id if dossier is not None else ref.job
            raise _Missing(f"{job} has no metric {ref.name}: it never reported it, or at last as NaN or infinite")
        return metrics[ref.name]

    def _find_chain(self, submission: JobSubmission, observation: Observation) -> set[str]:
        """Return the job and all jobs before it in its chain, without the earlier runs that a series continues from."""
        chain, pending = {submission.job_id}, [submission]
        while pending:
            stage = pending.pop()
            jobs = {earlier.job_id for earlier in stage.after} - {continued_from(stage)} - chain
            chain |= jobs
            pending += [earlier for job in jobs if (earlier := self._read_submission(job, observation)) is not None]
        return chain

    def _read_submission(self, job_id: str, observation: Observation) -> JobSubmission | None:
        document = observation.jobs.get(job_id)
        if document is not None:
            return document.value
        dossier = self._store.archive.get(job_id)
        return dossier.submission if dossier is not None else None

    def _find_last(self, name: str, without: set[str], observation: Observation) -> Dossier | None:
        """Return the latest successful job of a name, without the jobs `without`; None if no job of the name has
        succeeded."""
        pattern = re.compile(re.escape(name) + _SUFFIX)
        live = [
            document.value
            for job, document in observation.records.items()
            if job not in without
            and document.value.state is JobState.SUCCEEDED
            and job in observation.jobs
            and observation.jobs[job].value.spec.name == name
            and observation.jobs[job].value.visit is None  # another cluster's names mean nothing here
        ]
        if live:
            return self._store.dossier(self._latest(live), brief=True)
        archived = self._store.archive.keys()
        keys = [key for job, key in archived.items() if job not in without and pattern.fullmatch(job)]
        for _, month in groupby(sorted(keys, reverse=True), lambda key: key.partition("/")[0]):
            dossiers = [d for d in self._store.archive.read(month).values() if _has_succeeded(d, name)]
            if dossiers:
                return max(dossiers, key=_end_order)
        return None

    def _latest(self, records: list[JobRecord]) -> str:
        """Return the job that ended last. The end of a job is the time at which its record was written, by the store's
        clock: the clocks of the machines that wrote the records may differ."""
        written = self._store.records.modified([record.job_id for record in records]) if len(records) > 1 else {}
        last = max(records, key=lambda r: (written.get(r.job_id, _NEVER), r.changed_at, r.job_id))
        return last.job_id


def _compared_names(submission: JobSubmission) -> set[str]:
    """Return the names of the jobs whose last run the condition compares with."""
    condition = submission.spec.run_if
    refs = condition.refs if isinstance(condition, RunCondition) else ()
    return {ref.job for ref in refs if ref.source is MetricSource.LAST}


def _group_by_name(observation: Observation) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the jobs that have succeeded and those that have not ended, each by name."""
    succeeded: dict[str, list[str]] = defaultdict(list)
    under_way: dict[str, list[str]] = defaultdict(list)
    for job, document in sorted(observation.jobs.items()):
        record, name = observation.records.get(job), document.value.spec.name
        if document.value.visit is not None:  # another cluster's names mean nothing here
            continue
        if record is None or not record.value.state.final:
            under_way[name].append(job)
        elif record.value.state is JobState.SUCCEEDED:
            succeeded[name].append(job)
    return succeeded, under_way


def _is_unbegun(job: str, observation: Observation) -> bool:
    record = observation.records.get(job)
    return record is None or (record.value.state is JobState.PENDING and record.value.epoch == 0)


def _has_succeeded(dossier: Dossier, name: str) -> bool:
    record = dossier.record
    return record is not None and record.state is JobState.SUCCEEDED and dossier.submission.spec.name == name


def _end_order(dossier: Dossier) -> tuple[datetime, datetime, str]:
    changed_at = dossier.record.changed_at if dossier.record is not None else _NEVER
    return (dossier.ended_at or _NEVER, changed_at, dossier.job_id)
