"""A program on the trainer library with an object of its own, whose last state cannot be loaded."""

import os
import time
from pathlib import Path

import torch
from everspot_train.trainer import Run, resumable_loader

NOTES = Path(os.environ["NOTES"])
STOP = Path(os.environ["EVERSPOT_RUN_DIR"]) / "stop.json"


class Table:
    """A table that loads no state that says that it is spoiled."""

    spoiled = False

    def state_dict(self) -> dict[str, bool]:
        return {"spoiled": self.spoiled}

    def load_state_dict(self, state: dict[str, bool]) -> None:
        if state["spoiled"]:
            raise ValueError("the table is spoiled")
        self.spoiled = state["spoiled"]


with Run.open(seed=1) as run:
    model = run.prepare(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    dataset = torch.utils.data.TensorDataset(torch.randn(64, 4))
    table, began = Table(), None
    run.track(model=model, optimizer=optimizer, loader=resumable_loader(dataset, 4), table=table)
    for (x,) in run.batches(2000):
        if began is None:
            began = run.steps_done
            print(f"began at {began}", flush=True)
        run.step(model(x).pow(2).mean())
        if (NOTES / "stopped").exists():
            continue
        time.sleep(0.05)
        if (NOTES / "kept").exists():
            table.spoiled = True
            while not STOP.exists():
                time.sleep(0.05)
