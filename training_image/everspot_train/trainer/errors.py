"""The exceptions of a run.

    TrainerError                 the run cannot go on; the agent counts it as the job's own error
    ├── NonFiniteLoss            the loss, or the clipped gradient, is NaN or infinite
    ├── StateMismatch            the checkpoint does not fit what is tracked, or was not taken back exactly
    ├── UnsafeState              a tracked object's state cannot be stored without arbitrary pickle
    └── UnsupportedState         state that the loop depends on cannot be kept, or is not tracked
    SystemExit
    ├── RunStopped               checkpointed as asked; the process ends, the job goes on elsewhere
    └── RunFenced                the job has another owner; the process ends and leaves nothing behind

The last two leave a training loop on purpose: they derive from SystemExit, so that `except Exception` does not swallow
them and the process ends with status 0.
"""

from everspot_train.rundir import TrainingPhase


class TrainerError(Exception):
    """The run cannot go on."""


class NonFiniteLoss(TrainerError):
    """The loss or the gradient is not a finite number. No checkpoint holds what came of it: on a processor the
    optimizer was not stepped with it, on a GPU the run ends before the next checkpoint."""


class StateMismatch(TrainerError):
    """The checkpoint does not fit what the loop tracks: another model, a new piece of state, or an object that did not
    take its state back exactly."""


class UnsafeState(TrainerError):
    """The state of a tracked object holds more than tensors, numbers, text and containers of these."""


class UnsupportedState(TrainerError):
    """No checkpoint can hold the state of the loop: it is sharded by an unsupported class, or is not tracked."""


class RunStopped(SystemExit):
    """The run was told to stop and its state is durable."""

    def __init__(self, step: int) -> None:
        super().__init__(0)
        self.step = step


class RunFenced(SystemExit):
    """This process no longer owns the job, and has published nothing since it lost it."""

    def __init__(self, reason: str) -> None:
        super().__init__(0)
        self.reason = reason


def is_clean(error: BaseException | None) -> bool:
    """Return whether the program ended by itself, normally or by sys.exit(0)."""
    if isinstance(error, RunStopped | RunFenced):
        return False
    return error is None or (isinstance(error, SystemExit) and error.code in (None, 0))


def last_word(error: BaseException | None) -> tuple[TrainingPhase, str]:
    """Return the final phase and its reason, for the agent."""
    if is_clean(error):
        return TrainingPhase.FINISHED, ""
    if isinstance(error, RunStopped):
        return TrainingPhase.STOPPED, ""
    if isinstance(error, RunFenced):
        return TrainingPhase.FENCED, error.reason
    return TrainingPhase.FAILED, f"{type(error).__name__}: {error}"
