"""Finds out how a training loop ended, from the exception that left it."""

from everspot_train.rundir import TrainingPhase
from everspot_train.trainer.errors import RunFenced, RunStopped


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
