"""The reasons for stopping a job or for its leaving an instance, in words."""

from everspot_core.jobs.records import Reason

MEANING_OF_REASON: dict[Reason, str] = {
    Reason.FINISHED: "it finished",
    Reason.NOTICE: "the cloud gave notice that it takes the instance back",
    Reason.DRILL: "somebody asked for a drill with `everspot cluster interrupt`",
    Reason.DRAIN: "the cluster was drained",
    Reason.CANCEL: "it was cancelled",
    Reason.BUDGET: "its own budget was used up",
    Reason.UNDERUSED: "its GPUs computed less than `limits` of its file allows",
    Reason.ERROR: "its program failed",
    Reason.LOST: "its instance vanished without notice",
    Reason.FENCED: "its owner found that it no longer owned the job",
    Reason.MOVE: "the scheduler had a better instance for it",
    Reason.SHUTDOWN: "its instance was being stopped",
    Reason.ROLL: "its instance was replaced by one of the current image and settings",
    Reason.RELEASE: "the fleet held more than its target, so that its instance went",
    Reason.CORDON: "its machine was found to be broken",
    Reason.MACHINE: "its machine failed the program, such as by a full disk or a broken GPU",
    Reason.DENIED: "the store refused what it needs: a permission is missing",
    Reason.DAMAGED: "none of its checkpoints is whole",
    Reason.AGENT: "the agent of its instance failed",
    Reason.MISSING: "its code is not in the store",
    Reason.CAP: "a budget of its team or of the environment was used up",
    Reason.AFTER: "a job that it comes after did not succeed",
    Reason.CONDITION: "its `run_if` does not hold, or could not be judged",
    Reason.REUSED: "the same stage had succeeded before: it has that job's outputs, and was not run",
    Reason.WINDOW: "the hours in which it may run were over",
    Reason.INFEASIBLE: "no capacity that there is could have kept its deadline",
    Reason.RETURNED: "its visit to another cluster ended",
    Reason.NO_PROGRESS: "its instance, its lease or its attempts were lost too often in a row, and it came no further",
    Reason.SUPERSEDED: "its checkpoints belong to a later epoch than its record",
    Reason.STALLED: "it made no step for many times its usual, or gave no sign of life",
}


def because(reason: str) -> str:
    """Return the text for a reason in a row."""
    return MEANING_OF_REASON[Reason(reason)]
