"""One job against adversarial spot capacity: a feasible deadline is always met."""

from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from everspot_core.jobs.records import Market
from everspot_core.schedule import Outlook
from everspot_core.schedule.jobs import HOUR
from everspot_core.schedule.market.lifetimes import learnt
from everspot_core.schedule.market.offers import build_need
from everspot_core.schedule.market.policy import HeldCapacity, Need, Spot, choose_market, is_safe
from everspot_core.schedule.market.renewal import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """A job as it really is, within what is declared of it; all in hours. `slack`: beyond the work and a changeover."""

    tick: float
    upper: float
    part: float
    """The actual work, as a fraction of its upper bound."""
    expected: float
    """The expected work, as a fraction of its upper bound."""
    changeover_upper: float
    hoped: float
    """The expected changeover, as a fraction of its upper bound."""
    changeover_parts: tuple[float, ...]
    """Parts of the upper bound that changeovers really take, in turn."""
    slack: float
    speed: float
    """Of spot."""
    whole: bool
    """Changeovers end with a tick: each takes whole ticks, rounded up."""
    tempting: bool
    """Spot appears only at the last moment when it may still be used, which is the first moment."""


def cases() -> st.SearchStrategy[Case]:
    tick = st.sampled_from([1 / 120, 1 / 60, 1 / 6, 0.5, 1.0]) | st.floats(1 / 120, 1.0)
    whole = st.just(1.0)

    def cases_at_tick(t: float) -> st.SearchStrategy[Case]:
        return st.builds(
            Case,
            tick=st.just(t),
            upper=st.floats(0.5, 40.0).map(lambda n: n * t),
            part=whole | whole | whole | st.floats(0.3, 1.0),
            expected=whole | st.floats(0.3, 1.0),
            changeover_upper=st.floats(0.0, 6.0).map(lambda n: n * t),
            hoped=whole | st.floats(0.0, 1.0),
            changeover_parts=whole.map(lambda part: (part,))
            | st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4).map(tuple),
            slack=st.just(0.0) | st.floats(0.0, 40.0).map(lambda n: n * t),
            speed=whole | st.floats(0.2, 1.0) | st.floats(0.2, 2.0),
            whole=st.booleans(),
            tempting=st.booleans(),
        )

    return tick.flatmap(cases_at_tick)


class Run:
    """A job at the mercy of an adversary, tick by tick. `finished`: hours from its submission.

    The need comes from `build_need`, as in a plan: there a changeover may take a tick longer than declared.
    """

    def __init__(self, case: Case, taken_after: list[int], away_for: list[int]) -> None:
        self.case, self.taken_after, self.away_for = case, taken_after, away_for
        least = max(case.tick, case.changeover_upper * case.hoped)
        slack = least + case.slack % case.tick if case.tempting else case.slack
        self.time = case.upper + case.changeover_upper + case.tick + slack
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
            remaining = (total - self.done) / (self.case.speed if self.mode is Market.SPOT else 1.0)
            if self.mode is not None and self.changing + remaining <= self.case.tick + 1e-12:
                return self.now + self.changing + remaining
            self._pass()
        raise AssertionError("it never finishes")

    def _market(self) -> None:
        """Spot goes after so many ticks on it, or while nobody is on it at the adversary's pleasure."""
        if self.mode is Market.SPOT and self.held_for >= self._cycle(self.taken_after):
            self.mode, self.away = None, self._cycle(self.away_for)
            self.losses += 1
            self.ups, self.since = [*self.ups, self.now - self.since][-20:], self.now
        elif self.mode is not Market.SPOT and self.case.tempting:
            self.away = int(not (is_safe(self._need()) and not is_safe(self._need(self.case.tick))))
        elif self.mode is not Market.SPOT and self.away > 0:
            self.away -= 1
            if self.away == 0:
                self.downs, self.since = [*self.downs, self.now - self.since][-20:], self.now

    def _cycle(self, choices: list[int]) -> int:
        return choices[self.losses % len(choices)]

    def _choose(self) -> None:
        case, was, job_need = self.case, self.mode, self._need()
        current = None
        if was is not None:
            market = Market.SPOT if was is Market.SPOT else Market.ON_DEMAND
            speed = case.speed if was is Market.SPOT else 1.0
            current = HeldCapacity(market=market, changing=self.bound if self.changing > 0 else 0.0, speed=speed)
        here = Spot(
            up=self.away == 0,
            age=self.now - self.since,
            ups=tuple(self.ups),
            downs=tuple(self.downs),
            usd=1 / case.speed,
            on_demand_usd=3.0,
        )
        self.mode = choose_market(job_need, current, here).market
        assert self.mode is not Market.SPOT or self.away == 0
        assert not (was is Market.ON_DEMAND and self.mode is None)
        self.modes.append(self.mode)
        self.held_for = self.held_for + 1 if self.mode is was else 1
        if self.mode is not was and self.mode is not None:
            self.bound = case.changeover_upper
            self.changing = self.bound * case.changeover_parts[self.entries % len(case.changeover_parts)]
            if case.whole:
                self.changing = ceil(self.changing / case.tick - 1e-9) * case.tick
                self.bound = max(self.bound, self.changing)
            self.entries += 1

    def _need(self, later: float = 0.0) -> Need:
        case = self.case
        work = Outlook(
            remaining=max(0.0, case.upper * case.expected - self.done) * HOUR,
            remaining_upper=(case.upper - self.done) * HOUR,
            changeover=case.changeover_upper * case.hoped * HOUR,
            changeover_upper=case.changeover_upper * HOUR,
            changing=0 * HOUR,
        )
        deadline = BEGIN + self.time * HOUR
        return build_need(work, deadline, case.tick * HOUR, BEGIN + (self.now + later) * HOUR)

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
    strategies.cache_clear()
    again.finish()
    assert first.modes == again.modes
