"""The trainer: a PyTorch loop that can be interrupted on one machine and goes on, bit for bit, on another.

    with Run.open(seed=1) as run:
        model = run.prepare(MyModel())
        optimizer = torch.optim.AdamW(model.parameters())
        run.track(model=model, optimizer=optimizer, loader=resumable_loader(dataset, 64))
        for batch in run.batches(total_steps=10_000):
            with run.autocast():
                loss = compute_loss(model, batch)
            run.step(loss)

See docs/guide/training.md for what each of these lines promises.
"""

from everspot_train.trainer.data import BatchOrder, TensorLoader, resumable_loader
from everspot_train.trainer.errors import (
    NonFiniteLoss,
    RunFenced,
    RunStopped,
    StateMismatch,
    TrainerError,
    UnsafeState,
    UnsupportedState,
)
from everspot_train.trainer.run import Run

__all__ = [
    "BatchOrder",
    "NonFiniteLoss",
    "Run",
    "RunFenced",
    "RunStopped",
    "StateMismatch",
    "TensorLoader",
    "TrainerError",
    "UnsafeState",
    "UnsupportedState",
    "resumable_loader",
]
