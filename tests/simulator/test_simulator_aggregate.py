"""Aggregation of outcomes into figures."""

import pytest
from everspot_simulator import Aggregate, Outcome, aggregate_runs, aggregate_traces


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
    trace_figures = aggregate_runs([outcome(5), outcome(7, missed=True), outcome(12, changeovers=5)])
    assert trace_figures.saving_percent == pytest.approx(20) and trace_figures.saving_error == pytest.approx(
        (1300 / 3) ** 0.5
    )
    assert (trace_figures.runs, trace_figures.deadline_misses, trace_figures.changeovers) == (3, 1, 3)
    assert (trace_figures.spot_hours, trace_figures.on_demand_hours, trace_figures.idle_hours) == (4, 2, 1)


def test_one_run_has_no_error():
    assert aggregate_runs([outcome(5)]).saving_error is None


def test_every_trace_counts_the_same():
    few_runs, many_runs = aggregate_runs([outcome(5), outcome(7)]), aggregate_runs([outcome(10)] * 8)
    total = aggregate_traces({"one": few_runs, "two": many_runs})
    assert total.saving_percent == pytest.approx((40 + 0) / 2)
    assert total.saving_error == pytest.approx(few_runs.saving_error / 2)
    assert total.runs == 10 and total == aggregate_traces([few_runs, many_runs])


def test_misses_of_all_traces_are_counted():
    two_runs, one_run = aggregate_runs([outcome(5, missed=True)] * 2), aggregate_runs([outcome(5, missed=True)])
    assert aggregate_traces([two_runs, one_run]).deadline_misses == 3


def test_the_error_of_all_is_not_known_where_that_of_one_is_not():
    one_run, two_runs = aggregate_runs([outcome(5)]), aggregate_runs([outcome(5), outcome(7)])
    assert aggregate_traces([one_run, two_runs]).saving_error is None


@pytest.mark.parametrize("summarize", [aggregate_runs, aggregate_traces])
def test_of_nothing_there_is_nothing_to_tell(summarize):
    with pytest.raises(ValueError, match="no "):
        summarize([])


def test_a_saving_is_measured_against_the_undisturbed_job():
    assert outcome(4).saving == pytest.approx(0.6) and outcome(11).saving == pytest.approx(-0.1)
    assert isinstance(aggregate_runs([outcome(4)]), Aggregate)
