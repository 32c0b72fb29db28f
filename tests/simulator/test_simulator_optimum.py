"""The optimum, compared with every schedule and every policy."""

import importlib
from datetime import timedelta
from itertools import product

import numpy as np
import pytest
from everspot_simulator import (
    POLICIES,
    Mode,
    Outcome,
    PoolCapacity,
    Schedule,
    Setting,
    Trace,
    best,
    optima,
    optimum,
    run,
    steps,
)
from hypothesis import given, settings
from hypothesis import strategies as st

module = importlib.import_module("everspot_simulator.optimum")


def hourly(spots: str, prices: list[float] | None = None) -> Trace:
    price_array = None if prices is None else np.array(prices, dtype=float)
    return Trace(
        name=spots, gap=timedelta(hours=1), available=np.array([int(c == "1") for c in spots]), prices=price_array
    )


def make_setting(job: float, deadline: float, changeover: float, ratio: float = 3.0) -> Setting:
    return Setting(job_hours=job, deadline_hours=deadline, changeover_hours=changeover, price_ratio=ratio)


# trace, (job, deadline, changeover): cost. Spot 1, on-demand 3.
TABLE = [
    ("111111", (4, 6, 0.5), 4.5),
    ("......", (4, 6, 0.5), 13.5),
    # Waits two ticks, although the net of a policy that cannot know would not allow it: 0.5 + 3.5 h, just in time.
    ("..1111", (3.5, 6, 0.5), 4.0),
    # A spell of an hour saves half an hour at 3 and costs 1; the changeover to on-demand is paid once in any case.
    ("1.....", (4, 6, 0.5), 1 + 3 * 4),
    # It would save a quarter of an hour: not worth it.
    ("1.....", (4, 6, 0.75), 3 * 4.75),
    ("11....", (4, 6, 0.5), 2 + 3 * 3),
    # From spot to idle to spot, not to on-demand: 1.5 + 1.5 h in 2 + 2.
    ("11.11.", (3, 5, 0.5), 4.0),
    # A spell of spot that is shorter than the changeover is left alone.
    ("1.1.111111", (3, 10, 1.5), 4.5),
    # No slack: on-demand from the first moment.
    ("111111", (4, 4, 0), 4.0),
    (".11111", (4.5, 6, 0.5), 5.0),
    # No slack to wait for the spot that will come: on-demand for the first hour (0.5 done), then 0.5 + 3.5 h.
    (".1111", (4, 5, 0.5), 3 + 4),
]


@pytest.mark.parametrize(("spots", "hours", "cost"), TABLE)
def test_what_the_optimum_costs(spots, hours, cost):
    outcome = optimum(hourly(spots), 0, make_setting(*hours))
    assert outcome.cost == pytest.approx(cost) and not outcome.missed


def every_schedule(traces: list[Trace], setting: Setting) -> list[Outcome]:
    """Return the outcomes of all sequences of holdings that finish in time."""
    ticks = round(setting.deadline_hours + 0.499)
    choices = [None, -1, *range(len(traces))]
    outcomes = []
    for plan in product(choices, repeat=ticks):
        if all(h is None or h < 0 or (i < len(traces[h]) and traces[h].up()[i]) for i, h in enumerate(plan)):
            try:
                outcomes.append(run(traces, 0, setting, Schedule(plan)))
            except ValueError:  # it ends idle, with work to do
                continue
    return [o for o in outcomes if not o.missed]


@st.composite
def tiny_worlds(draw):
    """One or two pools of a few ticks, with prices or without."""
    ticks = draw(st.integers(2, 6))
    pools = draw(st.integers(1, 2)) if ticks <= 5 else 1
    priced = draw(st.booleans())
    traces = [
        hourly(
            draw(st.text("01", min_size=ticks, max_size=ticks)),
            draw(st.lists(st.integers(1, 9), min_size=ticks, max_size=ticks)) if priced else None,
        )
        for _ in range(pools)
    ]
    changeover = draw(st.sampled_from([0, 0.25, 0.5, 1, 1.25, 2]))
    deadline = draw(st.sampled_from([ticks, ticks - 0.5]))
    job = draw(st.sampled_from([0.5, 1, 1.75, 2.25, 3, 4.1]))
    return traces, make_setting(job, deadline, changeover, draw(st.sampled_from([1.2, 3.0])))


@given(world=tiny_worlds())
@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
def test_no_schedule_is_cheaper(world):
    traces, setting = world
    outcome, others = optimum(traces, 0, setting), every_schedule(traces, setting)
    if setting.deadline_hours < setting.job_hours + setting.changeover_hours:
        assert not others and outcome.missed
    else:
        assert not outcome.missed
        assert outcome.cost == pytest.approx(min(o.cost for o in others))


@st.composite
def worlds(draw):
    minutes, ticks = draw(st.sampled_from([(5, 200), (20, 60)]))
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=10))
    up = np.resize(np.repeat(np.arange(len(lengths)) % 2, lengths), ticks)
    prices = np.random.default_rng(draw(st.integers(0, 9))).uniform(0.5, 2, ticks) if draw(st.booleans()) else None
    trace = Trace(name="a", gap=timedelta(minutes=minutes), available=up, prices=prices)
    job, changeover = draw(st.integers(1, 20)) / 4, draw(st.integers(0, 12)) / 12
    return trace, job, job + 2 * changeover + minutes / 60 + draw(st.integers(0, 50)) / 12, changeover


@given(world=worlds(), name=st.sampled_from(sorted(POLICIES)), start=st.integers(0, 20))
@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
def test_no_policy_is_cheaper(world, name, start):
    trace, job, deadline, changeover = world
    setting = make_setting(job, deadline, changeover)
    outcome = optimum(trace, start, setting)
    assert not outcome.missed
    assert outcome.cost <= run(trace, start, setting, POLICIES[name]).cost + 1e-9


@given(world=worlds(), more=st.integers(1, 20))
@settings(deadline=None)
def test_more_time_never_costs_more(world, more):
    trace, job, deadline, changeover = world
    early, late = make_setting(job, deadline, changeover), make_setting(job, deadline + more / 12, changeover)
    assert optimum(trace, 0, late).cost <= optimum(trace, 0, early).cost + 1e-9


@given(world=worlds())
@settings(deadline=None, max_examples=settings.default.max_examples // 2)
def test_a_second_pool_never_costs_more(world):
    trace, job, deadline, changeover = world
    other = Trace(name="b", gap=trace.gap, available=1 - trace.available, prices=trace.prices)
    setting = make_setting(job, deadline, changeover)
    assert optimum([trace, other], 0, setting).cost <= optimum(trace, 0, setting).cost + 1e-9


def test_each_start_is_one_of_its_own():
    trace, setting = hourly("1111.....1111111"), make_setting(3, 6, 0.5)
    # Starts at 0 and 9: spot immediately. Start at 4: on-demand for 0.5 + 2.5 h, the rest in the one tick of spot in
    # time.
    assert [o.cost for o in optima(trace, [0, 4, 9], setting)] == pytest.approx([3.5, 9 + 1, 3.5])


def test_what_cannot_be_in_time_is_on_demand_at_once_and_late():
    outcome = optimum(hourly("1111111"), 0, make_setting(4, 4.25, 0.5))
    assert outcome.missed and outcome.finished_at == 4.5 and outcome.cost == 13.5


def test_the_cheaper_pool_is_entered_for_good():
    # Pool 1 costs less from the third tick on; changing over costs half an hour.
    dear, cheap = hourly("11111111", [4] * 8), hourly("11111111", [8, 8] + [1] * 6)
    setting = make_setting(4, 4.5, 0.5)
    run_steps = steps(
        PoolCapacity.from_traces([dear, cheap], setting),
        0,
        setting,
        best(PoolCapacity.from_traces([dear, cheap], setting), 0, setting),
    )
    assert {s.pool for s in run_steps} == {0}  # there is no slack for a second changeover
    setting = make_setting(4, 5, 0.5)
    run_steps = list(
        steps(
            PoolCapacity.from_traces([dear, cheap], setting),
            0,
            setting,
            best(PoolCapacity.from_traces([dear, cheap], setting), 0, setting),
        )
    )
    assert [s.pool for s in run_steps if s.entered] == [0, 1] and run_steps[-1].mode is Mode.SPOT
    assert sum(s.cost for s in run_steps) == pytest.approx(2 * 4 + 3)


def test_where_memory_is_short_the_optimum_is_met_from_above(monkeypatch):
    rng = np.random.default_rng(5)
    up = np.repeat(np.arange(80) % 2, rng.integers(1, 12, 80))
    trace = Trace(name="a", gap=timedelta(minutes=10), available=up)
    # 7 minutes and 10 have one in common; the unit that fits is 10 / 3 minutes, so that 7 are taken for 10.
    setting = make_setting(12, 16, 7 / 60)
    exact = optimum(trace, 0, setting)
    monkeypatch.setattr(module, "_CELLS", 96 * 75)
    assert module.unit(setting, trace.gap) == 200
    rough = optimum(trace, 0, setting)
    assert not rough.missed and exact.cost <= rough.cost + 1e-9
    monkeypatch.undo()
    earlier = [(n, optimum(trace, 0, make_setting(12, 16 - n * 200 / 3600, 7 / 60))) for n in range(10, 20)]
    bounds = [o.cost for n, o in earlier if o.changeovers <= n]
    assert bounds and rough.cost <= min(bounds) + 1e-9


def test_the_unit_is_what_tick_and_changeover_have_in_common():
    assert module.unit(make_setting(48, 60, 0.2), timedelta(seconds=195)) == 15
    assert module.unit(make_setting(48, 48 / 0.95, 0.2), timedelta(seconds=600)) == 120
    assert module.unit(make_setting(48, 60, 0), timedelta(seconds=600)) == 600
