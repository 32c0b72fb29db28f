"""Idle instances in simulations: each is released within the limit, and deadlines are met at every limit."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.jobs.records import JobState
from hypothesis import given, settings
from hypothesis import strategies as st
from provision_helpers import HOUR, ON_DEMAND, TICK, WORK, World, job, pool
from workload_helpers import drive, offer, trace

LIMIT = timedelta(minutes=5)
POOLS = [pool(), pool(ON_DEMAND)]

FATES = st.lists(
    st.tuples(st.sampled_from(["boot", "lose", "pass", "cancel", "finish"]), st.integers(0, 30)), max_size=12
)


@given(
    drawn_jobs=st.lists(st.tuples(st.sampled_from([None, 12.0, 40.0]), st.booleans(), st.integers(1, 2)), max_size=4),
    fates=FATES,
)
@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
def test_every_idle_instance_is_gone_within_the_limit_and_a_changeover(drawn_jobs, fates):
    jobs = [job(f"j{n}", due=due, work=WORK, critical=c, nodes=nodes) for n, (due, c, nodes) in enumerate(drawn_jobs)]
    world = World(jobs, (), POOLS, idle_limit=LIMIT)
    for fate, dice in fates:
        running = [j for j in sorted(world.jobs) if world.jobs[j].state.owned]
        match fate:
            case "boot":
                world.boot()
            case "lose" if world.instances:
                world.lose(sorted(world.instances)[dice % len(world.instances)])
            case "pass":
                world.now += dice * TICK
            case "cancel" if jobs:
                name = sorted(world.jobs)[dice % len(jobs)]
                world.jobs[name] = replace(world.jobs[name], cancel=True)
            case "finish" if running:
                finish(world, running[dice % len(running)])
        world.settle(12)
        for i in world.instances.values():
            since = (i.idle_since or world.now) if i.idle and i.record is not None else None
            world.instances[i.instance_id] = replace(i, idle_since=since)
    for name in sorted(world.jobs):
        world.jobs[name] = replace(world.jobs[name], cancel=True)
    world.settle(12)
    world.now += LIMIT + HOUR
    world.settle(12)
    assert world.instances == {}


def finish(world, name):
    view = world.jobs[name]
    over = {"state": JobState.SUCCEEDED, "owner": None, "last_owner": view.record.owner}
    record = view.record.model_copy(update=over)
    world.jobs[name] = replace(view, record=record)


def test_a_short_gap_between_jobs_costs_less_than_a_launch_and_a_long_one_ends_the_instance():
    """Launch and set-up take 0.25 h each; 0.5 h idle is allowed."""
    fleet = {"pools": [offer()], "idle_limit_seconds": 1800}
    for gap, launches in ((0.25, 1), (0.75, 2)):
        first = {"id": "a", "hours": 1, "priority": "critical"}
        second = {"id": "b", "hours": 1, "priority": "critical", "arrival_hours": 1.5 + gap}
        run, totals = drive([first, second], **fleet)
        assert totals.launched == launches
        # Boot, set-up, work; the gap, or the limit and another boot; set-up, work; the limit.
        paid = 0.25 + 1.25 + gap + 1.25 + 0.5 if launches == 1 else 2 * (0.25 + 1.25 + 0.5)
        assert totals.cost.total == pytest.approx(3 * paid)
        assert totals.idle_usd_share == pytest.approx(1 - 2.5 / paid)
        assert {m.ended_at for m in run.machines} <= {run.ended_at, run.began_at + 2 * HOUR}


@given(
    # A deadline that can be kept leaves a changeover of 0.5 h, and a tick of 5 minutes.
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 60), st.none() | st.integers(7, 90)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=6),
    st.sampled_from([60, 300, 1800]),
)
@settings(max_examples=settings.default.max_examples * 2 // 5, deadline=None)
def test_whatever_the_limit_deadlines_hold_and_nothing_idles_for_longer(drawn_jobs, spells, limit):
    jobs = [
        {"id": f"j{n}", "hours": length / 12, "arrival_hours": at / 12}
        | ({} if slack is None else {"deadline_hours": (length + slack) / 12})
        for n, (length, at, slack) in enumerate(drawn_jobs)
    ]
    market = trace(*spells)
    pools = [offer(), offer("spot", 1.0, availability="t")]
    run, totals = drive(jobs, {"t": market}, pools=pools, idle_limit_seconds=limit, horizon=60)
    assert (totals.misses, totals.refused) == (0, 0)
    for machine in run.machines:
        busy_spans = sorted((a.began_at, a.ended_at) for a in run.attempts if machine.instance_id in a.instances)
        edges = [machine.ready_at, *(moment for span in busy_spans for moment in span), machine.ended_at]
        gaps = [end - start for start, end in zip(edges[::2], edges[1::2], strict=True)]
        # A tick is 300 s, and what is on its way to a job waits for it.
        assert max(gaps) <= timedelta(seconds=limit) + timedelta(hours=0.5)
