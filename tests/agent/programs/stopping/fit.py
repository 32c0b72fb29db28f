"""A program on the library: a regression that soon gets no better, and an evaluation at every fifth step."""

import os
import time
from pathlib import Path

import torch
from everspot_train.trainer import Run, resumable_loader
from gate import hold
from torch.utils.data import TensorDataset

with Run.open(seed=7) as run:
    data = torch.Generator().manual_seed(1)
    inputs, noise = torch.randn(256, 8, generator=data), torch.randn(256, 1, generator=data)
    targets = inputs.sum(dim=1, keepdim=True) + noise
    torch.manual_seed(7)
    model = run.prepare(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    run.track(model=model, optimizer=optimizer, loader=resumable_loader(TensorDataset(inputs[:192], targets[:192]), 16))
    for batch, target in run.batches(100_000):
        run.step(torch.nn.functional.mse_loss(model(batch), target))
        if run.steps_done % 5 == 0:
            model.eval()
            with torch.no_grad():
                run.log(val_loss=torch.nn.functional.mse_loss(model(inputs[192:]), targets[192:]).item())
            model.train()
        hold(run.steps_done)
        time.sleep(0.01)
    outputs = Path(os.environ["EVERSPOT_OUTPUT_DIR"])
    outputs.mkdir(exist_ok=True)
    (outputs / "model.txt").write_text(str(run.steps_done))
