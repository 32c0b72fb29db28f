"""Small jobs that share launched instances: one launch for as many as fit, and room beside a job."""

from datetime import timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import Resources
from everspot_core.schedule import Assign, Hold, Launch, Why
from hypothesis import given, settings
from hypothesis import strategies as st
from provision_helpers import ON_DEMAND, SPOT, WORK, decide, instance, job, outlook, pool
from workload_helpers import drive, offer, trace

FOUR = InstanceType(name="four", vcpus=4, memory_gib=16)
QUARTER = Resources(vcpus=1, memory_gib=4, shared=True)
POOLS = [pool(kind=FOUR), pool(ON_DEMAND, kind=FOUR)]
SHARED = {"shared": True, "idle_limit": timedelta(minutes=5)}


def small(name, **more):
    return job(name, resources=more.pop("resources", QUARTER), **more)


def trials(count, **more):
    return [small(f"j{n}", **more) for n in range(count)]


def counts(actions) -> tuple[int, int]:
    """Launches, and jobs that wait for what is on its way."""
    hold_actions = [a for a in actions if isinstance(a, Hold) and a.cause is Why.ON_ITS_WAY]
    return sum(isinstance(a, Launch) for a in actions), len(hold_actions)


@pytest.mark.parametrize(("count", "launches"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_as_many_wait_for_one_launch_as_will_fit(count, launches):
    for view in (trials(count), trials(count, due=40, work=WORK)):
        assert counts(decide(view, pools=POOLS, **SHARED)) == (launches, count - launches)


def test_jobs_that_do_not_share_have_one_each_and_so_have_all_where_nothing_is_shared():
    alone = trials(4, resources=QUARTER.model_copy(update={"shared": False}))
    assert counts(decide(alone, pools=POOLS, **SHARED)) == (4, 0)
    assert counts(decide(trials(4), pools=POOLS, **SHARED | {"shared": False})) == (4, 0)


def test_what_boots_is_waited_for_by_all_for_whom_there_is_room_whoevers_turn_is_first():
    boots = instance("n-1", kind=FOUR, launched_for="j3", ready=False)
    assert counts(decide(trials(4), [boots], POOLS, **SHARED)) == (0, 4)
    assert counts(decide(trials(5), [boots], POOLS, **SHARED)) == (1, 4)


def test_once_it_is_ready_its_own_job_has_it_and_the_others_follow():
    ready = instance("n-1", kind=FOUR, launched_for="j3")
    actions = decide(trials(4), [ready], POOLS, **SHARED)
    assert [(a.job_id, a.shares) for a in actions if isinstance(a, Assign)] == [("j3", True)]
    assert counts(actions) == (0, 3)


def test_a_job_that_must_not_wait_for_spot_does_not_wait_for_room_on_it():
    boots = instance("n-1", SPOT, kind=FOUR, launched_for="a", ready=False)
    urgent = small("b", due=10.3, work=WORK)
    actions = decide([small("a", due=40, work=WORK), urgent], [boots], POOLS, **SHARED)
    assert [(a.job_id, a.market) for a in actions if isinstance(a, Launch)] == [("b", ON_DEMAND)]


def test_a_launch_that_is_given_up_is_waited_for_by_nobody():
    late = instance("n-1", kind=FOUR, launched_for="j0", ready=False, ago=9)
    assert counts(decide(trials(2, work=outlook(5.0)), [late], POOLS, **SHARED)) == (1, 1)


def test_a_sweep_shares_what_is_launched_for_it():
    """Eight trials of one GPU and half an hour on machines of four: two machines, 0.25 h of boot, set-up and work."""
    jobs = [{"id": f"t{n}", "hours": 0.5, "resources": {"gpus": 1, "vcpus": 1, "memory_gib": 4}} for n in range(8)]
    market = {"t": trace((600, 8))}
    pools = [offer("spot", 1.0, availability="t"), offer(usd=3.0)]
    run, totals = drive(jobs, market, pools=pools, shared=True, idle_limit_seconds=60)
    assert (totals.finished, totals.launched) == (8, 2)
    assert totals.cost.total == pytest.approx(2 * (0.25 + 0.25 + 0.5 + 1 / 60))
    assert {m.ended_at for m in run.machines} == {run.ended_at}
    _, apart = drive(jobs, market, pools=pools, idle_limit_seconds=60)
    assert apart.launched == 8


@given(
    drawn_jobs=st.lists(
        st.tuples(st.integers(1, 24), st.integers(0, 40), st.integers(0, 4), st.none() | st.integers(8, 90)),
        min_size=1,
        max_size=8,
    ),
    spells=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=6),
)
@settings(max_examples=settings.default.max_examples // 5, deadline=None)
def test_whatever_shares_deadlines_hold_and_all_is_let_go(drawn_jobs, spells):
    jobs = [
        {"id": f"j{n}", "hours": length / 12, "arrival_hours": at / 12, "resources": {"gpus": gpus, "vcpus": 1}}
        | ({} if slack is None else {"deadline_hours": (length + slack) / 12})
        for n, (length, at, gpus, slack) in enumerate(drawn_jobs)
    ]
    pools = [offer(), offer("spot", 1.0, availability="t")]
    _, totals = drive(jobs, {"t": trace(*spells)}, pools=pools, shared=True, idle_limit_seconds=300, horizon=60)
    assert (totals.misses, totals.refused) == (0, 0)
