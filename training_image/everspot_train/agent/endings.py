"""Determines how a job's lease ended, by the demand to stop, the exit code of the process, and its last report."""

import traceback
from dataclasses import dataclass

from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs.records import Reason

from everspot_train.agent.failures import Failure, describe_exit
from everspot_train.rundir import Status, TrainingPhase


@dataclass(frozen=True)
class Ending:
    """The end of a lease.

    `exit_code`: of the program. `step`: optimizer steps done. `durable_step`: the steps of the newest checkpoint. Both
    are None if never reported. `unstarted`: the machine or the store could not start the program, or broke it, so that
    the end counts towards the limits of failed starts. `fault`: the part of the machine that failed; the agent is one
    of them. `hopeless`: no retry can help. `incomplete`: the program had finished, and its outputs could not be
    uploaded.
    """

    reason: Reason
    exit_code: int | None
    step: int | None
    durable_step: int | None
    message: str = ""
    unstarted: bool = False
    traceback: str = ""
    fault: FaultKind | None = None
    hopeless: bool = False
    incomplete: bool = False


def agent_failure(instance_id: str, error: BaseException) -> Ending:
    """Return the ending of an attempt during which the agent itself failed."""
    trace = "".join(traceback.format_exception(error))
    return Ending(
        reason=Reason.AGENT,
        exit_code=None,
        step=None,
        durable_step=None,
        message=f"the agent of {instance_id} failed: {type(error).__name__}: {error}",
        unstarted=True,
        traceback=trace,
    )


def judge_ending(
    stop_reason: Reason | None, exit_code: int | None, status: Status | None, failure: Failure | None = None
) -> Ending:
    """Return the ending for a process that has ended.

    The trainer's last phase decides if it is `fenced`, or `finished` with exit code 0. Otherwise a program that was
    told to stop counts as stopped, with any exit code: it may have been killed at the deadline, or have failed because
    the store did. If the program itself was wrong, the next attempt shows it. Without a demand to stop, the exit code
    decides, and output and exception show whether the program itself failed.

    A program on the trainer library that ends with 0 before its last step has failed, unless it called `Run.finish`.
    Otherwise a loop that ends early by mistake would count as a success.
    """
    failure = failure or Failure()
    code = failure.exit_code if failure.exit_code is not None else exit_code
    reason, message = _judged(stop_reason, code, status, failure)
    return Ending(
        reason=reason,
        exit_code=code,
        step=status.step if status else None,
        durable_step=status.durable_step if status else None,
        message=message,
        unstarted=reason.troubled,
        traceback=failure.traceback if reason.failure else "",
        fault=failure.fault() if reason is Reason.MACHINE else None,
    )


def _judged(
    stop_reason: Reason | None, code: int | None, status: Status | None, failure: Failure
) -> tuple[Reason, str]:
    phase, message = (status.phase, status.message) if status else (None, "")
    if phase is TrainingPhase.FENCED:
        return Reason.FENCED, message
    early = _ended_early(status) if not code else ""
    if phase is TrainingPhase.FINISHED and not code and not early:
        return Reason.FINISHED, message
    if stop_reason is not None:
        # Without the trainer library an exit code of 0 may be the end or the answer to SIGTERM.
        return stop_reason, message
    if early:
        return Reason.ERROR, early
    if phase is TrainingPhase.FINISHED:
        return Reason.ERROR, f"the program {describe_exit(code)} after its last checkpoint: {failure.message}".rstrip(
            ": "
        )
    if phase is TrainingPhase.STOPPED:
        return Reason.SHUTDOWN, message  # it was stopped from outside, and saved its work
    if phase is not TrainingPhase.FAILED and not code:
        return Reason.FINISHED, message
    if failure.limit_hit is not None:
        gib = f"{failure.limit_hit:g} GiB"
        return Reason.ERROR, f"it took more memory than its part of the instance, {gib}: raise resources.memory_gib"
    cause = failure.cause(message)
    trouble = failure.trouble(cause)
    if trouble is not None:
        return trouble
    if status is not None and status.cut_off and cause == message:
        return Reason.SHUTDOWN, message  # an error of the store does not count as a retry of the job
    return Reason.ERROR, cause or f"the program {describe_exit(code)}"


def _ended_early(status: Status | None) -> str:
    """Return why an exit code of 0 came too early for a program on the trainer library; empty if it did not."""
    if status is None or status.phase in (TrainingPhase.STOPPED, TrainingPhase.FAILED, TrainingPhase.FENCED):
        return ""
    place = f"at step {status.step}" + (f" of {status.total_steps}" if status.total_steps is not None else "")
    if status.phase is TrainingPhase.FINISHED:
        if status.complete is not False:
            return ""
        return f"the program ended {place} with exit code 0. If it is finished there, let it call run.finish()"
    if status.total_steps is None:
        return ""  # it never began to train
    if not status.complete and status.step < status.total_steps:
        return f"the program exited with 0 {place}, inside of its `with Run.open(…)`: that is not its end"
    if status.durable_step != status.step:
        return f"the program exited with 0 {place} before its final checkpoint was durable: leave the `with` first"
    return ""
