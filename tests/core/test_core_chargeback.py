"""Chargeback assigns every dollar to one line; pipelines report the cost of a stage and of a gained point."""

from dataclasses import replace
from fractions import Fraction

import pytest
from cost_helpers import at
from everspot_core.governance.chargeback import LineKind, apportioned, charges
from everspot_core.governance.pipelines import JobOutcome, pipelines
from everspot_core.governance.usage import UsageKind, UsageRow
from everspot_core.jobs.job import JobSpec, JobSubmission, PrecedingJob, Series
from everspot_core.jobs.utilization import Utilization
from everspot_core.jobs.visit_records import Visit
from hypothesis import given, settings
from hypothesis import strategies as st


def submission(job: str, name: str | None = None, seconds: float = 0, after=(), tags=None, **fields) -> JobSubmission:
    spec = JobSpec.model_validate({"name": name or job, "recipe": "image-classification", "tags": tags or {}})
    earlier = [PrecedingJob(name=other, job_id=other) for other in after]
    return JobSubmission(job_id=job, spec=spec, submitted_at=at(seconds), after=earlier, **fields)


def row(kind: UsageKind, cost, job: str | None = None, **fields) -> UsageRow:
    return UsageRow(hour=at(0), kind=kind, resource="i-1", job_id=job, cost=Fraction(cost), **fields)


JOBS = {
    "a": submission("a", tags={"Team": "vision"}),
    "b": submission("b", tags={"Team": "speech"}),
    "c": submission("c"),
    "v": submission("v", tags={"Team": "vision"}, visit=Visit(home="alpha", job_id="t", number=1)),
}


def test_each_kind_of_use_is_in_one_line():
    of_jobs = {
        "a": {UsageKind.WORK: 5, UsageKind.LOST: 1, UsageKind.ABROAD: 2, UsageKind.EGRESS: 1},
        "b": {UsageKind.LOST: 3},
        "c": {UsageKind.WORK: 4},
        "v": {UsageKind.WORK: 6, UsageKind.LOST: 1},
        None: {UsageKind.BOOT: 1, UsageKind.IDLE: 2, UsageKind.SHARED: 3, UsageKind.SCHEDULER: 4},
    }
    rows = [row(kind, cost, job) for job, used in of_jobs.items() for kind, cost in used.items()]
    statement = charges(rows, JOBS, "Team")
    assert [(line.kind, line.value, line.sums.cost, line.lost) for line in statement.lines] == [
        (LineKind.VALUE, "vision", 8, 1),
        (LineKind.VALUE, "speech", 0, 3),
        (LineKind.UNTAGGED, "", 4, 0),
        (LineKind.VISITORS, "", 7, 0),
        (LineKind.LOST, "", 4, 0),
        (LineKind.BOOT, "", 1, 0),
        (LineKind.IDLE, "", 2, 0),
        (LineKind.SHARED, "", 3, 0),
        (LineKind.SCHEDULER, "", 4, 0),
    ]
    assert sum(line.sums.cost for line in statement.lines) == statement.whole.cost == 33


def test_what_is_paid_for_idle_gpus_is_of_the_work_of_measured_jobs():
    of_jobs = {
        "a": {UsageKind.WORK: 5, UsageKind.LOST: 1, UsageKind.ABROAD: 2},
        "b": {UsageKind.WORK: 8},
        "c": {UsageKind.WORK: 4},
    }
    rows = [row(kind, cost, job) for job, used in of_jobs.items() for kind, cost in used.items()]
    uses = {
        "a": Utilization(seconds=10, gpu_seconds=10, gpu_busy_seconds=2),
        "b": Utilization(seconds=10, cpu_seconds=2),
        "c": Utilization(seconds=10, gpu_seconds=40, gpu_busy_seconds=40),
    }
    statement = charges(rows, JOBS, "Team", uses)
    assert [(line.value, line.gpu_cost, float(line.wasted_gpu_cost)) for line in statement.lines] == [
        ("speech", 0, 0.0),
        ("vision", 5, 4.0),
        ("", 4, 0.0),
        ("", 0, 0.0),
    ]
    assert [line.gpu_utilization and float(line.gpu_utilization) for line in statement.lines] == [None, 0.2, 1.0, None]


def test_a_line_with_an_unknown_price_is_a_lower_bound():
    statement = charges([row(UsageKind.WORK, 0, "a", is_exact=False), row(UsageKind.WORK, 1, "b")], JOBS, "Team")
    assert {line.value: line.sums.is_exact for line in statement.lines} == {"vision": False, "speech": True}
    assert not statement.whole.is_exact


amounts = st.lists(st.fractions(0, 1000), max_size=12)


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(amounts, st.integers(0, 6))
def test_rounded_amounts_add_up_to_their_rounded_sum(given_amounts, places):
    rounded_amounts = apportioned(given_amounts, places)
    unit = Fraction(1, 10**places)
    assert abs(sum(rounded_amounts) - sum(given_amounts)) <= unit / 2
    assert all(
        abs(amount - exact) < unit and (amount / unit).denominator == 1
        for amount, exact in zip(rounded_amounts, given_amounts, strict=True)
    )


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(UsageKind), st.fractions(0, 9), st.sampled_from(["a", "b", "c", "v", None]))))
def test_lines_add_up_whatever_was_used(used):
    rows = [
        row(
            kind,
            cost,
            (job or "a") if kind in (UsageKind.WORK, UsageKind.LOST, UsageKind.ABROAD, UsageKind.EGRESS) else None,
        )
        for kind, cost, job in used
    ]
    statement = charges(rows, JOBS, "Team")
    assert sum(line.sums.cost for line in statement.lines) == sum(r.cost for r in rows)


def outcome(cost=1, accuracy=None, **fields) -> JobOutcome:
    metrics = {} if accuracy is None else {"test_accuracy": accuracy}
    base_outcome = JobOutcome(cost=Fraction(cost), is_exact=True, ended_at=at(100), succeeded=True, metrics=metrics)
    return replace(base_outcome, **fields)


def chain(run: int, trains=1) -> dict[str, JobSubmission]:
    begin = run * 1000
    names = [f"train-{run}-{n}" for n in range(trains)]
    submissions = [submission(f"prepare-{run}", "prepare", begin)]
    submissions += [submission(t, t, begin + 1, after=[f"prepare-{run}"], tags={"Stage": "train"}) for t in names]
    submissions.append(submission(f"evaluate-{run}", "evaluate", begin + 2, after=names))
    return {member.job_id: member for member in submissions}


def test_jobs_chained_by_after_are_stages_and_a_fan_out_is_one():
    jobs = chain(1, trains=3) | {"alone": submission("alone")}
    outcomes = {job: outcome(2 if "train" in job else 1) for job in jobs}
    (run,) = pipelines(jobs, outcomes)
    assert (run.name, [(s.name, len(s.jobs), s.cost) for s in run.stages]) == (
        "evaluate", [("prepare", 1, 1), ("train", 3, 6), ("evaluate", 1, 1)],
    )  # fmt: skip
    assert (run.cost, run.succeeded, run.ended_at, run.gain) == (8, True, at(100), None)


@pytest.mark.parametrize(
    ("before", "after", "gain", "each"),
    [
        (0.80, 0.84, 0.04, 2),
        (0.84, 0.80, -0.04, None),
        (0.8, 0.8, 0, None),
        (None, 0.8, None, None),
        (0.8, None, None, None),
        (0.8, float("nan"), None, None),
    ],
)
def test_a_point_gained_is_a_hundredth_of_an_accuracy_over_the_run_before(before, after, gain, each):
    jobs = chain(1, trains=2) | chain(2, trains=2)
    outcomes = {job: outcome(2) for job in jobs}
    outcomes |= {"evaluate-1": outcome(2, before), "evaluate-2": outcome(2, after)}
    first, second = pipelines(jobs, outcomes)
    assert first.gain is None
    assert (second.gain, second.usd_per_point) == (gain, each)


def test_a_failed_run_between_two_is_passed_over_and_an_unknown_cost_has_no_price_for_a_point():
    jobs = chain(1) | chain(2) | chain(3)
    outcomes = {job: outcome() for job in jobs}
    outcomes |= {
        "evaluate-1": outcome(1, 0.5),
        "evaluate-2": outcome(1, 0.9, succeeded=False),
        "evaluate-3": outcome(1, 0.6),
    }
    outcomes["prepare-3"] = outcome(is_exact=False)
    last = pipelines(jobs, outcomes)[-1]
    assert (last.gain, last.is_exact, last.usd_per_point) == (0.1, False, None)


def test_runs_of_a_series_are_judged_by_another_metric_of_which_less_may_be_better():
    series = Series(id="n")
    jobs = {f"n-{r}": submission(f"n-{r}", "nightly", r, series=series) for r in (1, 2)}
    outcomes = {
        "n-1": outcome(3, metrics={"val_loss": 2.5}),
        "n-2": outcome(3, metrics={"val_loss": 1.0}, ended_at=None),
    }
    first, second = pipelines(jobs, outcomes, "val_loss")
    assert (first.value, second.gain, second.point, second.usd_per_point) == (2.5, 1.5, 1.0, 2)
    assert second.ended_at is None
    for name, gain in (("mse", 1.5), ("error_free_rate", -1.5), ("score", None)):
        renamed = {job: replace(outcomes[job], metrics={name: value}) for job, value in (("n-1", 2.5), ("n-2", 1.0))}
        assert pipelines(jobs, renamed, name)[1].gain == gain
    assert [run.gain for run in pipelines(jobs, outcomes)] == [None, None]
