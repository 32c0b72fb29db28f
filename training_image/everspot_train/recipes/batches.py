"""Chooses the batch size of a recipe: the requested one, or the largest that fits the memory."""

from collections.abc import Callable

import torch
from everspot_core.jobs.recipes import RecipeParameters

from everspot_train.recipes.parameters import BadParameters
from everspot_train.trainer import Run

BatchLoss = Callable[[torch.nn.Module, int], torch.Tensor]
"""Computes the loss of a model on a number of synthetic samples, made on the device."""


class TrialStep:
    """A training step on a separate model, for measuring the memory of a batch."""

    def __init__(self, run: Run, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loss: BatchLoss) -> None:
        self._run, self._model, self._optimizer, self._loss = run, model, optimizer, loss

    def __call__(self, batch_size: int) -> None:
        """Make one step with `batch_size` samples."""
        with self._run.autocast():
            loss = self._loss(self._model, batch_size)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)


def choose_batch_size(p: RecipeParameters, run: Run, make_trial: Callable[[], TrialStep]) -> int:
    """Return the samples per batch and process. The run accumulates batches up to the global batch.

    Args:
        make_trial: makes the step for measurements; called only if they are needed.

    Raises:
        BadParameters: if the processes cannot share the global batch evenly.
        TrainerError: if not even the smallest batch fits.
    """
    if isinstance(p.batch_size, int):
        return p.batch_size
    assert p.global_batch is not None  # noqa: S101 - the parameters were checked
    try:
        return run.fit_batch_size(p.global_batch, make_trial())
    except ValueError as error:
        raise BadParameters(f"global_batch: {error}") from error
