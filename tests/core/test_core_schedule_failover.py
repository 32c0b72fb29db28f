"""When a job leaves the spot market, when it returns, when a smaller type helps; and that it never flaps."""

from collections.abc import Callable, Container
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import JobSpec, JobSubmission, Priority, Resources
from everspot_core.jobs.lower_precision import HEADROOM, MIXED
from everspot_core.jobs.records import InstanceRecord, InstanceState, JobRecord, JobState, Market, Reason, Role
from everspot_core.schedule import (
    Behaviour,
    InstanceView,
    JobView,
    PoolView,
    Why,
    plan,
)
from everspot_core.schedule.market.failover import (
    DAY,
    MOVES_A_DAY,
    STAY,
    failed_over,
    latest_end_on,
    smaller,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from view_helpers import cluster_view, instance_view, job_view, measured_view, outlook_view, pool_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TYPE = InstanceType(name="t", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)


def job(*lost: float, priority: Priority = Priority.NORMAL, due: float | None = None, **kw) -> JobView:
    """`lost`: hours ago at which it was preempted, in any order; `due` in hours."""
    resources = kw.pop("resources", Resources())
    chosen = {name: kw.pop(name) for name in ("precision", "mixed_on_failover") if name in kw}
    spec = JobSpec(name="j", recipe="r", priority=priority, resources=resources, **chosen)
    deadline = None if due is None else NOW + due * HOUR
    submission = JobSubmission(job_id="j", spec=spec, submitted_at=NOW - 99 * HOUR, deadline_at=deadline)
    return job_view(submission=submission, preempted_at=tuple(sorted(NOW - h * HOUR for h in lost)), **kw)


def pool(*ago: float, market: Market = Market.SPOT, kind: InstanceType = TYPE) -> PoolView:
    """First seen up 99 h ago; then it went down, up, … at these hours ago, oldest first."""
    behaviour = Behaviour().observe(True, NOW - 99 * HOUR)
    for n, hours in enumerate(ago):
        behaviour = behaviour.observe(bool(n % 2), NOW - hours * HOUR)
    return pool_view(instance_type=kind, zone="z", market=market, usd_per_hour=1.0, behaviour=behaviour)


def prefers(view: JobView, *pools: PoolView, since: float | None = None) -> tuple[Market, Why]:
    preference = failed_over(view, pools, NOW, None if since is None else NOW - since * HOUR)
    return preference.market, preference.cause


OVER = (Market.ON_DEMAND, Why.FAILED_OVER)
BACK = (Market.SPOT, Why.BACK_TO_SPOT)
FINE = (Market.SPOT, Why.PREFERRED_MARKET)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ((), FINE),
        ((0.0, 0.5), FINE),
        ((0.0, 0.5, 2.0), OVER),
        ((0.0, 0.5, 2.1), FINE),
        ((0.0, 0.5, 2.1, 2.6), FINE),
        ((0.0, 0.5, 2.1, 2.3), OVER),
        ((0.1, 0.2, 0.3, 50.0), OVER),
    ],
)
def test_three_losses_within_two_hours_are_too_many(lost, expected):
    assert prefers(job(*lost), pool(0.05)) == expected


def test_a_critical_job_is_on_demand_whatever_it_lost():
    assert prefers(job(priority=Priority.CRITICAL), pool()) == (Market.ON_DEMAND, Why.CRITICAL)


@pytest.mark.parametrize(
    ("lost", "spells", "expected"),
    [
        ((1.5, 1.6, 1.7), (1.4, 1.1), BACK),  # up again for more than STAY
        ((1.5, 1.6, 1.7), (1.4, 0.9), OVER),  # not for long enough
        ((0.9, 1.0, 1.1), (), OVER),  # up all the time, but it has not stayed for long enough
        ((9.0, 9.1, 9.2), (7.0, 6.5, 0.2), BACK),  # has recovered meanwhile, though it is down just now
        ((9.0, 9.1, 9.2), (8.9, 4.0, 3.5, 3.0, 2.4, 1.2), BACK),  # up for longer than STAY just now
        ((9.0, 9.1, 9.2), (8.9, 4.0, 3.5, 3.0, 2.4, 0.9), OVER),  # never for STAY since
        ((1.5, 1.6, 1.7, 9.0, 9.1, 9.2), (1.4, 1.1), OVER),  # the second failover of the day: twice as long
        ((2.5, 2.6, 2.7, 9.0, 9.1, 9.2), (2.4, 2.1), BACK),
        ((1.5, 1.6, 1.7, 40.0, 40.1, 40.2), (1.4, 1.1), BACK),  # the first one was on another day
    ],
)
def test_it_goes_back_when_it_has_stayed_and_spot_has_been_up_for_as_long(lost, spells, expected):
    assert prefers(job(*lost), pool(*spells)) == expected


def test_one_pool_that_it_fits_is_enough_and_others_do_not_count():
    view = job(1.5, 1.6, 1.7, resources=Resources(gpus=1))
    down, small = pool(1.4), InstanceType(name="s", vcpus=2, memory_gib=4)
    assert prefers(view, down) == OVER
    assert prefers(view, down, pool(1.4, 1.1)) == BACK
    assert prefers(view, down, pool(1.4, 1.1, kind=small), pool(market=Market.ON_DEMAND)) == OVER


def test_where_no_pool_is_watched_a_failover_holds_for_a_day():
    assert prefers(job(23.8, 23.9, 23.7)) == OVER
    assert prefers(job(24.1, 24.2, 24.3)) == BACK


def test_on_demand_is_not_left_as_soon_as_it_is_reached():
    stays = (Market.ON_DEMAND, Why.STAY_ON_DEMAND)
    assert STAY == HOUR
    assert prefers(job(0.7), pool(0.6, 0.5), since=0.5) == stays
    assert prefers(job(1.7), pool(1.6, 0.9), since=1.5) == stays
    assert prefers(job(1.7), pool(1.6, 1.1), since=1.5) == BACK
    assert prefers(job(1.7), since=1.5) == BACK


def test_a_free_on_demand_instance_is_preferred_after_a_failover_and_a_spot_one_before():
    def instance(iid: str, market: Market) -> InstanceView:
        record = InstanceRecord(
            instance_id=iid, cluster="c", role=Role.AGENT, instance_type="t", zone="z", market=market, vcpus=8,
            memory_gib=32, state=InstanceState.READY, booted_at=NOW, updated_at=NOW,
        )  # fmt: skip
        return instance_view(instance_id=iid, record=record)

    lost = JobRecord(
        job_id="j", state=JobState.PENDING, epoch=3, last_owner="x", last_reason=Reason.NOTICE, changed_at=NOW
    )
    free = (instance("spot", Market.SPOT), instance("od", Market.ON_DEMAND))
    for hours, expected in (((0.1, 0.2), ("spot", Why.PREFERRED_MARKET)), ((0.1, 0.2, 0.3), ("od", Why.FAILED_OVER))):
        view = cluster_view(jobs=(job(*hours, record=lost),), instances=free, pools=(pool(0.1),))
        (action,) = plan(view, NOW)
        assert (action.instance_id, action.cause) == expected


def moves(has_spot: Callable[[int, bool], bool], ticks: int, strikes: Container[int] = ()) -> list[datetime]:
    """Return when a job moves between the markets.

    `has_spot` returns whether spot exists at a tick of 5 min, for a job on spot and for a job that is not on spot. The
    job loses its spot instance whenever spot goes, and besides at the ticks of `strikes`.
    """
    market, since, lost, move_times = Market.SPOT, NOW, [], []
    behaviour = Behaviour()
    for tick in range(ticks):
        now = NOW + tick * timedelta(minutes=5)
        up = has_spot(tick, market is Market.SPOT)
        behaviour = behaviour.observe(up, now)
        waits = market is Market.SPOT and (not up or tick in strikes)
        lost += [now] if waits else []
        watched = (pool_view(instance_type=TYPE, zone="z", market=Market.SPOT, usd_per_hour=1, behaviour=behaviour),)
        view = job_view(submission=job().submission, preempted_at=tuple(lost))
        if waits or market is Market.ON_DEMAND:
            wanted_market = failed_over(view, watched, now, None if waits else since).market
            got = Market.SPOT if wanted_market is Market.SPOT and up else Market.ON_DEMAND
            if got is not market:
                market, since, move_times = got, now, [*move_times, now]
    return move_times


def most_in_a_day(move_times: list[datetime]) -> int:
    return max((sum(first <= m < first + DAY for m in move_times) for first in move_times), default=0)


@settings(max_examples=settings.default.max_examples // 2, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=80),
    st.sets(st.integers(0, 700), max_size=120),
)
def test_it_never_flaps_whatever_the_market_does(spells, strikes):
    up = [state for ups, downs in spells for state in [True] * ups + [False] * downs][:700]
    assert most_in_a_day(moves(lambda tick, on_spot: up[tick], len(up), strikes)) <= MOVES_A_DAY


def test_not_even_if_spot_goes_whenever_the_job_is_back_on_it():
    move_times = moves(lambda tick, on_spot: not on_spot, 3 * 288)
    assert MOVES_A_DAY - 4 <= most_in_a_day(move_times) <= MOVES_A_DAY


BIG = InstanceType(name="big", vcpus=32, memory_gib=128, gpus=1, gpu_memory_gib=80)
HALF = InstanceType(name="half", vcpus=8, memory_gib=32, gpus=1, gpu_memory_gib=24)
TINY = InstanceType(name="tiny", vcpus=4, memory_gib=16, gpus=1, gpu_memory_gib=16)
ASKED = Resources(vcpus=16, memory_gib=64, gpus=1, gpu_memory_gib=40)
TICK = timedelta(minutes=1)
WORK = outlook_view(remaining=4 * HOUR, remaining_upper=5 * HOUR, changeover=0.1 * HOUR, changeover_upper=0.5 * HOUR)


def fit_for_less(**kw) -> JobView:
    measured = kw.pop("measured", measured_view(vcpus=3, memory_gib=12, gpu_memory_gib=20, mixed=True))
    given_speeds = kw.pop("speeds", {"half": 0.5, "tiny": 0.25})
    lost = kw.pop("lost", (0.1, 0.2, 0.3))
    return job(*lost, resources=ASKED, measured=measured, outlook=WORK, speeds=given_speeds, **kw)


FP32_27 = measured_view(vcpus=3, memory_gib=12, gpu_memory_gib=27, mixed=False)
FP32_17 = replace(FP32_27, gpu_memory_gib=17)


@pytest.mark.parametrize(
    ("kw", "expected"),
    [
        ({}, "half"),  # 20 GiB and headroom: more than the tiny one has
        ({"lost": (0.1, 0.2)}, None),
        ({"measured": None}, None),
        ({"measured": measured_view(vcpus=3, memory_gib=12, gpu_memory_gib=22, mixed=True)}, None),
        ({"measured": FP32_27}, None),  # judged by what was measured: nothing switches mixed precision on
        ({"measured": FP32_27, "precision": "fp32"}, None),
        ({"measured": FP32_27, "mixed_on_failover": True}, "half"),
        ({"measured": replace(FP32_27, gpu_memory_gib=28), "mixed_on_failover": True}, None),
        ({"measured": replace(FP32_27, mixed=True), "mixed_on_failover": True}, None),  # mixed already
        ({"measured": replace(FP32_27, mixed=None), "mixed_on_failover": True}, None),
        (
            {"measured": FP32_17, "speeds": {"tiny": 0.25}, "mixed_on_failover": True},
            "tiny",
        ),
        ({"measured": FP32_17, "mixed_on_failover": True}, "half"),  # without the change
        ({"measured": measured_view(vcpus=3, memory_gib=12, gpu_memory_gib=9, mixed=True)}, "half"),  # the faster one
        ({"measured": measured_view(vcpus=3, memory_gib=30, gpu_memory_gib=9, mixed=True)}, None),
        ({"measured": measured_view(vcpus=3, memory_gib=12, gpu_memory_gib=22, mixed=None)}, None),  # nothing is saved
        ({"measured": measured_view(vcpus=None, memory_gib=12, gpu_memory_gib=9, mixed=True)}, None),  # asked: 16 vCPUs
        ({"measured": measured_view(vcpus=3, memory_gib=None, gpu_memory_gib=9, mixed=True)}, None),
        ({"measured": measured_view(vcpus=3, memory_gib=12, gpu_memory_gib=None, mixed=True)}, None),
        ({"speeds": {"tiny": 0.25}}, None),
        ({"due": 10.5 + TICK / HOUR}, "half"),  # 0.5 + 5 / 0.5, and a tick
        ({"due": 10.5}, None),
    ],
)
def test_a_smaller_type_is_taken_if_measure_speed_and_deadline_allow_it(kw, expected):
    assert (HEADROOM, MIXED) == (1.1, 0.8)
    smaller_type = smaller(fit_for_less(**kw), [BIG, TINY, HALF], NOW, TICK)
    assert (smaller_type.name if smaller_type else None) == expected


def test_a_type_that_has_all_that_was_asked_for_or_another_architecture_is_not_a_smaller_one():
    view = fit_for_less(speeds={"big": 1.0, "half": 0.5})
    assert smaller(view, [BIG], NOW, TICK) is None
    assert smaller(view, [BIG, HALF.model_copy(update={"arch": "arm64"})], NOW, TICK) is None
    assert latest_end_on(view, HALF, NOW) == NOW + 10.5 * HOUR
