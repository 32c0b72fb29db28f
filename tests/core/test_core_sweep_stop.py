"""A sweep begins no further trial once its best no longer improves."""

import json
from typing import Any

import pytest
from everspot_core.experiments.sweep import Direction, EndedTrial, SweepRecord, SweepSpec, end_sweep
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

SWEEP: dict[str, Any] = {
    "name": "rates", "job": "train.yaml", "metric": "accuracy", "fields": {"env.SEED": {"choices": [1, 2]}},
    "trials": 100,
}  # fmt: skip


def ends(values: list[float | None], stop: dict[str, Any], **more: Any) -> str | None:
    spec = SweepSpec.model_validate(SWEEP | {"stop": stop} | more)
    return end_sweep(spec, [EndedTrial(value=value, dollars=2.0) for value in values])


@pytest.mark.parametrize(
    ("values", "stop", "reason"),
    [
        ([0.5, 0.6, 0.7], {"trials": 2}, None),
        ([0.5, 0.4], {"trials": 2}, None),
        ([0.5, 0.4, 0.5], {"trials": 2}, "the best accuracy has not improved in 2 trials"),
        ([0.5, 0.504, 0.503], {"trials": 2, "min_delta": "1%"}, "the best accuracy has not improved by 1% in 2 trials"),
        ([0.5, 0.504, 0.506], {"trials": 2, "min_delta": "1%"}, None),
        ([0.5, None, None], {"trials": 2}, "the best accuracy has not improved in 2 trials"),  # ended early
        ([None, None, None], {"trials": 2}, None),  # nothing to improve yet
        ([0.5, 0.4, 0.4], {"usd": 5.0}, None),
        ([0.5, 0.4, 0.4, 0.4], {"usd": 5.0}, "the best accuracy has not improved for $6.00"),
        ([0.5, 0.4, 0.4, 0.6], {"usd": 5.0}, None),
        ([0.5, 0.4], {"usd": 100.0, "trials": 1}, "the best accuracy has not improved in 1 trial"),
    ],
)
def test_it_ends_when_the_best_has_not_improved_over_trials_or_dollars(values, stop, reason) -> None:
    assert ends(values, stop) == reason


@pytest.mark.parametrize("less", [{"direction": "minimize"}, {"metric": "val_loss"}])
def test_where_less_is_better_a_lower_value_is_an_improvement(less: dict[str, str]) -> None:
    assert ends([0.5, 0.6, 0.7], {"trials": 2}, **less) is not None
    assert ends([0.5, 0.4, 0.3], {"trials": 2}, **less) is None


def test_a_stored_sweep_keeps_the_direction_that_it_was_begun_with() -> None:
    stored = {"spec": SWEEP | {"metric": "val_loss"}, "made_at": "2026-01-01T00:00:00Z"}
    assert SweepRecord.read(json.dumps(stored).encode()).spec.direction is Direction.MAXIMIZE


def test_the_dollars_of_failed_trials_count_and_they_themselves_do_not() -> None:
    failed = [EndedTrial(value=0.5, dollars=2.0), *[EndedTrial(value=None, dollars=2.0, failed=True)] * 3]
    assert end_sweep(SweepSpec.model_validate(SWEEP | {"stop": {"trials": 2}}), failed) is None
    assert end_sweep(SweepSpec.model_validate(SWEEP | {"stop": {"usd": 6}}), failed) is not None


def test_without_a_stop_every_trial_begins() -> None:
    assert end_sweep(SweepSpec.model_validate(SWEEP), [EndedTrial(value=0.5, dollars=2.0)] * 90) is None


@given(st.lists(st.floats(-10, 10), max_size=40), st.integers(1, 8), st.sampled_from(Direction))
def test_without_min_delta_the_trials_behind_the_best_are_counted(values, trials: int, direction: Direction) -> None:
    best = max if direction is Direction.MAXIMIZE else min
    behind = len(values) - 1 - values.index(best(values)) if values else 0
    reason = ends(values, {"trials": trials}, direction=direction.value)
    assert (reason is not None) == (behind >= trials)


@pytest.mark.parametrize("stop", [{}, {"min_delta": 1}, {"trials": 0}, {"usd": 0}, {"trials": 2, "min_delta": -1}])
def test_a_stop_that_cannot_be_is_refused(stop: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SweepSpec.model_validate(SWEEP | {"stop": stop})
