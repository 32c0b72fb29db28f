"""A program in an image that streams a dataset through a small cache, and prints which samples each step got. Its first
steps take a while."""

import json
import os
import time
from pathlib import Path

import torch
from everspot_train.shards import ShardedDataset
from everspot_train.trainer import Run

STEPS, SLOW_STEPS = 150, 40


def decode(sample: dict[str, bytes]) -> tuple[str, torch.Tensor]:
    return sample["__key__"], torch.tensor([float(sample["cls"])])  # type: ignore[arg-type]


def main() -> None:
    with Run.open(seed=7) as run:
        dataset = ShardedDataset("web", cache_gb=float(os.environ["CACHE_GB"]), window=2, decode=decode)
        model = run.prepare(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        loader = dataset.loader(4, seed=3, num_workers=2, persistent_workers=True)
        run.track(model=model, optimizer=optimizer, loader=loader)
        root = sorted(path.name for path in Path("/").iterdir())
        print(json.dumps({"torch": torch.__file__, "root": root}), flush=True)
        for keys, values in run.batches(total_steps=STEPS):
            run.step(model(values).square().mean())
            print(json.dumps({"step": run.steps_done, "keys": keys}), flush=True)
            if run.steps_done < SLOW_STEPS:
                time.sleep(0.4)


if __name__ == "__main__":
    main()
