"""The cap on launched instances: never exceeded, used by the most urgent jobs first, and reported to waiting jobs."""

from dataclasses import replace

import pytest
from everspot_core.schedule import Cap, Hold, Launch, Stay, Stop, Tariff, Why, describe_action
from everspot_core.schedule.provisioning import launch_cap
from everspot_core.schedule.provisioning.launch_cap import CapRoom
from everspot_core.schedule.view import instance_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from operations import count_operations
from provision_helpers import (
    AWAY,
    HOUR,
    NEED,
    NOW,
    ON_DEMAND,
    SMALL,
    TICK,
    TYPE,
    WORK,
    World,
    decide,
    dry,
    holding,
    instance,
    job,
    only_action,
    outlook,
    pool,
)
from view_helpers import cluster_view
from workload_helpers import drive, offer, trace

POOLS = [pool(), pool(ON_DEMAND)]


def cap(instances=99, usd=None) -> Cap:
    return Cap(instances=instances, usd_per_hour=usd)


def launched(actions) -> list[str]:
    return [a.job_id for a in actions if isinstance(a, Launch)]


def waits(actions) -> dict[str, Hold]:
    return {a.job_id: a for a in actions if isinstance(a, Hold) and a.cause is Why.AT_CAP}


@pytest.mark.parametrize(
    ("limit", "count"), [(cap(3), 3), (cap(9), 5), (cap(usd=2.5), 2), (cap(usd=2.0), 2), (cap(1, 9.0), 1), (cap(0), 0)]
)
def test_no_more_is_launched_than_the_cap_allows_and_the_others_are_held(limit, count):
    actions = decide([job(f"j{n}") for n in range(5)], pools=POOLS, cap=limit)
    assert len(launched(actions)) == count
    assert len(waits(actions)) == 5 - count


def test_what_runs_and_what_is_on_its_way_count_and_what_stands_does_not():
    runs, busy_instances = holding(job("runs"), instance("i-0", launched_for="runs"))
    coming = instance("n-1", launched_for="comes", ready=False)
    standing = instance("s-1", ON_DEMAND, launched_for=None, stale=True)
    jobs, instances = [runs, job("comes"), job("new")], [*busy_instances, coming, standing]
    assert launched(decide(jobs, instances, POOLS, cap=cap(3))) == ["new"]
    hold = waits(decide(jobs, instances, POOLS, cap=cap(2, 9.0)))["new"]
    assert hold.figures | {"reserved": 0} == {
        "nodes": 1,
        "needed_usd": 1.0,
        "instances": 2,
        "most": 2,
        "usd": 2.0,
        "most_usd": "$9.00",
        "reserved": 0,
    }
    assert "2 of 2 instances run or start, at $2.00 of $9.00 an hour" in describe_action(hold)


@pytest.mark.parametrize(
    ("kind", "usd"),
    [
        (TYPE, 1.0),  # its pool has a price
        (TYPE.model_copy(update={"name": "listed", "on_demand_usd_per_hour": 2.0}), 2.0),
        (TYPE.model_copy(update={"name": "unpriced"}), 3.0),  # as much as the most expensive
    ],
)
def test_what_runs_counts_at_the_price_of_its_pool_or_its_type_and_else_as_the_dearest(kind, usd):
    jobs, instances = [job("comes"), job("new")], [instance("n-1", kind=kind, launched_for="comes", ready=False)]
    view_fields = {"instances": tuple(instances), "pools": tuple(POOLS), "types": (TYPE, kind)}
    assert Tariff(cluster_view(**view_fields)).total(map(instance_pool, instances)) == usd
    fitting = decide(jobs, instances, POOLS, cap=cap(usd=usd + 1.0), types=(TYPE, kind))
    assert launched(fitting) == ["new"]
    tight = decide(jobs, instances, POOLS, cap=cap(usd=usd + 0.9), types=(TYPE, kind))
    assert (launched(tight), waits(tight)["new"].figures["usd"]) == ([], usd)


def test_where_no_price_is_known_at_all_what_runs_does_not_cost_nothing():
    booting_instance = instance("n-1", launched_for="comes", ready=False)
    blind = cluster_view(instances=(booting_instance,))
    assert (Tariff(blind).total([booting_instance.pool]), Tariff(blind).total([None]), Tariff(blind).total([])) == (
        None,
        None,
        0,
    )
    dollars, count = (CapRoom(replace(blind, cap=limit)) for limit in (cap(usd=9.0), cap()))
    assert (dollars.fits(1, 0.1), count.fits(1, 0.1)) == (False, True)


def test_of_the_pools_those_are_named_that_the_cap_has_room_for():
    large = TYPE.model_copy(update={"name": "large"})
    view = job(due=40, work=WORK, speeds={"large": 4.0})
    pools = [pool(), pool(kind=large, usd=2.0), pool(ON_DEMAND)]
    assert only_action(decide(view, pools=pools, cap=cap(usd=2.0)), Launch).instance_type == "large"
    launch = only_action(decide(view, pools=pools, cap=cap(usd=1.5)), Launch)
    assert [p.instance_type for p in launch.ranked] == ["t"]


def test_who_is_nearest_to_the_last_safe_moment_goes_first():
    jobs = [job("undated", ago=9), job("far", due=30, work=WORK), job("near", due=15, work=WORK)]
    jobs += [job("late", due=10.3, work=WORK), job("lost", due=9, work=WORK, ago=5)]
    order = ["late", "near", "far", "lost", "undated"]
    for room in range(6):
        assert sorted(launched(decide(jobs, pools=POOLS, cap=cap(room)))) == sorted(order[:room])


def test_a_critical_job_comes_before_all_that_can_still_wait():
    jobs = [job("critical", critical=True), job("near", due=15, work=WORK), job("late", due=10.3, work=WORK)]
    assert launched(decide(jobs, pools=POOLS, cap=cap(1))) == ["late"]
    assert sorted(launched(decide(jobs, pools=POOLS, cap=cap(2)))) == ["critical", "late"]


def test_room_is_kept_for_a_deadline_that_waits_for_spot():
    """The one that waits may need on-demand at any moment; what is without a deadline must not sit there then."""
    pools = [dry(), pool(ON_DEMAND)]
    jobs = [job("waits", due=40, work=WORK), job("undated", critical=False, ago=30)]
    assert launched(decide(jobs[1:], pools=pools, cap=cap(1))) == ["undated"]
    actions = decide([jobs[0], replace(jobs[1], preempted_at=(NOW,) * 3)], pools=pools, cap=cap(1))
    assert [a.cause for a in actions if isinstance(a, Hold) and a.job_id == "waits"] == [Why.WAIT_FOR_SPOT]


def test_what_is_free_goes_to_the_job_ahead_even_if_it_needs_more_than_that():
    """Else a gang would never come together; one that is larger than the cap keeps nobody from anything."""
    jobs = [job("gang", due=12, work=WORK, nodes=3), job("small", due=20, work=WORK)]
    actions = decide(jobs, pools=POOLS, cap=cap(3), instances=[instance("n-0", launched_for="x", ready=False)])
    assert launched(actions) == []
    assert sorted(waits(actions)) == ["gang", "small"]
    assert launched(decide([replace(jobs[0], nodes=9), jobs[1]], pools=POOLS, cap=cap(3))) == ["small"]


LARGE = TYPE.model_copy(update={"name": "large", "gpus": 4})
LARGE_NEED = NEED.model_copy(update={"gpus": 4})


@pytest.mark.parametrize("front_job", [{"critical": True}, {"ago": 30}, {"due": 10.3, "work": WORK}])
@pytest.mark.parametrize("spot", [[], [pool(kind=LARGE, available=0, behaviour=AWAY)]], ids=["no spot", "dry spot"])
def test_a_job_that_only_exceeds_the_cap_keeps_no_room_from_the_jobs_behind_it(front_job, spot):
    pools = [*spot, pool(ON_DEMAND, kind=LARGE), *POOLS]
    jobs = [job("large", resources=LARGE_NEED, **front_job), job("small")]
    assert launched(decide(jobs, pools=pools, cap=cap(usd=2.0), types=(TYPE, LARGE))) == ["small"]


@pytest.mark.parametrize(
    ("limit", "due", "work", "is_launched"),
    [
        (cap(1), 40, outlook(20), True),  # over before the last safe moment, in about 30 hours
        (cap(1), 40, outlook(20, 35), False),
        (cap(1), 40, None, False),
        (cap(1), 15 * 24, None, True),  # of unknown length: a week
        (cap(usd=2.0), 40, None, True),  # no room for the on-demand instance in any case
    ],
)
def test_room_is_reserved_against_jobs_that_still_run_when_it_is_needed(limit, due, work, is_launched):
    pools = [pool(kind=LARGE, available=0, behaviour=AWAY), pool(ON_DEMAND, kind=LARGE), *POOLS]
    jobs = [job("waits", due=due, work=WORK, resources=LARGE_NEED), job("small", work=work)]
    actions = decide(jobs, pools=pools, cap=limit, types=(TYPE, LARGE))
    assert launched(actions) == ["small"] * is_launched
    assert [a.cause for a in actions if isinstance(a, Hold) and a.job_id == "waits"] == [Why.WAIT_FOR_SPOT]


RESERVATIONS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 8), st.none() | st.integers(-9, 9)) | st.none() | st.integers(-9, 9),
    max_size=30,
)


@given(steps=RESERVATIONS)
def test_room_is_reserved_exactly_against_who_is_still_there_then(steps):
    """A step is a reservation (instances, dollars each, hours from now or None), or the end of a launch that asks."""
    room, reservations = CapRoom(cluster_view(cap=cap(40, usd=100.0))), []
    for step in steps:
        if isinstance(step, tuple):
            count, usd, hours = step
            room.reserve(count, usd, None if hours is None else NOW + hours * HOUR)
            reservations.append(step)
            continue
        until = None if step is None else NOW + step * HOUR
        in_force = [r for r in reservations if step is None or r[2] is None or r[2] < step]
        instances, usd = sum(count for count, _, _ in in_force), sum(count * usd for count, usd, _ in in_force)
        assert room.fits(1, 1.0, until=until) == (instances < 40 and usd < 100.0)
        if until is not None:
            assert room.figures(1, 1.0, until)["reserved"] == instances


def effort_at_cap(jobs: int) -> int:
    """The operations for the room under the cap in one plan: half of the jobs wait for spot, half for room."""
    small = [pool(ON_DEMAND, kind=SMALL), pool(kind=SMALL)]
    need = NEED.model_copy(update={"gpu_memory_gib": 16})
    waits = [job(f"w{n}", due=40 + n * 37 % jobs, work=WORK) for n in range(jobs)]
    jobs_at_cap = [job(f"j{n}", work=outlook(60), resources=need) for n in range(jobs)]
    view_fields = {"pools": [dry(), pool(ON_DEMAND), *small], "types": (TYPE, SMALL), "cap": cap(3)}
    return count_operations(lambda: decide([*waits, *jobs_at_cap], **view_fields), launch_cap)


def test_the_effort_grows_with_the_jobs_at_the_cap_and_not_with_their_square():
    assert effort_at_cap(160) < 6 * effort_at_cap(40)


@pytest.mark.parametrize(("speed", "is_launched"), [(1.0, True), (0.25, False)])
def test_a_job_holds_reserved_room_as_long_as_its_work_takes_on_the_type(speed, is_launched):
    pools = [pool(kind=LARGE, available=0, behaviour=AWAY), pool(ON_DEMAND, kind=LARGE), *POOLS]
    jobs = [job("waits", due=40, work=WORK, resources=LARGE_NEED)]
    jobs += [job("small", work=outlook(20), speeds={"t": speed, "large": speed})]
    assert launched(decide(jobs, pools=pools, cap=cap(1), types=(TYPE, LARGE))) == ["small"] * is_launched


def test_spot_that_is_on_its_way_makes_room_for_the_on_demand_that_is_needed_instead():
    view = job(due=10.25 + TICK / HOUR - 0.001, work=WORK, ago=1)
    world = World([view], [instance("n-0", ready=False)], POOLS, cap=cap(1))
    world.settle()
    (only,) = world.instances.values()
    assert only.pool.market is ON_DEMAND


def test_at_the_last_safe_moment_a_job_gives_back_its_spot_where_the_cap_leaves_no_other_way():
    view, instances = holding(job(due=10.1, work=WORK, ago=9), instance("i-0", ago=1))
    stop = only_action(decide(view, instances, POOLS, cap=cap(1)), Stop)
    assert (stop.instance_id, stop.cause) == ("i-0", Why.LAST_SAFE_MOMENT)
    world = World([view], instances, POOLS, cap=cap(1))
    world.settle()
    world.boot()
    world.settle()
    (only,) = world.instances.values()
    assert (only.pool.market, world.jobs["j"].record.owner) == (ON_DEMAND, only.instance_id)


def test_a_job_keeps_its_spot_where_giving_it_back_would_make_no_room():
    view, instances = holding(job(due=10.1, work=WORK, ago=9), instance("i-0", ago=1))
    stay = only_action(decide(view, instances, POOLS, cap=cap(1, 2.0)), Stay)
    assert stay.cause is Why.AT_CAP


def test_a_move_for_the_better_takes_no_room_from_who_waits():
    view, instances = holding(job("runs", due=40, work=WORK), instance("i-0", ON_DEMAND, launched_for="runs", ago=40))
    assert launched(decide([view], instances, POOLS, cap=cap(2))) == ["runs"]
    assert launched(decide([view, job("waits")], instances, POOLS, cap=cap(2))) == ["waits"]


@st.composite
def crowds(draw: st.DrawFn) -> World:
    """All are there from the beginning, and the cap is what they need at once: less would be too little for some."""
    jobs = []
    for n in range(draw(st.integers(1, 5))):
        remaining, nodes = draw(st.sampled_from([1.0, 3.0])), draw(st.sampled_from([1, 1, 2]))
        due = draw(st.none() | st.floats(1.0, 4.0).map(lambda times, remaining=remaining: remaining * times + 0.6))
        jobs.append(job(f"j{n}", due=due, work=outlook(remaining), nodes=nodes, critical=draw(st.integers(0, 5)) == 0))
    most = draw(st.integers(1, 8))
    usd = draw(st.none() | st.floats(1.0, 20.0))
    pools = [pool(available=draw(st.none() | st.integers(0, 3))), dry("c"), pool(ON_DEMAND)]
    return World(jobs, (), pools, cap=cap(most, usd))


FATES = st.lists(st.tuples(st.sampled_from(["boot", "lose", "pass"]), st.integers(0, 60)), max_size=12)


@given(world=crowds(), fates=FATES)
@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
def test_whatever_happens_the_cap_is_not_passed_and_nobody_is_launched_for_twice(world, fates):
    limit = world.more["cap"]
    for fate, dice in fates:
        if fate == "boot":
            world.boot()
        elif fate == "pass":
            world.now += dice * TICK
        elif world.instances:
            world.lose(sorted(world.instances)[dice % len(world.instances)])
        for _ in range(8):
            changes = world.round()
            prices = [3.0 if i.pool.market is ON_DEMAND else 1.0 for i in world.instances.values()]
            assert len(prices) <= limit.instances
            assert limit.usd_per_hour is None or sum(prices) <= limit.usd_per_hour + 1e-6
            assert len(set(launched(changes))) == len(launched(changes))
            if not changes:
                break
        else:
            raise AssertionError(f"it never settles: {world.changes[-6:]}")
        for view in world.jobs.values():
            idle = [i for i in world.instances.values() if i.launched_for == view.job_id and i.idle]
            assert len(idle) <= view.nodes


def hours(n):
    return n / 12


@given(
    drawn_jobs=st.lists(
        st.tuples(st.integers(1, 40), st.integers(0, 60), st.sampled_from([1, 1, 2])), min_size=1, max_size=5
    ),
    spells=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4)), min_size=1, max_size=8),
)
@settings(max_examples=settings.default.max_examples * 2 // 5, deadline=None)
def test_every_deadline_that_could_be_kept_is_kept_under_a_cap_that_is_just_enough(drawn_jobs, spells):
    """For so many instances as all of them need at once, which rule out any move that keeps the old one meanwhile.
    A deadline can be kept that leaves time for a changeover and a tick."""
    jobs = [
        {"id": f"j{n}", "hours": hours(length), "deadline_hours": hours(length + slack + 1) + 0.5, "nodes": nodes}
        for n, (length, slack, nodes) in enumerate(drawn_jobs)
    ]
    pools = [offer(), offer("spot", 1.0, availability="t")]
    _, totals = drive(jobs, {"t": trace(*spells)}, pools=pools, max_instances=sum(nodes for *_, nodes in drawn_jobs))
    assert (totals.misses, totals.refused, totals.unfinished) == (0, 0, 0)


def test_a_cap_that_is_too_small_delays_and_breaks_nothing():
    """Two boot for 0.25 h, and each does two jobs of 0.25 h of set-up and an hour of work."""
    jobs = [{"id": f"j{n}", "hours": 1, "priority": "critical"} for n in range(4)]
    for fleet in ({"max_instances": 2}, {"max_usd_per_hour": 8.0}):
        _, totals = drive(jobs, pools=[offer()], **fleet)
        assert (totals.finished, totals.launched, totals.hours) == (4, 2, 2.75)
        assert totals.cost.total == pytest.approx(2 * 2.75 * 3)
