"""How an ownership of a job ended: judged from what was asked, how the process exited and what it last said."""

from dataclasses import dataclass

from everspot_core.records import Reason

from everspot_train.rundir import Phase, Status


@dataclass(frozen=True)
class Ending:
    """`step`: optimizer steps executed; `durable_step`: those of the newest checkpoint. None where never told.
    `unstarted`: this machine could not start the program, for which the program may or may not be to blame."""

    reason: Reason
    exit_code: int | None
    step: int | None
    durable_step: int | None
    message: str = ""
    unstarted: bool = False


def ending_of(asked: Reason | None, exit_code: int | None, status: Status | None) -> Ending:
    """The ending of a process that is over.

    The trainer's last phase decides where it is `fenced` or `finished`. Otherwise a program that was told to stop has
    been stopped, however it ended: it may have been killed at the deadline, or have failed because the store did. If
    the failure was its own, the next attempt will show it. Where nobody told it to stop, the exit code decides.
    """
    phase = status.phase if status else None
    if phase is Phase.FENCED:
        reason = Reason.FENCED
    elif phase is Phase.FINISHED:
        reason = Reason.FINISHED
    elif asked is not None:
        # Without the trainer library nothing says whether an exit with 0 is the end or the answer to SIGTERM.
        reason = asked
    elif phase is Phase.STOPPED:
        reason = Reason.SHUTDOWN  # somebody else than this agent stopped it, and it saved its work
    elif phase is Phase.FAILED and status is not None and status.cut_off:
        reason = Reason.SHUTDOWN  # the store's trouble or this machine's: the user's retries are not spent on it
    elif phase is Phase.FAILED:
        reason = Reason.ERROR
    else:
        reason = Reason.FINISHED if exit_code == 0 else Reason.ERROR
    return Ending(
        reason=reason,
        exit_code=exit_code,
        step=status.step if status else None,
        durable_step=status.durable_step if status else None,
        message=status.message if status else "",
    )
