"""The cost of each stage of a pipeline, and of each point that a metric gained.

A *pipeline* is one set of jobs that are chained by `after`, directly or through others. Its *stages* are the jobs' tag
`Stage`, or their names without that tag; jobs of one stage add up. The pipeline has the name of its last stage, and
*runs* of the same pipeline have the same stages. The *gain* of a run is how much better the metric of its last jobs is
than in the run before.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from math import isfinite, nan

from everspot_core.costs.prices import exact, total
from everspot_core.jobs.early_stop import StopMode, infer_mode
from everspot_core.jobs.job import JobSubmission

STAGE = "Stage"
ACCURACY = ("accuracy", "test_accuracy", "eval_accuracy", "val_accuracy")
"""The metrics that are an accuracy, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The result of a job, over all its time and all clusters.

    Attributes:
        ended_at: None while it runs or waits.
        is_exact: whether `cost` is all of its cost.
        metrics: its last metrics.
    """

    cost: Fraction
    is_exact: bool
    ended_at: datetime | None
    succeeded: bool
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a run."""

    name: str
    jobs: tuple[str, ...]
    cost: Fraction
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """One run, its stages in order.

    Attributes:
        ended_at: None while a job of the run has not ended.
        metric: the metric of the last stage's jobs that succeeded; None if no job reports one.
        value: the mean of that metric.
        gain: by how much it is better than in the run before; None without such a run, and if the metric's
            name does not say whether lower or higher is better.
        usd_per_point: the run's cost for each point gained (`point`: 0.01 of an accuracy, else 1); None where nothing
            was gained, or a cost is unknown.
    """

    name: str
    stages: tuple[Stage, ...]
    submitted_at: datetime
    ended_at: datetime | None
    succeeded: bool
    metric: str | None = None
    value: float | None = None
    gain: float | None = None
    point: float = 1.0
    usd_per_point: Fraction | None = None

    @property
    def cost(self) -> Fraction:
        """Dollars of all stages."""
        return total(stage.cost for stage in self.stages)

    @property
    def is_exact(self) -> bool:
        """Whether `cost` is all of it."""
        return all(stage.is_exact for stage in self.stages)


def pipelines(
    submissions: Mapping[str, JobSubmission], outcomes: Mapping[str, JobOutcome], metric: str | None = None
) -> list[PipelineRun]:
    """Return every run of every pipeline, by name and submission. A job without a chain is a pipeline of one stage only
    where it is a run of a series.

    Args:
        submissions: Of all jobs.
        outcomes: Of the same jobs; one that is missing is left out of its run.
        metric: The one to judge by. Default: the accuracy that is reported, if any.
    """
    runs: dict[tuple[str, ...], list[PipelineRun]] = defaultdict(list)
    for members in _chained({job: s for job, s in submissions.items() if job in outcomes}):
        run = _run(members, outcomes, metric)
        runs[tuple(stage.name for stage in run.stages)].append(run)
    judged_runs = []
    for own in runs.values():
        before: PipelineRun | None = None
        for run in sorted(own, key=lambda r: r.submitted_at):
            judged = _judged(run, before)
            judged_runs.append(judged)
            before = judged if judged.value is not None else before
    return sorted(judged_runs, key=lambda run: (run.name, run.submitted_at))


def _chained(submissions: Mapping[str, JobSubmission]) -> Iterable[list[JobSubmission]]:
    """Return the jobs of each pipeline, sorted so that every job comes after its dependencies."""
    group = {job: job for job in submissions}

    def root(job: str) -> str:
        while group[job] != job:
            group[job] = group[group[job]]
            job = group[job]
        return job

    for job, submission in submissions.items():
        for earlier in submission.after:
            if earlier.job_id in group:
                group[root(job)] = root(earlier.job_id)
    members: dict[str, list[JobSubmission]] = defaultdict(list)
    # A job is submitted after its dependencies.
    for job, submission in sorted(submissions.items(), key=lambda pair: (pair[1].submitted_at, pair[0])):
        members[root(job)].append(submission)
    return [own for own in members.values() if len(own) > 1 or own[0].series is not None]


def _stage(submission: JobSubmission) -> str:
    return submission.spec.tags.get(STAGE) or submission.spec.name


def _run(members: list[JobSubmission], outcomes: Mapping[str, JobOutcome], metric: str | None) -> PipelineRun:
    stages: dict[str, list[str]] = {}
    for submission in members:
        stages.setdefault(_stage(submission), []).append(submission.job_id)
    own = [outcomes[submission.job_id] for submission in members]
    ends = [outcome.ended_at for outcome in own if outcome.ended_at is not None]
    *_, last = stages
    name, value = _measured([outcomes[job] for job in stages[last]], metric)
    return PipelineRun(
        name=last,
        stages=tuple(
            Stage(
                name=stage,
                jobs=tuple(jobs),
                cost=total(outcomes[job].cost for job in jobs),
                is_exact=all(outcomes[job].is_exact for job in jobs),
            )
            for stage, jobs in stages.items()
        ),
        submitted_at=members[0].submitted_at,
        ended_at=max(ends) if len(ends) == len(own) else None,
        succeeded=all(outcome.succeeded for outcome in own),
        metric=name,
        value=value,
    )


def _measured(last: list[JobOutcome], metric: str | None) -> tuple[str | None, float | None]:
    good = [outcome.metrics for outcome in last if outcome.succeeded]
    for name in (metric,) if metric is not None else ACCURACY:
        values = [metrics[name] for metrics in good if isfinite(metrics.get(name, nan))]
        if values:
            return name, sum(values) / len(values)
    return metric, None


def _judged(run: PipelineRun, before: PipelineRun | None) -> PipelineRun:
    if before is None or run.metric is None or run.value is None or before.value is None or before.metric != run.metric:
        return run
    mode = infer_mode(run.metric)
    if mode is None:
        return run
    gain = exact(run.value) - exact(before.value)
    gain = -gain if mode is StopMode.MIN else gain
    point = Fraction(1, 100) if "accuracy" in run.metric else Fraction(1)
    each = run.cost / (gain / point) if gain > 0 and run.is_exact else None
    return replace(run, gain=float(gain), point=float(point), usd_per_point=each)
