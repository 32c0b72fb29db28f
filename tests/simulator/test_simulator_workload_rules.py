"""The simulation raises an error for actions that a plan must not take."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.jobs.records import JobState, Market, Reason
from everspot_core.schedule import (
    Assign,
    ClearAssignment,
    Cordon,
    Expire,
    Finish,
    Hold,
    Launch,
    PoolKey,
    Refuse,
    Release,
    Stop,
    Why,
    plan,
)
from everspot_simulator.drive import simulate
from everspot_simulator.invariants import Broken
from workload_helpers import offer, standing, trace, workload

COMMON = {"cause": Why.PREFERRED_MARKET, "epoch": 1}
PLACE = {"instance_type": "four", "zone": "z", "market": Market.ON_DEMAND}
RANKED = {"ranked": (PoolKey(**PLACE),), "ordered": True}


def assign(job="a", instance="i-000001", **more):
    return Assign(**({"job_id": job, "instance_id": instance, **COMMON, **PLACE} | more))


def launch(count=1, **more):
    return Launch(**({"job_id": "a", "cause": Why.NO_SPOT, "count": count, **PLACE, **RANKED} | more))


WHY = {"cause": Why.NEEDED_NO_MORE}
FIRST = {"job_id": "a", "instance_id": "i-000001", "epoch": 1}
STOP = Stop(**FIRST, reason=Reason.MOVE, **WHY)

JOBS = [
    {"id": "a", "hours": 1},
    {"id": "b", "hours": 1},
    {"id": "g", "hours": 1, "nodes": 2},
    {"id": "gpus", "hours": 1, "resources": {"gpus": 4}},
]
SMALL = {"name": "small", "vcpus": 4, "memory_gib": 16}


@pytest.mark.parametrize(
    ("plans", "rule"),
    [
        ([[assign(), assign("b")]], "an instance holds one job"),
        ([[assign()], [assign("a", "i-000002", epoch=2)]], "only a job that waits"),
        ([[assign(epoch=2)]], "the epoch is the one that was seen"),
        ([[assign("nobody")]], "there is no such job"),
        ([[assign(instance="i-999999")]], "there is no such instance"),
        ([[assign("g")]], "a gang runs whole"),
        ([[assign("g", gang=("i-000001",))]], "a gang runs whole"),
        ([[assign("g", gang=("i-000003",))]], "a gang runs on one type"),
        ([[assign(gang=("i-000002",))]], "a gang runs whole"),
        ([[assign("gpus", "i-000003", instance_type="small")]], "an instance has what its job needs"),
        ([[assign(instance="i-000003")]], "an action says where it puts a job"),
        ([[launch()], [assign(instance="i-000004")]], "an instance that boots takes no job"),
        ([[launch(count=0)]], "at least one instance"),
        ([[launch(zone="elsewhere")]], "instances come from pools"),
        ([[launch(job_id="nobody")]], "for jobs that are not over"),
        ([[Release(instance_id="i-000001", **WHY)]], "the standing fleet is never released"),
        ([[Release(instance_id="i-999999", **WHY)]], "there is no such instance"),
        ([[assign()], [ClearAssignment(**FIRST, **WHY)]], "an instance that holds a job is not cleared"),
        ([[ClearAssignment(**FIRST, **WHY)]], "what is cleared is what was seen"),
        ([[Stop(**(FIRST | {"epoch": 0}), reason=Reason.MOVE, **WHY)]], "only the owner is told to stop"),
        ([[assign()], [STOP], [assign(epoch=2)]], "an assignment is cleared before the next"),
        (
            [[assign()], [Finish(job_id="a", epoch=1, state=JobState.CANCELLED, reason=Reason.CANCEL, **WHY)]],
            "is stopped first",
        ),
        ([[assign()], [Refuse(job_id="a", epoch=1, earliest=None, usd=None, **WHY)]], "has begun is not refused"),
        ([[assign()], [STOP], [Refuse(job_id="a", epoch=1, earliest=None, usd=None, **WHY)]], "is not refused"),
        ([[Cordon(instance_id="i-000001", **WHY)]], "only what is about to be taken"),
        ([[Expire(**FIRST, **WHY)]], "nothing has happened"),
    ],
)
def test_the_rule_is_kept(plans, rule):
    fleet = {
        "types": [{"name": "four", "vcpus": 4, "memory_gib": 16, "gpus": 4, "gpu_memory_gib": 16}, SMALL],
        "standing": [standing(2), standing() | {"instance_type": "small"}],
        "pools": [offer()],
    }
    script = iter(plans)
    with pytest.raises(Broken, match=rule):
        simulate(workload(JOBS, **fleet), {}, lambda view, now: next(script))


def test_a_job_that_is_launched_for_and_runs_is_not_released():
    script = [[launch()], [], [assign(instance="i-000001")], [Release(instance_id="i-000001", **WHY)]]
    batches = iter(script)
    with pytest.raises(Broken, match="holds a job is not released"):
        simulate(workload([{"id": "a", "hours": 1}], pools=[offer()]), {}, lambda view, now: next(batches))


def test_shared_instances_are_not_filled_beyond_their_room():
    jobs = [{"id": name, "hours": 1, "resources": {"gpus": 2, "vcpus": 1}} for name in "abc"]
    actions = [assign("a"), assign("b"), assign("c")]
    with pytest.raises(Broken, match="more than it has room for"):
        simulate(workload(jobs, standing=[standing()], shared=True), {}, lambda view, now: actions)


def test_a_launch_that_the_pool_cannot_fill_is_refused_whole_and_reported():
    observations = []

    def greedy(view, now):
        (pool,) = view.pools
        observations.append((pool.available, len(view.instances), len(pool.refused_at)))
        return [launch(3, market=Market.SPOT)] if len(observations) == 1 else [Hold(job_id="a", cause=Why.NO_CAPACITY)]

    market = trace((12, 2), (12, 0))
    pools = [offer("spot", availability="t")]
    run = simulate(workload([{"id": "a", "hours": 1}], {"t"}, pools=pools, horizon=0.5), {"t": market}, greedy)
    assert observations[:2] == [(2, 0, 0), (2, 0, 1)]
    assert run.launches_refused == 1
    assert not run.machines


def test_the_plan_is_asked_again_where_it_left_something_to_do():
    """Somebody who never comes to rest is stopped after eight plans, and asked again a tick later."""
    asked_at = []

    def restless(view, now):
        asked_at.append(now)
        (job,) = view.jobs
        if job.state is JobState.PENDING and view.instances[0].idle:
            return [replace(a, epoch=job.epoch + 1) for a in [assign()]]
        if job.state is JobState.PENDING:
            return [ClearAssignment(**(FIRST | {"epoch": job.epoch}), **WHY)]
        return [replace(STOP, epoch=job.epoch)]

    simulate(workload([{"id": "a", "hours": 9}], standing=[standing()], horizon=0.1), {}, restless)
    tick = timedelta(minutes=5)
    assert [at - asked_at[0] for at in asked_at] == [0 * tick] * 8 + [tick] * 8


def test_a_plan_sees_what_the_cluster_is_like():
    """A job on spot that is about to be preempted: the plan's view before and after."""
    views = []

    def watching(view, now):
        views.append((now, view))
        return plan(view, now)

    market = trace((12, 1), (6, 0), (300, 1))
    fleet = {"standing": [standing(market="spot", usd=1, availability="t")], "pools": [offer(usd=5)]}
    job = {"id": "a", "team": "x", "hours": 2, "hours_upper": 3, "deadline_hours": 50}
    simulate(workload([job], {"t"}, **fleet), {"t": market}, watching)
    begin = views[0][0]
    at_loss = next(v for now, v in views if now - begin == timedelta(hours=1))
    (lost,) = at_loss.jobs
    assert lost.state is JobState.PENDING
    assert lost.record.last_reason is Reason.NOTICE
    assert lost.preempted_at == (begin + timedelta(hours=1),)
    assert lost.outlook.remaining == timedelta(hours=1.25)  # set up for 0.25 h, worked for 0.75 h
    assert lost.outlook.remaining_upper == timedelta(hours=2.25)
    assert at_loss.instances == ()
    assert at_loss.usage["x"] == pytest.approx(1.0, rel=0.02)
    running = next(v for now, v in views if now - begin == timedelta(0) and v.jobs[0].state.owned)
    assert running.jobs[0].outlook.changing == timedelta(hours=0.25)
    assert at_loss.tick == timedelta(minutes=5)
