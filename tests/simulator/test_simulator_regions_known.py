"""The bounds of `make bench ONLY=regions_known`: policies that know the process, by hand and beside the optimum."""

import itertools

import numpy as np
import pytest
from everspot_simulator import EverspotPolicy, OnDemand, PoolCapacity, Regions, Setting, optimum, run
from everspot_simulator.synthetic import COUPLING, HEAVY_DOWN, HEAVY_UP, Phases

from bench._known_process import JobTicks, follow, measure_regrets, solve
from bench._spot_process import SpotProcess, alternating, independent
from bench.regions import DOWN, UP
from bench.regions_known import (
    MARKETS,
    TICK_HOURS,
    Recorder,
    make_regions,
    make_traces,
    market_process,
    measure,
    ratio_interval,
)


def make_process(leave_up: tuple[float, ...], leave_down: float) -> SpotProcess:
    """One region whose spells end with these chances at each tick; every phase of spot begins equally often."""
    entry = [leave_down / len(leave_up)] * len(leave_up)
    rows = [[*(1 - q if n == m else 0.0 for m in range(len(leave_up))), q] for n, q in enumerate(leave_up)]
    return SpotProcess(
        transition=np.array([*rows, [*entry, 1 - leave_down]]), up=np.array([[True] * len(leave_up) + [False]])
    )


def make_job(work: int, deadline: int, on_demand: float = 3.0) -> JobTicks:
    return JobTicks(
        work=work, deadline=deadline, changeover=1, move=1, spot_usd=(1.0,), on_demand_usd=(on_demand,), move_usd=(0.0,)
    )


def make_setting(work: int, deadline: int, changeover: int = 2) -> Setting:
    hours = [ticks * TICK_HOURS for ticks in (work, deadline, changeover)]
    return Setting(job_hours=hours[0], deadline_hours=hours[1], changeover_hours=hours[2], price_ratio=3.0)


def test_without_slack_for_a_second_changeover_every_policy_but_the_optimum_is_on_demand():
    process = make_process((0.1, 0.5), 0.5)
    dollars, _, late = measure(process, make_setting(10, 12), make_regions(1), 8)
    assert late == 0
    assert dollars[:, 1:] == pytest.approx(np.full((8, 3), 12 * TICK_HOURS * 3.0))
    assert dollars[:, 0].min() == pytest.approx(12 * TICK_HOURS)  # who knows that spot will last may use it


def test_a_job_of_one_tick_with_time_for_two_attempts_by_hand():
    process = make_process((0.2,), 0.3)
    solution = solve(process, make_job(work=1, deadline=3))
    # Up, 0.6 of the time: a changeover on spot, and then a tick of work; if spot is lost, two ticks on-demand.
    # Down: two ticks on-demand, because later spot might be lost without the time to replace it.
    assert solution.usd == pytest.approx(0.6 * (1 + 0.8 * 1 + 0.2 * 6) + 0.4 * 6)


def test_a_policy_that_sees_the_phase_skips_spot_that_will_soon_be_lost():
    process = make_process((0.9, 0.1), 0.5)
    solution = solve(process, make_job(work=1, deadline=3, on_demand=2.0))
    # Spot costs 2 + 3 q by its chance q of being lost, on-demand 4. Long spells are 9 in 10 of the ticks that are up.
    paths = np.array([[0, 2, 2], [1, 1, 1]])
    by_phase, by_age = (follow(solution, paths, phases_visible=visible) for visible in (True, False))
    assert [schedule.holdings[0] == 0 for schedule in by_phase] == [False, True]
    assert [schedule.holdings[0] == 0 for schedule in by_age] == [True, True]
    states = process.stationary()
    assert solution.usd == pytest.approx(states @ [4, 2.3, 4])


def test_chances_follow_bayes_rule_while_spot_stays_up():
    process = make_process((0.5, 0.1), 0.3)
    chances = start = process.stationary()[None]
    for _ in range(4):
        chances = process.condition(chances, np.array([[True]])) @ process.transition
    chances = process.condition(chances, np.array([[True]]))
    survival = start[0] * [0.5**4, 0.9**4, 0.0]
    assert chances[0] == pytest.approx(survival / survival.sum())


@pytest.mark.parametrize("seed", range(12))
def test_without_chance_the_policy_is_the_optimum_and_regrets_are_all_that_another_pays_more(seed: int):
    rng = np.random.default_rng(seed)
    states, count = 24, int(rng.integers(1, 4))
    cycle = SpotProcess(
        transition=np.roll(np.eye(states), 1, axis=1), up=np.repeat(rng.random((count, states // 3)) < 0.5, 3, axis=1)
    )
    names = [f"region-{n}" for n in range(count)]
    regions = Regions.from_names(
        names, {n: float(rng.uniform(1.2, 4)) for n in names}, checkpoint_gb=20.0, egress_usd=float(rng.uniform(0, 0.1))
    )
    work = int(rng.integers(4, 20))
    setting = make_setting(work, work + int(rng.integers(2, 16)), changeover=int(rng.integers(1, 3)))
    paths = cycle.draw(rng, 24, round(setting.deadline_hours / TICK_HOURS))
    traces = [make_traces(cycle, path) for path in paths]
    solution = solve(cycle, JobTicks.from_capacity(PoolCapacity.from_traces(traces[0], setting, regions), setting))
    best = np.array([optimum(t, 0, setting, regions).cost for t in traces])
    schedules = follow(solution, paths, phases_visible=True)
    for policies, is_best in ((schedules, True), ([EverspotPolicy() for _ in paths], False)):
        recorders = [Recorder(policy) for policy in policies]
        usd = [run(t, 0, setting, recorder, regions).cost for t, recorder in zip(traces, recorders, strict=True)]
        regrets = measure_regrets(solution, paths, [recorder.choices for recorder in recorders], phases_visible=True)
        assert regrets.total == pytest.approx(usd - best, abs=1e-4)
        assert not is_best or usd == pytest.approx(best)


# The slack is enough for a changeover, and for a move before it.
@pytest.mark.parametrize(("up", "slack", "kind"), [((True,), 2, "on_demand"), ((False, True), 4, "stayed")])
def test_regrets_of_a_job_that_is_on_demand_beside_spot(up: tuple[bool, ...], slack: int, kind: str):
    """Spot is up for ever, here or in the other region."""
    process = SpotProcess(transition=np.eye(1), up=np.array(up)[:, None])
    setting, regions, paths = make_setting(20, 20 + slack), make_regions(len(up)), np.zeros((1, 24), dtype=np.int64)
    traces = make_traces(process, paths[0])
    solution = solve(process, JobTicks.from_capacity(PoolCapacity.from_traces(traces, setting, regions), setting))
    recorder = Recorder(OnDemand())
    usd = run(traces, 0, setting, recorder, regions).cost
    regrets = measure_regrets(solution, paths, [recorder.choices], phases_visible=False)
    assert regrets.total == pytest.approx(usd - solution.usd, abs=1e-4)
    assert getattr(regrets, kind) == pytest.approx(regrets.total)


TWO_REGIONS = independent(
    *[alternating(Phases(chances=(0.5, 0.5), means=(0.2, 4.0)), Phases(means=(0.5,)), TICK_HOURS)] * 2
)


def test_the_less_a_policy_knows_the_more_it_pays_on_average():
    dollars, regrets, late = measure(TWO_REGIONS, make_setting(20, 32), make_regions(2), 120)
    assert late == 0
    assert (dollars[:, 0] <= dollars[:, 1:].min(axis=1) + 1e-6).all()
    assert (np.diff(dollars.mean(axis=0)) > 0).all()
    assert (regrets.stayed + regrets.on_demand <= regrets.total + 1e-9).all()
    assert min(regrets.stayed.sum(), regrets.on_demand.sum()) > 0


def test_the_engine_counts_the_dollars_that_the_decision_process_expects():
    setting, regions = make_setting(20, 32), make_regions(2)
    paths = TWO_REGIONS.draw(np.random.default_rng(0), 1000, 32)
    traces = [make_traces(TWO_REGIONS, path) for path in paths]
    job = JobTicks.from_capacity(PoolCapacity.from_traces(traces[0], setting, regions), setting)
    solution = solve(TWO_REGIONS, job)
    schedules = follow(solution, paths, phases_visible=True)
    usd = [run(t, 0, setting, schedule, regions).cost for t, schedule in zip(traces, schedules, strict=True)]
    assert np.mean(usd) == pytest.approx(solution.usd, abs=4 * np.std(usd) / np.sqrt(len(usd)))


@pytest.mark.parametrize(("kind", "count"), MARKETS)
def test_each_market_is_up_as_often_as_that_of_the_traces(kind: str, count: int):
    process = market_process(kind, count)
    assert process.transition.sum(axis=1) == pytest.approx(np.ones(len(process.transition)))
    up, down = (UP, DOWN) if kind == "plenty" else (HEAVY_UP, HEAVY_DOWN)
    share = up.mean / (up.mean + down.mean)
    one, two = {
        "scarce": (0.8, 0.8**2),
        "correlated": (20 / 28 + 8 / 28 * (1 - COUPLING), 20 / 28 + 8 / 28 * (1 - COUPLING) ** 2),
    }.get(kind, (1.0, 1.0))
    states = process.stationary()
    for region in process.up:
        assert states @ region == pytest.approx(share * one, abs=0.02)
    for pair in itertools.combinations(process.up, 2):
        assert states @ np.logical_and(*pair) == pytest.approx(share**2 * two, abs=0.02)


def test_the_interval_of_a_ratio():
    assert ratio_interval(np.array([2.0, 4.0]), np.array([1.0, 2.0])) == (2.0, 0.0)
    ratio, half_width = ratio_interval(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    assert (ratio, half_width) == (1.0, pytest.approx(1.96 * np.sqrt(2) / np.sqrt(2) / 2))
