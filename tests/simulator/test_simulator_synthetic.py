"""Synthetic traces: their statistical properties, and their determination by a seed."""

from datetime import timedelta

import numpy as np
import pytest
from everspot_simulator import (
    GENERATORS,
    Greedy,
    Mode,
    OnDemand,
    PoolCapacity,
    Setting,
    Trace,
    optimum,
    parse,
    run,
    steps,
    with_prices,
)
from everspot_simulator.synthetic import HEAVY_DOWN, HEAVY_UP, Phases, correlated, heavy_tailed, markov

GAP = timedelta(minutes=5)
JOB = Setting(job_hours=48, deadline_hours=60, changeover_hours=0.2, price_ratio=3)
ADVERSARIAL = ["vanishing", "blinking", "last-moment", "gone-for-good"]


def make_traces(
    name: str, seed: int = 1, ticks: int = 20_000, setting: Setting = JOB, gap: timedelta = GAP
) -> list[Trace]:
    return list(GENERATORS[name](np.random.default_rng(seed), ticks, gap, setting))


def hours(trace: Trace, up: bool) -> np.ndarray:
    """The spells of one kind, without the cut ones at both ends."""
    spells = trace.spells()
    return spells.length[1:-1][spells.up[1:-1] == up] * trace.tick_seconds / 3600


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_a_trace_is_as_long_as_asked_and_can_be_read_again(name):
    for ticks in (1, 7, 3000):
        for trace in make_traces(name, ticks=ticks):
            assert len(trace) == ticks and trace.gap == GAP
            assert set(trace.available.tolist()) <= {0, 1}
            assert parse(trace.to_json(), name).available.tolist() == trace.available.tolist()


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_the_same_seed_makes_the_same_trace(name):
    first, again = make_traces(name), make_traces(name)
    assert [t.available.tolist() for t in first] == [t.available.tolist() for t in again]
    # The worst moment follows from the job alone.
    if name != "last-moment":
        assert [t.available.tolist() for t in first] != [t.available.tolist() for t in make_traces(name, seed=6)]


def test_pools_have_names_of_their_own():
    assert [t.name for t in make_traces("correlated")] == [f"correlated-{n}" for n in range(4)]


def test_a_markov_trace_is_up_as_often_and_as_long_as_requested():
    # 3 h up, 1 h down: some 10,000 spells of each.
    trace = markov(np.random.default_rng(1), 480_000, GAP, up=Phases(means=(3.0,)), down=Phases(means=(1.0,)))
    assert trace.up().mean() == pytest.approx(0.75, abs=0.01)
    for up, mean in ((True, 3.0), (False, 1.0)):
        spells = hours(trace, up)
        assert spells.mean() == pytest.approx(mean, rel=0.05)
        assert np.median(spells) == pytest.approx(mean * np.log(2), rel=0.08)


def test_a_markov_spell_that_has_lasted_does_not_last_longer_and_a_heavy_tailed_one_does():
    rng = np.random.default_rng(2)
    plain = hours(markov(rng, 400_000, GAP), True)
    heavy = hours(heavy_tailed(rng, 400_000, GAP), True)

    def still_to_last(spells, after):
        return (spells[spells > after] - after).mean()

    assert still_to_last(plain, 3) == pytest.approx(plain.mean(), rel=0.1)
    assert still_to_last(heavy, 3) > 2 * heavy.mean()


@pytest.mark.parametrize("up", [True, False])
def test_heavy_tailed_spells_are_those_of_real_traces(up):
    spells = hours(make_traces("heavy-tailed", ticks=200_000)[0], up)
    median, long = np.percentile(spells, [50, 90])
    assert 0.3 <= median <= 1 and 2 <= long <= 15
    assert spells.mean() == pytest.approx((HEAVY_UP if up else HEAVY_DOWN).mean, rel=0.1)


def test_a_diurnal_trace_follows_the_day():
    up = make_traces("diurnal", ticks=288 * 200)[0].up().reshape(200, 24, 12)
    by_hour = up.mean(axis=(0, 2))
    assert by_hour.max() - by_hour.min() > 0.4
    # A single wave: the best and the worst hour are half a day apart.
    assert 9 <= abs(int(by_hour.argmax()) - int(by_hour.argmin())) <= 15


def test_droughts_are_long_and_do_not_happen_elsewhere():
    droughts, without = hours(make_traces("droughts")[0], False), hours(make_traces("heavy-tailed")[0], False)
    assert droughts.max() > 36 > without.max()


def test_steady_spot_is_nearly_always_there():
    trace = make_traces("steady", ticks=100_000)[0]
    assert 0.98 < trace.up().mean() < 1 and len(hours(trace, False)) > 20


def test_correlated_pools_run_dry_together():
    def together(coupling):
        pools = correlated(np.random.default_rng(4), 200_000, GAP, pools=3, coupling=coupling)
        matrix = np.corrcoef([p.up() for p in pools])
        return matrix[np.triu_indices(3, 1)]

    assert (together(0.0) < 0.05).all() and (together(0.8) > 0.15).all()


@pytest.mark.parametrize("minutes", [1, 5, 10, 30])
def test_vanishing_spot_lasts_for_a_changeover_and_not_longer(minutes):
    spells = make_traces("vanishing", gap=timedelta(minutes=minutes))[0].spells()
    assert set(spells.length[spells.up][:-1].tolist()) == {-(-12 // minutes)}


def test_nothing_is_ever_computed_on_vanishing_spot():
    # 12 minutes are whole ticks of 4.
    capacity = PoolCapacity.from_traces(make_traces("vanishing", gap=timedelta(minutes=4), seed=3), JOB)
    run_steps = list(steps(capacity, 0, JOB, Greedy()))
    on_spot = [s for s in run_steps if s.mode is Mode.SPOT]
    assert len(on_spot) > 10 and sum(s.progress for s in on_spot) == 0


def test_blinking_spot_is_there_for_exactly_one_tick():
    spells = make_traces("blinking")[0].spells()
    assert set(spells.length[spells.up].tolist()) == {1} and spells.up.sum() > 100


def test_the_last_moment_leaves_nothing_but_on_demand():
    # Spot comes after 12 - 2 * 0.2 h and stays for 0.2 h, in ticks of 4 minutes; on-demand then takes 0.2 + 48 h.
    traces = make_traces("last-moment", gap=timedelta(minutes=4), ticks=900)
    spells = traces[0].spells()
    assert (spells.start.tolist(), spells.length.tolist()) == ([0, 174, 177], [174, 3, 723])
    greedy = run(traces, 0, JOB, Greedy())
    assert (greedy.spot_hours, greedy.on_demand_hours, greedy.finished_at) == pytest.approx((0.2, 48.2, 60.0))
    assert optimum(traces, 0, JOB).cost == pytest.approx(run(traces, 0, JOB, OnDemand()).cost)


def test_what_is_gone_for_good_does_not_come_back_before_the_deadline():
    up = make_traces("gone-for-good", ticks=720 * 20)[0].up().reshape(20, 720)
    lasted = up.sum(axis=1)
    assert all(row[:n].all() for row, n in zip(up, lasted, strict=True))
    assert len(set(lasted.tolist())) > 10 and lasted.min() >= 1 and lasted.max() <= 48 * 12


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize("setting", [JOB, Setting(job_hours=1, deadline_hours=1.1, changeover_hours=0, price_ratio=2)])
def test_harm_can_be_meant_to_any_job(name, setting):
    (trace,) = make_traces(name, setting=setting, ticks=5000)
    assert 0 < trace.up().mean() < 1


def test_prices_wander_around_their_mean_and_stay_within_bounds():
    trace = with_prices(make_traces("markov")[0], np.random.default_rng(1), mean=0.9, on_demand=3.06, volatility=0.2)
    assert trace.prices.mean() == pytest.approx(0.9, rel=0.15)
    assert np.log(trace.prices).std() == pytest.approx(0.2, rel=0.3)
    # A day later little is left of where it was, the next tick nearly all.
    moved = np.log(trace.prices)
    assert np.corrcoef(moved[1:], moved[:-1])[0, 1] > 0.99 and np.corrcoef(moved[864:], moved[:-864])[0, 1] < 0.5
    wild = with_prices(trace, np.random.default_rng(1), mean=0.9, on_demand=3.06, volatility=2.0).prices
    assert (wild.min(), wild.max()) == pytest.approx((0.09, 3.06))
    again = with_prices(trace, np.random.default_rng(1), mean=0.9, on_demand=3.06, volatility=2.0).prices
    assert wild.tolist() == again.tolist()
