"""What a job that ended before its last step did not spend."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NotSpent:
    """An estimate of the time and money of the steps that were not done, at the mean of the completed steps.

    Attributes:
        hours: of its instances, without interruptions.
        dollars: None if what the job has cost is not known.
    """

    steps: int
    hours: float
    dollars: float | None


def estimate_not_spent(
    *, steps: int, total_steps: int | None, useful_seconds: float, useful_dollars: float | None
) -> NotSpent | None:
    """Return what a job did not spend; None if the steps at which it would have ended are not known.

    Args:
        steps: the number of steps that it has done.
        useful_seconds: market time with an instance, without the time that interruptions cost.
        useful_dollars: what that time has cost; None: not known.
    """
    if total_steps is None or not 0 < steps < total_steps:
        return None
    remaining = (total_steps - steps) / steps
    return NotSpent(
        steps=total_steps - steps,
        hours=useful_seconds * remaining / 3600,
        dollars=useful_dollars * remaining if useful_dollars is not None else None,
    )
