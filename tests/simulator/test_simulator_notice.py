"""On a notice, the replacement capacity is launched immediately and exactly once, and the job uses it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.jobs.records import Notice, NoticeKind, Order
from everspot_core.schedule import Assign, Cap, Cordon, Launch, plan
from everspot_simulator.drive import simulate
from everspot_simulator.figures import figures
from hypothesis import given, settings
from hypothesis import strategies as st
from provision_helpers import (
    NOW,
    ON_DEMAND,
    SPOT,
    TICK,
    WORK,
    World,
    decide,
    dry,
    holding,
    instance,
    job,
    pool,
)
from test_simulator_workload_properties import check, jobs, traces
from workload_helpers import offer, standing, trace, workload

POOLS = [pool(noticed_at=NOW), pool(zone="b"), pool(ON_DEMAND)]


def noticed(view=None, pools=POOLS, *, others=(), **more) -> World:
    """A job that runs on spot, which the cloud takes in two minutes."""
    view, instances = holding(view or job(due=40, work=WORK), *more.pop("instances", [instance("i-0", ago=1)]))
    world = World([view], [*instances, *others], pools, **more)
    world.notice("i-0")
    return world


def test_the_replacement_is_launched_with_the_notice_and_not_when_the_job_is_back():
    world = noticed()
    cordon, launch = world.round()
    assert isinstance(cordon, Cordon)
    assert (launch.job_id, launch.zone, launch.market) == ("j", "b", SPOT)
    assert world.instances["i-0"].assignment.order is Order.STOP
    assert world.round() == []
    world.give_back("j")
    assert world.settle() == 1  # the old instance is cleared
    world.boot()
    world.settle()
    assert world.jobs["j"].record.owner == "n-1"
    assert sum(isinstance(a, Launch) for a in world.changes) == 1


@pytest.mark.parametrize("ready_first", [True, False])
def test_whichever_comes_first_the_job_or_its_replacement_nothing_is_launched_twice(ready_first):
    world = noticed()
    world.settle()
    for step in (world.boot, lambda: world.give_back("j"))[:: 1 if ready_first else -1]:
        step()
        world.settle()
    assert world.jobs["j"].record.owner == "n-1"
    world.lose("i-0")
    world.settle()
    assert sorted(world.instances) == ["n-1"]
    assert sum(isinstance(a, Launch) for a in world.changes) == 1


def test_the_instances_own_word_counts_as_much_as_the_clouds():
    view, (job_instance,) = holding(job(due=40, work=WORK), instance("i-0", ago=1))
    notice = Notice(kind=NoticeKind.INTERRUPTION, source="imds", seen_at=NOW)
    job_instance = replace(job_instance, record=job_instance.record.model_copy(update={"notice": notice}))
    assert [type(a) for a in decide(view, [job_instance], POOLS)] == [Launch]


@pytest.mark.parametrize(
    ("view", "pools", "market"),
    [
        (job(due=40, work=WORK), [dry(), pool(ON_DEMAND)], None),  # it waits for spot
        (job(), [dry(), pool(ON_DEMAND)], None),
        (job(due=10.3, work=WORK), POOLS, ON_DEMAND),  # past the last safe moment
        (job(due=10.3, work=WORK), [dry(), pool(ON_DEMAND)], ON_DEMAND),
        (job(due=40, work=WORK), POOLS, SPOT),
        (job(due=40, work=WORK, cancel=True), POOLS, None),
    ],
)
def test_only_what_the_policy_would_take_is_launched(view, pools, market):
    launched = [a.market for a in noticed(view, pools).round() if isinstance(a, Launch)]
    assert launched == ([] if market is None else [market])


def test_nothing_is_launched_where_a_free_instance_is_there_for_it_and_each_is_there_for_one():
    free = instance("s-0", launched_for=None)
    world = noticed(others=[free])
    assert not any(isinstance(a, Launch) for a in world.round())
    world.give_back("j")
    world.settle()
    assert world.jobs["j"].record.owner == "s-0"
    other, other_instances = holding(job("k", due=40, work=WORK), instance("i-1", launched_for="k", ago=1))
    world = noticed(others=[free, *other_instances])
    world.jobs["k"] = other
    world.notice("i-1")
    assert [a.job_id for a in world.round() if isinstance(a, Launch)] == ["k"]


def test_no_launch_for_a_notice_passes_the_cap():
    world = noticed(cap=Cap(instances=1, usd_per_hour=None))
    assert not any(isinstance(a, Launch) for a in world.round())
    world.give_back("j")
    world.settle()
    assert not any(isinstance(a, Launch) for a in world.changes)
    world.lose("i-0")
    world.settle()
    assert sum(isinstance(a, Launch) for a in world.changes) == 1


def test_a_gang_is_replaced_whole():
    instances = [instance(f"i-{n}", ago=1) for n in range(3)]
    world = noticed(job(due=40, work=WORK, nodes=3), instances=instances)
    assert [a.count for a in world.round() if isinstance(a, Launch)] == [3]
    world.give_back("j")
    world.boot()
    world.settle()
    assert sorted(world.instances) == ["i-0", "n-1", "n-2", "n-3"]  # instances that the cloud preempts are not released


def test_a_drained_cluster_launches_nothing():
    assert not any(isinstance(a, Launch | Assign) for a in noticed(draining=True).round())


FATES = ["notice", "back", "boot", "take", "pass"]


@given(
    fates=st.lists(st.tuples(st.sampled_from(FATES), st.integers(0, 9)), max_size=14),
    due=st.sampled_from([None, 10.4, 40.0]),
    nodes=st.integers(1, 2),
)
@settings(max_examples=settings.default.max_examples * 4 // 5, deadline=None)
def test_beside_what_a_job_holds_there_is_never_more_than_one_launch(fates, due, nodes):
    view = job(due=due, work=WORK, nodes=nodes)
    world = World([view], (), [pool(), pool(zone="b", usd=1.2), pool(ON_DEMAND)])
    for fate, dice in fates:
        alive = sorted(world.instances)
        ending_instances = [n for n in alive if world.instances[n].ending]
        given_to = world.jobs["j"].record
        world.now += TICK
        match fate:
            case "notice" if alive:
                world.notice(alive[dice % len(alive)])
            case "back" if given_to is not None and given_to.state.owned and world.instances[given_to.owner].ending:
                world.give_back("j")
            case "boot":
                world.boot()
            case "take" if ending_instances:
                world.lose(ending_instances[0])
            case "pass":
                world.now += dice * TICK
        world.settle(10)
        fresh = [i for i in world.instances.values() if i.idle and not i.ending]
        assert len(fresh) <= nodes


# Whole workloads


def test_notice_by_hand():
    """Two spot pools, one of which ends after an hour. Launch and set-up take 0.25 h each, saving 0.1 h. The job boots
    until 0.25, is set up until 0.5, works until the notice at 0.75, and is queued again at 0.85. The instance that is
    launched at the notice is ready at 1.0 and set up at 1.25. A launch after the job's return would be 0.1 h later.
    """
    markets = {"t": trace((12, 1), (600, 0), name="t"), "u": trace((6, 0), (600, 1), name="u")}
    pools = [offer("spot", 1.0, availability="t"), offer("spot", 1.1, availability="u") | {"zone": "y"}, offer(usd=9.0)]
    fleet = {"pools": pools, "notice_seconds": 900, "save_seconds": 360}
    read = workload([{"id": "a", "hours": 2, "deadline_hours": 40}], markets, **fleet)
    for blind, ended in ((False, 3.0), (True, 3.1)):
        run = simulate(read, markets, deaf if blind else plan)
        first, second = run.attempts
        hour = timedelta(hours=1)
        at = [(m - run.began_at) / hour for m in (first.worked_until, first.ended_at, second.began_at, second.ended_at)]
        assert at == pytest.approx([0.75, 0.85, ended - 2.0, ended])
        totals = figures(run)
        assert (totals.preemptions, totals.launched) == (1, 2)
        # The old one is paid until it is taken, the new one from its launch.
        assert totals.cost.total == pytest.approx(1.0 + 1.1 * 2.25)


def deaf(view, now):
    """The plan as it would be if a notice were heard of only when the job is back."""
    busy = [i for i in view.instances if i.ending and not i.idle]
    silent = {i.instance_id: replace(i, ending=False, deadline=None) for i in busy}
    return plan(replace(view, instances=tuple(silent.get(i.instance_id, i) for i in view.instances)), now)


@settings(max_examples=settings.default.max_examples * 2 // 5, deadline=None)
@given(
    jobs(st.sampled_from([None, 0.2, 0.6, 1.5, 5, 12])), traces(), st.integers(0, 2), st.sampled_from([60, 120, 900])
)
def test_with_notice_too_no_deadline_that_could_be_kept_is_missed(drawn_jobs, market, base, seconds):
    parts = [standing(base)] if base else []
    pools = [offer(), offer("spot", 1.0, availability="t")]
    read = workload(drawn_jobs, {"t"}, standing=parts, pools=pools, notice_seconds=seconds, save_seconds=60, horizon=60)
    run = simulate(read, {"t": market})
    check(run, market)
    for task in run.tasks.values():
        deadline, least = task.submission.deadline_at, task.job.upper + 0.5 + 60 / 3600
        if deadline is not None and task.job.deadline_hours >= least:
            assert task.finished_at is not None
            assert task.finished_at <= deadline
