"""Trains a small network on Fashion-MNIST in the job's number format, and reports its accuracy on images that it was
not trained on."""

import gzip
import os
from pathlib import Path

import numpy as np
import torch
from everspot_train.trainer import Run, resumable_loader
from torch import nn

TRAIN, TEST = 12_800, 10_000
BATCH = 128
EPOCHS = 4


def read(name: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first images and labels of a part of Fashion-MNIST."""
    folder = Path(os.environ["EVERSPOT_DATA"]) / "fashion-mnist"
    pixels = gzip.decompress((folder / f"{name}-images-idx3-ubyte.gz").read_bytes())
    classes = gzip.decompress((folder / f"{name}-labels-idx1-ubyte.gz").read_bytes())
    images = np.frombuffer(pixels, np.uint8, count * 784, offset=16).reshape(count, 784)
    labels = np.frombuffer(classes, np.uint8, count, offset=8)
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


def main() -> None:
    """Train, and report the accuracy."""
    seed = int(os.environ["SEED"])
    with Run.open(seed=seed) as run:
        model = run.prepare(nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loader = resumable_loader(torch.utils.data.TensorDataset(*read("train", TRAIN)), BATCH, seed=seed)
        run.track(model=model, optimizer=optimizer, loader=loader)
        for x, y in run.batches(epochs=EPOCHS):
            with run.autocast():
                loss = nn.functional.cross_entropy(model(x.to(run.device)), y.to(run.device))
            run.step(loss)
        images, labels = read("t10k", TEST)
        with torch.no_grad(), run.autocast():
            correct = model(images.to(run.device)).argmax(1).cpu() == labels
        run.log(test_accuracy=correct.float().mean().item())


if __name__ == "__main__":
    main()
