"""Moves of one job between regions: their price and time, the optimum over them, and the policy `everspot`."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from everspot_core.validation.problems import BadInputs
from everspot_simulator import (
    EverspotPolicy,
    Mode,
    Outcome,
    PoolCapacity,
    Regions,
    Schedule,
    Setting,
    Trace,
    best,
    optimum,
    run,
    runs,
    starts,
    steps,
)
from everspot_simulator.synthetic import correlated, with_prices
from hypothesis import given, settings
from hypothesis import strategies as st

GIGABYTES = 100.0
"""Half an hour of copying."""


def hourly(spots: str) -> Trace:
    return Trace(name=spots, gap=timedelta(hours=1), available=np.array([int(c == "1") for c in spots]))


def regions(pools: int = 2, *, ratios: tuple[float, ...] = (3.0, 3.0), usd: float = 0.02) -> Regions:
    """Two regions that have the pools in turn."""
    return Regions(
        names=("east", "west"),
        pools=tuple(n % 2 for n in range(pools)),
        price_ratios=ratios,
        checkpoint_gb=GIGABYTES,
        egress_usd=(usd, usd),
    )


def make_setting(job: float, deadline: float, changeover: float = 0.5) -> Setting:
    return Setting(job_hours=job, deadline_hours=deadline, changeover_hours=changeover, price_ratio=3.0)


# pools of the two regions, (job, deadline), ratios of on-demand, egress $/GB: cost. A move takes an hour here.
TABLE = [
    # An hour on the way and 2 dollars, then 4.5 h of spot; on-demand would cost 13.5.
    (("......", ".11111"), (4, 6), (3.0, 3.0), 0.02, 2 + 4.5),
    # The bytes cost more than on-demand.
    (("......", ".11111"), (4, 6), (3.0, 3.0), 0.1, 13.5),
    # There is no time for the way.
    (("......", ".11111"), (4, 5), (3.0, 3.0), 0.02, 13.5),
    # On-demand is cheaper there.
    (("......", "......"), (4, 6), (3.0, 2.0), 0.02, 2 + 9),
    # Spot at home: nothing moves.
    (("111111", "111111"), (4, 6), (3.0, 1.5), 0.0, 4.5),
]


@pytest.mark.parametrize(("spots", "hours", "ratios", "usd", "cost"), TABLE)
def test_what_the_optimum_over_regions_costs(spots, hours, ratios, usd, cost):
    outcome = optimum([hourly(s) for s in spots], 0, make_setting(*hours), regions(ratios=ratios, usd=usd))
    assert outcome.cost == pytest.approx(cost) and not outcome.missed


def every_schedule(
    traces: list[Trace], setting: Setting, where: Regions, done: tuple[int | None, ...] = (), region: int = 0,
    moves: dict[int, int] | None = None,
) -> Iterator[Schedule]:  # fmt: skip
    """Yield all sequences of holdings and moves over the ticks until the deadline."""
    moves = moves or {}
    if len(done) >= setting.deadline_hours:
        yield Schedule(done, moves)
        return
    tick = len(done)
    holdings: list[int | None] = [None, -1]
    holdings += [n for n, t in enumerate(traces) if where.pools[n] == region and tick < len(t) and t.up()[tick]]
    for holding in holdings:
        yield from every_schedule(traces, setting, where, (*done, holding), region, moves)
    away = (None,) * where.move_ticks(3600)
    yield from every_schedule(traces, setting, where, (*done, *away), 1 - region, {**moves, tick: 1 - region})


@st.composite
def tiny_worlds(draw):
    ticks, pools = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    traces = [hourly(draw(st.text("01", min_size=ticks, max_size=ticks))) for _ in range(pools)]
    ratios = draw(st.tuples(st.sampled_from([1.5, 3.0]), st.sampled_from([1.2, 3.0])))
    setting = make_setting(
        draw(st.sampled_from([0.5, 1, 1.75, 2.25])), ticks, draw(st.sampled_from([0, 0.25, 1, 1.25]))
    )
    return traces, setting, regions(pools, ratios=ratios, usd=draw(st.sampled_from([0.0, 0.003, 0.02])))


@given(world=tiny_worlds())
@settings(max_examples=settings.default.max_examples // 2, deadline=None)
def test_no_schedule_over_regions_is_cheaper(world):
    traces, setting, where = world
    outcome, others = optimum(traces, 0, setting, where), list[Outcome]()
    for schedule in every_schedule(traces, setting, where):
        try:
            others.append(run(traces, 0, setting, schedule, where))
        except ValueError:  # it ends idle, with work to do
            continue
    in_time = [o.cost for o in others if not o.missed]
    if setting.deadline_hours < setting.job_hours + setting.changeover_hours:
        assert outcome.missed
    else:
        assert outcome.cost == pytest.approx(min(in_time))


def test_a_move_takes_time_and_pays_for_its_bytes():
    traces, where, setting = [hourly("......"), hourly("111111")], regions(), make_setting(4, 6)
    capacity = PoolCapacity.from_traces(traces, setting, where)
    move, *rest = steps(capacity, 0, setting, best(capacity, 0, setting))
    assert (move.moved, move.mode, move.seconds, move.cost) == (True, Mode.IDLE, 3600, 2.0)
    assert {step.pool for step in rest} == {1}
    assert run(traces, 0, setting, best(capacity, 0, setting), where).moves == 1


def test_a_pool_of_another_region_is_refused():
    with pytest.raises(ValueError, match="there is none"):
        run([hourly("11"), hourly("11")], 0, make_setting(1, 2), Schedule((1, 1)), regions())


def test_wrong_regions_are_all_named():
    with pytest.raises(BadInputs) as error:
        Regions(names=("a",), pools=(1,), price_ratios=(0.0,), checkpoint_gb=-1, egress_usd=())
    assert {p.path for p in error.value.problems} == {"pools", "price_ratios", "checkpoint_gb", "egress_usd"}
    with pytest.raises(BadInputs, match="there are 1 pools, and regions of 2"):
        PoolCapacity.from_traces([hourly("11")], make_setting(1, 2), regions())


def market(seed: int, tick: timedelta, pools: int = 3) -> tuple[list[Trace], Regions]:
    rng = np.random.default_rng(seed)
    ticks = round(timedelta(days=8) / tick)
    traces = [with_prices(t, rng) for t in correlated(rng, ticks, tick, pools=pools)]
    where = Regions(
        names=tuple("abc"[:pools]), pools=tuple(range(pools)), price_ratios=(3.0, 3.5, 2.8)[:pools],
        checkpoint_gb=20.0, egress_usd=(0.02,) * pools,
    )  # fmt: skip
    return traces, where


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("tick", [195, 300, 600])
@pytest.mark.parametrize("f", [0.6, 0.9])
def test_no_deadline_is_missed_between_regions(f, tick, whole):
    traces, where = market(tick, timedelta(seconds=tick))
    clock = tick if whole else None
    setting = Setting(
        job_hours=12, deadline_hours=12 / f, changeover_hours=0.2, price_ratio=3.0, tick_seconds=clock
    )  # fmt: skip
    for policy in (EverspotPolicy(), EverspotPolicy(expected=0.8, upper=1.0)):
        assert not any(o.missed for o in runs(traces, starts(traces, setting, 5, seed=1), setting, policy, where))


def test_a_job_leaves_a_region_without_spot_and_stays_where_there_is_spot():
    up, dry = hourly("1" * 60), hourly("0" * 60)
    setting = make_setting(12, 24, 0.2)
    assert run([dry, up], 0, setting, EverspotPolicy(), regions()).moves == 1
    assert run([up, up], 0, setting, EverspotPolicy(), regions(ratios=(3.0, 2.0))).moves == 0


def test_holdings_of_a_run_are_in_the_region_of_the_job():
    traces, where = market(3, timedelta(minutes=10))
    setting = make_setting(24, 36, 0.2)
    capacity = PoolCapacity.from_traces(traces, setting, where)
    run_steps = list(steps(capacity, 5, setting, EverspotPolicy()))
    for before, after in pairwise(run_steps):
        if before.pool is not None and after.pool is not None:
            assert before.pool == after.pool
