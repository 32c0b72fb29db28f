"""A launch accounts for instances that will be free soon, and no job waits long for that."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.records import JobRecord, JobState, Progress, Reason
from everspot_core.schedule import Assign, Cap, Hold, Launch, Release, Why
from everspot_core.schedule.provisioning.inflight import HANDFUL, WAITING
from hypothesis import given, settings
from hypothesis import strategies as st
from provision_helpers import NOW, ON_DEMAND, decide, holding, instance, job, lost, outlook, pool
from workload_helpers import drive, offer, trace

from bench.burst import MAKESPAN_LIMIT, UNUSED_LIMIT, Burst, makespan, unused_share

POOLS = [pool(), pool(ON_DEMAND)]
LIMIT = timedelta(minutes=5)
CHANGEOVER = Changeover(timedelta(minutes=6), timedelta(minutes=15))
SHORT = outlook(5 / 3600)
"""Five seconds of work; changeovers take 0.1 h, 0.25 h at most."""
MINUTE = timedelta(minutes=1)


def burst(count, **more):
    return [job(f"j-{n:02}", changeover=CHANGEOVER, **more) for n in range(count)]


def launched(actions) -> int:
    """Return the number of instances that are launched for waiting jobs."""
    return sum(a.count for a in actions if isinstance(a, Launch) and not a.job_id.startswith("busy"))


def waits(actions) -> Counter[Why]:
    return Counter(a.cause for a in actions if isinstance(a, Hold))


def busy(count, minutes, **more):
    """Jobs that have run so long on instances that were launched for them."""
    jobs, instances = [], []
    for n in range(count):
        view = job(f"busy-{n:02}", changeover=CHANGEOVER, **more)
        new_instance = instance(f"i-{n:02}", launched_for=view.job_id, ago=1.0)
        view, job_instances = holding(view, new_instance)
        record = view.record.model_copy(update={"assigned_at": NOW - minutes * MINUTE})
        jobs.append(replace(view, record=record))
        instances += job_instances
    return jobs, instances


@pytest.mark.parametrize(("work", "least", "most"), [(None, 30, 30), (SHORT, HANDFUL, 15)])
def test_a_burst_of_short_jobs_shares_instances(work, least, most):
    actions = decide(burst(60, work=work), (), POOLS, idle_limit=LIMIT)
    assert least <= launched(actions) <= most
    assert waits(actions) == {Why.FREE_SOON: 60 - launched(actions)}


def test_the_same_burst_launches_nothing_more_while_its_instances_boot_and_run():
    jobs = burst(60)
    coming = [instance(f"n-{n:02}", launched_for=f"j-{n:02}", ready=False, ago=0.05) for n in range(15)]
    assert launched(decide(jobs, coming, POOLS, idle_limit=LIMIT)) == 0
    running, instances = busy(15, minutes=0.5)
    assert launched(decide([*jobs[15:], *running], instances, POOLS, idle_limit=LIMIT)) == 0


@pytest.mark.parametrize("count", [1, 2, HANDFUL])
def test_a_handful_of_jobs_of_unknown_length_never_waits(count):
    assert launched(decide(burst(count), (), POOLS, idle_limit=LIMIT)) == count


@pytest.mark.parametrize("work", [outlook(0.5), outlook(40.0)])
def test_long_jobs_have_a_launch_each(work):
    assert launched(decide(burst(60, work=work), (), POOLS, idle_limit=LIMIT)) == 60


@pytest.mark.parametrize(("minutes", "launches"), [(0.5, False), (1.9, True), (60, True)])
def test_jobs_of_unknown_length_wait_for_such_jobs_for_a_third_of_a_changeover_at_most(minutes, launches):
    running, instances = busy(12, minutes)
    actions = decide([*burst(20), *running], instances, POOLS, idle_limit=LIMIT)
    assert (launched(actions) == 20) is launches


def test_no_job_waits_like_that_for_longer_than_a_changeover_may_take():
    running, instances = busy(20, 0.5)
    for minutes, count in ((14, 0), (16, 20)):
        waiting = burst(20, ago=minutes / 60)
        assert launched(decide([*waiting, *running], instances, POOLS, idle_limit=LIMIT)) == count


def test_a_job_that_ran_for_long_before_it_was_interrupted_is_launched_for_at_once():
    running, instances = busy(20, 0.5)
    record = lost(Reason.LOST).model_copy(update={"job_id": "long", "held_seconds": 3600.0})
    other = lost(Reason.LOST).model_copy(update={"job_id": "short", "held_seconds": 2.0})
    jobs = [job("long", changeover=CHANGEOVER, record=record), job("short", changeover=CHANGEOVER, record=other)]
    actions = decide([*jobs, *running], instances, POOLS, idle_limit=LIMIT)
    assert [a.job_id for a in actions if isinstance(a, Launch)] == ["long"]


def done(name, seconds) -> tuple:
    record = JobRecord(
        job_id=name, state=JobState.SUCCEEDED, epoch=1, last_owner="x", changed_at=NOW, held_seconds=seconds
    )
    return replace(job(name, changeover=CHANGEOVER), record=record)


@pytest.mark.parametrize(("seconds", "launches"), [(5.0, 0), (3600.0, 5)])
def test_what_jobs_of_the_same_program_took_counts_as_the_length(seconds, launches):
    """Three busy instances are less than a handful, so nothing that is only assumed makes a job wait for them."""
    running, instances = busy(3, 0.01)
    ended = [done(f"done-{n}", seconds) for n in range(3)]
    assert launched(decide([*burst(5), *running, *ended], instances, POOLS, idle_limit=LIMIT)) == launches
    assert launched(decide([*burst(5), *running], instances, POOLS, idle_limit=LIMIT)) == 5


def with_spec(view, **more):
    spec = view.submission.spec.model_copy(update=more)
    return replace(view, submission=view.submission.model_copy(update={"spec": spec}))


@pytest.mark.parametrize("declared", [False, True])
def test_jobs_that_run_much_longer_than_expected_are_waited_for_by_no_others(declared):
    """Each of twelve running jobs was expected to take five seconds. Some say that one step of two is done."""
    expected = {"expected_duration": timedelta(seconds=5)} if declared else {}
    ended = [] if declared else [done(f"done-{n}", 5.0) for n in range(9)]
    for minutes, launches in ((0.2, 0), (10, 20)):
        running, instances = busy(12, minutes)
        progress = Progress(step=1, total_steps=2) if declared else Progress()
        running = [
            with_spec(replace(j, record=j.record.model_copy(update={"progress": progress})), **expected)
            for j in running
        ]
        waiting = [with_spec(j, **expected) for j in burst(20)]
        assert launched(decide([*waiting, *running, *ended], instances, POOLS, idle_limit=LIMIT)) == launches


@pytest.mark.parametrize(("script", "launches"), [("prepare.py", 0), ("train.py", 5)])
def test_a_job_learns_nothing_from_another_script_of_its_project(script, launches):
    running, instances = busy(3, 0.01)
    ended = [with_spec(done(f"done-{n}", 5.0), entrypoint=["python", "prepare.py", str(n)]) for n in range(3)]
    running = [with_spec(j, entrypoint=["python", "prepare.py"]) for j in running]
    waiting = [with_spec(j, entrypoint=["python", script, "--lr", str(n)]) for n, j in enumerate(burst(5))]
    assert launched(decide([*waiting, *running, *ended], instances, POOLS, idle_limit=LIMIT)) == launches


@pytest.mark.parametrize(
    "urgent",
    [
        {"critical": True},
        {"nodes": 2},
        {"due": 0.3, "work": SHORT},  # its last safe moment
        {"due": 40.0},  # a deadline, and nobody knows whether there is time
    ],
)
def test_who_cannot_wait_has_a_launch_however_soon_an_instance_is_free(urgent):
    running, instances = busy(20, 0.01)
    actions = decide([job("urgent", changeover=CHANGEOVER, **urgent), *running], instances, POOLS, idle_limit=LIMIT)
    assert [a.job_id for a in actions if isinstance(a, Launch)] == ["urgent"]


def test_a_job_waits_for_nothing_that_it_would_not_take():
    running, instances = busy(20, 0.01)
    elsewhere = [replace(i, record=i.record.model_copy(update={"market": ON_DEMAND})) for i in instances]
    assert launched(decide([*burst(5), *running], elsewhere, POOLS, idle_limit=LIMIT)) == 5
    ending_instances = [replace(i, ending=True) for i in instances]
    assert launched(decide([*burst(5), *running], ending_instances, POOLS, idle_limit=LIMIT)) == 5


def test_pending_instance_is_kept_for_waiting_jobs():
    """Its boot takes longer than the idle limit, after which it would be released without such a job."""
    late = [
        instance(f"n-{n:02}", launched_for=f"over-{n:02}", ready=False, ago=0.09) for n in range(2 * HANDFUL)
    ]  # fmt: skip
    actions = decide(burst(4), late, POOLS, idle_limit=LIMIT)
    assert launched(actions) == 0
    assert waits(actions) == {Why.FREE_SOON: 4}
    released = {a.instance_id for a in actions if isinstance(a, Release)}
    assert len({i.instance_id for i in late} - released) == 4
    assert {a.instance_id for a in decide((), late, POOLS, idle_limit=LIMIT)} == {i.instance_id for i in late}


def test_a_new_instance_whose_job_is_done_takes_the_next_one():
    new = instance("n-1", launched_for="over", idle_since=NOW)
    actions = decide(burst(3), [new], POOLS, idle_limit=LIMIT)
    assert [(a.job_id, a.instance_id) for a in actions if isinstance(a, Assign)] == [("j-00", "n-1")]
    assert not any(isinstance(a, Release) for a in actions)


def test_who_waits_behind_others_says_for_how_long_and_when_on_demand_comes_at_the_latest():
    running, instances = busy(20, 0.5, work=outlook(0.05))
    (hold,) = [
        a
        for a in decide([job(work=SHORT, due=40), *running], instances, POOLS, idle_limit=LIMIT)
        if isinstance(a, Hold)
    ]
    assert hold.cause is Why.FREE_SOON
    assert hold.figures["minutes"] == pytest.approx(3)
    assert hold.on_demand_at is not None


def test_room_under_the_cap_stays_for_the_deadline_of_a_job_that_waits_behind_others():
    running, instances = busy(20, 0.5, work=outlook(0.05))
    ran = lost(Reason.LOST).model_copy(update={"job_id": "long", "held_seconds": 36000.0})
    waiting = [job("dated", work=SHORT, due=2), job("long", changeover=CHANGEOVER, record=ran)]
    actions = decide([*waiting, *running], instances, POOLS, idle_limit=LIMIT, cap=Cap(instances=21, usd_per_hour=None))
    assert waits(actions) == {Why.FREE_SOON: 1, Why.AT_CAP: 1}


def test_the_wait_is_no_longer_than_a_launch_and_a_fifth():
    for hours, count in ((0.1 * WAITING - 0.001, 0), (0.1 * WAITING + 0.001, 1)):
        running, instances = busy(1, 0.5, work=outlook(hours))
        assert launched(decide([job(work=SHORT), *running], instances, POOLS, idle_limit=LIMIT)) == count


def test_lengths_that_turn_out_longer_do_not_hold_anybody_up_for_good():
    """Jobs declared as five seconds that run for hours: the next ones are launched for after a while."""
    running, instances = busy(12, 200, expected_duration=timedelta(seconds=5))
    assert launched(decide([*burst(4), *running], instances, POOLS, idle_limit=LIMIT)) == 4


@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(0, 30), st.none() | st.integers(60, 200)), min_size=1, max_size=12
    ),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=5),
    st.sampled_from([0, 300]),
)
@settings(max_examples=settings.default.max_examples // 2, deadline=None)
def test_deadlines_of_short_jobs_hold_however_many_there_are(drawn_jobs, spells, limit):
    """Minutes; launch and set-up take half an hour together."""
    jobs = [
        {"id": f"j{n}", "hours": length / 60, "arrival_hours": at / 60}
        | ({} if slack is None else {"deadline_hours": (length + slack) / 60})
        for n, (length, at, slack) in enumerate(drawn_jobs)
    ]
    pools = [offer(), offer("spot", 1.0, availability="t")]
    _, totals = drive(jobs, {"t": trace(*spells)}, pools=pools, idle_limit_seconds=limit, horizon=60)
    assert totals.misses == 0


@pytest.mark.parametrize(
    "burst", [Burst("at once", True, "nothing measured"), Burst("one a second", False, "changeovers measured")]
)
def test_a_simulated_burst_pays_for_nothing_and_is_done_about_as_soon(burst):
    default_run, all_at_once = burst.run(), burst.run(at_once=True)
    assert unused_share(default_run) <= UNUSED_LIMIT < unused_share(all_at_once)
    assert makespan(default_run) <= MAKESPAN_LIMIT * makespan(all_at_once)
