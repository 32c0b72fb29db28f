"""A user's torch program on the trainer library: a tiny regression with dropout, and the digest of its weights."""

import hashlib
import os
import time
from pathlib import Path

import torch
from everspot_train.trainer import Run, resumable_loader
from torch.utils.data import TensorDataset


def main() -> None:
    steps = int(os.environ["FIT_STEPS"])
    pause = float(os.environ["FIT_STEP_SECONDS"])
    with Run.open(seed=7) as run:
        data = torch.Generator().manual_seed(1)
        inputs = torch.randn(256, 8, generator=data)
        dataset = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
        torch.manual_seed(7)
        model = run.prepare(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.5)
        loader = resumable_loader(dataset, 16)
        run.track(model=model, optimizer=optimizer, loader=loader, scheduler=schedule)
        for batch, target in run.batches(steps):
            with run.autocast():
                loss = torch.nn.functional.mse_loss(model(batch), target)
            run.step(loss)
            print(f"step {run.steps_done} loss {loss.item():.6f}", flush=True)
            time.sleep(pause)
        if run.steps_done == steps:
            weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
            Path(os.environ["FIT_OUT"]).write_text(hashlib.sha256(weights).hexdigest())


if __name__ == "__main__":
    main()
