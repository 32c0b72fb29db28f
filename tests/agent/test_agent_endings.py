"""How the ending of a training program is judged: a table."""

import pytest
from everspot_core.records import Reason
from everspot_train.agent.endings import ending_of
from everspot_train.rundir import Status, TrainingPhase


@pytest.mark.parametrize(
    ("asked", "exit_code", "phase", "reason"),
    [
        (None, 0, None, Reason.FINISHED),
        (None, 1, None, Reason.ERROR),
        (None, -9, TrainingPhase.TRAINING, Reason.ERROR),
        (None, 0, TrainingPhase.FAILED, Reason.ERROR),
        (None, 1, TrainingPhase.FINISHED, Reason.ERROR),
        (None, 0, TrainingPhase.FINISHED, Reason.FINISHED),
        (Reason.NOTICE, 1, TrainingPhase.FINISHED, Reason.NOTICE),
        (None, 0, TrainingPhase.STOPPED, Reason.SHUTDOWN),
        (None, 3, TrainingPhase.FENCED, Reason.FENCED),
        (Reason.NOTICE, 0, TrainingPhase.STOPPED, Reason.NOTICE),
        (Reason.NOTICE, -9, TrainingPhase.TRAINING, Reason.NOTICE),
        (Reason.NOTICE, 0, TrainingPhase.FINISHED, Reason.FINISHED),
        (Reason.NOTICE, 1, TrainingPhase.FAILED, Reason.NOTICE),
        (Reason.NOTICE, 3, TrainingPhase.FENCED, Reason.FENCED),
        (Reason.NOTICE, 0, None, Reason.NOTICE),
        (Reason.CANCEL, 1, TrainingPhase.FAILED, Reason.CANCEL),
    ],
)
def test_how_an_ending_is_judged(
    asked: Reason | None, exit_code: int, phase: TrainingPhase | None, reason: Reason
) -> None:
    status = Status(phase=phase, step=5, durable_step=5) if phase else None
    assert ending_of(asked, exit_code, status).reason is reason


def test_a_trainer_that_was_cut_off_from_the_store_has_made_no_error() -> None:
    status = Status(phase=TrainingPhase.FAILED, step=5, cut_off=True)
    assert ending_of(None, 1, status).reason is Reason.SHUTDOWN
    assert ending_of(Reason.NOTICE, 1, status).reason is Reason.NOTICE
