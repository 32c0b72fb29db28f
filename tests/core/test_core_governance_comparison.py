"""Comparison of two sets of figures: the interval, its coverage of the true difference, and its limits."""

import math

import numpy as np
import pytest
from everspot_core.governance.comparison import compared, student_quantile
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 6)), min_size=2, max_size=12)


@pytest.mark.parametrize(
    ("freedom", "p", "value"),  # a printed table of Student's t
    [(1, 0.975, 12.7062), (2, 0.975, 4.3027), (5, 0.95, 2.0150), (10, 0.975, 2.2281), (30, 0.995, 2.7500),
     (120, 0.975, 1.9799), (1e7, 0.975, 1.9600), (4, 0.025, -2.7764)],
)  # fmt: skip
def test_the_quantiles_are_those_of_the_tables(freedom, p, value):
    assert student_quantile(p, freedom) == pytest.approx(value, abs=1e-4)


def test_welch_by_hand():
    """Means 3 and 6, variances 2.5 and 10 of five each: t = 3 / sqrt(2.5), 5.88 degrees of freedom."""
    comparison = compared([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert (comparison.difference, comparison.a.spread, comparison.b.spread) == (3, math.sqrt(2.5), math.sqrt(10))
    half = student_quantile(0.975, 2.5**2 / (0.5**2 / 4 + 2**2 / 4)) * math.sqrt(2.5)
    assert (comparison.low, comparison.high) == pytest.approx((3 - half, 3 + half))
    assert not comparison.shown and not comparison.few
    assert comparison.reach == pytest.approx(half)


@pytest.mark.parametrize(
    ("draw", "truth", "least"),
    [
        (lambda r: (r.normal(10, 1, 4), r.normal(12, 5, 9)), 2.0, 0.93),
        (lambda r: (r.normal(10, 3, 30), r.normal(10, 0.1, 3)), 0.0, 0.93),
        # Costs are skewed: most jobs are cheap, and some jobs with many interruptions are expensive.
        (lambda r: (r.lognormal(0, 0.5, 15), r.lognormal(0, 0.5, 25)), 0.0, 0.92),
    ],
    ids=["other spreads and sizes", "no difference", "skewed"],
)
def test_nineteen_of_twenty_intervals_cover_the_truth(draw, truth, least):
    rng, runs = np.random.default_rng(7), 400
    comparisons = [compared(*draw(rng)) for _ in range(runs)]
    covered = sum(c.low <= truth <= c.high for c in comparisons) / runs
    assert least <= covered <= 0.985


@given(VALUES, VALUES)
def test_the_sides_can_be_swapped_and_the_interval_holds_the_difference(a, b):
    comparison, other = compared(a, b), compared(b, a)
    assert comparison.shown is other.shown
    if comparison.low is None:
        assert comparison.spreadless and len({*a}) == len({*b}) == 1
        return
    assert comparison.low <= comparison.difference <= comparison.high
    near = {"rel": 1e-9, "abs": 1e-3}
    assert (other.difference, other.low, other.high) == pytest.approx(
        (-comparison.difference, -comparison.high, -comparison.low), **near
    )
    assert compared(a, b, 0.99).reach >= comparison.reach


@given(VALUES)
def test_a_set_differs_from_itself_by_nothing(values):
    comparison = compared(values, values)
    assert comparison.difference == 0 and not comparison.shown


def test_one_job_shows_no_spread_and_so_no_interval():
    comparison = compared([1.0], [1.0, 2.0, 3.0])
    assert (comparison.difference, comparison.low, comparison.high, comparison.reach, comparison.shown) == (
        1,
        None,
        None,
        None,
        False,
    )
    assert comparison.few


@given(st.floats(-1e6, 1e6), st.integers(2, 12), st.integers(2, 12))
def test_equal_figures_show_no_difference_however_many_there_are(value, count_a, count_b):
    """The mean of three times 0.1 is not 0.1, by the last bit."""
    comparison = compared([value] * count_a, [value] * count_b)
    assert (comparison.difference, comparison.shown) == (0, False)


@pytest.mark.parametrize(
    ("count_a", "count_b", "confidence", "shown"),
    [
        (2, 2, 0.95, False),  # 2 of 6 ways to deal four jobs to two sides are as extreme as this one
        (4, 4, 0.95, False),  # few
        (4, 40, 0.95, False),
        (5, 5, 0.95, True),  # 2 of 252
        (5, 5, 0.999, False),
        (5, 12, 0.999, True),
    ],
)
def test_sides_without_any_spread_have_no_interval_and_show_a_difference_only_with_jobs_enough(
    count_a, count_b, confidence, shown
):
    comparison = compared([0.1] * count_a, [0.3] * count_b, confidence)
    assert (comparison.low, comparison.high, comparison.reach, comparison.shown) == (None, None, None, shown)
    assert comparison.spreadless and comparison.percent(comparison.difference) == pytest.approx(200)
    assert compared([0.3] * count_b, [0.1] * count_a, confidence).shown is shown


def test_a_spread_on_one_side_is_enough_for_an_interval():
    comparison = compared([1.0, 1.0], [2.0, 2.0, 2.1])
    assert comparison.low < comparison.difference < comparison.high and comparison.few and not comparison.spreadless


def test_nothing_is_a_share_of_zero():
    assert compared([0.0, 0.0], [1.0, 1.0]).percent(1.0) is None


@pytest.mark.parametrize("bad", [([], [1.0]), ([1.0], [math.nan]), ([math.inf, 1.0], [1.0])])
def test_what_is_no_set_of_figures_is_refused(bad):
    with pytest.raises(ValueError, match="a set to compare"):
        compared(*bad)
    with pytest.raises(ValueError, match="a confidence"):
        compared([1.0], [1.0], 1.0)
