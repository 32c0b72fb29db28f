"""A sharded loop with 1.2 GB of weights and optimizer state, for the tests. A script, like `trainer_sharded.py`.

At its end each rank writes the digest of its shards of weights and optimizer.
"""

import hashlib
import os
from pathlib import Path

import torch
from everspot_train.trainer import Run, resumable_loader
from torch import nn
from torch.distributed.fsdp import fully_shard
from trainer_sharded import mean_over_ranks

WIDTH, LAYERS = 4096, 6
STATE_BYTES = 3 * 4 * LAYERS * WIDTH * WIDTH
TOTAL = 6


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))


def make_model() -> nn.Sequential:
    """Each rank begins with the same weights, of which it keeps its shard."""
    torch.manual_seed(3)
    layers = []
    for _ in range(LAYERS):
        layer = nn.Linear(WIDTH, WIDTH, bias=False)
        fully_shard(layer)
        layers.append(layer)
    model = nn.Sequential(*layers)
    fully_shard(model)
    return model


def main() -> None:
    torch.set_num_threads(1)
    name = f"{os.environ['LOSSES']}.{os.environ['RANK']}"
    with Run.open(seed=3, precision="fp32") as run:
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        run.track(model=model, optimizer=optimizer, loader=resumable_loader(Rows(), 2, seed=5))
        for x in run.batches(TOTAL):
            loss = (model(x) - x).square().mean()
            run.step(loss)
            with Path(name).open("a") as file:
                file.write(f"{run.steps_done} {mean_over_ranks(loss).item().hex()}\n")
        digest = hashlib.blake2b()
        for parameter in model.parameters():
            state = optimizer.state[parameter]
            for tensor in (parameter, state["exp_avg"], state["exp_avg_sq"]):
                digest.update(tensor.detach().to_local().numpy())
    Path(f"{name}.digest").write_text(digest.hexdigest())


if __name__ == "__main__":
    main()
