"""A later run beside an earlier one: whether the change helped, and whether the metric held."""

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import pytest
from everspot_core.governance.run_comparison import (
    ComparedRun,
    RunOutcome,
    changed_fields,
    common_metric,
    compare_runs,
)
from everspot_core.jobs.job import JobSpec, JobSubmission
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2026, 1, 1, tzinfo=UTC)
dollars = st.fractions(min_value=Fraction(1, 1000), max_value=1000)
metrics = st.dictionaries(st.sampled_from(["accuracy", "val_loss", "train_loss"]), st.floats(allow_nan=True))


def run(job_id: str = "a", **fields: Any) -> ComparedRun:
    figures = {"succeeded": True, "list_usd": Fraction(3), "epochs": 4.0, "metrics": {"accuracy": 0.9}}
    return ComparedRun(job_id=job_id, **(figures | fields))


@pytest.mark.parametrize(
    ("earlier", "later", "outcome", "reason"),
    [
        ({}, {"list_usd": Fraction(2)}, RunOutcome.BETTER, "$2.0000 instead of $3.0000 at list price: 33% less"),
        ({}, {"list_usd": Fraction(4)}, RunOutcome.WORSE, "33% more"),
        ({}, {"list_usd": Fraction(303, 100)}, RunOutcome.SAME, "a difference of 1.0% may be chance"),
        ({}, {"succeeded": False}, RunOutcome.UNKNOWN, "only runs that succeeded are compared: not b"),
        ({"succeeded": False}, {"succeeded": False}, RunOutcome.UNKNOWN, "not a, b"),
        ({}, {"list_usd": None}, RunOutcome.UNKNOWN, "a list price of their instances is not known"),
        ({"list_usd": Fraction(0)}, {}, RunOutcome.UNKNOWN, "a list price"),
        ({}, {"epochs": 2.0, "list_usd": Fraction(1)}, RunOutcome.UNKNOWN, "4 and 2 times, which is different work"),
        ({}, {"epochs": None, "list_usd": Fraction(1)}, RunOutcome.BETTER, "67% less"),
    ],
)
def test_the_cost_is_compared_where_the_work_is_the_same(
    earlier: dict[str, Any], later: dict[str, Any], outcome: RunOutcome, reason: str
) -> None:
    verdict = compare_runs(run("a", **earlier), run("b", **later), "accuracy", 0.01).cost
    assert verdict.outcome is outcome and reason in verdict.reason


@pytest.mark.parametrize(
    ("metric", "before", "now", "outcome", "reason"),
    [
        ("accuracy", 0.9, 0.895, RunOutcome.SAME, "accuracy 0.895 instead of 0.9: within 0.01"),
        ("accuracy", 0.9, 0.85, RunOutcome.WORSE, "worse by more than 0.01"),
        ("accuracy", 0.9, 0.95, RunOutcome.BETTER, "0.95 instead of 0.9"),
        ("val_loss", 0.9, 0.95, RunOutcome.WORSE, "val_loss 0.95 instead of 0.9"),
        ("val_loss", 0.9, 0.85, RunOutcome.BETTER, "val_loss 0.85"),
        ("val_loss", 0.9, float("nan"), RunOutcome.UNKNOWN, "val_loss is not reported by b"),
        ("mse", 0.9, 0.95, RunOutcome.WORSE, "mse 0.95 instead of 0.9"),
        ("error_free_rate", 0.9, 0.95, RunOutcome.BETTER, "error_free_rate 0.95"),
        ("score", 0.9, 0.95, RunOutcome.UNKNOWN, "score 0.95 instead of 0.9: the name score does not say whether"),
        (None, 0.9, 0.9, RunOutcome.UNKNOWN, "no metric is reported by both runs"),
    ],
)
def test_a_metric_held_within_the_tolerance(
    metric: str | None, before: float, now: float, outcome: RunOutcome, reason: str
) -> None:
    sides = (run(job, metrics={metric or "x": value}) for job, value in (("a", before), ("b", now)))
    verdict = compare_runs(*sides, metric=metric, tolerance=0.01).quality
    assert verdict.outcome is outcome and reason in verdict.reason


@pytest.mark.parametrize(
    ("before", "now", "metric"),
    [
        ({"accuracy": 1, "val_loss": 1}, {"accuracy": 1, "val_loss": 1}, "accuracy"),
        ({"apples": 1, "wer": 1, "f1": 1}, {"apples": 1, "wer": 1, "f1": 1}, "wer"),
        ({"apples": 1, "f1": 1}, {"apples": 1, "f1": 1}, "f1"),
        ({"train_loss": 1, "val_loss": 1, "f1": 1}, {"train_loss": 1, "val_loss": 1, "f1": 1}, "val_loss"),
        ({"f1": 1, "bleu": 1}, {"f1": 1}, "f1"),
        ({"accuracy": float("inf")}, {"accuracy": 1}, None),
        ({"f1": 1}, {"bleu": 1}, None),
    ],
)
def test_the_metric_is_one_that_both_runs_report(
    before: dict[str, float], now: dict[str, float], metric: str | None
) -> None:
    assert common_metric(run(metrics=before), run(metrics=now)) == metric


@given(dollars, dollars, metrics, metrics)
def test_a_run_is_better_where_the_other_way_round_is_worse(
    before: Fraction, now: Fraction, before_metrics: dict[str, float], now_metrics: dict[str, float]
) -> None:
    earlier, later = run("a", list_usd=before, metrics=before_metrics), run("b", list_usd=now, metrics=now_metrics)
    metric = common_metric(earlier, later)
    forward, back = compare_runs(earlier, later, metric, 0.1), compare_runs(later, earlier, metric, 0.1)
    opposite = {RunOutcome.BETTER: RunOutcome.WORSE, RunOutcome.WORSE: RunOutcome.BETTER}
    assert opposite.get(forward.quality.outcome, forward.quality.outcome) is back.quality.outcome
    if forward.cost.outcome is RunOutcome.BETTER:
        assert now < before and back.cost.outcome is RunOutcome.WORSE


def submission(code: str | None = None, **spec: Any) -> JobSubmission:
    written = {"name": "train", "recipe": "image-classification"} | spec
    return JobSubmission(job_id="a", spec=JobSpec.model_validate(written), submitted_at=AT, code_digest=code)


def test_what_a_run_computes_differs_and_not_when_it_may_run() -> None:
    earlier = submission(priority="normal", resources={"vcpus": 4})
    later = submission(
        "abc", priority="critical", deadline="6h", tags={"Team": "x"}, parameters={"batch_size": 64},
        resources={"vcpus": 8},
    )  # fmt: skip
    assert changed_fields(earlier, later) == [
        ("code", None, "abc"),
        ("parameters.batch_size", None, 64),
        ("resources.vcpus", 4, 8),
    ]
    assert changed_fields(earlier, earlier) == []
