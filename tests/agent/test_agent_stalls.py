"""When a training program has stalled, and what the agent then does."""

import pytest
from decide_helpers import BUSY, LIMITS, TRAINING, acts, running
from everspot_core.records import Reason
from everspot_train.agent.actions import Conclude, Kill, Stalled
from everspot_train.agent.decide import decide
from everspot_train.agent.world import Memory
from everspot_train.rundir import TrainingPhase


def train(memory: Memory, pace: float, count: int, start: float = 100, **fields: object) -> tuple[Memory, float]:
    """`count` steps, each seen once, `pace` seconds apart."""
    for number in range(count):
        start += pace
        seen = running(start, status=TRAINING.model_copy(update={"step": 100 + number}), **fields)
        memory, actions = decide(memory, seen, LIMITS)
        assert actions == []
    return memory, start


@pytest.mark.parametrize(("pace", "stalls_after"), [(0.5, 60), (30, 300)])
def test_a_step_that_takes_ten_times_the_usual_is_a_stall_told_once(pace: float, stalls_after: float) -> None:
    memory, last = train(BUSY, pace, 5)
    status = TRAINING.model_copy(update={"step": 104})
    assert acts(memory, running(last + stalls_after - 1, status=status)) == []
    memory, actions = decide(memory, running(last + stalls_after, status=status), LIMITS)
    assert actions == [Stalled(104, stalls_after, restart=False)]
    memory, actions = decide(memory, running(last + 2 * stalls_after, status=status), LIMITS)
    assert actions == []
    train(memory, pace, 5, last + 2 * stalls_after)


def test_a_job_that_asks_for_it_is_restarted_when_it_stalls() -> None:
    memory, last = train(BUSY, 1, 5)
    status = TRAINING.model_copy(update={"step": 104})
    memory, actions = decide(memory, running(last + 60, status=status, restart_stalled=True), LIMITS)
    assert actions == [Stalled(104, 60, restart=True), Kill()]
    over = running(last + 61, status=status, running=False, exit_code=-9, restart_stalled=True)
    (concludes,) = acts(memory, over)
    assert isinstance(concludes, Conclude)
    assert (concludes.ending.reason, concludes.ending.exit_code) == (Reason.STALLED, -9)
    assert concludes.ending.message == "no step for 60 s after step 104"


def test_what_is_no_training_does_not_stall() -> None:
    memory, last = train(BUSY, 1, 5)
    saving = TRAINING.model_copy(update={"step": 104, "phase": TrainingPhase.CHECKPOINTING})
    memory, actions = decide(memory, running(last + 600, status=saving), LIMITS)
    assert actions == []
    assert acts(memory, running(last + 601, status=TRAINING.model_copy(update={"step": 104}))) == []
