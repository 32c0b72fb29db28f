"""How the ending of a training program is judged: a table."""

import pytest
from everspot_core.jobs.records import Reason
from everspot_train.agent.endings import judge_ending
from everspot_train.agent.failures import Failure
from everspot_train.rundir import Status, TrainingPhase


@pytest.mark.parametrize(
    ("stop_reason", "exit_code", "phase", "reason"),
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
    stop_reason: Reason | None, exit_code: int, phase: TrainingPhase | None, reason: Reason
) -> None:
    status = Status(phase=phase, step=5, durable_step=5) if phase else None
    assert judge_ending(stop_reason, exit_code, status).reason is reason


def test_a_trainer_that_was_cut_off_from_the_store_has_made_no_error() -> None:
    status = Status(phase=TrainingPhase.FAILED, step=5, cut_off=True)
    assert judge_ending(None, 1, status).reason is Reason.SHUTDOWN
    assert judge_ending(Reason.NOTICE, 1, status).reason is Reason.NOTICE


LOST = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:5"
OUTAGE = "everspot_store.errors.StoreUnavailable: GET flowers/shard-000123.tar: 503 Slow Down"


@pytest.mark.parametrize(
    ("of_first_rank", "failure", "reason", "message"),
    [
        (LOST, Failure(1, OUTAGE, rank=3), Reason.SHUTDOWN, "the store could not be reached: GET flowers/"),
        (LOST, Failure(1, "ValueError: label 1001", rank=1), Reason.ERROR, "ValueError: label 1001"),
        (LOST, Failure(1, "ValueError: label 1001"), Reason.ERROR, "ValueError: label 1001"),  # by plain torchrun
        (LOST, Failure(-9, rank=2), Reason.ERROR, "rank 2 was killed by SIGKILL"),
        ("StoreBusy: busy", Failure(1, LOST, rank=1), Reason.SHUTDOWN, "the store could not be reached: busy"),
        ("StoreBusy: busy", Failure(1, "ValueError: label 1001", rank=1), Reason.ERROR, "ValueError: label 1001"),
        ("KeyError: 'x'", Failure(1, "KeyError: 'x'", rank=0), Reason.ERROR, "KeyError: 'x'"),
        (LOST, Failure(1, LOST, rank=1), Reason.ERROR, LOST),
        ("", Failure(1, "KeyError: 'x'", rank=1), Reason.ERROR, "KeyError: 'x'"),
    ],
)
def test_the_rank_that_failed_first_decides_and_not_the_one_that_lost_its_peer(
    of_first_rank: str, failure: Failure, reason: Reason, message: str
) -> None:
    cut_off = of_first_rank.startswith("Store")
    status = Status(phase=TrainingPhase.FAILED, message=of_first_rank, cut_off=cut_off)
    ending = judge_ending(None, 1, status, failure)
    assert (ending.reason, ending.message[: len(message)]) == (reason, message)


TRAINING, FINISHED = TrainingPhase.TRAINING, TrainingPhase.FINISHED


@pytest.mark.parametrize(
    ("stop_reason", "phase", "step", "durable", "complete", "reason"),
    [
        (None, FINISHED, 15, 15, False, Reason.ERROR),  # left the loop by `break`
        (None, FINISHED, 15, 15, True, Reason.FINISHED),  # and called run.finish()
        (Reason.NOTICE, FINISHED, 15, 15, False, Reason.NOTICE),  # a loop that ends itself at SIGTERM
        (None, FINISHED, 40, 40, True, Reason.FINISHED),
        (None, FINISHED, 15, 15, None, Reason.FINISHED),  # of an older trainer
        (None, TRAINING, 15, 10, None, Reason.ERROR),  # os._exit(0) inside of the loop
        (Reason.DRAIN, TRAINING, 15, 10, None, Reason.DRAIN),
        (None, TRAINING, 40, 30, None, Reason.ERROR),  # os._exit(0) before the last upload was over
        (None, TRAINING, 40, 40, None, Reason.FINISHED),
        (None, TRAINING, 15, 15, True, Reason.FINISHED),
        (None, TrainingPhase.CHECKPOINTING, 15, 10, None, Reason.ERROR),
    ],
)
def test_exit_code_0_before_the_last_step_is_an_error_unless_the_program_said_that_it_is_finished(
    stop_reason: Reason | None, phase: TrainingPhase, step: int, durable: int, complete: bool | None, reason: Reason
) -> None:
    status = Status(phase=phase, step=step, durable_step=durable, total_steps=40, complete=complete)
    ending = judge_ending(stop_reason, 0, status)
    assert ending.reason is reason
    if reason is Reason.ERROR:
        assert f"at step {step} of 40" in ending.message


@pytest.mark.parametrize("phase", [TrainingPhase.STARTING, TrainingPhase.RESTORING])
def test_a_program_that_never_began_to_train_may_end_with_0(phase: TrainingPhase) -> None:
    assert judge_ending(None, 0, Status(phase=phase)).reason is Reason.FINISHED
