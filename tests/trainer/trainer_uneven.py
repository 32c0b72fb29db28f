"""Ranks whose loaders have 11 and 10 batches, and whose model caches as many positions as the rank has seen."""

import os
from pathlib import Path

import torch
from everspot_train.trainer import Run
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class Positions(nn.Module):
    """A layer with a rotary cache that grows with the longest sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("cache", torch.zeros(1), persistent=False)

    def forward(self, x: torch.Tensor, length: int) -> torch.Tensor:
        if length > len(self.cache):
            self.cache = torch.arange(float(length)).cos()
        y: torch.Tensor = self.layer(x) * self.cache[:length].sum()
        return y


def main() -> None:
    torch.set_num_threads(1)
    with Run.open(seed=1, precision="fp32") as run:
        torch.manual_seed(1)
        model = Positions()
        parallel = DistributedDataParallel(model, broadcast_buffers=False)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-3)
        data = [torch.randn(2) for _ in range(21)][run.rank :: run.world_size]
        run.track(model=parallel, optimizer=optimizer, loader=DataLoader(data, 1))
        before = len(model.cache) if run.restore() else None
        for x in run.batches(epochs=1):
            run.step(parallel(x, 3 + run.rank + run.steps_done % 2).square().mean())
    line = f"{run.steps_done} {before}"
    Path(f"{os.environ['LOSSES']}.{run.rank}").write_text(line)


if __name__ == "__main__":
    main()
