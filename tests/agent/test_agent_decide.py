"""The agent's decisions, as tables and properties: no process, no store, no clock."""

from dataclasses import replace
from datetime import timedelta

import pytest
from decide_helpers import BUSY, JOB, LIMITS, NOON, TRAINING, acts, assignment, interruption, running, seconds, world
from everspot_core.jobs.records import Notice, NoticeKind, Order, Reason
from everspot_train.agent.actions import (
    Abandon,
    Action,
    AskForCheckpoint,
    AskToStop,
    Conclude,
    Decline,
    EndAgent,
    JobKey,
    Kill,
    Take,
    Terminate,
)
from everspot_train.agent.decide import decide_actions, forget_job, retry_later
from everspot_train.agent.stop_demand import KILL_GRACE, PATIENCE
from everspot_train.agent.world import LeaseView, Memory, World
from everspot_train.rundir import Status, TrainingPhase
from hypothesis import given
from hypothesis import strategies as st


def test_an_assignment_is_taken_once() -> None:
    memory, actions = decide_actions(Memory(), world(assignment=assignment()), LIMITS)
    assert actions == [Take(JOB)]
    memory = forget_job(memory, seconds(101))
    assert acts(memory, world(102, assignment=assignment())) == []
    again = JobKey("job-1", 2)
    assert acts(memory, world(103, assignment=assignment(again))) == [Take(again)]


def test_a_job_whose_lease_could_not_be_asked_for_is_tried_again() -> None:
    memory, _ = decide_actions(Memory(), world(assignment=assignment()), LIMITS)
    assert acts(retry_later(memory), world(101, assignment=assignment())) == [Take(JOB)]


@pytest.mark.parametrize(
    ("observed_world", "reason"),
    [
        (world(assignment=assignment(), interruption=interruption(60)), Reason.NOTICE),
        (world(assignment=assignment(cordoned=True)), Reason.NOTICE),
        (world(assignment=assignment(order=Order.STOP, reason=Reason.CANCEL)), Reason.CANCEL),
        (world(assignment=assignment(order=Order.STOP)), Reason.DRAIN),
    ],
)
def test_a_job_that_comes_too_late_is_given_back_unstarted(observed_world: World, reason: Reason) -> None:
    memory, actions = decide_actions(Memory(), observed_world, LIMITS)
    assert actions == [Decline(JOB, reason)]
    assert acts(memory, observed_world) == []


def test_a_notice_asks_to_stop_then_terminates_then_kills_before_the_instance_is_taken() -> None:
    notice = interruption(30)
    memory, actions = decide_actions(BUSY, running(interruption=notice), LIMITS)
    request = actions[0]
    assert isinstance(request, AskToStop)
    assert request.first
    assert (request.stop.reason, request.stop.source, request.stop.deadline) == (
        Reason.NOTICE,
        "metadata",
        seconds(130),
    )
    memory, actions = decide_actions(memory, running(125, interruption=notice), LIMITS)
    assert actions == []
    memory, actions = decide_actions(memory, running(126, interruption=notice), LIMITS)
    assert actions == [Terminate()]
    memory, actions = decide_actions(memory, running(127, interruption=notice), LIMITS)
    assert actions == []
    late, actions = decide_actions(memory, running(127.5, interruption=notice), LIMITS)
    assert actions == [Terminate(final=True)]
    assert acts(late, running(127.9, interruption=notice)) == []
    memory, actions = decide_actions(memory, running(128, interruption=notice), LIMITS)
    assert actions == [Kill()]
    assert acts(memory, running(129, interruption=notice)) == []


def test_a_notice_that_comes_late_still_leaves_time_for_a_checkpoint() -> None:
    notice = interruption(3)  # less than the margin
    memory, actions = decide_actions(BUSY, running(interruption=notice), LIMITS)
    assert [type(action) for action in actions] == [AskToStop]
    assert acts(memory, running(101.4, interruption=notice)) == []
    memory, actions = decide_actions(memory, running(101.5, interruption=notice), LIMITS)
    assert actions == [Terminate()]
    assert acts(memory, running(102.3, interruption=notice)) == [Kill()]


@pytest.mark.parametrize("status", [TRAINING, None])
@pytest.mark.parametrize(
    "notice",
    [
        {"interruption": interruption(-60)},
        {"assignment": assignment(order=Order.STOP, reason=Reason.NOTICE, deadline=NOON - seconds(60))},
    ],
    ids=["metadata", "order"],
)
def test_a_clock_that_runs_ahead_leaves_the_program_its_time(notice: dict[str, object], status: Status | None) -> None:
    """Given a notice whose time is past by this machine's clock, when it is seen, then the program gets the shortest
    notice of a cloud."""
    memory, times = BUSY, dict[type[Action], float]()
    for tick in range(100 * 10, 140 * 10):
        memory, actions = decide_actions(memory, running(tick / 10, status=status, **notice), LIMITS)
        times = {type(action): tick / 10 for action in actions} | times
    assert times[AskToStop] == 100
    assert times[Terminate] == (126 if status is not None else 100)
    assert times[Kill] == 128
    assert memory.stop is not None and memory.stop.deadline == seconds(130)


def test_an_agent_that_stood_still_sends_sigterm_before_sigkill() -> None:
    memory, _ = decide_actions(BUSY, running(interruption=interruption(30)), LIMITS)
    memory, actions = decide_actions(memory, running(135, interruption=interruption(30)), LIMITS)
    assert actions == [Terminate()]
    assert Kill() not in acts(memory, running(136.9, interruption=interruption(30)))
    assert Kill() in acts(memory, running(137, interruption=interruption(30)))


def test_a_notice_in_scaled_time_leaves_the_real_time_that_it_takes() -> None:
    observed_world = running(real_per_market=1 / 12, interruption=interruption(120))
    request = acts(BUSY, observed_world)[0]
    assert isinstance(request, AskToStop)
    assert request.stop.deadline == seconds(110)


def test_an_earlier_deadline_tightens_a_stop_and_the_first_reason_stands() -> None:
    order = assignment(order=Order.STOP, reason=Reason.DRILL)
    memory, actions = decide_actions(BUSY, running(assignment=order), LIMITS)
    request = actions[0]
    assert isinstance(request, AskToStop)
    assert request.stop.deadline is None
    assert request.stop.term_at == seconds(100) + PATIENCE
    memory, actions = decide_actions(memory, running(101, assignment=order, interruption=interruption(40)), LIMITS)
    tightened = actions[0]
    assert isinstance(tightened, AskToStop)
    assert not tightened.first
    assert (tightened.stop.reason, tightened.stop.deadline) == (Reason.DRILL, seconds(140))
    assert tightened.stop.seen_at == request.stop.seen_at
    assert acts(memory, running(102, assignment=order, interruption=interruption(40))) == []


def test_the_same_notice_by_both_paths_is_one_stop() -> None:
    memory, actions = decide_actions(BUSY, running(interruption=interruption(60)), LIMITS)
    order = assignment(order=Order.STOP, reason=Reason.NOTICE, cordoned=True, deadline=NOON + seconds(60))
    assert len(actions) == 1
    assert acts(memory, running(101, interruption=interruption(60), assignment=order)) == []


def test_a_program_that_never_reported_gets_sigterm_immediately_and_all_the_time() -> None:
    memory, actions = decide_actions(BUSY, running(status=None, interruption=interruption(60)), LIMITS)
    assert isinstance(actions[0], AskToStop)
    assert actions[1:] == [Terminate()]
    assert acts(memory, running(143, status=None, interruption=interruption(60))) == []
    memory, actions = decide_actions(memory, running(144, status=None, interruption=interruption(60)), LIMITS)
    assert actions == [Terminate(final=True)]
    assert acts(memory, running(157, status=None, interruption=interruption(60))) == []
    assert acts(memory, running(158, status=None, interruption=interruption(60))) == [Kill()]
    order = assignment(order=Order.STOP, reason=Reason.CANCEL)
    memory, _ = decide_actions(BUSY, running(status=None, assignment=order), LIMITS)
    assert acts(memory, running(100 + KILL_GRACE.total_seconds(), status=None, assignment=order)) == [Kill()]


def test_a_stop_for_another_ownership_is_not_heeded() -> None:
    order = assignment(JobKey("job-1", 2), order=Order.STOP, reason=Reason.CANCEL)
    assert acts(BUSY, running(assignment=order)) == []


def test_each_recommendation_asks_for_one_checkpoint() -> None:
    first = Notice(kind=NoticeKind.REBALANCE, source="metadata", seen_at=NOON, action_at=NOON)
    second = first.model_copy(update={"action_at": NOON + seconds(60)})
    memory, actions = decide_actions(BUSY, running(rebalance=first), LIMITS)
    assert actions == [AskForCheckpoint(1, first)]
    memory, actions = decide_actions(memory, running(101, rebalance=first), LIMITS)
    assert actions == []
    assert acts(memory, running(102, rebalance=second)) == [AskForCheckpoint(2, second)]


def test_a_lost_lease_abandons_whatever_else_is_going_on() -> None:
    memory, actions = decide_actions(BUSY, running(lease=LeaseView.LOST, interruption=interruption(60)), LIMITS)
    assert [type(action) for action in actions] == [Abandon]
    assert memory.job is None
    assert acts(BUSY, running(lease=LeaseView.LOST, running=False, exit_code=0))[0] == Abandon("the lease is lost")


def test_a_silent_store_suspends_the_lease_and_ends_nothing_before_the_orphan_limit() -> None:
    observed_world = running(lease=LeaseView.SUSPENDED, lease_until=seconds(90))
    assert acts(BUSY, observed_world) == []
    assert acts(BUSY, replace(observed_world, now=seconds(90) + LIMITS.orphan_limit - seconds(1))) == []
    assert acts(BUSY, replace(observed_world, now=seconds(90) + LIMITS.orphan_limit))[0] == Abandon(
        "the lease could not be renewed for the orphan limit"
    )
    over = replace(observed_world, running=False, exit_code=0, status=Status(phase=TrainingPhase.FINISHED))
    assert acts(BUSY, over) == []  # it may be another's: nothing is told
    assert isinstance(acts(BUSY, replace(over, lease=LeaseView.VALID))[0], Conclude)
    noticed = acts(BUSY, replace(observed_world, interruption=interruption(160)))
    assert isinstance(noticed[0], AskToStop)


def test_a_fenced_trainer_is_abandoned_and_not_concluded() -> None:
    observed_world = running(running=False, exit_code=3, status=Status(phase=TrainingPhase.FENCED))
    assert [type(action) for action in acts(BUSY, observed_world)] == [Abandon]


def test_a_release_that_failed_is_concluded_again_until_the_lease_is_over() -> None:
    observed_world = running(running=False, exit_code=0, status=Status(phase=TrainingPhase.FINISHED))
    memory, actions = decide_actions(BUSY, observed_world, LIMITS)
    assert isinstance(actions[0], Conclude)
    assert isinstance(acts(memory, replace(observed_world, now=seconds(105)))[0], Conclude)
    assert isinstance(acts(memory, replace(observed_world, lease=LeaseView.LOST))[0], Abandon)


def test_sigterm_stops_the_job_first_and_then_the_agent() -> None:
    memory, actions = decide_actions(BUSY, running(shutdown_by=seconds(180)), LIMITS)
    request = actions[0]
    assert isinstance(request, AskToStop)
    assert request.stop.reason is Reason.SHUTDOWN
    memory = forget_job(memory, seconds(103))
    last_actions = acts(memory, world(104, shutdown_by=seconds(180)))
    assert last_actions == [EndAgent("the agent was told to end", poweroff=False)]
    stuck = running(180, shutdown_by=seconds(180), running=False, exit_code=0)
    assert isinstance(acts(Memory(job=JOB), stuck)[0], Abandon)


def test_an_order_to_leave_stops_the_job_whichever_it_is_and_then_powers_off() -> None:
    leave = assignment(JobKey("job-7", 3), order=Order.LEAVE, reason=Reason.ROLL, job_id=None)
    memory, actions = decide_actions(BUSY, running(assignment=leave), LIMITS)
    request = actions[0]
    assert isinstance(request, AskToStop)
    assert (request.stop.reason, request.stop.source) == (Reason.ROLL, "roll")
    memory = forget_job(memory, seconds(103))
    assert acts(memory, world(104, assignment=leave)) == [
        EndAgent("the scheduler orders this instance to leave: roll", poweroff=True)
    ]


def test_a_job_that_came_with_an_order_to_leave_is_given_back_first() -> None:
    order = assignment(order=Order.LEAVE, reason=Reason.RELEASE)
    memory, actions = decide_actions(Memory(), world(100, assignment=order), LIMITS)
    assert actions == [Decline(JOB, Reason.RELEASE)]
    assert isinstance(acts(memory, world(101, assignment=order))[0], EndAgent)


def test_an_unfit_machine_gives_back_what_is_put_there_and_is_idle_as_long_as_it_may() -> None:
    memory, actions = decide_actions(Memory(), world(100, assignment=assignment(), unfit="no room"), LIMITS)
    assert actions == [Decline(JOB, Reason.CORDON)]
    limits = LIMITS.model_copy(update={"idle_limit": timedelta(minutes=1)})
    assert acts(memory, world(170, unfit="no room"), limits) == [EndAgent("no job for the idle limit", poweroff=True)]


def test_the_folder_of_a_silent_program_is_left_the_time_that_it_took_last() -> None:
    memory, _ = decide_actions(BUSY, running(status=None, interruption=interruption(60), upload=seconds(20)), LIMITS)
    assert memory.stop is not None
    assert memory.stop.kill_at == seconds(100 + 60 - 2 - 20)


def test_idle_and_orphaned_instances_switch_themselves_off() -> None:
    limits = LIMITS.model_copy(update={"idle_limit": timedelta(minutes=1)})
    memory = Memory(idle_since=seconds(100))
    assert acts(memory, world(159), limits) == []
    assert acts(memory, world(160), limits) == [EndAgent("no job for the idle limit", poweroff=True)]
    assert acts(memory, world(10_000), LIMITS) == []
    orphan = world(500, store_seen=seconds(200))
    assert acts(Memory(), orphan) == [EndAgent("the store could not be reached for the orphan limit", poweroff=True)]
    assert acts(BUSY, replace(running(500), store_seen=seconds(200))) == []


worlds = st.builds(
    running,
    st.floats(100, 1000),
    assignment=st.sampled_from(
        [None, assignment(), assignment(order=Order.STOP, reason=Reason.DRILL), assignment(JobKey("job-2", 4))]
    ),
    interruption=st.sampled_from([None, interruption(30), interruption(300)]),
    lease=st.sampled_from(list(LeaseView)[1:]),
    running=st.booleans(),
    exit_code=st.sampled_from([0, 1, -9]),
    status=st.sampled_from([None, TRAINING, Status(phase=TrainingPhase.FINISHED), Status(phase=TrainingPhase.STOPPED)]),
    shutdown_by=st.sampled_from([None, seconds(500)]),
)


@given(st.lists(worlds, max_size=12))
def test_whatever_is_seen_a_job_ends_once_and_nothing_is_told_after_its_lease(drawn_worlds: list[World]) -> None:
    memory = BUSY
    ended = 0
    for look in sorted(drawn_worlds, key=lambda item: item.now):
        if memory.job != JOB:
            break
        memory, actions = decide_actions(memory, look, LIMITS)
        if look.lease is LeaseView.LOST:
            assert [type(action) for action in actions] == [Abandon]
        if any(isinstance(action, Conclude) for action in actions):
            assert look.lease is LeaseView.VALID
            assert not look.running
            memory = forget_job(memory, look.now)
        if memory.job is None:
            ended += 1
            assert JOB in memory.handled
    assert ended <= 1
