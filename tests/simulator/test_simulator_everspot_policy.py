"""The policy `everspot`, which is the scheduler's own plan, through synthetic and adversarial traces.

What it decides over a few of them is kept in `golden/planned.txt`. After a change that is meant to change decisions:
`EVERSPOT_GOLDEN=write pytest tests/simulator/test_simulator_everspot_policy.py -k golden`, and read the difference.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from everspot_core.schedule import Action, ClusterView, Hold, Stay, plan
from everspot_simulator import (
    GENERATORS,
    POLICIES,
    EverspotPolicy,
    Greedy,
    Mode,
    Outcome,
    PoolCapacity,
    Setting,
    Trace,
    UniformProgress,
    everspot_policy,
    run,
    runs,
    starts,
    steps,
)

GAP = timedelta(minutes=10)
GOLDEN = Path(__file__).parent / "golden" / "planned.txt"
WRITE = os.environ.get("EVERSPOT_GOLDEN") == "write"
WHAT_IS_KNOWN = {"all": (1.0, 1.0), "less": (0.8, 1.0), "no-more-than": (1.0, 1.15)}
"""Expected and upper bound, relative to what it really takes."""


def setting(f: float, d: float, job: float = 12.0) -> Setting:
    """`f`: the job's part of the time to its deadline; `d`: the changeover in hours."""
    return Setting(job_hours=job, deadline_hours=job / f, changeover_hours=d, price_ratio=3.0)


def traces(name: str, job_setting: Setting, ticks: int = 400, seed: int = 7) -> list[Trace]:
    return list(GENERATORS[name](np.random.default_rng(seed), ticks, GAP, job_setting))


def alternating(*spells: int, ticks: int = 6000) -> Trace:
    """Up and down in turn, so many ticks each."""
    once = np.concatenate([np.full(n, (k + 1) % 2) for k, n in enumerate(spells)])
    return Trace(name="alternating", gap=GAP, available=np.resize(once, ticks))


@pytest.mark.parametrize("parts", [(0.6, 0.8, 0.95), pytest.param((0.7, 0.9), marks=pytest.mark.nightly)])
@pytest.mark.parametrize("knowledge", WHAT_IS_KNOWN)
@pytest.mark.parametrize("name", GENERATORS)
def test_no_deadline_is_missed(name, knowledge, parts):
    """Adversarial traces begin with the job. Where the job would be refused, immediate on-demand is still in time."""
    expected, upper = WHAT_IS_KNOWN[knowledge]
    for f in parts:
        for d in (0.02, 0.1, 0.2, 0.4):
            job_setting = setting(f, d)
            for outcome in runs(
                traces(name, job_setting), [0, 37], job_setting, EverspotPolicy(expected=expected, upper=upper)
            ):
                assert not outcome.missed, (f, d, outcome)


@pytest.mark.parametrize("f", [0.6, 0.8, 0.95])
def test_no_deadline_is_missed_by_a_long_job_on_ticks_of_an_hour_or_half_a_minute(f):
    for gap, job, ticks in ((timedelta(hours=1), 48.0, 300), (timedelta(seconds=30), 2.0, 900)):
        job_setting = setting(f, 0.1, job)
        for name in ("vanishing", "last-moment", "gone-for-good", "heavy-tailed"):
            (trace,) = GENERATORS[name](np.random.default_rng(5), ticks, gap, job_setting)
            assert not run(trace, 0, job_setting, EverspotPolicy()).missed


@pytest.mark.parametrize("f", [0.6, pytest.param(0.8, marks=pytest.mark.nightly), 0.95])
@pytest.mark.parametrize("tick", [195.0, 600.0])
@pytest.mark.parametrize("name", GENERATORS)
def test_no_deadline_is_missed_on_a_clock_of_whole_ticks(name, tick, f):
    """A changeover is up to a tick longer there than declared. That holds for the baselines too."""
    for d in (0.02, 0.2):
        whole = replace(setting(f, d), tick_seconds=tick)
        for policy in POLICIES.values():
            for outcome in runs(traces(name, whole), [0, 37], whole, policy):
                assert not outcome.missed, (policy, d, outcome)


@pytest.mark.parametrize("name", ["vanishing", "last-moment", "gone-for-good", "heavy-tailed"])
def test_a_tick_is_left_where_changeovers_end_between_two_of_them(name):
    """So a driver that sees the end of a job with its next tick is in time as well."""
    for f, d in ((0.6, 0.02), (0.8, 0.2), (0.9, 0.4)):
        job_setting = setting(f, d)
        for outcome in runs(traces(name, job_setting), [0, 37], job_setting, EverspotPolicy()):
            assert outcome.finished_at + GAP / timedelta(hours=1) <= job_setting.deadline_hours + 1e-6


@pytest.mark.parametrize("name", ["heavy-tailed", "markov", "diurnal", "droughts", "steady"])
@pytest.mark.parametrize("d", [0.02, 0.2])
def test_more_time_never_costs_more(name, d):
    """The mean over twelve starts, to 0.5 % of what the job costs on on-demand."""
    pool_traces = traces(name, setting(0.8, d), 900, seed=1)
    begins = starts(pool_traces, setting(0.6, d), 12, seed=1)
    costs = []
    for f in (0.95, 0.9, 0.8, 0.7, 0.6):
        outcomes = runs(pool_traces, begins, setting(f, d), EverspotPolicy())
        costs.append(float(np.mean([o.cost / o.undisturbed for o in outcomes])))
    for n, cost in enumerate(costs):
        assert all(later <= cost + 0.005 for later in costs[n:]), costs


def a_day(outcome: Outcome) -> float:
    return outcome.changeovers / (outcome.finished_at / 24)


@pytest.mark.parametrize("spell", [1, 2, 3, 6, 12])
def test_it_does_not_flap(spell):
    """With alternating spot capacity, at most two changeovers follow each return of spot. With changeovers of 12 min,
    there are at most 40 in a day, and at most a quarter more than under Uniform Progress.
    """
    trace = alternating(spell, spell)
    for f in (0.6, 0.8, 0.95):
        for d in (0.02, 0.2):
            job_setting = setting(f, d, job=36.0)
            outcome = run(trace, 0, job_setting, EverspotPolicy())
            comes = outcome.finished_at / (2 * spell / 6) + 1
            assert outcome.changeovers <= 2 * comes
            if d == 0.2:
                assert a_day(outcome) <= 40
                assert a_day(outcome) <= 1.25 * a_day(run(trace, 0, job_setting, UniformProgress())) + 1


def test_spot_that_is_over_before_a_changeover_is_given_up():
    """Ten minutes of spot, ten without: nothing comes of them with a changeover of 12 minutes, and little is lost."""
    trace = alternating(1, 1)
    for f in (0.6, 0.8, 0.9):
        job_setting = setting(f, 0.2, job=48.0)
        planned_run, greedy = run(trace, 0, job_setting, EverspotPolicy()), run(trace, 0, job_setting, Greedy())
        assert planned_run.spot_hours <= 6 * GAP.total_seconds() / 3600
        assert planned_run.saving >= greedy.saving
        assert planned_run.saving > -0.03


def test_where_spot_is_steady_it_is_all_spot_and_where_there_is_none_all_on_demand():
    job_setting = setting(0.8, 0.2)
    always, never = alternating(10, 0), alternating(0, 10)
    outcome = run(always, 0, job_setting, EverspotPolicy())
    assert (outcome.changeovers, outcome.on_demand_hours, outcome.idle_hours) == (1, 0, 0)
    outcome = run(never, 0, job_setting, EverspotPolicy())
    assert (outcome.changeovers, outcome.spot_hours) == (1, 0)


def test_it_never_waits_again_once_on_on_demand():
    for name in ("heavy-tailed", "droughts", "last-moment", "blinking"):
        job_setting = setting(0.8, 0.2)
        capacity = PoolCapacity.from_traces(traces(name, job_setting), job_setting)
        modes = [s.mode for s in steps(capacity, 0, job_setting, EverspotPolicy())]
        assert (Mode.ON_DEMAND, Mode.IDLE) not in set(pairwise(modes))


def test_one_run_knows_nothing_of_the_one_before():
    job_setting, policy = setting(0.8, 0.1), EverspotPolicy()
    pool_traces = traces("heavy-tailed", job_setting)
    fresh = [run(pool_traces, start, job_setting, EverspotPolicy()) for start in (0, 50, 0)]
    assert [run(pool_traces, start, job_setting, policy) for start in (0, 50, 0)] == fresh
    assert POLICIES["everspot"] == policy


def test_with_several_pools_it_goes_where_there_is_spot():
    """Two pools in turn, never both: it is on spot but for the changeovers."""
    turns = [alternating(36, 36), alternating(0, 36, 36, 0)]
    outcome = run(turns, 0, setting(0.8, 0.1), EverspotPolicy())
    assert outcome.on_demand_hours == 0
    assert outcome.changeovers <= 3


def test_what_is_refused_runs_on_demand_at_once():
    job_setting = Setting(job_hours=12, deadline_hours=12.1, changeover_hours=0.2, price_ratio=3.0)
    outcome = run(alternating(10, 0), 0, job_setting, EverspotPolicy())
    assert outcome.missed
    assert (outcome.changeovers, outcome.spot_hours) == (1, 0)


def test_a_plan_that_cannot_make_up_its_mind_is_found_out(monkeypatch):
    job_setting = setting(0.8, 0.2)

    def restless(view: ClusterView, now: datetime) -> list[Action]:
        return plan(replace(view, instances=()), now)

    monkeypatch.setattr(everspot_policy, "plan", restless)
    with pytest.raises(everspot_policy.Unforeseen, match="changing its mind"):
        run(alternating(10, 0), 0, job_setting, EverspotPolicy())


# Decisions


def decisions(monkeypatch: pytest.MonkeyPatch, name: str, f: float, d: float) -> Iterator[str]:
    """A line for each action that changes something, and for each new reason to hold or to stay."""
    job_setting, lines, begun = setting(f, d), list[str](), list[datetime]()

    def noting(view: ClusterView, now: datetime) -> list[Action]:
        actions = plan(view, now)
        begun.append(now)
        hours = (now - begun[0]) / timedelta(hours=1)
        for action in actions:
            line = f"{type(action).__name__.lower()} {action.cause.value}"
            quiet = isinstance(action, Hold | Stay)
            if not quiet or not lines or lines[-1].split(" ", 1)[1] != line:
                lines.append(f"{hours:.2f} {line}")
        return actions

    with monkeypatch.context() as patch:
        patch.setattr(everspot_policy, "plan", noting)
        outcome = run(traces(name, job_setting), 0, job_setting, EverspotPolicy())
    yield f"# {name}, f = {f}, d = {d} h: {outcome.cost / outcome.undisturbed:.3f} of on-demand's cost"
    yield from lines


def test_golden_replay_of_a_few_traces(monkeypatch):
    cases = [("heavy-tailed", 0.8, 0.2), ("diurnal", 0.6, 0.1), ("correlated", 0.9, 0.4), ("last-moment", 0.7, 0.2)]
    text = "\n".join(line for case in cases for line in decisions(monkeypatch, *case)) + "\n"
    if WRITE:
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
