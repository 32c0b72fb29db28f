"""A program on the trainer library that also keeps a best model of its own."""

import os
import time
from pathlib import Path

import torch
from everspot_train.trainer import Run, resumable_loader

FOLDER = Path("checkpoints")
BEST = FOLDER / "best" / "best.pt"

with Run.open(seed=1) as run:
    model = run.prepare(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    dataset = torch.utils.data.TensorDataset(torch.randn(64, 4))
    run.track(model=model, optimizer=optimizer, loader=resumable_loader(dataset, 4))
    if BEST.exists():
        print(
            "best is", torch.load(BEST)["step"], int(BEST.stat().st_mtime), (FOLDER / "last.pt").readlink(), flush=True
        )
    for (x,) in run.batches(200):
        run.step(model(x).pow(2).mean())
        if run.steps_done == 3:
            BEST.parent.mkdir(exist_ok=True)
            torch.save({"step": 3}, BEST)
            os.utime(BEST, (1000, 1000))
            (FOLDER / "last.pt").symlink_to("best/best.pt")
        print(f"at {run.steps_done}", flush=True)
        time.sleep(0.05 if run.steps_done < 30 else 0)
