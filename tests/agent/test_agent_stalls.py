"""When a training program has stalled, and what the agent then does."""

import os
from datetime import timedelta

import pytest
from decide_helpers import BUSY, LIMITS, TRAINING, acts, running, seconds
from everspot_core.jobs.records import Reason
from everspot_store import ManualClock
from everspot_train.agent.actions import Conclude, Kill, Stalled
from everspot_train.agent.decide import decide_actions
from everspot_train.agent.life import SignsOfLife
from everspot_train.agent.process_table import cpu_seconds
from everspot_train.agent.world import Memory, World
from everspot_train.rundir import Status, TrainingPhase


def train(memory: Memory, pace: float, count: int, start: float = 100, **fields: object) -> tuple[Memory, float]:
    """`count` steps, each seen once, `pace` seconds apart."""
    for number in range(count):
        start += pace
        observed_world = running(start, status=TRAINING.model_copy(update={"step": 100 + number}), **fields)
        memory, actions = decide_actions(memory, observed_world, LIMITS)
        assert actions == []
    return memory, start


@pytest.mark.parametrize(("pace", "stalls_after"), [(0.5, 60), (30, 300)])
def test_a_step_that_takes_ten_times_the_usual_is_a_stall_told_once(pace: float, stalls_after: float) -> None:
    memory, last = train(BUSY, pace, 5)
    status = TRAINING.model_copy(update={"step": 104})
    assert acts(memory, running(last + stalls_after - 1, status=status)) == []
    memory, actions = decide_actions(memory, running(last + stalls_after, status=status), LIMITS)
    assert actions == [Stalled(104, stalls_after, restart=False)]
    memory, actions = decide_actions(memory, running(last + 2 * stalls_after, status=status), LIMITS)
    assert actions == []
    train(memory, pace, 5, last + 2 * stalls_after)


def test_a_job_that_asks_for_it_is_restarted_when_it_stalls() -> None:
    memory, last = train(BUSY, 1, 5)
    status = TRAINING.model_copy(update={"step": 104})
    memory, actions = decide_actions(memory, running(last + 60, status=status, restart_stalled=True), LIMITS)
    assert actions == [Stalled(104, 60, restart=True), Kill()]
    over = running(last + 61, status=status, running=False, exit_code=-9, restart_stalled=True)
    (concludes,) = acts(memory, over)
    assert isinstance(concludes, Conclude)
    assert (concludes.ending.reason, concludes.ending.exit_code) == (Reason.STALLED, -9)
    assert concludes.ending.message == "no step for 60 s after step 104"


@pytest.mark.parametrize(
    ("status", "step"),
    [(None, None), (TRAINING, 7), (TRAINING.model_copy(update={"phase": TrainingPhase.RESTORING}), 7)],
    ids=["plain", "first step", "restoring"],
)
@pytest.mark.parametrize("restart", [False, True])
def test_before_its_steps_are_known_a_program_stalls_after_half_an_hour_without_a_sign_of_life(
    status: Status | None, step: int | None, restart: bool
) -> None:
    """From its start on: a hang in its imports, or at step 0, is a stall, too."""

    def at(now: float, alive: float) -> World:
        return running(now, status=status, alive_at=seconds(alive), restart_stalled=restart)

    memory, actions = decide_actions(BUSY, at(200, 200), LIMITS)
    assert actions == []
    memory, actions = decide_actions(memory, at(200 + 1799, 200), LIMITS)
    assert actions == []
    stalled, actions = decide_actions(memory, at(200 + 1800, 200), LIMITS)
    assert actions == [Stalled(step, 1800, restart), *([Kill()] if restart else [])]
    assert acts(stalled, at(200 + 9000, 200)) == []
    lives, actions = decide_actions(stalled, at(9200, 9200), LIMITS)
    assert actions == []
    assert acts(lives, at(9200 + 1800, 9200))[0] == Stalled(step, 1800, restart)


def test_output_reports_and_use_of_the_processor_are_signs_of_life() -> None:
    clock = ManualClock()
    traces, used = [0], [0.0]
    life = SignsOfLife(lambda: tuple(traces), lambda: used[0], clock)
    began = clock.monotonic()

    def after(minutes: float, *, printed: int = 0, processor: float = 0.0) -> float:
        traces[0] += printed
        used[0] += processor
        clock.advance(timedelta(minutes=minutes))
        return (life.look() - began).total_seconds() / 60

    assert after(10) == 0
    assert after(10, printed=1) == 20
    assert after(10, processor=5.9) == 20  # seconds in 10 minutes: a DataLoader that polls
    assert after(10, processor=6.1) == 40
    assert after(0.5, processor=60) == 40  # not measured yet
    assert after(0.5) == 41
    used[0] = 1.0  # one of its processes has ended
    assert after(1) == 42


def test_a_program_whose_processor_time_cannot_be_measured_does_not_stall() -> None:
    clock = ManualClock()
    life = SignsOfLife(lambda: 0, lambda: None, clock)
    clock.advance(timedelta(hours=1))
    assert life.look() == clock.monotonic()


def test_processor_time_is_that_of_a_process_and_its_children() -> None:
    before = cpu_seconds([os.getpid()])
    sum(number * number for number in range(3_000_000))
    after = cpu_seconds([os.getpid(), 2**30])
    assert before is not None and after is not None
    assert after > before
    assert cpu_seconds([2**30]) is None


def test_what_is_no_training_does_not_stall() -> None:
    memory, last = train(BUSY, 1, 5)
    saving = TRAINING.model_copy(update={"step": 104, "phase": TrainingPhase.CHECKPOINTING})
    memory, actions = decide_actions(memory, running(last + 600, status=saving), LIMITS)
    assert actions == []
    assert acts(memory, running(last + 601, status=TRAINING.model_copy(update={"step": 104}))) == []
