"""A program on the trainer library whose loop ends at step 3 of 9, in a way of several."""

import os
import sys

import torch
from everspot_train.trainer import Run, resumable_loader
from torch.utils.data import TensorDataset

HOW = os.environ["EARLY"]

with Run.open(seed=1, accumulation=2) as run:
    model = run.prepare(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run.track(model=model, optimizer=optimizer, loader=resumable_loader(TensorDataset(torch.randn(64, 4)), 4))
    for (x,) in run.batches(9):
        if run.steps_done == 3 and HOW == "break":
            break
        stepped = run.step(model(x).square().mean())
        if run.steps_done == 3 and stepped:
            if HOW == "finish":
                run.finish()
            if HOW == "sys.exit":
                sys.exit(0)
            if HOW == "os._exit":
                os._exit(0)
print("after the loop")
