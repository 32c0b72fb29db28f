"""A program that streams a dataset through a small cache, and writes down which samples each step of each rank got. Its
steps take a while until FIT_FAST exists."""

import os
import time
from pathlib import Path

import torch
from everspot_train.shards import ShardedDataset
from everspot_train.trainer import Run


def decode(sample: dict[str, bytes]) -> tuple[str, torch.Tensor]:
    return sample["__key__"], torch.tensor([float(sample["cls"])])  # type: ignore[arg-type]


def main() -> None:
    rank = os.environ.get("RANK", "0")
    with Run.open(seed=7) as run:
        dataset = ShardedDataset("web", cache_gb=float(os.environ["CACHE_GB"]), window=2, decode=decode)
        model = run.prepare(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        loader = dataset.loader(4, seed=3, num_workers=2, persistent_workers=True)
        run.track(model=model, optimizer=optimizer, loader=loader)
        for keys, values in run.batches(total_steps=int(os.environ["FIT_STEPS"])):
            loss = model(values).square().mean()
            run.step(loss)
            with Path(os.environ["TRACE"] + rank).open("a") as trace:
                trace.write(f"{run.steps_done} {' '.join(keys)}\n")
            if not Path(os.environ["FIT_FAST"]).exists():
                time.sleep(0.4)
        traffic = dataset.traffic()
        print(f"fetched {traffic.fetched} cached {traffic.cached}", flush=True)


if __name__ == "__main__":
    main()
