"""Decides when a job changes to mixed precision to fit a type with less GPU memory than it has used so far."""

from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.job_parts import Precision
from everspot_core.jobs.records import Progress

HEADROOM = 1.1
"""The factor on measured use, because later steps may need a little more."""
MIXED = 0.8
"""GPU memory with mixed precision, as a fraction of the memory without. It assumes that activations, 40 % of a job's
memory, are halved, while weights, gradients and the optimizer's state stay. Most networks save more."""


def may_lower(spec: JobSpec, mixed: bool | None) -> bool:
    """Return whether a job may change to mixed precision.

    Args:
        spec: the job's; it must allow the change.
        mixed: whether the job trains in mixed precision now; None if it has never reported that.
    """
    return spec.mixed_on_failover and spec.precision is Precision.AUTO and mixed is False


def exceeds(used_gib: float | None, gpu_memory_gib: float) -> bool:
    """Return whether a job's measured GPU memory, with headroom, exceeds a GPU's memory; False if none was measured."""
    return used_gib is not None and used_gib * HEADROOM > gpu_memory_gib


def trains_mixed(spec: JobSpec, progress: Progress, gpu_memory_gib: float | None) -> bool:
    """Return whether a job that allows the change must train in mixed precision on its next instance.

    A job that has changed stays in mixed precision, even if the attempt that changed it left no checkpoint.

    Args:
        spec: the job's.
        progress: its last reported progress.
        gpu_memory_gib: of each GPU of the instance, by the catalog; None if the type is not in it.
    """
    if not spec.mixed_on_failover or spec.precision is not Precision.AUTO:
        return False
    if progress.mixed:
        return True
    if gpu_memory_gib is None or gpu_memory_gib >= spec.resources.gpu_memory_gib:
        return False
    return exceeds(progress.gpu_memory_gib, gpu_memory_gib)
