"""One job's course: a table per rule, and that no adversary makes it miss a deadline that was feasible."""

from dataclasses import dataclass, replace

import pytest
from everspot_core.records import Market
from everspot_core.schedule import Stay, Why, say
from everspot_core.schedule.market.lifetimes import learnt
from everspot_core.schedule.market.policy import (
    DISBELIEF,
    Held,
    MarketChoice,
    Need,
    Spot,
    best_way,
    choose_market,
    is_safe,
)
from everspot_core.schedule.market.renewal import ways
from hypothesis import given, settings
from hypothesis import strategies as st

ON_DEMAND = Held(market=Market.ON_DEMAND)
ON_SPOT = Held(market=Market.SPOT)


def need(time=30.0, left=10.0, upper=None, changeover=0.2, changeover_upper=None, tick=0.1) -> Need:
    """Hours. Bounds: as expected, if nothing is said."""
    return Need(
        time=time,
        left=left,
        left_upper=left if upper is None else upper,
        changeover=changeover,
        changeover_upper=changeover if changeover_upper is None else changeover_upper,
        tick=tick,
    )


def spot(up=True, age=0.0, ups=(4.0,) * 6, downs=(1.0,) * 6, usd=1.0, on_demand_usd=3.0) -> Spot:
    return Spot(up=up, age=age, ups=ups, downs=downs, usd=usd, on_demand_usd=on_demand_usd)


HERE, AWAY = spot(), spot(up=False)
STEADY = spot(age=200.0, ups=(50.0,) * 12, downs=(0.05,) * 12)
SCARCE = spot(age=0.01, ups=(0.05,) * 30, downs=(5.0,) * 30)
GONE = spot(up=False, age=15.0, ups=(1.0,) * 20, downs=(20.0,) * 20)
SAFE = need(time=10.4)
"""Exactly two changeovers more than the work: one to spot, that comes to nothing, and one to on-demand."""
LATE = need(time=10.4 - 1e-6)
TIGHT = need(time=100.0, left=92.0)
BLINKS = (0.1,) * DISBELIEF


@pytest.mark.parametrize(
    ("what", "held", "market", "mode", "why"),
    [
        (need(), None, HERE, Market.SPOT, Why.SPOT_AVAILABLE),
        (need(), None, AWAY, None, Why.WAIT_FOR_SPOT),
        (need(), None, None, Market.ON_DEMAND, Why.NO_SPOT),
        (TIGHT, None, GONE, Market.ON_DEMAND, Why.ON_DEMAND_PAYS),
        # Spot that blinks is believed once it has outlasted a changeover, as any one of the last few spells did.
        (need(), None, spot(age=0.19, ups=BLINKS), None, Why.SHORT_SPELLS),
        (need(), None, spot(age=0.2, ups=BLINKS), Market.SPOT, Why.SPOT_AVAILABLE),
        (need(), None, spot(age=0.0, ups=BLINKS[1:]), Market.SPOT, Why.SPOT_AVAILABLE),
        (need(), None, spot(age=0.0, ups=(*BLINKS[1:], 0.2)), Market.SPOT, Why.SPOT_AVAILABLE),
        (need(), ON_SPOT, spot(age=0.1, ups=BLINKS), Market.SPOT, Why.RUNS_WELL),
        (need(changeover=0.0, tick=0.01), None, spot(age=0.0, ups=BLINKS), Market.SPOT, Why.SPOT_AVAILABLE),
        (SAFE, None, HERE, Market.SPOT, Why.SPOT_AVAILABLE),
        (LATE, None, HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (LATE, None, AWAY, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (need(time=-1.0), None, HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (need(time=10.2), ON_SPOT, HERE, Market.SPOT, Why.RUNS_WELL),
        (need(time=10.2 - 1e-6), ON_SPOT, HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        # In its changeover it makes no progress until the next tick, or less.
        (need(time=10.3), replace(ON_SPOT, changing=0.1), HERE, Market.SPOT, Why.RUNS_WELL),
        (need(time=10.3 - 1e-6), replace(ON_SPOT, changing=0.1), HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (need(time=10.25), replace(ON_SPOT, changing=0.05), HERE, Market.SPOT, Why.RUNS_WELL),
        (need(time=10.25), replace(ON_SPOT, changing=0.06), HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        # On a slow type it makes less than on-demand would.
        (need(time=10.25), replace(ON_SPOT, speed=0.5), HERE, Market.SPOT, Why.RUNS_WELL),
        (need(time=10.25), replace(ON_SPOT, speed=0.4), HERE, Market.ON_DEMAND, Why.LAST_SAFE_MOMENT),
        (need(), ON_DEMAND, STEADY, Market.SPOT, Why.BACK_TO_SPOT),
        (TIGHT, ON_DEMAND, SCARCE, Market.ON_DEMAND, Why.STAY_ON_DEMAND),
        (need(left=0.05), ON_DEMAND, STEADY, Market.ON_DEMAND, Why.STAY_ON_DEMAND),
        (need(), ON_DEMAND, AWAY, Market.ON_DEMAND, Why.RUNS_WELL),
        (need(), ON_DEMAND, None, Market.ON_DEMAND, Why.RUNS_WELL),
        (LATE, ON_DEMAND, STEADY, Market.ON_DEMAND, Why.RUNS_WELL),
        (SAFE, ON_DEMAND, STEADY, Market.SPOT, None),
    ],
)
def test_what_it_holds_and_why(what, held, market, mode, why):
    to = choose_market(what, held, market)
    if why is None:  # whether it pays to go back with so little to spare is not a matter of safety
        assert to.why in (Why.BACK_TO_SPOT, Why.STAY_ON_DEMAND)
    else:
        assert (to.market, to.why) == (mode, why)
    words = say(Stay(job_id="j", instance_id="i", why=to.why, figures=to.figures))
    assert "{" not in words
    assert "}" not in words


def test_upper_bounds_and_not_expectations_decide_what_is_safe():
    assert is_safe(need(time=10.4))
    assert not is_safe(need(time=10.4, upper=10.01))
    assert not is_safe(need(time=10.4, changeover_upper=0.21))
    assert is_safe(need(time=10.4, left=0.0, upper=10.0, changeover=0.0, changeover_upper=0.2))


def test_time_for_spot_is_time_until_the_next_decision_and_time_for_a_changeover():
    assert is_safe(need(time=10.4, tick=0.2))
    assert not is_safe(need(time=10.4, tick=0.21))
    assert is_safe(need(time=10.3, tick=0.1, changeover=0.1, changeover_upper=0.2))
    assert not is_safe(need(time=10.3, tick=0.1, changeover=0.11, changeover_upper=0.2))


def test_it_waits_up_to_the_threshold_of_the_best_way_and_no_longer():
    what = need(time=40.0, left=36.0)
    wait = best_way(what, AWAY).wait
    for age, mode in ((wait - 1e-6, None), (wait, Market.ON_DEMAND), (wait + 1.0, Market.ON_DEMAND)):
        if age >= 0:
            assert choose_market(what, None, replace(AWAY, age=age)).market is mode


def test_it_goes_back_from_the_threshold_of_the_best_way_on():
    what = need(time=40.0, left=30.0)
    for age in (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0, 10.0):
        here = replace(HERE, age=age)
        assert (choose_market(what, ON_DEMAND, here).market is Market.SPOT) == (age >= best_way(what, here).back)


def test_more_slack_never_turns_waiting_into_on_demand():
    """On the same spot, with all lengths of the outage."""
    for age in (0.0, 0.2, 1.0, 4.0):
        waits = [
            choose_market(need(time=10.4 + slack), None, replace(AWAY, age=age)).market is None
            for slack in (0.0, 0.5, 1.0, 2.0, 5.0, 20.0, 80.0)
        ]
        enough = waits.index(True) if True in waits else len(waits)
        assert all(waits[max(enough, 2) :])


def test_it_is_final_only_where_the_work_is_known_and_nothing_else_can_follow():
    assert choose_market(LATE, None, HERE).final
    assert choose_market(LATE, ON_DEMAND, HERE).final
    assert not choose_market(replace(LATE, left=9.0), None, HERE).final
    assert not choose_market(SAFE, None, GONE).final


# An adversary


@dataclass(frozen=True)
class Case:
    """A job as it really is, within what is declared of it; all in hours. `slack`: beyond the work and a changeover."""

    tick: float
    upper: float
    part: float
    """Of the upper bound of the work that there really is."""
    expected: float
    """Of the upper bound of the work that is expected."""
    changeover_upper: float
    hoped: float
    """Of the upper bound of a changeover that is expected."""
    takes: tuple[float, ...]
    """Parts of the upper bound that changeovers really take, in turn."""
    slack: float
    speed: float
    """Of spot."""
    tempting: bool
    """Spot shows up only at the last moment at which it may still be taken, and that is at once."""


def cases() -> st.SearchStrategy[Case]:
    tick = st.sampled_from([1 / 120, 1 / 60, 1 / 6, 0.5, 1.0]) | st.floats(1 / 120, 1.0)
    whole = st.just(1.0)

    def of(t: float) -> st.SearchStrategy[Case]:
        return st.builds(
            Case,
            tick=st.just(t),
            upper=st.floats(0.5, 40.0).map(lambda n: n * t),
            part=whole | whole | whole | st.floats(0.3, 1.0),
            expected=whole | st.floats(0.3, 1.0),
            changeover_upper=st.floats(0.0, 6.0).map(lambda n: n * t),
            hoped=whole | st.floats(0.0, 1.0),
            takes=whole.map(lambda one: (one,)) | st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4).map(tuple),
            slack=st.just(0.0) | st.floats(0.0, 40.0).map(lambda n: n * t),
            speed=whole | st.floats(0.2, 1.0) | st.floats(0.2, 2.0),
            tempting=st.booleans(),
        )

    return tick.flatmap(of)


class Run:
    """A job at the mercy of an adversary, tick by tick. `finished`: hours from its submission."""

    def __init__(self, case: Case, taken_after: list[int], away_for: list[int]) -> None:
        self.case, self.taken_after, self.away_for = case, taken_after, away_for
        least = max(case.tick, case.changeover_upper * case.hoped)
        slack = least + case.slack % case.tick if case.tempting else case.slack
        self.time = case.upper + case.changeover_upper + slack
        self.ups, self.downs = list[float](), list[float]()
        self.now = self.done = self.changing = self.bound = 0.0
        self.entries = self.losses = self.held_for = self.away = 0
        self.mode, self.since = None, 0.0
        self.modes: list[Market | None] = []

    def finish(self) -> float:
        total = self.case.upper * self.case.part
        for _ in range(2000):
            self._market()
            self._choose()
            left = (total - self.done) / (self.case.speed if self.mode is Market.SPOT else 1.0)
            if self.mode is not None and self.changing + left <= self.case.tick + 1e-12:
                return self.now + self.changing + left
            self._pass()
        raise AssertionError("it never finishes")

    def _market(self) -> None:
        """Spot goes after so many ticks on it, or while nobody is on it at the adversary's pleasure."""
        if self.mode is Market.SPOT and self.held_for >= self._of(self.taken_after):
            self.mode, self.away = None, self._of(self.away_for)
            self.losses += 1
            self.ups, self.since = [*self.ups, self.now - self.since][-20:], self.now
        elif self.mode is not Market.SPOT and self.case.tempting:
            self.away = int(not (is_safe(self._need()) and not is_safe(self._need(self.case.tick))))
        elif self.mode is not Market.SPOT and self.away > 0:
            self.away -= 1
            if self.away == 0:
                self.downs, self.since = [*self.downs, self.now - self.since][-20:], self.now

    def _of(self, choices: list[int]) -> int:
        return choices[self.losses % len(choices)]

    def _choose(self) -> None:
        case, was, what = self.case, self.mode, self._need()
        held = None
        if was is not None:
            market = Market.SPOT if was is Market.SPOT else Market.ON_DEMAND
            speed = case.speed if was is Market.SPOT else 1.0
            held = Held(market=market, changing=self.bound if self.changing > 0 else 0.0, speed=speed)
        here = Spot(
            up=self.away == 0,
            age=self.now - self.since,
            ups=tuple(self.ups),
            downs=tuple(self.downs),
            usd=1 / case.speed,
            on_demand_usd=3.0,
        )
        self.mode = choose_market(what, held, here).market
        assert self.mode is not Market.SPOT or self.away == 0
        assert not (was is Market.ON_DEMAND and self.mode is None)
        self.modes.append(self.mode)
        self.held_for = self.held_for + 1 if self.mode is was else 1
        if self.mode is not was and self.mode is not None:
            self.bound = case.changeover_upper
            self.changing = self.bound * case.takes[self.entries % len(case.takes)]
            self.entries += 1

    def _need(self, later: float = 0.0) -> Need:
        case = self.case
        return Need(
            time=self.time - self.now - later,
            left=max(0.0, case.upper * case.expected - self.done),
            left_upper=case.upper - self.done,
            changeover=case.changeover_upper * case.hoped,
            changeover_upper=case.changeover_upper,
            tick=case.tick,
        )

    def _pass(self) -> None:
        tick = self.case.tick
        if self.mode is not None:
            worked = max(0.0, tick - self.changing) * (self.case.speed if self.mode is Market.SPOT else 1.0)
            self.done += worked
            self.changing, self.bound = max(0.0, self.changing - tick), max(0.0, self.bound - tick)
        self.now += tick


ADVERSARY = {
    "case": cases(),
    "taken_after": st.just([10_000]) | st.lists(st.integers(1, 12), min_size=1, max_size=8),
    "away_for": st.just([10_000]) | st.lists(st.integers(1, 12), min_size=1, max_size=8),
}


@given(**ADVERSARY)
@settings(max_examples=settings.default.max_examples * 3, deadline=None)
def test_whatever_spot_does_a_feasible_deadline_is_met(case, taken_after, away_for):
    run = Run(case, taken_after, away_for)
    assert run.finish() <= run.time + 1e-6


@given(**ADVERSARY)
@settings(max_examples=settings.default.max_examples * 3 // 20, deadline=None)
def test_the_same_is_decided_twice_and_with_nothing_remembered(case, taken_after, away_for):
    first, again = Run(case, taken_after, away_for), Run(case, taken_after, away_for)
    first.finish()
    learnt.cache_clear()
    ways.cache_clear()
    again.finish()
    assert first.modes == again.modes


@given(
    time=st.floats(-5.0, 200.0),
    left=st.just(0.0) | st.floats(1e-6, 50.0),
    more=st.floats(0.0, 20.0),
    changeover=st.floats(0.0, 1.0),
    tick=st.floats(0.001, 1.0),
    held=st.sampled_from([None, ON_DEMAND, ON_SPOT, replace(ON_SPOT, changing=0.1, speed=0.7)]),
    market=st.sampled_from([None, HERE, AWAY, STEADY, SCARCE, GONE]),
)
@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
def test_every_course_can_be_followed_and_put_into_words(time, left, more, changeover, tick, held, market):
    what = need(time, left, left + more, changeover, changeover * 1.5, tick)
    to = choose_market(what, held, market)
    assert isinstance(to, MarketChoice)
    assert to == choose_market(what, held, market)
    if to.market is Market.SPOT and (held is None or held.market is Market.ON_DEMAND):
        assert market is not None
        assert market.up
        assert is_safe(what)
    if to.market is None:
        assert held is None
        assert is_safe(what)
    words = say(Stay(job_id="j", instance_id="i", why=to.why, figures=to.figures))
    assert "{" not in words
    assert "}" not in words
