"""Policies on tiny traces, checked by hand; stepping by events equals stepping by ticks."""

from datetime import timedelta

import numpy as np
import pytest
from everspot_core.validation.problems import BadInputs
from everspot_simulator import (
    POLICIES,
    UNTIL_CHANGE,
    Choice,
    Greedy,
    Mode,
    Policy,
    PoolCapacity,
    Setting,
    State,
    Trace,
    UniformProgress,
    run,
    runs,
    steps,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def hourly(spots: str, prices: list[float] | None = None, minutes: float = 60) -> Trace:
    """A trace of ticks of an hour: `.` no spot, a digit: so many instances."""
    counts = [0 if c == "." else int(c) for c in spots]
    price_array = None if prices is None else np.array(prices, dtype=float)
    return Trace(name=spots, gap=timedelta(minutes=minutes), available=np.array(counts), prices=price_array)


def make_setting(job: float, deadline: float, changeover: float, ratio: float = 3.0, nodes: int = 1) -> Setting:
    return Setting(job_hours=job, deadline_hours=deadline, changeover_hours=changeover, price_ratio=ratio, nodes=nodes)


# policy, trace, (job, deadline, changeover): cost, finished, spot, on-demand, idle, changeovers. Spot 1, on-demand 3.
TABLE = [
    # 0.5 h changeover and 4 h of computing, the last tick half used.
    ("greedy", "11111111", (4, 8, 0.5), (4.5, 4.5, 4.5, 0, 0, 1)),
    # Slack 4, 3, 2: spot, half an hour done. Slack 1.5 is no less than the net (0.5 + a tick): waits. Slack 0.5:
    # on-demand for 0.5 + 3.5 h, just in time.
    ("greedy", "..1.....", (4, 8, 0.5), (1 + 12, 8, 1, 4, 3, 2)),
    # The changeover spans two ticks and carries over the edge; 0.5 h done, 1.5 h left at t = 2. The net is 3:
    # slack 8.5 at t = 2, 3.5 at t = 7, 2.5 at t = 8.
    ("greedy", "11..........", (2, 12, 1.5), (2 + 9, 11, 2, 3, 6, 2)),
    # Lost before the changeover was done: the next changeover starts from the beginning.
    ("greedy", "1.1111111111", (2, 12, 1.5), (1 + 3.5, 5.5, 4.5, 0, 1, 2)),
    # On spot the net does not count: slack is 0.5 from the first tick on.
    ("greedy", "11111", (4, 5, 0.5), (4 * 3 + 1.5, 4.5, 0, 4.5, 0, 1)),
    ("greedy", "111111", (4, 6, 0.5), (4.5, 4.5, 4.5, 0, 0, 1)),
    # Not behind at t = 0; behind at t = 1 (0 of 0.5): on-demand, to the end because spot never comes.
    ("up", "........", (4, 8, 0.5), (13.5, 5.5, 0, 4.5, 1, 1)),
    # At t = 1 behind, yet spot is there: spot.
    ("up", ".1111111", (4, 8, 0.5), (4.5, 5.5, 4.5, 0, 1, 1)),
    # On-demand from t = 1. t = 3: 1.5 done, 2 are needed for t + 2d = 4. t = 4: 2.5 done, 2.5 needed: spot for
    # 0.5 + 1.5 h.
    ("up", "...111111", (4, 8, 0.5), (9 + 2, 6, 2, 3, 1, 2)),
    # Ahead after three ticks of spot (2.5 done, 1.5 needed): idle at t = 3 and 4, not behind at t = 5 (2.5 of 2.5),
    # behind at t = 6 — but slack is then 8 - 6 - 1.5 = 0.5 < the net: on-demand for 0.5 + 1.5 h.
    ("up", "111.....", (4, 8, 0.5), (3 + 6, 8, 3, 2, 3, 2)),
    # 0.75 done at t = 1: enough until t = 3 (0.6), not at t = 4 (0.8): on-demand for 0.25 + 1.25 h. It is ahead again
    # at t = 5 (1.5 of 1), and stays: never from on-demand to idle.
    ("up", "1.......", (2, 10, 0.25), (1 + 3 * 1.5, 5.5, 1, 1.5, 3, 2)),
    # The safety net applies immediately: 4 + 2d + a tick do not fit.
    ("up", "1111111", (4, 5, 0.5), (13.5, 4.5, 0, 4.5, 0, 1)),
    ("on-demand", "11111111", (4, 8, 0.5), (13.5, 4.5, 0, 4.5, 0, 1)),
    # Waits while the slack (5 h, less an hour each hour) is more than 0.25 + 2 ticks + 0.4 (0.1 x 4 h): at t = 0, 1, 2,
    # not at t = 3 (2 > 2.65). Spot at t = 5: slack 1.75 is more than the net of 1.25, so it goes back immediately.
    # Until then 1.75 h are done; 0.25 + 2.25 h on spot.
    ("slack-10", ".....11111111", (4, 9, 0.25), (6 + 2.5, 7.5, 2.5, 2, 3, 2)),
    # A fifth of the work is 0.8 h, so that it goes on-demand at t = 2, with 3 > 3.05. At t = 3 there is spot.
    ("slack-20", "...1111111111", (4, 9, 0.25), (3 + 3.5, 6.5, 3.5, 1, 2, 2)),
    # Spot is lost in its changeover with slack 1 + 0.5; the net of 1 + 1 lets nothing but on-demand follow.
    ("slack-10", "1.......", (4, 6.5, 1), (1 + 3 * 5, 6, 1, 5, 0, 2)),
    # Without a changeover the price of the job itself.
    ("on-demand", "........", (4, 8, 0), (12, 4, 0, 4, 0, 1)),
]


@pytest.mark.parametrize(("policy", "spots", "hours", "expected"), TABLE)
def test_what_a_run_costs(policy, spots, hours, expected):
    job, deadline, changeover = hours
    outcome = run(hourly(spots), 0, make_setting(job, deadline, changeover), POLICIES[policy])
    figures = (
        outcome.cost,
        outcome.finished_at,
        outcome.spot_hours,
        outcome.on_demand_hours,
        outcome.idle_hours,
        outcome.changeovers,
    )
    assert figures == pytest.approx(expected)
    assert not outcome.missed and outcome.undisturbed == 3 * job


def test_a_run_begins_where_it_is_submitted():
    outcomes = runs(hourly(".11.11111111"), [0, 1, 3], make_setting(2, 6, 0.5), Greedy())
    # Starts at 1 and 4: from 1 immediately, from 4 after a tick of waiting.
    assert [o.idle_hours for o in outcomes] == [1 + 1, 1, 1]
    assert [o.cost for o in outcomes] == [2 + 1, 2 + 1, 2.5]


def test_two_changeovers_are_not_enough_where_a_tick_is_longer():
    # Net 0.5: idle with slack 1 at t = 1, gone at t = 2: 2 + 0.25 + 4 h. With 0.25 + a tick: on-demand at t = 1.
    trace, setting = hourly("......"), make_setting(4, 6, 0.25)
    assert run(trace, 0, setting, Greedy(literal=True)).finished_at == 6.25
    assert run(trace, 0, setting, Greedy(literal=True)).missed
    assert run(trace, 0, setting, Greedy()).finished_at == 5.25


def test_both_nets_are_the_same_where_a_tick_is_not_longer():
    rng = np.random.default_rng(3)
    trace = Trace(name="a", gap=timedelta(minutes=10), available=rng.integers(0, 2, 400))
    for net in (0.25, 0.5):
        setting = make_setting(24, 30, net)
        for policy in (Greedy, UniformProgress):
            assert runs(trace, range(50), setting, policy(literal=True)) == runs(trace, range(50), setting, policy())


def test_a_gang_needs_all_of_its_nodes():
    outcome = run(hourly("3344444444"), 0, make_setting(2, 9, 0.5, nodes=4), Greedy())
    assert (outcome.idle_hours, outcome.cost) == (2, 2.5)


def test_prices_of_each_tick_are_paid_and_on_demand_costs_the_ratio_times_their_mean():
    # Spot at 1 for a tick and at 3 for three quarters of one.
    trace = hourly("1111", [1, 3, 2, 2])
    outcome = run(trace, 0, make_setting(1.25, 4, 0.5, ratio=2), Greedy())
    assert outcome.cost == pytest.approx(1 + 0.75 * 3)
    assert outcome.undisturbed == pytest.approx(2 * 2 * 1.25)
    assert run(trace, 0, make_setting(1.25, 4, 0.5, ratio=2), POLICIES["on-demand"]).cost == pytest.approx(4 * 1.75)


def test_the_next_pool_is_taken_when_one_is_lost():
    outcome = run([hourly("1..."), hourly(".111")], 0, make_setting(2, 4, 0.5), Greedy(literal=True))
    assert (outcome.cost, outcome.finished_at, outcome.changeovers) == (3, 3, 2)


def test_the_pool_that_is_held_is_kept_and_the_cheapest_is_entered():
    dear, cheap = hourly("1111", [2, 2, 1, 1]), hourly("1111", [1, 1, 5, 5])
    run_steps = list(
        steps(
            PoolCapacity.from_traces([dear, cheap], make_setting(2, 4, 0.5)),
            0,
            make_setting(2, 4, 0.5),
            Greedy(literal=True),
        )
    )
    assert [s.pool for s in run_steps] == [1]
    assert sum(s.cost for s in run_steps) == pytest.approx(1 + 1 + 0.5 * 5)


@pytest.mark.parametrize(
    ("pools", "path"),
    [
        ([], "traces"),
        ([hourly("11"), hourly("11", minutes=10)], "gap_seconds"),
        ([hourly("11"), hourly("11", [1, 1])], "prices"),
    ],
)
def test_pools_that_do_not_go_together_are_refused(pools, path):
    with pytest.raises(BadInputs) as caught:
        run(pools, 0, make_setting(1, 2, 0.1), Greedy())
    assert [p.path for p in caught.value.problems] == [path]


class Always:
    """Says the same at every question."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice

    def choose(self, state: State) -> Choice:
        return self.choice


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice(Mode.IDLE), "waits for ever"),
        (Choice(Mode.IDLE, UNTIL_CHANGE), "waits for ever"),
        (Choice(Mode.SPOT), "where there is none"),
        (Choice(Mode.SPOT, pool=0), "where there is none"),
        (Choice(Mode.SPOT, final=True), "only on-demand"),
        (Choice(Mode.IDLE, final=True), "only on-demand"),
        (Choice(Mode.IDLE, 0), "at least a tick"),
    ],
)
def test_a_policy_that_cannot_be_followed_is_reported(choice, words):
    with pytest.raises(ValueError, match=words):
        run(hourly("...."), 0, make_setting(1, 4, 0.1), Always(choice))


class Watched:
    """Keeps the states that a policy is asked in."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.states = policy, list[State]()

    def choose(self, state: State) -> Choice:
        self.states.append(state)
        return self.policy.choose(state)


def test_what_a_policy_sees():
    # Spot for one of the 1.5 h of a changeover; then again, for two hours.
    watched = Watched(Greedy())
    run(hourly("1.11........"), 0, make_setting(2, 12, 1.5), watched)
    observations = [
        (s.tick, s.mode, s.available, s.changing / 3600, s.remaining / 3600, s.slack / 3600) for s in watched.states
    ]
    assert observations[:4] == [
        (0, Mode.IDLE, True, 0, 2, 10),
        (1, Mode.IDLE, False, 0, 2, 9),
        (2, Mode.IDLE, True, 0, 2, 8),
        (4, Mode.IDLE, False, 0, 1.5, 6.5),
    ]
    watched = Watched(UniformProgress())
    run(hourly("....1111"), 0, make_setting(4, 8, 1.5), watched)
    assert (watched.states[-1].mode, watched.states[-1].now / 3600) == (Mode.ON_DEMAND, 4)


def test_the_steps_of_a_run_can_be_drawn():
    setting = make_setting(4, 8, 0.5)
    run_steps = list(steps(PoolCapacity.from_traces(hourly("...111111"), setting), 0, setting, UniformProgress()))
    assert [(s.tick, s.mode, s.seconds / 3600, s.entered) for s in run_steps if s.entered or s.mode is Mode.IDLE] == [
        (0, Mode.IDLE, 1, False),
        (1, Mode.ON_DEMAND, 2, True),
        (4, Mode.SPOT, 2, True),
    ]
    assert sum(s.progress for s in run_steps) == 4 * 3600


class EachTick:
    """Asks a policy at every tick, whatever it says of the ticks to come."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.final = policy, False

    def choose(self, state: State) -> Choice:
        if self.final:
            return Choice(Mode.ON_DEMAND)
        choice = self.policy.choose(state)
        self.final = choice.final
        return choice._replace(ticks=1, final=False)


@st.composite
def worlds(draw):
    """Spells of spot in one or two pools, with or without prices, and a job that on-demand can finish in time."""
    minutes = draw(st.sampled_from([3, 5, 10, 60]))
    ticks = 120 if minutes == 60 else 400
    pools = []
    for _ in range(draw(st.integers(1, 2))):
        lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=12))
        up = np.resize(np.repeat(np.arange(len(lengths)) % 2 == draw(st.integers(0, 1)), lengths), ticks)
        pools.append(up.astype(np.int64))
    priced = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    traces = [
        Trace(
            name="a", gap=timedelta(minutes=minutes), available=p, prices=rng.uniform(0.5, 2, ticks) if priced else None
        )
        for p in pools
    ]
    job, changeover = draw(st.integers(1, 24)) / 4, draw(st.integers(0, 20)) / 20
    slack = draw(st.integers(0, 60)) / 10
    deadline = job + 2 * changeover + minutes / 60 + slack
    return traces, make_setting(job, deadline, changeover, draw(st.sampled_from([1.5, 3.0])))


@given(world=worlds(), name=st.sampled_from(sorted(POLICIES)), start=st.integers(0, 30))
@settings(deadline=None)
def test_stepping_on_events_is_stepping_on_ticks(world, name, start):
    traces, setting = world
    quick = run(traces, start, setting, POLICIES[name])
    slow = run(traces, start, setting, EachTick(POLICIES[name]))
    for figure in ("cost", "finished_at", "spot_hours", "on_demand_hours", "idle_hours", "changeovers", "missed"):
        assert getattr(quick, figure) == pytest.approx(getattr(slow, figure), abs=1e-9), figure


@given(world=worlds(), name=st.sampled_from(sorted(POLICIES)), start=st.integers(0, 30))
@settings(max_examples=settings.default.max_examples * 3, deadline=None)
def test_no_policy_misses_a_deadline_that_leaves_two_changeovers_and_a_tick(world, name, start):
    traces, setting = world
    outcome = run(traces, start, setting, POLICIES[name])
    assert not outcome.missed and outcome.finished_at <= setting.deadline_hours + 1e-6


@given(world=worlds(), name=st.sampled_from(sorted(POLICIES)), start=st.integers(0, 30))
@settings(deadline=None)
def test_hours_add_up(world, name, start):
    traces, setting = world
    outcome = run(traces, start, setting, POLICIES[name])
    assert outcome.spot_hours + outcome.on_demand_hours + outcome.idle_hours == pytest.approx(outcome.finished_at)
    least = setting.job_hours + setting.changeover_hours
    assert outcome.spot_hours + outcome.on_demand_hours >= least - 1e-9


@given(world=worlds())
def test_on_demand_saves_nothing_and_loses_one_changeover(world):
    traces, setting = world
    outcome = run(traces, 0, setting, POLICIES["on-demand"])
    assert outcome.saving == pytest.approx(-setting.changeover_hours / setting.job_hours)
