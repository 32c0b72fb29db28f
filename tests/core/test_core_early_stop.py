"""Early stopping: its setting in the job file, and its decision as a pure function of the metric's values."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from everspot_core.jobs.curves import read_metric
from everspot_core.jobs.early_stop import EarlyStop, StopMode, StopRule, StopTracker, infer_mode
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.validation.model_errors import translate_errors
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

JOB: dict[str, Any] = {"name": "train", "entrypoint": ["train.py"], "code": "."}
losses = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf))
series = st.lists(losses, max_size=60).map(lambda values: list(enumerate(values, 1)))
rules = st.builds(
    lambda delta, patience, mode: StopRule(metric="m", mode=mode, min_delta=delta, patience=patience),
    st.one_of(st.floats(0, 10), st.sampled_from(["0%", "0.1%", "5%", "100%"])),
    st.integers(1, 6),
    st.sampled_from(StopMode),
)


def rule(**fields: Any) -> StopRule:
    return StopRule(**{"metric": "val_loss", "patience": 3} | fields)


def judge(rule: StopRule, evaluations: Iterable[tuple[int, float]]) -> EarlyStop | None:
    """Return the end of a job whose metric had these values by step; None if the job continues."""
    tracker = StopTracker(rule)
    for step, value in evaluations:
        tracker.add(step, value)
    return tracker.early_stop


def stops_at(values: list[float], **fields: Any) -> int | None:
    stop = judge(rule(**fields), enumerate(values, 1))
    return stop.step if stop is not None else None


@pytest.mark.parametrize(
    ("values", "fields", "step"),
    [
        ([1.0, 0.9, 0.8], {}, None),
        ([1.0, 1.0, 1.0], {}, None),  # two in a row
        ([1.0, 1.0, 1.0, 1.0, 0.1], {}, 4),
        ([1.0, 1.1, 1.2, 0.9, 1.0, 1.1, 1.2], {}, 7),  # an improvement restarts the count
        ([1.0, 1.0], {"patience": 1}, 2),
        ([1.0, 0.95, 0.91, 0.905], {"min_delta": 0.1}, 4),  # small steps that together exceed it would count
        ([1.0, 0.95, 0.89, 0.85, 0.84, 0.8], {"min_delta": 0.1}, 6),  # the reference moves with improvements alone
        ([1.0, 0.9, 0.9, 0.9], {"min_delta": 0.1}, 4),  # by exactly min_delta is none
        ([100.0, 99.95, 99.93, 99.91], {"min_delta": "0.1%"}, 4),
        ([100.0, 99.95, 99.89, 99.85, 99.85, 99.85], {"min_delta": "0.1%"}, 6),
        ([-100.0, -100.05, -100.2, -100.25, -100.3, -100.3], {"min_delta": "0.1%"}, 6),  # of a negative value
        ([0.0, -1e-9, -2e-9, -3e-9], {"min_delta": "50%"}, None),  # of zero it is nothing
        ([0.5, 0.6, 0.7, 0.7, 0.69, 0.7], {"metric": "accuracy"}, 6),
        ([1.0, math.nan, math.inf, 1.0], {}, 4),  # what is not finite is no improvement
        ([math.nan] * 9 + [1.0, 0.9], {}, None),  # and counts from the first finite value on
        ([1.0, -math.inf, -math.inf, -math.inf], {}, 4),
    ],
)
def test_it_stops_after_so_many_evaluations_without_an_improvement(values, fields, step):
    assert stops_at(values, **fields) == step


def test_the_reason_names_metric_change_patience_and_best_value() -> None:
    stop = judge(rule(min_delta="0.1%"), [(300, 0.5), (600, 0.412), (900, 0.4119), (1200, 0.42), (1500, 0.43)])
    assert stop is not None
    assert stop.sentence == (
        "stopped early: val_loss has not improved by 0.1% for 3 evaluations; best 0.4119 at step 900"
    )
    assert (stop.step, stop.best_step, stop.evaluations) == (1500, 900, 3)
    assert EarlyStop.model_validate_json(stop.model_dump_json()) == stop
    plain = judge(rule(patience=1), [(1000, 0.5), (2000, 0.5)])
    assert plain is not None
    assert plain.sentence == "stopped early: val_loss has not improved for 1 evaluation; best 0.5 at step 1,000"


@given(rules, series)
def test_it_stops_at_the_first_run_of_evaluations_without_an_improvement(rule: StopRule, series) -> None:
    stop = judge(rule, series)
    reference, waited, expected = None, 0, None
    for step, value in series:
        better = math.isfinite(value) and (
            reference is None
            or (value < reference - rule.min_delta.absolute(reference) if rule.mode is StopMode.MIN else
                value > reference + rule.min_delta.absolute(reference))
        )  # fmt: skip
        if better:
            reference, waited = value, 0
        elif reference is not None:
            waited += 1
        if waited == rule.patience:
            expected = step
            break
    assert (stop.step if stop is not None else None) == expected
    if stop is not None:
        finite = [value for step, value in series if step <= stop.step and math.isfinite(value)]
        assert stop.best == (min(finite) if rule.mode is StopMode.MIN else max(finite))
        assert dict(series)[stop.best_step] == stop.best


@given(rules, series, st.data())
def test_an_interruption_changes_nothing(rule: StopRule, series, data) -> None:
    """A program that goes back to a checkpoint repeats the evaluations behind it."""
    reached = data.draw(st.integers(0, len(series)))
    resumed_from = data.draw(st.integers(0, reached))
    undisturbed = judge(rule, series)
    assert judge(rule, [*series[:reached], *series[resumed_from:]]) == undisturbed
    # The trainer library's checkpoint has the state as of its step, and nothing of later evaluations.
    before, after = StopTracker(rule), StopTracker(rule)
    for step, value in series[:resumed_from]:
        before.add(step, value)
    after.load_state_dict(before.state_dict())
    for step, value in series[resumed_from:]:
        after.add(step, value)
    assert after.early_stop == undisturbed


@given(series, st.integers(1, 6), st.floats(0, 10), st.sampled_from([0.25, 2.0, 1024.0]))
def test_a_relative_change_does_not_depend_on_the_unit(series, patience: int, percent: float, unit: float) -> None:
    stop_rule = rule(min_delta=f"{percent:.4f}%", patience=patience)
    scaled = judge(stop_rule, [(step, value * unit) for step, value in series])
    plain = judge(stop_rule, series)
    assert (scaled.step if scaled else None) == (plain.step if plain else None)


@given(series, st.integers(1, 5))
def test_more_patience_never_stops_earlier(series, patience: int) -> None:
    def end(**fields: Any) -> float:
        stop = judge(rule(**fields), series)
        return stop.step if stop is not None else math.inf

    assert end(patience=patience) <= end(patience=patience + 1)


def test_another_rule_begins_anew() -> None:
    before, after = StopTracker(rule()), StopTracker(rule(patience=5))
    for step in (1, 2, 3, 4):
        before.add(step, 1.0)
    assert before.early_stop is not None
    after.load_state_dict(before.state_dict())
    assert after.early_stop is None
    assert not after.has_evaluations
    after.load_state_dict(None)  # a checkpoint from before the job had a rule
    assert after.early_stop is None


def test_of_two_values_of_a_step_the_last_one_counts() -> None:
    assert judge(rule(patience=2), [(1, 1.0), (2, 1.0), (2, 1.0), (2, 1.0)]) is None
    assert judge(rule(patience=2), [(1, 1.0), (2, 1.0), (2, 0.5), (3, 0.6)]) is None


def test_the_values_are_read_from_the_stored_stream() -> None:
    lines = b"""{"step": 1, "at": "2026-01-01T00:00:00Z", "metrics": {"val_loss": 0.5, "loss": 1}}
{"step": 2, "metrics": {"val_loss": null}}
{"step": 3, "metrics": {"loss": 2}}
{"step": "x", "metrics": {"val_loss": 1}}
[1, 2]
{"step": 4, "metrics": {"val_loss": 0.25}}
{"step": 5, "metrics": {"val_l"""
    values = list(read_metric(lines, "val_loss"))
    assert [step for step, _ in values] == [1, 2, 4]
    assert math.isnan(values[1][1])
    assert (values[0][1], values[2][1]) == (0.5, 0.25)


@pytest.mark.parametrize(
    ("metric", "mode"),
    [
        ("val_loss", StopMode.MIN), ("eval/loss", StopMode.MIN), ("Perplexity", StopMode.MIN), ("wer", StopMode.MIN),
        ("test_accuracy", StopMode.MAX), ("val.f1", StopMode.MAX), ("AUC", StopMode.MAX),
        ("val.mae", StopMode.MIN), ("eval/rmse", StopMode.MIN), ("nll", StopMode.MIN), ("bits_per_byte", StopMode.MIN),
        ("word_error_rate", StopMode.MIN), ("error_free_rate", StopMode.MAX), ("precision@5", StopMode.MAX),
        ("@5", None), ("5", None), ("rate", None), ("neg_error_rate", None), ("free_error", StopMode.MIN),
        ("neg_log_loss", None), ("loss_scale", None), ("accuracy_gap", None), ("score", None), ("lossy", None),
    ],
)  # fmt: skip
def test_the_name_says_which_values_are_better_only_where_that_is_safe(metric: str, mode: StopMode | None) -> None:
    assert infer_mode(metric) is mode


def test_a_job_file_says_when_to_stop() -> None:
    spec = JobSpec.model_validate(JOB | {"stop": {"metric": "val_loss", "min_delta": "0.1%", "patience": 4}})
    assert spec.stop is not None
    assert spec.model_dump(mode="json")["stop"] == {
        "metric": "val_loss", "mode": "min", "min_delta": "0.1%", "patience": 4,
    }  # fmt: skip
    stored = JobSubmission(job_id="a", spec=spec, submitted_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert JobSubmission.read(stored.to_json()).spec == spec
    default = JobSpec.model_validate(JOB | {"stop": {"metric": "score", "mode": "max"}}).stop
    assert default is not None
    assert (default.mode, default.min_delta.amount, default.patience) == (StopMode.MAX, 0, 3)
    assert JobSpec.model_validate(JOB).stop is None


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        ({"stop": {}}, ["stop.metric"]),
        ({"stop": {"metric": "score"}}, ["stop.mode"]),
        ({"stop": {"metric": "val loss"}}, ["stop.metric"]),
        ({"stop": {"metric": "loss", "mode": "lower"}}, ["stop.mode"]),
        ({"stop": {"metric": "loss", "patience": 0}}, ["stop.patience"]),
        ({"stop": {"metric": "loss", "patience": 2.5}}, ["stop.patience"]),
        ({"stop": {"metric": "loss", "min_delta": -1}}, ["stop.min_delta"]),
        ({"stop": {"metric": "loss", "min_delta": "0.1"}}, ["stop.min_delta"]),
        ({"stop": {"metric": "loss", "min_delta": "101%"}}, ["stop.min_delta"]),
        ({"stop": {"metric": "loss", "min_delta": math.inf}}, ["stop.min_delta"]),
        ({"stop": {"metric": "loss", "min_delta": True}}, ["stop.min_delta"]),
        ({"stop": {"metric": "loss", "after": 3}}, ["stop.after"]),
        ({"code": None, "entrypoint": None, "recipe": "language-model", "stop": {"metric": "test_loss"}}, ["stop"]),
    ],
)
def test_a_stop_that_cannot_be_is_refused(job: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(ValidationError) as refusal:
        JobSpec.model_validate(JOB | job)
    assert [problem.path for problem in translate_errors(refusal.value, JobSpec)] == fields
