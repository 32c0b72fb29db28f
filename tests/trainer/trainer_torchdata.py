"""A typical loop around torchdata's StatefulDataLoader: shuffle, dropout, workers, and numpy on the batch.

Run as a script it takes its settings from the environment, like trainer_loop.py.
"""

import os

import numpy as np
import torch
from everspot_train.trainer import Run
from torch import nn
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from trainer_loop import Digits, Settings, wish

STEPS = 20


class Augmented(Digits):
    def __init__(self, samples: int) -> None:
        super().__init__(samples)
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        x, y = super().__getitem__(index)
        noise = np.random.normal(size=x.shape) + self.rng.normal()
        return x + 0.1 * noise.astype(np.float32), y


def train(settings: Settings) -> dict[str, torch.Tensor]:
    torch.set_num_threads(1)
    mixing = np.random.default_rng(2)
    data = Augmented(48)
    with Run.open(seed=3, precision="fp32") as run:
        model = run.prepare(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        sampler = DistributedSampler(data) if run.world_size > 1 else None
        loader = StatefulDataLoader(
            data, 4, shuffle=sampler is None, sampler=sampler, num_workers=settings.workers, generator=torch.Generator()
        )
        run.track(model=model, optimizer=optimizer, loader=loader)
        for x, y in run.batches(STEPS):
            loss = nn.functional.cross_entropy(model(x.float() * float(mixing.uniform(0.9, 1.1))), y)
            run.step(loss)
            with settings.losses.open("a") as file:
                file.write(f"{run.steps_done} {run.last_loss.hex()}\n")
            wish(settings, run)
        return {name: value.clone() for name, value in model.state_dict().items()}


if __name__ == "__main__":
    weights = train(Settings.from_environment())
    if int(os.environ.get("RANK", "0")) == 0:
        torch.save(weights, os.environ["LOSSES"] + ".weights")
