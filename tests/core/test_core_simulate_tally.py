"""From outcomes to figures."""

import pytest
from everspot_core.simulate import Outcome, Tally, overall, tally


def outcome(cost: float, missed: bool = False, changeovers: int = 2) -> Outcome:
    return Outcome(
        cost=cost,
        undisturbed=10.0,
        finished_at=5.0,
        missed=missed,
        spot_hours=cost / 2,
        on_demand_hours=cost / 4,
        idle_hours=1.0,
        changeovers=changeovers,
    )


def test_the_figures_of_one_trace():
    # Savings 50, 30 and -20 %: mean 20; deviations 30, 10, -40: variance 2600 / 2, error sqrt(1300 / 3).
    trace_figures = tally([outcome(5), outcome(7, missed=True), outcome(12, changeovers=5)])
    assert trace_figures.saving_percent == pytest.approx(20) and trace_figures.saving_error == pytest.approx(
        (1300 / 3) ** 0.5
    )
    assert (trace_figures.runs, trace_figures.deadline_misses, trace_figures.changeovers) == (3, 1, 3)
    assert (trace_figures.spot_hours, trace_figures.on_demand_hours, trace_figures.idle_hours) == (4, 2, 1)


def test_one_run_has_no_error():
    assert tally([outcome(5)]).saving_error is None


def test_every_trace_counts_the_same():
    few_runs, many_runs = tally([outcome(5), outcome(7)]), tally([outcome(10)] * 8)
    total = overall({"one": few_runs, "two": many_runs})
    assert total.saving_percent == pytest.approx((40 + 0) / 2)
    assert total.saving_error == pytest.approx(few_runs.saving_error / 2)
    assert total.runs == 10 and total == overall([few_runs, many_runs])


def test_misses_of_all_traces_are_counted():
    assert overall([tally([outcome(5, missed=True)] * 2), tally([outcome(5, missed=True)])]).deadline_misses == 3


def test_the_error_of_all_is_not_known_where_that_of_one_is_not():
    assert overall([tally([outcome(5)]), tally([outcome(5), outcome(7)])]).saving_error is None


@pytest.mark.parametrize("summarize", [tally, overall])
def test_of_nothing_there_is_nothing_to_tell(summarize):
    with pytest.raises(ValueError, match="no "):
        summarize([])


def test_a_saving_is_measured_against_the_undisturbed_job():
    assert outcome(4).saving == pytest.approx(0.6) and outcome(11).saving == pytest.approx(-0.1)
    assert isinstance(tally([outcome(4)]), Tally)
