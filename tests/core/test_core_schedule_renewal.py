"""The distribution of spells and the outcome of a turn-taking policy, against a brute-force simulation with a seeded
generator."""

import math

import numpy as np
import pytest
from everspot_core.schedule.market.lifetimes import DOWNS, EDGES, UPS, Lifetimes, Prior, learnt
from everspot_core.schedule.market.renewal import NEVER, RETURNS, WAITS, StrategyTable, strategies
from hypothesis import given, settings
from hypothesis import strategies as st

AGES = np.array([0.0, 0.03, 0.1, 0.5, 1.0, 2.5, 6.4, 20.0])
HEAVY = Lifetimes.from_hazard(1.0 / (np.append(EDGES[1:], 25.6) + EDGES + 0.2))
BRIEF = Lifetimes.from_hazard(np.full(len(EDGES), 1.5))
LONG = Lifetimes.from_hazard(np.full(len(EDGES), 0.1))
LAWS = [HEAVY, BRIEF, LONG]
spells = st.lists(st.floats(0.001, 200.0), max_size=20).map(tuple)
priors = st.sampled_from([UPS, DOWNS, Prior(level=2.0, offset=0.5, weight=1.5)])


def draw(law: Lifetimes, rng: np.random.Generator, count: int) -> np.ndarray:
    """Spells, bracket by bracket: in each, the end comes after an exponential time or else the next one begins."""
    lengths, alive = np.zeros(count), np.ones(count, dtype=bool)
    for hazard, width in zip(law.hazard, np.append(np.diff(EDGES), np.inf), strict=True):
        until = rng.exponential(1 / hazard, count)
        lengths[alive] += np.minimum(until, width)[alive]
        alive &= until > width
    return lengths


@pytest.mark.parametrize("law", LAWS)
def test_mean_survival_and_capped_mean_are_those_of_many_spells(law):
    """Within four standard errors of 200,000 spells."""
    drawn = draw(law, np.random.default_rng(1), 200_000)
    root = math.sqrt(len(drawn))
    assert law.mean == pytest.approx(drawn.mean(), abs=4 * drawn.std() / root)
    for age, survival, capped in zip(AGES, law.survival(AGES), law.capped(AGES), strict=True):
        part, cut = (drawn > age).mean(), np.minimum(drawn, age)
        assert survival == pytest.approx(part, abs=4 * math.sqrt(part * (1 - part)) / root + 1e-9)
        assert capped == pytest.approx(cut.mean(), abs=4 * cut.std() / root + 1e-9)


@pytest.mark.parametrize("law", LAWS)
def test_many_spells_teach_their_law_whatever_was_believed(law):
    drawn = tuple(draw(law, np.random.default_rng(2), 20_000).tolist())
    taught = learnt(UPS, drawn, 0.0)
    ends = np.histogram(drawn, np.append(EDGES, np.inf))[0]
    for n, count in enumerate(ends):
        if count > 100:
            assert taught.hazard[n] == pytest.approx(law.hazard[n], rel=4 / math.sqrt(count))
    assert taught.mean == pytest.approx(np.mean(drawn), rel=0.02)


@pytest.mark.parametrize("prior", [UPS, DOWNS])
def test_what_nobody_has_seen_is_as_believed(prior):
    assert learnt(prior, (), 0.0).hazard == pytest.approx(prior.hazards())


@given(prior=priors, ended=spells, running=st.floats(0.0, 300.0))
@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
def test_every_law_is_a_law(prior, ended, running):
    law = learnt(prior, ended, running)
    ages = np.sort(np.concatenate((AGES, EDGES, EDGES - 1e-9))).clip(0)
    survival, capped = law.survival(ages), law.capped(ages)
    assert (law.hazard > 0).all()
    assert np.isfinite(law.mean)
    assert survival[0] == 1
    assert (np.diff(survival) <= 1e-12).all()
    assert (np.diff(capped) >= -1e-12).all()
    assert (capped <= np.minimum(ages, law.mean) + 1e-9).all()


@given(prior=priors, ended=spells, running=st.floats(0.0, 100.0), more=st.floats(0.01, 100.0))
@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
def test_a_spell_that_goes_on_only_ever_raises_what_is_expected(prior, ended, running, more):
    before, after = learnt(prior, ended, running), learnt(prior, ended, running + more)
    assert (after.hazard <= before.hazard).all()
    assert after.mean >= before.mean


@given(prior=priors, ended=spells)
@settings(max_examples=settings.default.max_examples * 2 // 5, deadline=None)
def test_the_order_of_spells_is_of_no_consequence(prior, ended):
    assert learnt(prior, ended, 0.0).hazard == pytest.approx(learnt(prior, ended[::-1], 0.0).hazard)


def follow(outage, up, wait, back, *, on_demand, changeover) -> tuple[float, float]:
    """The two thresholds taken literally, spell after spell, spot at 1: pace, and dollars for an hour of progress.

    `late`: what remains of a changeover to on-demand; it goes on from one spell to the next.
    """
    usd = progress = late = 0.0
    on_demand_held = False
    for away, up_hours in zip(outage.tolist(), up.tolist(), strict=True):
        begins = 0.0 if on_demand_held else wait
        if on_demand_held or away > wait:
            late = late if on_demand_held else changeover
            stay = away - begins + min(up_hours, back)
            usd, progress, late = usd + on_demand * stay, progress + max(0.0, stay - late), max(0.0, late - stay)
            on_demand_held, spot_hours = up_hours <= back, max(0.0, up_hours - back)
        else:
            spot_hours = up_hours
        usd, progress = usd + spot_hours, progress + max(0.0, spot_hours - changeover)
    return progress / float(outage.sum() + up.sum()), usd / progress


@pytest.mark.parametrize("changeover", [0.02, 0.2])
@pytest.mark.parametrize(("outage", "up"), [(HEAVY, HEAVY), (BRIEF, LONG), (LONG, BRIEF)])
def test_what_comes_of_a_way_is_what_comes_of_following_it(outage, up, changeover):
    """Within 2 % over 25,000 spells of each kind: a changeover to on-demand counts as a whole one even where spot cuts
    it short. A policy that never returns stays on on-demand.
    """
    rng = np.random.default_rng(3)
    away, up_hours = draw(outage, rng, 25_000), draw(up, rng, 25_000)
    table = strategies(outage, up, spot=1.0, on_demand=3.0, changeover=changeover)
    for w in range(0, len(WAITS), 2):
        for b in range(0, len(RETURNS), 2):
            wait, back = float(WAITS[w]), float(RETURNS[b])
            if back >= NEVER:
                continue
            pace, usd = follow(away, up_hours, wait, back, on_demand=3.0, changeover=changeover)
            assert table.pace[w, b] == pytest.approx(pace, rel=0.02), (wait, back)
            assert table.usd[w, b] == pytest.approx(usd, rel=0.02), (wait, back)


def test_on_demand_for_ever_makes_all_the_pace_at_its_price():
    table = strategies(HEAVY, HEAVY, spot=1.0, on_demand=3.0, changeover=0.2)
    always = list(WAITS).index(0.0), list(RETURNS).index(NEVER)
    assert table.pace[always] == pytest.approx(1.0)
    assert table.usd[always] == pytest.approx(3.0)


def test_waiting_for_ever_never_pays_on_demand():
    table = strategies(HEAVY, LONG, spot=1.0, on_demand=3.0, changeover=0.2)
    for usd, pace in zip(table.usd[-1], table.pace[-1], strict=True):
        assert usd == pytest.approx(LONG.mean / (pace * (HEAVY.mean + LONG.mean)))


@given(
    downs=spells,
    ups=spells,
    dear=st.floats(1.1, 20.0),
    changeover=st.floats(0.0, 2.0),
    pace=st.just(0.0) | st.floats(1e-6, 2.0),
)
@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
def test_no_way_is_both_faster_and_cheaper_than_the_best(downs, ups, dear, changeover, pace):
    table: StrategyTable = strategies(
        learnt(DOWNS, downs, 0.0), learnt(UPS, ups, 0.0), spot=1.0, on_demand=dear, changeover=changeover
    )
    best = table.best(pace)
    better = (table.pace > best.pace + 1e-9) & (table.usd < best.usd - 1e-9)
    assert not better.any()
    assert best.usd < math.inf


def test_who_has_time_takes_the_cheapest_way():
    table = strategies(HEAVY, HEAVY, spot=1.0, on_demand=3.0, changeover=0.2)
    assert table.best(0.0).usd == table.usd.min()


def test_a_way_that_brings_no_progress_is_never_taken():
    """Spells of a minute, a changeover of half an hour: spot is good for nothing."""
    flicker = Lifetimes.from_hazard(np.full(len(EDGES), 60.0))
    table = strategies(BRIEF, flicker, spot=1.0, on_demand=3.0, changeover=0.5)
    assert table.usd[-1, 0] > 1e3
    assert table.best(0.9).pace > 0.9
