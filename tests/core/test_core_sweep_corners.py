"""The combinations of values that are checked before a sweep begins."""

from everspot_core.experiments.sweep import CHECKED_TRIALS, Dimension, trials_to_check
from hypothesis import given
from hypothesis import strategies as st

DIMENSIONS = st.one_of(
    st.lists(st.integers(), min_size=1, max_size=6, unique=True).map(lambda choices: Dimension(choices=choices)),
    st.integers(-9, 9).map(lambda low: Dimension(low=low, high=low + 3)),
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), DIMENSIONS, max_size=5))
def test_each_value_is_checked_and_the_number_of_checks_is_bounded(fields: dict[str, Dimension]) -> None:
    trials = trials_to_check(fields)
    corners = {path: dimension.corners for path, dimension in fields.items()}

    assert trials[0] == {path: dimension.first for path, dimension in fields.items()}
    assert all(value in [trial[path] for trial in trials] for path, values in corners.items() for value in values)
    assert len(trials) <= max(CHECKED_TRIALS, 1 + sum(len(values) for values in corners.values()))
    assert all(trial[path] in corners[path] for trial in trials for path in fields)
