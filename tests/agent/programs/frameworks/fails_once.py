"""A program on the trainer library that fails once, when it has a checkpoint, and then trains to its end."""

import os
import time
from pathlib import Path

import torch
from everspot_train.trainer import Run, resumable_loader

KEPT, FAILED = (Path(os.environ["NOTES"]) / name for name in ("kept", "failed"))

with Run.open(seed=1) as run:
    model = run.prepare(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    dataset = torch.utils.data.TensorDataset(torch.randn(64, 4))
    run.track(model=model, optimizer=optimizer, loader=resumable_loader(dataset, 4))
    for (x,) in run.batches(100_000 if not FAILED.exists() else run.resume_step + 3):
        run.step(model(x).pow(2).mean())
        if not FAILED.exists():
            time.sleep(0.05)
            if KEPT.exists():
                FAILED.touch()
                raise RuntimeError("once")
