"""The market policy: whether a job with a deadline should hold spot, on-demand, or nothing for now.

There are two rules. Safety: the policy never does anything that would, in the worst case, leave too little time for
on-demand to finish the job. In the worst case spot goes immediately, and the changeover and the work take as long as
they may. Thrift: as long as it is safe, the policy alternates between the markets by the cheapest strategy that keeps
the pace (see `renewal`), judged by how spot has come and gone so far. So it is greedy where spot is steady and cautious
where it is not, without any setting.
"""

from dataclasses import dataclass, field
from math import inf, sqrt

from everspot_core.jobs.records import Market
from everspot_core.schedule.actions import ReasonFigures, Why
from everspot_core.schedule.market.lifetimes import DOWNS, UPS, learnt
from everspot_core.schedule.market.renewal import Strategy, StrategyTable, strategies

RESERVE_CHANGEOVERS, RESERVE_LUCK = 1.2, 0.35
"""The slack that is set aside: factors on the upper bound of a changeover, and on sqrt(time left x changeover). See
docs/internals/scheduling.md."""
WORTH_RETURNING = 2.1
"""A return to spot pays only if more work is left than this many changeovers."""
SHORT_SPELLS_BEFORE_DISTRUST = 4
"""After this many spot spells in a row that were shorter than a changeover, a new spell counts only once it is longer
than a changeover."""
EPSILON = 1e-9
"""Hours that count as nothing: less is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The remaining need of a job, in hours. Work is at the speed of the fastest on-demand type that the job can have.

    `changeover` includes launch, set-up and lost progress. `changeover_upper` also includes a tick, because an instance
    that gets ready between two decisions is used from the second one on. `tick` is the longest time until the next
    decision.
    """

    time: float
    remaining: float
    remaining_upper: float
    changeover: float
    changeover_upper: float
    tick: float

    @property
    def slack(self) -> float:
        """The time to the deadline beyond the work, if the work is as much as it may be."""
        return self.time - self.remaining_upper

    @property
    def mean_pace(self) -> float:
        """The progress that the job must make in each remaining hour, on average, so that some slack stays in
        reserve."""
        reserve = RESERVE_CHANGEOVERS * self.changeover_upper
        reserve += RESERVE_LUCK * sqrt(max(0.0, self.time) * self.changeover)
        usable = self.remaining + self.slack - reserve
        return self.remaining / usable if usable > 0 else inf

    @property
    def pace(self) -> float:
        """The pace that the job keeps now.

        It is the square of `mean_pace` while that is below 1, which is lower while there is plenty of slack: a wait
        that was too long can be made up for, and needless on-demand hours cannot be undone.
        """
        mean_pace = self.mean_pace
        return mean_pace * min(mean_pace, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCapacity:
    """The capacity that the job holds. `changing`: hours that its changeover may still take. `speed`: relative to the
    speed of `Need`."""

    market: Market
    changing: float = 0.0
    speed: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Spot for this job now, and its past behaviour.

    `ups` and `downs` are the hours of ended spells with and without spot, `age` the hours of the present spell. `usd`
    and `on_demand_usd` are dollars for an hour of work at the speed of `Need`.
    """

    up: bool
    age: float
    ups: tuple[float, ...]
    downs: tuple[float, ...]
    usd: float
    on_demand_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketChoice:
    """The market to hold until the next decision. `market` None: nothing. `final`: no later decision will differ."""

    market: Market | None
    cause: Why
    figures: ReasonFigures = field(default_factory=dict)
    final: bool = False


def choose_market(need: Need, current: HeldCapacity | None, spot: Spot | None) -> MarketChoice:
    """Return the market that the job should hold now. `current`: None if it holds nothing. `spot`: None if no spot pool
    can hold it."""
    if current is not None and current.market is Market.SPOT:
        if _may_stay(need, current):
            return MarketChoice(market=Market.SPOT, cause=Why.RUNS_WELL, figures={"market": Market.SPOT.value})
        return last_moment(need)
    safe = is_safe(need)
    if current is not None:
        if spot is None or not safe or not spot.up:
            for_good = not safe and need.remaining_upper <= need.remaining
            figures: ReasonFigures = {"market": Market.ON_DEMAND.value}
            return MarketChoice(market=Market.ON_DEMAND, cause=Why.RUNS_WELL, figures=figures, final=for_good)
        return _returning(need, spot, best_strategy(need, spot))
    if not safe:
        return last_moment(need)
    if spot is None:
        return MarketChoice(market=Market.ON_DEMAND, cause=Why.NO_SPOT)
    if spot.up and _believable(need, spot):
        return MarketChoice(market=Market.SPOT, cause=Why.SPOT_AVAILABLE)
    if spot.up:
        figures = {"up_hours": spot.age, "needed_hours": need.changeover}
        return MarketChoice(market=None, cause=Why.SHORT_SPELLS, figures=figures)
    return _waiting(need, spot, best_strategy(need, spot))


def is_safe(need: Need) -> bool:
    """Return whether there is time for spot: on-demand is still in time if everything that begins now is lost."""
    return to_spare(need) >= -EPSILON


def to_spare(need: Need) -> float:
    """Return the hours that a job without an instance can go on waiting. After them it must go on-demand.

    They leave time for the next decision and for a changeover to spot, since a changeover that must be broken off is
    paid for nothing.
    """
    return need.slack - max(need.tick, need.changeover) - need.changeover_upper


def best_strategy(need: Need, spot: Spot) -> Strategy:
    """Return the cheapest way that keeps the pace of this job.

    The present outage does not count; its age is compared with the time that is worth waiting. If it counted, a single
    long outage would make all later ones look as long, and the job would go on-demand too soon.
    """
    return strategy_table(need, spot).best(need.pace)


def strategy_table(need: Need, spot: Spot) -> StrategyTable:
    """Return all strategies for this job, by how spot has behaved. The present outage does not count."""
    up = learnt(UPS, spot.ups, spot.age if spot.up else 0.0)
    outage = learnt(DOWNS, spot.downs, 0.0)
    return strategies(outage, up, spot=spot.usd, on_demand=spot.on_demand_usd, changeover=need.changeover)


def _may_stay(need: Need, current: HeldCapacity) -> bool:
    """Return whether on-demand is still in time if spot is lost at the next decision. Until then the job makes
    progress."""
    progress = current.speed * max(0.0, need.tick - current.changing)
    return need.slack - need.tick + progress >= need.changeover_upper - EPSILON


def _believable(need: Need, spot: Spot) -> bool:
    """Return whether the present spell may be expected to outlast a changeover."""
    last = spot.ups[-SHORT_SPELLS_BEFORE_DISTRUST:]
    blinks = len(last) == SHORT_SPELLS_BEFORE_DISTRUST and max(last) < need.changeover
    return not blinks or spot.age >= need.changeover


def _waiting(need: Need, spot: Spot, strategy: Strategy) -> MarketChoice:
    if spot.age < strategy.wait:
        return MarketChoice(market=None, cause=Why.WAIT_FOR_SPOT, figures={"slack_hours": need.slack})
    figures: ReasonFigures = {"slack_hours": need.slack, "down_hours": spot.age}
    return MarketChoice(market=Market.ON_DEMAND, cause=Why.ON_DEMAND_PAYS, figures=figures)


def _returning(need: Need, spot: Spot, strategy: Strategy) -> MarketChoice:
    figures: ReasonFigures = {"up_hours": spot.age, "needed_hours": strategy.back}
    if spot.age >= strategy.back and _believable(need, spot) and need.remaining > WORTH_RETURNING * need.changeover:
        return MarketChoice(market=Market.SPOT, cause=Why.BACK_TO_SPOT, figures=figures)
    return MarketChoice(market=Market.ON_DEMAND, cause=Why.STAY_ON_DEMAND, figures=figures)


def last_moment(need: Need) -> MarketChoice:
    """Return the choice of on-demand because there is no time for anything else."""
    figures: ReasonFigures = {
        "left_hours": need.remaining_upper,
        "time_hours": need.time,
        "changeover_hours": need.changeover_upper,
    }
    # On-demand makes an hour of progress in an hour: slack that does not suffice now never will, if the work is known.
    for_good = need.remaining_upper <= need.remaining
    return MarketChoice(market=Market.ON_DEMAND, cause=Why.LAST_SAFE_MOMENT, figures=figures, final=for_good)
