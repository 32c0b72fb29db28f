"""Chooses the batch size of a recipe: the one that is asked for, or the largest that fits the memory."""

from collections.abc import Callable

from everspot_core.recipes import Batches

from everspot_train.recipes.parameters import BadParameters
from everspot_train.trainer import Run


def choose_batch_size(p: Batches, run: Run, trial: Callable[[], Callable[[int], None]]) -> int:
    """Return the samples per batch and process. The run accumulates as many as make up the global batch.

    Args:
        trial: makes a training step on a network of its own, if memory is to be measured.

    Raises:
        BadParameters: if the processes cannot share the global batch evenly.
        TrainerError: if not even the smallest batch fits.
    """
    if isinstance(p.batch_size, int):
        return p.batch_size
    assert p.global_batch is not None  # noqa: S101 - the parameters were checked
    try:
        return run.fit_batch_size(p.global_batch, trial())
    except ValueError as error:
        raise BadParameters(f"global_batch: {error}") from error
