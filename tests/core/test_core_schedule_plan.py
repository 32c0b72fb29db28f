"""What the plan does with leases, assignments, notices and wishes: one table or case per rule."""

from dataclasses import replace
from datetime import timedelta
from itertools import permutations

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import Budget, JobLimits, Priority, Resources
from everspot_core.jobs.records import (
    JobState,
    Market,
    Order,
    Reason,
)
from everspot_core.schedule import (
    ClearAssignment,
    CompleteAssignment,
    Cordon,
    Drill,
    DropDrills,
    Expire,
    Finish,
    Hold,
    RestoreAssignment,
    Stop,
    VoidAssignment,
    Why,
    describe_action,
)
from everspot_core.schedule.messages import because
from plan_helpers import NOW, assigned, assigned_to, decide, instance, job, record, running
from view_helpers import spent


def test_a_lease_that_stands_still_is_taken_and_one_whose_instance_is_gone_at_once():
    expired, holder = running("j", "i", 4, stale=True)
    (action,) = decide([expired], [holder])
    assert isinstance(action, Expire)
    assert (action.job_id, action.instance_id, action.epoch, action.cause) == ("j", "i", 4, Why.LEASE_EXPIRED)
    alive, lost = running("j", "i", 4, is_gone=True)
    (action,) = decide([alive], [lost])
    assert isinstance(action, Expire)
    assert action.cause is Why.INSTANCE_GONE
    assert decide(*[[x] for x in running("j", "i", 4)]) == []


def test_an_assignment_whose_lease_is_over_is_cleared():
    for over in (
        record("j", JobState.PENDING, 2, last_owner="i", last_reason=Reason.NOTICE),
        record("j", JobState.SUCCEEDED, 2),
        record("j", JobState.RUNNING, 2, "other"),
        record("j", JobState.RUNNING, 3, "i"),
    ):
        actions = decide([job("j", record=over)], [instance("i", assignment=assigned_to("i", "j", 2))])
        clear = ClearAssignment(instance_id="i", job_id="j", epoch=2, cause=Why.OWNER_LEFT)
        assert clear in actions
        assert assigned(actions) == {}
    (unknown,) = decide([], [instance("i", assignment=assigned_to("i", "nobody", 1))])
    assert unknown.cause is Why.UNKNOWN_JOB


@pytest.mark.parametrize("state", [JobState.ASSIGNED, JobState.RUNNING])
@pytest.mark.parametrize(
    "empty",
    [None, assigned_to("i", None), assigned_to("i", None, cordoned=True), assigned_to("i", None, order=Order.LEAVE)],
)
def test_an_owner_whose_assignment_names_no_job_gets_it_restored_before_anything_is_asked_of_it(state, empty):
    for wish in ({}, {"cancel": True}, {"drills": (Drill(drill_id="d", at=NOW),)}):
        actions = decide([job("j", record=record("j", state, 2, "i"), **wish)], [instance("i", assignment=empty)])
        actions = [a for a in actions if not isinstance(a, DropDrills)]  # of one that is leaving: it stops anyway
        assert actions == [RestoreAssignment(job_id="j", instance_id="i", epoch=2, cause=Why.TAKEN_BACK)]
        assert (
            describe_action(actions[0])
            == "restore the assignment of j to i, epoch 2: its owner was presumed dead and has reclaimed it"
        )


def test_nothing_is_restored_to_an_owner_that_is_dead_or_has_an_assignment():
    running_record = record("j", JobState.RUNNING, 2, "i")
    (expired,) = decide(
        [job("j", record=running_record, stale=True)], [instance("i", assignment=assigned_to("i", None))]
    )
    assert isinstance(expired, Expire)
    (expired,) = decide(
        [job("j", record=running_record)], [instance("i", assignment=assigned_to("i", None), is_gone=True)]
    )
    assert isinstance(expired, Expire)
    (cleared,) = decide([job("j", record=running_record)], [instance("i", assignment=assigned_to("i", "j", 1))])
    assert isinstance(cleared, ClearAssignment)
    assert decide([job("j", record=running_record)], []) == []
    assert decide([job("j", record=running_record)], [instance("i", assignment=assigned_to("i", "j", 2))]) == []


def test_a_half_done_assignment_is_completed_or_its_epoch_is_spent():
    half = assigned_to("i", "j", 3)
    waiting = record("j", JobState.PENDING, 2)
    (action,) = decide([job("j", record=waiting)], [instance("i", assignment=half), instance("k")])
    assert action == CompleteAssignment(job_id="j", instance_id="i", epoch=3, cause=Why.HALF_DONE)
    for jobs, instances, kw in (
        ([job("j", record=waiting)], [instance("i", assignment=half, stale=True)], {}),
        ([job("j", record=waiting)], [instance("i", assignment=half, is_gone=True)], {}),
        ([job("j", record=waiting, cancel=True)], [instance("i", assignment=half)], {}),
        ([job("j", record=waiting)], [instance("i", assignment=half)], {"draining": True}),
        ([job("j", record=waiting)], [instance("i", assignment=assigned_to("i", "j", 3, order=Order.STOP))], {}),
    ):
        (action,) = decide(jobs, instances, **kw)
        assert action == VoidAssignment(job_id="j", instance_id="i", epoch=3, cause=Why.UNWANTED)


def test_of_two_first_halves_only_one_is_completed():
    instances = [instance("i", assignment=assigned_to("i", "j", 1)), instance("k", assignment=assigned_to("k", "j", 1))]
    actions = decide([job("j")], instances)
    assert actions == [CompleteAssignment(job_id="j", instance_id="i", epoch=1, cause=Why.HALF_DONE)]


def test_a_notice_cordons_the_instance_and_what_runs_there_in_one_action():
    deadline = NOW + timedelta(seconds=120)
    runner, holder = running("j", "i", ending=True, deadline=deadline)
    actions = decide([runner], [holder, instance("k", ending=True)])
    assert actions == [
        Cordon(instance_id="i", deadline=deadline, cause=Why.INTERRUPTION),
        Cordon(instance_id="k", cause=Why.INTERRUPTION),
    ]
    cordoned_instance = instance("i", assignment=assigned_to("i", None, cordoned=True), ending=True, deadline=deadline)
    assert decide([], [cordoned_instance]) == []
    leaving = instance("i", assignment=assigned_to("i", None, order=Order.LEAVE), ending=True)
    assert decide([], [leaving]) == []


@pytest.mark.parametrize(
    ("wish", "kw", "reason", "cause"),
    [
        ({"cancel": True}, {}, Reason.CANCEL, Why.CANCEL),
        ({"budget": Budget(dollars=2), "spent": spent(dollars=2)}, {}, Reason.BUDGET, Why.DOLLARS),
        ({"budget": Budget(gpu_hours=2), "spent": spent(gpu_hours=3)}, {}, Reason.BUDGET, Why.GPU_HOURS),
        ({"budget": Budget(wall_clock="10m")}, {}, Reason.BUDGET, Why.WALL_CLOCK),
        ({}, {"draining": True}, Reason.DRAIN, Why.DRAIN),
        ({"drills": (Drill(drill_id="d", at=NOW),)}, {}, Reason.DRILL, Why.DRILL),
    ],
)
def test_an_owner_is_told_to_stop_once_and_why(wish, kw, reason, cause):
    runner, holder = running("j", "i", 2, **wish)
    (action,) = decide([runner], [holder], **kw)
    assert isinstance(action, Stop)
    assert (action.job_id, action.instance_id, action.epoch, action.reason, action.cause) == (
        "j",
        "i",
        2,
        reason,
        cause,
    )
    runner, stopping_instance = running("j", "i", 2, order=Order.STOP, reason=reason, **wish)
    assert not [a for a in decide([runner], [stopping_instance], **kw) if not isinstance(a, DropDrills)]


@pytest.mark.parametrize(
    ("action", "low_gpu_share", "stops"), [("end", 0.08, True), ("end", None, False), ("warn", 0.08, False)]
)
def test_a_job_whose_gpus_compute_too_little_is_stopped_where_its_file_says_so(action, low_gpu_share, stops):
    limits = JobLimits.model_validate({"gpu_utilization_below": "20%", "for": "45m", "then": action})
    runner, holder = running("j", "i", 2, limits=limits, resources=Resources(gpus=1))
    progress = runner.record.progress.model_copy(update={"low_gpu_share": low_gpu_share})
    runner = replace(runner, record=runner.record.model_copy(update={"progress": progress}))
    actions = decide([runner], [holder])
    assert [(a.reason, a.cause) for a in actions] == [(Reason.UNDERUSED, Why.UNDERUSED)] * stops
    if stops:
        assert because(actions[0]) == "its GPUs computed for 8 % of the last 45m, and its limit is 20 %"


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
    assert action == Hold(job_id="j", cause=Why.BACK_OFF, figures={"seconds": 20.0})
    preempted = record("k", JobState.PENDING, 9, preemptions=8, last_reason=Reason.NOTICE)
    assert assigned(decide([job("k", record=preempted)], [instance("i")])) == {"k": "i"}


def test_a_job_that_no_type_can_hold_is_held_with_what_is_lacking():
    jobs = [job("j", resources=Resources(gpus=4, gpu="A100"))]
    (action,) = decide(jobs, [instance("i", shape=(8, 32, 1))])
    assert action.cause is Why.NO_TYPE_FITS
    assert action.figures == {"types": 1, "nearest": "t8-1", "lacks": "gpus, gpu"}
    declared = (InstanceType(name="p4d", vcpus=96, memory_gib=1152, gpus=8, gpu="A100", gpu_memory_gib=40),)
    (action,) = decide(jobs, [instance("i", shape=(8, 32, 1))], types=declared)
    assert action == Hold(job_id="j", cause=Why.NO_FREE_INSTANCE, figures={"present": 0})
    assert decide(jobs, []) == [Hold(job_id="j", cause=Why.NOTHING_SEEN)]


@pytest.mark.parametrize("shared", [False, True])
def test_a_job_that_names_its_types_waits_beside_another_type_of_the_same_resources(shared):
    jobs = [job("j", resources=Resources(instance_types=("b", "c"), shared=shared))]
    instances = [instance("i-a", instance_type="a"), instance("i-b", instance_type="b")]
    assert assigned(decide(jobs, instances, shared=shared)) == {"j": "i-b"}
    (action,) = decide(jobs, instances[:1], shared=shared)
    assert (action.cause, action.figures["lacks"]) == (Why.NO_TYPE_FITS, "instance_types")
    sizes = [job("j", resources=Resources(instance_types=("b",), shared=shared)), job("k", resources=Resources())]
    assert assigned(decide(sizes, instances, shared=shared)) == {"j": "i-b", "k": "i-a"}


def test_drain_assigns_nothing():
    actions = decide([job("a"), job("b", priority=Priority.CRITICAL)], [instance("i"), instance("k")], draining=True)
    assert {(a.job_id, a.cause) for a in actions} == {("a", Why.DRAIN), ("b", Why.DRAIN)}


def test_drills_are_kept_while_the_job_waits_and_dropped_when_it_has_been_stopped_or_is_over():
    drills = (Drill(drill_id="d", at=NOW),)
    drop = DropDrills(job_id="j", drills=("d",), cause=Why.ALREADY_STOPPING)
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
            instance("k", assignment=assigned_to("k", "gone", 1)),
            instance("l", ending=True),
            instance("m", assignment=assigned_to("m", "e", 1)),
        ],
    )
    messages = [describe_action(a) for a in actions]
    assert len({type(a) for a in actions}) == 8
    assert all("{" not in s for s in messages)
    assert "hold b: none of the 1 known instance types can hold it; t2-0 comes nearest and lacks gpus" in messages
