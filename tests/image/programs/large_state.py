"""A small network beside a buffer of MIB mebibytes that every step changes, so that its checkpoints are large.

It prints the loss of each step. A buffer that is not of its step is an error.
"""

import os
import time

import torch
from everspot_train.trainer import Run, resumable_loader
from torch import nn

PAUSE_SECONDS = float(os.environ["PAUSE_SECONDS"])

drawn = torch.Generator().manual_seed(5)
dataset = torch.utils.data.TensorDataset(
    torch.randn(64, 20, generator=drawn), torch.randint(0, 3, (64,), generator=drawn)
)
with Run.open(seed=1) as run:
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3))
    net.register_buffer("ballast", torch.zeros(int(os.environ["MIB"]) << 18))
    model = run.prepare(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.track(model=model, optimizer=optimizer, loader=resumable_loader(dataset, 16, seed=1))
    for x, y in run.batches(total_steps=int(os.environ["STEPS"])):
        if not bool((net.ballast == run.steps_done).all()):
            raise ValueError(f"the buffer is not that of step {run.steps_done}")
        net.ballast += 1
        run.step(nn.functional.cross_entropy(model(x), y))
        print(f"step {run.steps_done} loss {run.last_loss!r}", flush=True)
        time.sleep(PAUSE_SECONDS)
