"""What the plan does in each situation, one table or case per rule."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from everspot_core.catalogue import InstanceType
from everspot_core.job import Budget, JobSpec, JobSubmission, Priority, Resources
from everspot_core.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Notice,
    NoticeKind,
    Order,
    Reason,
    Role,
)
from everspot_core.schedule import (
    Assign,
    Clear,
    Complete,
    Cordon,
    Drill,
    DropDrills,
    Expire,
    Finish,
    Hold,
    InstanceView,
    JobView,
    Restore,
    Stop,
    Void,
    Why,
    plan,
    say,
)
from view_helpers import cluster_view, instance_view, job_view, spent

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def job(name: str, *, record: JobRecord | None = None, age_minutes: float = 10, **kw) -> JobView:
    view = {k: kw.pop(k) for k in ("stale", "cancel", "drills", "spent") if k in kw}
    deadline_at = kw.pop("deadline_at", None)
    spec = JobSpec(name=name, recipe="image-classification", **kw)
    submitted = NOW - timedelta(minutes=age_minutes)
    submission = JobSubmission(job_id=name, spec=spec, submitted_at=submitted, deadline_at=deadline_at)
    return job_view(submission=submission, record=record, **view)


def record(name: str, state: JobState, epoch: int = 1, owner: str | None = None, **kw) -> JobRecord:
    return JobRecord(job_id=name, state=state, epoch=epoch, owner=owner, **{"changed_at": NOW, **kw})


def instance(
    iid: str, market: Market = Market.SPOT, *, assignment: Assignment | None = None, shape: tuple = (2, 4, 0), **kw
) -> InstanceView:
    flags = {k: kw.pop(k) for k in ("stale", "gone", "ending", "rebalance", "deadline") if k in kw}
    vcpus, memory, gpus = shape
    fields = {
        "instance_id": iid,
        "cluster": "c",
        "role": Role.AGENT,
        "instance_type": f"t{vcpus}-{gpus}",
        "zone": "us-east-1a",
        "market": market,
        "vcpus": vcpus,
        "memory_gib": memory,
        "gpus": gpus,
        "state": InstanceState.READY,
        "booted_at": NOW,
        "updated_at": NOW,
    }
    return instance_view(instance_id=iid, record=InstanceRecord(**{**fields, **kw}), assignment=assignment, **flags)


def given(iid: str, name: str | None, epoch: int = 1, **kw) -> Assignment:
    return Assignment(instance_id=iid, job_id=name, epoch=epoch, changed_at=NOW, **kw)


def running(name: str, iid: str, epoch: int = 1, market: Market = Market.SPOT, **kw) -> tuple[JobView, InstanceView]:
    order = {k: kw.pop(k) for k in ("order", "reason") if k in kw}
    flags = {k: kw.pop(k) for k in ("gone", "ending", "deadline") if k in kw}
    return (
        job(name, record=record(name, JobState.RUNNING, epoch, iid), **kw),
        instance(
            iid,
            market,
            assignment=given(iid, name, epoch, **order),
            state=InstanceState.BUSY,
            job_id=name,
            epoch=epoch,
            **flags,
        ),
    )


def decide(jobs: list[JobView], instances: list[InstanceView], **kw) -> list:
    return plan(cluster_view(jobs=tuple(jobs), instances=tuple(instances), **kw), NOW)


def assigned(actions: list) -> dict[str, str]:
    return {a.job_id: a.instance_id for a in actions if isinstance(a, Assign)}


def test_jobs_choose_by_priority_then_deadline_then_age():
    soon, late = NOW + timedelta(hours=1), NOW + timedelta(hours=9)
    jobs = [
        job("old", age_minutes=90),
        job("young", age_minutes=1),
        job("soon", deadline_at=soon, age_minutes=2),
        job("late", deadline_at=late, age_minutes=80),
        job("critical", priority=Priority.CRITICAL, age_minutes=0),
    ]
    expected = ["critical", "soon", "late", "old", "young"]
    for count in range(1, 6):
        one_market = [instance(f"i-{n}") for n in range(count)]
        assert set(assigned(decide(jobs, one_market))) == set(expected[:count])


@pytest.mark.parametrize(
    ("priority", "markets", "expected", "why"),
    [
        (Priority.CRITICAL, [Market.SPOT, Market.ON_DEMAND], 1, Why.PREFERRED_MARKET),
        (Priority.CRITICAL, [Market.SPOT], 0, Why.OTHER_MARKET),
        (Priority.NORMAL, [Market.ON_DEMAND, Market.SPOT], 1, Why.PREFERRED_MARKET),
        (Priority.NORMAL, [Market.ON_DEMAND], 0, Why.OTHER_MARKET),
    ],
)
def test_each_priority_has_its_market_and_rather_takes_the_other_than_wait(priority, markets, expected, why):
    instances = [instance(f"i-{n}", market) for n, market in enumerate(markets)]
    (action,) = decide([job("j", priority=priority)], instances)
    assert isinstance(action, Assign)
    assert (action.instance_id, action.why, action.epoch) == (f"i-{expected}", why, 1)


def test_the_last_on_demand_instance_is_kept_for_a_critical_job_in_back_off():
    waiting = record("crit", JobState.PENDING, 1, errors=1, not_before=NOW + timedelta(seconds=5))
    jobs = [job("crit", record=waiting, priority=Priority.CRITICAL), job("norm")]
    actions = decide(jobs, [instance("i-od", Market.ON_DEMAND)])
    assert {(a.job_id, a.why) for a in actions} == {("crit", Why.BACK_OFF), ("norm", Why.KEPT_FOR_CRITICAL)}
    two = [instance("i-od", Market.ON_DEMAND), instance("i-od2", Market.ON_DEMAND)]
    assert list(assigned(decide(jobs, two))) == ["norm"]


def test_an_on_demand_instance_that_the_waiting_critical_job_could_not_use_is_not_kept():
    big = job("crit", priority=Priority.CRITICAL, resources=Resources(gpus=8))
    types = (InstanceType(name="p", vcpus=96, memory_gib=768, gpus=8),)
    actions = decide([big, job("norm")], [instance("i-od", Market.ON_DEMAND)], types=types)
    assert assigned(actions) == {"norm": "i-od"}


def test_the_smallest_instance_that_is_large_enough_is_taken():
    instances = [instance("a", shape=(8, 32, 1)), instance("b", shape=(8, 16, 0)), instance("c", shape=(2, 4, 0))]
    assert assigned(decide([job("small")], instances)) == {"small": "c"}
    assert assigned(decide([job("four", resources=Resources(vcpus=4))], instances)) == {"four": "b"}
    assert assigned(decide([job("gpu", resources=Resources(gpus=1))], instances)) == {"gpu": "a"}


@pytest.mark.parametrize(
    "flaw",
    [
        {"stale": True},
        {"gone": True},
        {"ending": True},
        {"state": InstanceState.DRAINING},
        {"state": InstanceState.GONE},
        {"role": Role.SCHEDULER},
        {"assignment": given("i", None, cordoned=True)},
        {"notice": Notice(kind=NoticeKind.INTERRUPTION, source="imds", seen_at=NOW, action_at=NOW)},
        {"state": InstanceState.BUSY},
    ],
)
def test_nothing_is_put_on_an_instance_that_is_not_fit_for_it(flaw):
    assert assigned(decide([job("j")], [instance("i", **flaw)])) == {}


def test_an_instance_that_the_cloud_recommends_to_leave_comes_last():
    away = Notice(kind=NoticeKind.REBALANCE, source="imds", seen_at=NOW)
    instances = [instance("a", notice=away), instance("b", rebalance=True), instance("c", Market.ON_DEMAND)]
    assert assigned(decide([job("j")], instances)) == {"j": "c"}
    assert assigned(decide([job("j")], instances[:1])) == {"j": "a"}


@pytest.mark.parametrize(
    ("priority", "reason", "expected"),
    [
        (Priority.NORMAL, Reason.DRILL, "od"),  # moves on
        (Priority.NORMAL, Reason.LOST, "od"),
        (Priority.NORMAL, Reason.ERROR, "spot"),  # an error is no fault of the instance
        (Priority.CRITICAL, Reason.DRILL, "od"),
    ],
)
def test_after_a_preemption_another_instance_is_preferred(priority, reason, expected):
    last = record("j", JobState.PENDING, 3, last_owner="spot", last_reason=reason)
    instances = [instance("spot"), instance("od", Market.ON_DEMAND)]
    actions = decide([job("j", record=last, priority=priority)], instances)
    assert assigned(actions) == {"j": expected}
    assert assigned(decide([job("j", record=last, priority=priority)], instances[:1])) == {"j": "spot"}


@pytest.mark.parametrize("reason", [Reason.LOST, Reason.NOTICE, Reason.SHUTDOWN])
def test_a_busy_instance_counts_as_free_once_its_lease_was_given_back_but_not_if_it_is_in_trouble(reason):
    busy = instance("i", state=InstanceState.BUSY, job_id="old", epoch=2)
    done = job("old", record=record("old", JobState.SUCCEEDED, 2, last_owner="i", last_reason=Reason.FINISHED))
    assert assigned(decide([done, job("new")], [busy])) == {"new": "i"}
    taken = job("old", record=record("old", JobState.PENDING, 2, last_owner="i", last_reason=reason))
    assert assigned(decide([taken, job("new")], [busy])) == {}


def test_a_lease_that_stands_still_is_taken_and_one_whose_instance_is_gone_at_once():
    expired, holder = running("j", "i", 4, stale=True)
    (action,) = decide([expired], [holder])
    assert isinstance(action, Expire)
    assert (action.job_id, action.instance_id, action.epoch, action.why) == ("j", "i", 4, Why.LEASE_EXPIRED)
    alive, lost = running("j", "i", 4, gone=True)
    (action,) = decide([alive], [lost])
    assert isinstance(action, Expire)
    assert action.why is Why.INSTANCE_GONE
    assert decide(*[[x] for x in running("j", "i", 4)]) == []


def test_an_assignment_whose_lease_is_over_is_cleared():
    for over in (
        record("j", JobState.PENDING, 2, last_owner="i", last_reason=Reason.NOTICE),
        record("j", JobState.SUCCEEDED, 2),
        record("j", JobState.RUNNING, 2, "other"),
        record("j", JobState.RUNNING, 3, "i"),
    ):
        actions = decide([job("j", record=over)], [instance("i", assignment=given("i", "j", 2))])
        clear = Clear(instance_id="i", job_id="j", epoch=2, why=Why.OWNER_LEFT)
        assert clear in actions
        assert assigned(actions) == {}
    (unknown,) = decide([], [instance("i", assignment=given("i", "nobody", 1))])
    assert unknown.why is Why.UNKNOWN_JOB


@pytest.mark.parametrize("state", [JobState.ASSIGNED, JobState.RUNNING])
@pytest.mark.parametrize(
    "empty", [None, given("i", None), given("i", None, cordoned=True), given("i", None, order=Order.LEAVE)]
)
def test_an_owner_whose_assignment_names_no_job_gets_it_restored_before_anything_is_asked_of_it(state, empty):
    for wish in ({}, {"cancel": True}, {"drills": (Drill(drill_id="d", at=NOW),)}):
        actions = decide([job("j", record=record("j", state, 2, "i"), **wish)], [instance("i", assignment=empty)])
        actions = [a for a in actions if not isinstance(a, DropDrills)]  # of one that is leaving: it stops anyway
        assert actions == [Restore(job_id="j", instance_id="i", epoch=2, why=Why.TAKEN_BACK)]
        assert say(actions[0]) == "name j to i again, epoch 2: its owner was given up for dead, and has taken it back"


def test_nothing_is_restored_to_an_owner_that_is_dead_or_has_an_assignment():
    held = record("j", JobState.RUNNING, 2, "i")
    (expired,) = decide([job("j", record=held, stale=True)], [instance("i", assignment=given("i", None))])
    assert isinstance(expired, Expire)
    (expired,) = decide([job("j", record=held)], [instance("i", assignment=given("i", None), gone=True)])
    assert isinstance(expired, Expire)
    (cleared,) = decide([job("j", record=held)], [instance("i", assignment=given("i", "j", 1))])
    assert isinstance(cleared, Clear)
    assert decide([job("j", record=held)], []) == []
    assert decide([job("j", record=held)], [instance("i", assignment=given("i", "j", 2))]) == []


def test_a_half_done_assignment_is_completed_or_its_epoch_is_spent():
    half = given("i", "j", 3)
    waiting = record("j", JobState.PENDING, 2)
    (action,) = decide([job("j", record=waiting)], [instance("i", assignment=half), instance("k")])
    assert action == Complete(job_id="j", instance_id="i", epoch=3, why=Why.HALF_DONE)
    for jobs, instances, kw in (
        ([job("j", record=waiting)], [instance("i", assignment=half, stale=True)], {}),
        ([job("j", record=waiting)], [instance("i", assignment=half, gone=True)], {}),
        ([job("j", record=waiting, cancel=True)], [instance("i", assignment=half)], {}),
        ([job("j", record=waiting)], [instance("i", assignment=half)], {"draining": True}),
        ([job("j", record=waiting)], [instance("i", assignment=given("i", "j", 3, order=Order.STOP))], {}),
    ):
        (action,) = decide(jobs, instances, **kw)
        assert action == Void(job_id="j", instance_id="i", epoch=3, why=Why.UNWANTED)


def test_of_two_first_halves_only_one_is_completed():
    instances = [instance("i", assignment=given("i", "j", 1)), instance("k", assignment=given("k", "j", 1))]
    actions = decide([job("j")], instances)
    assert actions == [Complete(job_id="j", instance_id="i", epoch=1, why=Why.HALF_DONE)]


def test_a_notice_cordons_the_instance_and_what_runs_there_in_one_action():
    deadline = NOW + timedelta(seconds=120)
    runner, holder = running("j", "i", ending=True, deadline=deadline)
    actions = decide([runner], [holder, instance("k", ending=True)])
    assert actions == [
        Cordon(instance_id="i", deadline=deadline, why=Why.INTERRUPTION),
        Cordon(instance_id="k", why=Why.INTERRUPTION),
    ]
    known = instance("i", assignment=given("i", None, cordoned=True), ending=True, deadline=deadline)
    assert decide([], [known]) == []
    leaving = instance("i", assignment=given("i", None, order=Order.LEAVE), ending=True)
    assert decide([], [leaving]) == []


@pytest.mark.parametrize(
    ("wish", "kw", "reason", "why"),
    [
        ({"cancel": True}, {}, Reason.CANCEL, Why.CANCEL),
        ({"budget": Budget(dollars=2), "spent": spent(dollars=2)}, {}, Reason.BUDGET, Why.DOLLARS),
        ({"budget": Budget(gpu_hours=2), "spent": spent(gpu_hours=3)}, {}, Reason.BUDGET, Why.GPU_HOURS),
        ({"budget": Budget(wall_clock="10m")}, {}, Reason.BUDGET, Why.WALL_CLOCK),
        ({}, {"draining": True}, Reason.DRAIN, Why.DRAIN),
        ({"drills": (Drill(drill_id="d", at=NOW),)}, {}, Reason.DRILL, Why.DRILL),
    ],
)
def test_an_owner_is_told_to_stop_once_and_why(wish, kw, reason, why):
    runner, holder = running("j", "i", 2, **wish)
    (action,) = decide([runner], [holder], **kw)
    assert isinstance(action, Stop)
    assert (action.job_id, action.instance_id, action.epoch, action.reason, action.why) == ("j", "i", 2, reason, why)
    runner, told = running("j", "i", 2, order=Order.STOP, reason=reason, **wish)
    assert not [a for a in decide([runner], [told], **kw) if not isinstance(a, DropDrills)]


@pytest.mark.parametrize(
    ("wish", "state", "reason"),
    [
        ({"cancel": True}, JobState.CANCELLED, Reason.CANCEL),
        ({"budget": Budget(dollars=2), "spent": spent(dollars=2.5)}, JobState.FAILED, Reason.BUDGET),
        ({"budget": Budget(wall_clock="1m")}, JobState.FAILED, Reason.BUDGET),
    ],
)
def test_a_waiting_job_that_shall_not_run_again_is_ended(wish, state, reason):
    waiting = record("j", JobState.PENDING, 2)
    (action,) = decide([job("j", record=waiting, **wish)], [instance("i")])
    assert isinstance(action, Finish)
    assert (action.state, action.reason, action.epoch) == (state, reason, 2)


def test_errors_within_the_bound_wait_for_their_back_off_and_preemptions_do_not():
    backing = record("j", JobState.PENDING, 2, errors=1, not_before=NOW + timedelta(seconds=20))
    (action,) = decide([job("j", record=backing)], [instance("i")])
    assert action == Hold(job_id="j", why=Why.BACK_OFF, figures={"seconds": 20.0})
    preempted = record("k", JobState.PENDING, 9, preemptions=8, last_reason=Reason.NOTICE)
    assert assigned(decide([job("k", record=preempted)], [instance("i")])) == {"k": "i"}


def test_a_job_that_no_type_can_hold_is_held_with_what_is_lacking():
    jobs = [job("j", resources=Resources(gpus=4, gpu="A100"))]
    (action,) = decide(jobs, [instance("i", shape=(8, 32, 1))])
    assert action.why is Why.NO_TYPE_FITS
    assert action.figures == {"types": 1, "nearest": "t8-1", "lacks": "gpus, gpu"}
    declared = (InstanceType(name="p4d", vcpus=96, memory_gib=1152, gpus=8, gpu="A100", gpu_memory_gib=40),)
    (action,) = decide(jobs, [instance("i", shape=(8, 32, 1))], types=declared)
    assert action == Hold(job_id="j", why=Why.NO_FREE_INSTANCE, figures={"present": 0})
    assert decide(jobs, []) == [Hold(job_id="j", why=Why.NOTHING_SEEN)]


def test_drain_assigns_nothing():
    actions = decide([job("a"), job("b", priority=Priority.CRITICAL)], [instance("i"), instance("k")], draining=True)
    assert {(a.job_id, a.why) for a in actions} == {("a", Why.DRAIN), ("b", Why.DRAIN)}


def test_drills_are_kept_while_the_job_waits_and_dropped_when_it_has_been_stopped_or_is_over():
    drills = (Drill(drill_id="d", at=NOW),)
    drop = DropDrills(job_id="j", drills=("d",), why=Why.ALREADY_STOPPING)
    assert drop not in decide([job("j", drills=drills)], [])
    over = record("j", JobState.SUCCEEDED)
    assert drop in decide([job("j", record=over, drills=drills)], [])
    drilled = record("j", JobState.PENDING, 2, last_reason=Reason.DRILL, changed_at=NOW + timedelta(seconds=3))
    assert drop in decide([job("j", record=drilled, drills=drills)], [])


def test_the_order_in_which_things_are_seen_is_of_no_consequence():
    r1, h1 = running("r1", "x1", stale=True)
    r2, h2 = running("r2", "x2", cancel=True)
    jobs = [r1, r2, job("a"), job("b", priority=Priority.CRITICAL)]
    instances = [h1, h2, instance("f1"), instance("f2", Market.ON_DEMAND)]
    reference = decide(jobs, instances)
    for shuffled in permutations(range(4)):
        assert decide([jobs[n] for n in shuffled], [instances[n] for n in reversed(shuffled)]) == reference


def test_every_action_can_be_said_in_words():
    runner, holder = running("r", "x", drills=(Drill(drill_id="d", at=NOW),))
    dead, grave = running("s", "y", stale=True)
    actions = decide(
        [runner, dead, job("a"), job("b", resources=Resources(gpus=1)), job("c", cancel=True), job("e")],
        [
            holder,
            grave,
            instance("i"),
            instance("k", assignment=given("k", "gone", 1)),
            instance("l", ending=True),
            instance("m", assignment=given("m", "e", 1)),
        ],
    )
    said = [say(a) for a in actions]
    assert len({type(a) for a in actions}) == 8
    assert all("{" not in s for s in said)
    assert "hold b: none of the 1 known instance types can hold it; t2-0 comes nearest and lacks gpus" in said
