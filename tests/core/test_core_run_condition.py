"""The grammar of `run_if`: what it takes, what it refuses and where, and what it computes."""

import operator

import pytest
from everspot_core.jobs.run_condition import MetricRef, MetricSource, RunCondition
from hypothesis import given
from hypothesis import strategies as st

TRAINED = MetricRef(MetricSource.METRIC, "train", "accuracy")
DEPLOYED = MetricRef(MetricSource.LAST, "deployed", "accuracy")
SIGNS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
FIGURES = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize(
    ("trained", "deployed", "is_met"),
    [(0.9046, 0.9, True), (0.9044, 0.9, False), (0.9045, 0.9, False), (-0.9, -0.901, False), (-0.89, -0.9, True)],
)
def test_a_percentage_is_of_the_value_before_it(trained: float, deployed: float, is_met: bool) -> None:
    condition = RunCondition.parse("metric(train.accuracy) > last(deployed.accuracy) + 0.5%")
    assert condition.refs == (TRAINED, DEPLOYED)
    assert condition.judge({TRAINED: trained, DEPLOYED: deployed}).is_met is is_met


def test_the_figures_are_in_the_words() -> None:
    condition = RunCondition.parse("metric(train.accuracy)>last( deployed.accuracy )+0.5%")
    condition_result = condition.judge({TRAINED: 0.9, DEPLOYED: 0.9})
    assert condition_result.words == (
        "metric(train.accuracy) > last(deployed.accuracy) + 0.5% (0.9 > 0.9045) does not hold"
    )


def test_without_anything_to_compare_with_a_comparison_holds_and_the_others_decide() -> None:
    condition = RunCondition.parse("metric(train.accuracy) > last(deployed.accuracy) and metric(train.accuracy) > 0.8")
    assert condition.judge({TRAINED: 0.81, DEPLOYED: None}).is_met
    assert not condition.judge({TRAINED: 0.79, DEPLOYED: None}).is_met


@given(FIGURES, FIGURES, st.sampled_from(sorted(SIGNS)), st.decimals(0, 1000, places=3), st.sampled_from("+-"))
def test_a_comparison_is_what_python_computes(trained, deployed, sign, number, plus) -> None:
    text = f"metric(train.accuracy) {sign} last(deployed.accuracy) {plus} {number}"
    right = deployed + float(number) if plus == "+" else deployed - float(number)
    assert RunCondition.parse(text).judge({TRAINED: trained, DEPLOYED: deployed}).is_met is SIGNS[sign](trained, right)


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(["metric(a.b)", "last(a.b/c.d)", "1", "2.5%", "+", "-", ">", "<=", "and", "1e5", "(", "x"]),
        max_size=9,
    ).map(" ".join)
)
def test_a_text_is_refused_or_reads_back_as_itself(text: str) -> None:
    try:
        condition = RunCondition.parse(text)
    except ValueError as error:
        assert "needs" in str(error)
        return
    assert RunCondition.parse(str(condition)) == condition


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "at its end needs a number"),
        ("metric(train.accuracy)", "at its end needs one of > >= < <="),
        ("metric(train.accuracy) > ", "at its end needs a number"),
        ("metric(train.accuracy) == 1", "at '== 1'"),
        ("metric(train) > 1", "at 'metric(train) > 1'"),
        ("metric(train.accuracy) > 5%", "at '5%' needs a value before the percentage"),
        ("metric(train.accuracy) > 1 or 2 > 1", "at 'or 2 > 1'"),
        ("metric(train.accuracy) > 1 > 2", "at '> 2' needs `and` or the end"),
        ("metric(train.accuracy) > __import__('os').system('x')", "at \"__import__('os')"),
        ("metric(Train.accuracy) > 1", "at 'metric(Train"),
        ("1 > 0 and", "at its end needs a number"),
        ("metric(train.accuracy) > 1 * 2", "at '* 2'"),
    ],
)  # fmt: skip
def test_an_error_names_the_part_that_is_wrong(text: str, where: str) -> None:
    with pytest.raises(ValueError) as refused:
        RunCondition.parse(text)
    assert str(refused.value).startswith(where)


def test_a_long_condition_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="600 characters"):
        RunCondition.parse("1 > 0 and ".ljust(600, "1"))
