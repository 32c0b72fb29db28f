"""A user's loop on the trainer library. Its first attempt begins when a profile is ordered.

With BEGIN it begins immediately, and waits in its last step for the file `enough`.
"""

import os
import time
from pathlib import Path

import torch
from everspot_train.trainer import Run, resumable_loader
from strike import NOTES, digest, record, strike
from torch import nn
from torch.utils.data import TensorDataset

TOTAL = 40

torch.set_num_threads(1)
with Run.open(seed=3) as run:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 4, generator=random)
    model = run.prepare(nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    loader = resumable_loader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), 8)
    run.track(model=model, optimizer=optimizer, loader=loader)
    order = Path(os.environ.get("EVERSPOT_RUN_DIR", "")) / "profile-order.json"
    while "STRIKE" in os.environ and "BEGIN" not in os.environ and not (order.exists() or (NOTES / "struck").exists()):
        time.sleep(0.02)
    for x, y in run.batches(TOTAL):
        loss = nn.functional.mse_loss(model(x), y)
        run.step(loss)
        record(step=run.steps_done, loss=loss.item())
        run.log(**{"acc@1 (%)": 1.0, "val//loss": 2.0, "../x": 3.0})
        strike(f"step {run.steps_done}")
        while run.steps_done == TOTAL and "BEGIN" in os.environ and not (NOTES / "enough").exists():
            time.sleep(0.02)
record(weights=digest(model))
