"""Refused settings, and the possible start times within a trace."""

from datetime import timedelta

import numpy as np
import pytest
from everspot_core.validation.problems import BadInputs
from everspot_simulator import Setting, Trace, starts

GOOD = {"job_hours": 48, "deadline_hours": 60, "changeover_hours": 0.2, "price_ratio": 3.0}


def trace(ticks: int, name: str = "a", minutes: float = 10) -> Trace:
    return Trace(name=name, gap=timedelta(minutes=minutes), available=np.ones(ticks, dtype=np.int64))


@pytest.mark.parametrize(
    "change",
    [
        {"job_hours": 0},
        {"job_hours": float("nan")},
        {"deadline_hours": -1},
        {"deadline_hours": float("inf")},
        {"changeover_hours": -0.1},
        {"price_ratio": 0},
        {"nodes": 0},
        {"tick_seconds": 0},
        {"tick_seconds": float("nan")},
        {"tick_seconds": 366 * 86400},
        {"job_hours": 0, "nodes": -1, "price_ratio": -1},
    ],
)
def test_every_value_out_of_range_is_named(change):
    with pytest.raises(BadInputs) as caught:
        Setting(**{**GOOD, **change})
    assert {p.path for p in caught.value.problems} == set(change)


def test_hours_that_mean_whole_seconds_are_whole_seconds():
    setting = Setting(job_hours=0.07, deadline_hours=1.1, changeover_hours=0.07, price_ratio=2)
    assert (setting.job, setting.deadline, setting.changeover) == (252.0, 3960.0, 252.0)


def test_all_starts_are_those_from_which_the_deadline_lies_within_the_trace():
    # 60 h are 360 ticks of 10 minutes.
    setting = Setting(**GOOD)
    assert starts(trace(360), setting, None, 1).tolist() == [0]
    assert starts(trace(363), setting, None, 1).tolist() == [0, 1, 2, 3]


def test_starts_are_ticks_of_the_clock_that_drives_the_policies():
    # 60 h are 1108 ticks of 195 s, the last one partial; 370 ticks of 10 minutes are 1138 whole ones.
    assert len(starts(trace(370), Setting(**GOOD, tick_seconds=195), None, 1)) == 1138 - 1108 + 1


@pytest.mark.parametrize(("tick", "actual"), [(None, 720), (720, 720), (195, 780), (600, 1200), (3600, 3600)])
def test_on_a_clock_of_whole_ticks_a_changeover_takes_whole_ticks(tick, actual):
    setting = Setting(**GOOD, tick_seconds=tick)
    assert (setting.changeover, setting.actual_changeover) == (720, actual)


def test_a_tick_that_is_begun_counts():
    setting = Setting(job_hours=1, deadline_hours=1.51, changeover_hours=0.1, price_ratio=2)
    assert starts(trace(10), setting, None, 1).tolist() == [0]  # 9.06 ticks


def test_random_starts_come_from_all_of_them_and_from_the_seed():
    setting = Setting(**GOOD)
    drawn = starts(trace(370), setting, 500, 7)
    assert set(drawn.tolist()) == set(range(11))
    assert drawn.tolist() == starts(trace(370), setting, 500, 7).tolist()
    assert drawn.tolist() != starts(trace(370), setting, 500, 8).tolist()


def test_random_starts_are_uniform():
    counts = np.bincount(starts(trace(369), Setting(**GOOD), 10_000, 1), minlength=10)
    assert (np.abs(counts - 1000) < 150).all()  # five standard deviations


def test_pools_start_within_the_shortest():
    assert starts([trace(400), trace(361)], Setting(**GOOD), None, 1).tolist() == [0, 1]


def test_a_trace_that_is_too_short_is_refused_by_name():
    with pytest.raises(BadInputs, match=r"60 h do not fit into the 59\.83 h of short\.json"):
        starts(trace(359, "short.json"), Setting(**GOOD), 10, 1)


def test_at_least_one_start_is_asked_for():
    with pytest.raises(BadInputs, match="starts: must be >= 1"):
        starts(trace(400), Setting(**GOOD), 0, 1)
