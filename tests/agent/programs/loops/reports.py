"""A user's loop on Accelerate over a stream, which reports many metrics under names of its own."""

import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from everspot_train.frameworks.accelerate import ResumableLoop
from strike import digest
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

NOTES = Path(os.environ["NOTES"])


class Stream(IterableDataset):
    def __iter__(self):
        random = torch.Generator().manual_seed(0)
        return iter([torch.randn(4, generator=random) for _ in range(80)])


torch.set_num_threads(1)
set_seed(3)
accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.3), nn.Linear(16, 1))
model, optimizer, loader = accelerator.prepare(
    model, torch.optim.Adam(model.parameters(), 0.01), DataLoader(Stream(), batch_size=4)
)
loop = ResumableLoop(accelerator)
for _ in loop.epochs(2):
    for x in loop.batches(loader):
        loss = model(x).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accuracies = {f"per class/accuracy of class {n:05d} {'x' * 40}": n / 7 for n in range(150)}
        loop.log(loss=np.float32(loss.item()), **accuracies)
        if loop.step == 30 and not (NOTES / "here").exists():
            (NOTES / "here").touch()
            while not (NOTES / "struck").exists():
                time.sleep(0.05)
result = {"steps": loop.step, "weights": digest(accelerator.unwrap_model(model)), "loss": loss.item()}
(NOTES / "result.json").write_text(json.dumps(result))
accelerator.end_training()
