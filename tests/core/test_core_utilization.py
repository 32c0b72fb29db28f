"""Totals of a job's use of its machine: they add up, and their size is bounded."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from everspot_core.jobs.utilization import (
    Utilization,
    UtilizationWindow,
    combine,
    downsample,
    window_length,
)
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2026, 1, 1, tzinfo=UTC)


def spans() -> st.SearchStrategy[Utilization]:
    """Spans with whole numbers, whose sums are exact."""
    count = st.none() | st.integers(0, 10**6)
    fields = {
        name: st.lists(st.integers(1, 120), max_size=3).map(tuple) if name == "xids" else count
        for name in Utilization.model_fields
        if name not in ("seconds", "gpu_celsius")
    }
    return st.builds(Utilization, seconds=st.integers(0, 10**6), **fields)


@given(st.lists(spans(), max_size=6), st.integers(0, 6), st.randoms())
def test_the_sum_of_spans_does_not_depend_on_how_they_are_grouped(
    parts: list[Utilization], at: int, dice: Random
) -> None:
    whole = combine(parts)
    assert combine([combine(parts[:at]), combine(parts[at:])]) == whole
    dice.shuffle(parts)
    assert combine(parts) == whole


@given(spans())
def test_shares_lie_between_nothing_and_all(use: Utilization) -> None:
    shares = (use.cpu_share, use.io_wait_share, use.gpu_share, use.gpu_memory_share, use.data_wait_share)
    assert all(share is None or 0 <= share <= 1 for share in shares)


@given(st.lists(spans(), max_size=40), st.integers(1, 20))
def test_fewer_windows_have_the_same_totals(parts: list[Utilization], most: int) -> None:
    windows = [UtilizationWindow(at=AT + timedelta(minutes=n), utilization=part) for n, part in enumerate(parts)]
    fewer = downsample(windows, most)
    assert len(fewer) == min(most, len(windows))
    assert combine(w.utilization for w in fewer) == combine(parts)
    assert [w.at for w in fewer[-1:]] == [w.at for w in windows[-1:]]


def test_nothing_measured_is_nothing_known() -> None:
    nothing = combine([])
    assert nothing == Utilization()
    assert (nothing.busy_vcpus, nothing.gpu_share, nothing.step_seconds, nothing.per_second(4)) == (None,) * 4


def test_rates_follow_from_the_time_that_was_measured() -> None:
    first = Utilization(seconds=10, vcpus=4, cpu_seconds=20, gpu_seconds=20, gpu_busy_seconds=5, gpu_joules=3000)
    second = Utilization(seconds=30, vcpus=4, cpu_seconds=60)  # its GPUs could not be read
    whole = combine([first, second])
    assert (whole.busy_vcpus, whole.cpu_share, whole.gpu_share, whole.gpu_watts) == (2, 0.5, 0.25, 150)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1e300])
def test_impossible_figures_are_unknown(value: float) -> None:
    use = Utilization(seconds=value, cpu_seconds=value, memory_gib=value, gpu_celsius=value, loop_seconds=value)
    assert use == Utilization()


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_windows_grow_with_the_age(first: int, second: int) -> None:
    early, late = sorted((timedelta(seconds=first), timedelta(seconds=second)))
    assert timedelta(seconds=20) <= window_length(early) <= window_length(late) <= timedelta(minutes=30)
