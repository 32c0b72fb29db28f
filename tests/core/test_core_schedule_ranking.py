"""The ranking of pools, one table per term."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSpec, JobSubmission, Priority, Resources
from everspot_core.jobs.records import InstanceRecord, InstanceState, Market, Role
from everspot_core.schedule import Assign, Behaviour, InstanceView, JobView, Launch, PoolView, plan
from everspot_core.schedule.market.ranking import (
    CHANGEOVER_HOURS,
    COOL_OFF,
    PRIOR_HOURS,
    PRIOR_SPELLS,
    REFUSAL_HALF_LIFE,
    expected_lifetime,
    rank,
)
from hypothesis import given
from hypothesis import strategies as st
from view_helpers import cluster_view, instance_view, job_view, outlook_view, pool_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
TYPE = InstanceType(name="t", vcpus=8, memory_gib=32)
QUICK = InstanceType(name="quick", vcpus=16, memory_gib=64)


def job(priority: Priority = Priority.NORMAL, changeover: float | None = 0.5, **kw) -> JobView:
    spec = JobSpec(name="j", recipe="r", priority=priority, resources=kw.pop("resources", Resources()))
    outlook = None
    if changeover is not None:
        d = changeover * HOUR
        outlook = outlook_view(remaining=9 * HOUR, remaining_upper=9 * HOUR, changeover=d, changeover_upper=d)
    return job_view(submission=JobSubmission(job_id="j", spec=spec, submitted_at=NOW), outlook=outlook, **kw)


def pool(zone: str, usd: float = 1.0, market: Market = Market.SPOT, kind: InstanceType = TYPE, **kw) -> PoolView:
    return pool_view(instance_type=kind, zone=zone, market=market, usd_per_hour=usd, **{"placement_score": 10, **kw})


def behaviour_from_spells(*ups: float, up_for: float | None = None) -> Behaviour:
    """Ended spells of so many hours; `up_for`: and one that lasts, of so many hours so far."""
    since = NOW - (0 if up_for is None else up_for) * HOUR
    return Behaviour(up=up_for is not None, since=since, first=since, ups=ups, downs=(1.0,) * len(ups))


def zones(*pools: PoolView, view: JobView | None = None, **kw) -> list[str]:
    return [r.pool.zone for r in rank(pools, view or job(), NOW, **kw)]


def cost(priced_pool: PoolView, view: JobView | None = None) -> float:
    return rank([priced_pool], view or job(), NOW)[0].usd_per_useful_hour


def test_by_price_and_then_by_name():
    assert zones(pool("c", 0.9), pool("b", 1.0), pool("a", 1.0)) == ["c", "a", "b"]


def test_by_work_done_in_an_hour():
    dear = pool("q", 1.9, kind=QUICK)
    assert zones(pool("t"), dear, view=job(speeds={"quick": 2.0})) == ["q", "t"]
    assert zones(pool("t"), dear, view=job(speeds={"quick": 1.5})) == ["t", "q"]
    assert zones(pool("t"), dear) == ["t", "q"]  # not known to be any faster


@pytest.mark.parametrize(
    ("behaviour", "hours"),
    [
        (Behaviour(), PRIOR_HOURS),
        (behaviour_from_spells(4.0, 4.0), 4.0),
        (behaviour_from_spells(1.0), (8 + 1) / 3),
        (behaviour_from_spells(*[0.5] * 18), (8 + 9) / 20),
        (behaviour_from_spells(up_for=6), (8 + 6) / 2),
        (behaviour_from_spells(1.0, 1.0, up_for=22), (8 + 2 + 22) / 4),
    ],
)
def test_the_lifetime_is_learnt_from_spells_and_the_present_one_counts_as_far_as_it_goes(behaviour, hours):
    assert PRIOR_SPELLS == 2
    assert expected_lifetime(behaviour, NOW) == pytest.approx(hours)
    factor = 1 + 0.5 / hours
    assert cost(pool("a", behaviour=behaviour)) == pytest.approx(factor)
    assert cost(pool("a", behaviour=behaviour), job(changeover=None)) == pytest.approx(1 + CHANGEOVER_HOURS / hours)


def test_a_pool_that_lasts_is_worth_a_higher_price_the_more_a_changeover_costs():
    brittle, steady = (
        pool("brittle", 1.0, behaviour=behaviour_from_spells(*[0.2] * 30)),
        pool("steady", 1.3, behaviour=behaviour_from_spells(*[9.0] * 30)),
    )
    assert zones(brittle, steady, view=job(changeover=0.5)) == ["steady", "brittle"]
    assert zones(brittle, steady, view=job(changeover=0.02)) == ["brittle", "steady"]


def slow_pool(zone: str, minutes: float, usd: float = 1.0, **kw) -> PoolView:
    expected = minutes * HOUR / 60
    return pool(zone, usd, changeover=Changeover(expected, 2 * expected), **kw)


def test_a_pool_that_takes_longer_to_become_useful_pays_for_it_once_and_with_each_loss():
    lasting, brief = behaviour_from_spells(2.0, 2.0, up_for=2.0), behaviour_from_spells(0.2, 0.2, up_for=0.2)
    for behaviour in (lasting, brief):
        quick, slow = slow_pool("quick", 6, behaviour=behaviour), slow_pool("slow", 36, behaviour=behaviour)
        ranked = {r.pool.zone: r.usd_per_useful_hour for r in rank([slow, quick], job(changeover=0.1), NOW)}
        life = expected_lifetime(behaviour, NOW)
        assert list(ranked) == ["quick", "slow"]
        assert ranked["quick"] == pytest.approx(1 + 0.1 / life)
        assert ranked["slow"] == pytest.approx(1 + 0.6 / life + 0.5 / 9)
    lasts = behaviour_from_spells(90.0, 90.0, up_for=90.0)
    assert zones(slow_pool("quick", 6, 1.1, behaviour=lasts), slow_pool("slow", 36, 1.0, behaviour=lasts)) == [
        "slow",
        "quick",
    ]


def test_pools_that_take_as_long_as_each_other_are_ranked_as_if_nobody_knew_how_long():
    for minutes in (1, 30):
        alike = [slow_pool("a", minutes, 1.0), slow_pool("b", minutes, 1.2), slow_pool("c", minutes, 0.9)]
        plain = [pool("a", 1.0), pool("b", 1.2), pool("c", 0.9)]
        rankings = [
            [(r.pool.zone, r.usd_per_useful_hour, r.figures) for r in rank(p, job(), NOW)] for p in (alike, plain)
        ]
        assert rankings[0] == rankings[1]


def test_one_of_which_nothing_is_known_takes_as_long_as_the_changeovers_of_the_job_do():
    assert zones(pool("a"), slow_pool("b", 20)) == ["b", "a"]
    assert zones(pool("b"), slow_pool("a", 40)) == ["b", "a"]


@pytest.mark.parametrize(
    ("remaining", "due", "chosen"), [(1, 9, "quick"), (8, 99, "t"), (8, 10.1, "t"), (8, 9, "quick")]
)
def test_on_demand_that_boots_slowly_pays_for_it_and_is_late_sooner(remaining, due, chosen):
    """The more expensive type boots in 6 minutes, the other one in one to two hours."""
    slow = slow_pool("a", 60, 1.0, market=Market.ON_DEMAND)
    quick = slow_pool("a", 6, 1.5, market=Market.ON_DEMAND, kind=QUICK)
    work = outlook_view(
        remaining=remaining * HOUR, remaining_upper=remaining * HOUR, changeover=HOUR / 10, changeover_upper=HOUR / 5
    )
    spec = JobSpec(name="j", recipe="r", priority=Priority.CRITICAL, resources=Resources())
    submission = JobSubmission(job_id="j", spec=spec, submitted_at=NOW, deadline_at=NOW + due * HOUR)
    view = cluster_view(jobs=(job_view(submission=submission, outlook=work),), pools=(slow, quick))
    (launch,) = (a for a in plan(view, NOW) if isinstance(a, Launch))
    assert launch.instance_type == chosen


def test_on_demand_lasts():
    assert cost(pool("a", 3.0, Market.ON_DEMAND, placement_score=None)) == 3.0


@pytest.mark.parametrize(("score", "factor"), [(10, 1.0), (1, 1.5), (5, 1 + 0.5 * 5 / 9), (None, 1 + 0.5 * 5 / 9)])
def test_a_low_placement_score_counts_against_a_pool(score, factor):
    assert cost(pool("a", placement_score=score), job(changeover=0)) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("ages", "factor"),
    [((), 1.0), ((0,), 2.0), ((1,), 1.5), ((2,), 1.25), ((2, 1), 1.75), ((20,), 1.0), ((-(10**6),), 1.0)],
)
def test_refusals_count_half_as_much_with_each_half_life(ages, factor):
    refused = tuple(NOW - n * REFUSAL_HALF_LIFE for n in ages)
    assert cost(pool("a", refused_at=refused), job(changeover=0)) == pytest.approx(factor, rel=1e-5)


def test_never_back_into_the_pool_that_just_gave_notice_unless_there_is_no_other_and_the_job_must_run():
    noticed = pool("n", 0.1, noticed_at=NOW - COOL_OFF + timedelta(seconds=1))
    over = pool("o", 0.1, noticed_at=NOW - COOL_OFF)
    assert zones(noticed, pool("a")) == ["a"]
    assert zones(noticed, pool("a"), must_run=True) == ["a"]
    assert zones(over, pool("a")) == ["o", "a"]
    assert zones(noticed) == []
    assert zones(noticed, must_run=True) == ["n"]
    assert zones(pool("n", 0.1, noticed_at=NOW + timedelta(days=36500)), pool("a")) == ["n", "a"], "a clock was wrong"


def test_a_critical_job_is_sent_to_reserved_capacity_then_to_on_demand_then_to_spot():
    pools = (
        pool("spot", 0.1),
        pool("od", 3.0, Market.ON_DEMAND),
        pool("paid", 4.0, Market.ON_DEMAND, reserved=True),
    )
    assert zones(*pools, view=job(Priority.CRITICAL)) == ["paid", "od", "spot"]
    assert zones(*pools) == ["spot", "od", "paid"]


def test_pools_that_the_job_does_not_fit_are_left_out_unless_they_are_accepted():
    view = job(resources=Resources(vcpus=16))
    assert zones(pool("small"), pool("large", kind=QUICK), view=view) == ["large"]
    assert zones(pool("small"), pool("large", kind=QUICK), view=view, accept={"t"}) == ["large", "small"]


def instance(zone: str, market: Market = Market.SPOT) -> InstanceView:
    record = InstanceRecord(
        instance_id=f"i-{zone}",
        cluster="c",
        role=Role.AGENT,
        instance_type="t",
        zone=zone,
        market=market,
        vcpus=8,
        memory_gib=32,
        state=InstanceState.READY,
        booted_at=NOW,
        updated_at=NOW,
    )
    return instance_view(instance_id=record.instance_id, record=record)


def placed(priority: Priority, instances: list[InstanceView], *pools: PoolView, shared: bool) -> str:
    cluster = cluster_view(jobs=(job(priority),), instances=tuple(instances), pools=pools, shared=shared)
    (assigned,) = (a for a in plan(cluster, NOW) if isinstance(a, Assign))
    return assigned.instance_id


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_free_already_is_chosen_by_the_same_rules(shared):
    """Instances of a pool that just gave notice come last. Reserved ones come first for critical jobs, and last for all
    others."""
    two = [instance("a"), instance("b")]
    assert placed(Priority.NORMAL, two, pool("a"), pool("b"), shared=shared) == "i-a"
    assert placed(Priority.NORMAL, two, pool("a", noticed_at=NOW), pool("b"), shared=shared) == "i-b"
    assert placed(Priority.NORMAL, two[:1], pool("a", noticed_at=NOW), pool("b"), shared=shared) == "i-a"
    either = [instance("a"), instance("b", Market.ON_DEMAND)]
    last, other = pool("a", noticed_at=NOW), pool("b", 3.0, Market.ON_DEMAND)
    assert placed(Priority.NORMAL, either, last, other, shared=shared) == "i-a", "on-demand is left to the critical"
    assert placed(Priority.CRITICAL, either, last, other, shared=shared) == "i-b"
    instances = [instance(z, Market.ON_DEMAND) for z in ("a", "b")]
    for reserved, priority, expected in (
        ("b", Priority.CRITICAL, "i-b"),
        ("a", Priority.NORMAL, "i-b"),
    ):
        pools = (pool(z, 3.0, Market.ON_DEMAND, reserved=z == reserved) for z in ("a", "b"))
        assert placed(priority, instances, *pools, shared=shared) == expected


def test_every_term_is_in_the_figures():
    (only,) = rank([pool("a", 2.0, refused_at=(NOW,))], job(speeds={"t": 0.5}), NOW)
    assert only.figures == {
        "usd_per_hour": 2.0,
        "speed": 0.5,
        "lifetime_hours": 4.0,
        "changeover": 1.125,
        "score": 1.0,
        "refusals": 2.0,
    }
    assert only.usd_per_useful_hour == 2.0 / 0.5 * 1.125 * 2.0


@given(
    st.lists(st.floats(0.01, 100), max_size=40),
    st.one_of(st.none(), st.floats(0, 100)),
    st.floats(0.01, 10),
    st.floats(0, 5),
)
def test_what_speaks_for_a_pool_never_makes_it_look_dearer(ups, present, usd, changeover):
    view = job(changeover=changeover)
    base = cost(pool("a", usd, behaviour=behaviour_from_spells(*ups, up_for=present), placement_score=4), view)
    assert base >= usd
    assert cost(pool("a", usd, behaviour=behaviour_from_spells(*ups, up_for=present), placement_score=5), view) <= base
    assert (
        cost(pool("a", usd, behaviour=behaviour_from_spells(*ups, up_for=(present or 0) + 1), placement_score=4), view)
        <= base
    )
    assert (
        cost(pool("a", usd / 2, behaviour=behaviour_from_spells(*ups, up_for=present), placement_score=4), view) <= base
    )
