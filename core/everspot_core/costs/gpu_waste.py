"""The dollars that were paid for GPUs while they did not compute."""

from fractions import Fraction

from everspot_core.costs.prices import exact
from everspot_core.jobs.utilization import Utilization


def wasted_gpu_cost(cost: Fraction, use: Utilization | None) -> Fraction | None:
    """Return the part of a job's cost that was paid while no kernel ran on its GPUs.

    The time that was not measured, such as the first seconds of an attempt, counts as if it had been used alike.

    Args:
        cost: dollars of the job's instances.
        use: what it used of them; None: not measured.

    Returns:
        Dollars; None if the use of its GPUs was not measured, or if it has none.
    """
    share = use.gpu_share if use is not None else None
    return cost * (1 - exact(share)) if share is not None else None
