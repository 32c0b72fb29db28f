"""Trains a small convolutional network on images that it reads from slow storage, batch by batch.

The storage is simulated: each read of a batch waits. How long follows from the time of the last step, so that without
workers the processors of any machine are busy for `BUSY_SHARE` of the time. `WORKERS` processes of the loader wait at
once.
"""

import gzip
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from everspot_train.trainer import Run, resumable_loader
from torch import nn

TRAIN, TEST = 12_800, 4000
BATCH = 64
BUSY_SHARE, VCPUS = 0.37, 2
LEAST_WAIT = 1 / 3
"""The least length of a read, in steps. It counts where other programs take too much of the processors."""


def read(name: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first images and labels of a part of Fashion-MNIST."""
    folder = Path(os.environ["EVERSPOT_DATA"]) / "fashion-mnist"
    pixels, classes = (
        gzip.decompress((folder / f"{name}-{kind}-ubyte.gz").read_bytes()) for kind in ("images-idx3", "labels-idx1")
    )
    images = np.frombuffer(pixels, np.uint8, count * 784, offset=16).reshape(count, 1, 28, 28)
    labels = np.frombuffer(classes, np.uint8, count, offset=8)
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


class SlowImages(torch.utils.data.Dataset[Any]):
    """Images on slow storage. `read_seconds`: how long the read of a batch waits, in all processes."""

    def __init__(self) -> None:
        self.images, self.labels = read("train", TRAIN)
        self.read_seconds = torch.zeros(()).share_memory_()

    def __len__(self) -> int:
        """Return the number of images."""
        return TRAIN

    def __getitem__(self, index: int) -> Any:
        """Return an image and its label."""
        return self.__getitems__([index])[0]

    def follow_step(self, wall: float, busy: float) -> None:
        """Set how long the next reads wait, by the seconds of a step and the processor seconds in it."""
        self.read_seconds.fill_(max(busy / (BUSY_SHARE * VCPUS) - wall, LEAST_WAIT * wall))

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Read a batch."""
        time.sleep(self.read_seconds.item())
        return [(self.images[index], self.labels[index]) for index in indices]


def main() -> None:
    """Train, and report the accuracy on the test images."""
    with Run.open(seed=1) as run:
        model = run.prepare(
            nn.Sequential(
                *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                nn.Flatten(),
                nn.Linear(32 * 49, 10),
            )
        )
        images = SlowImages()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loader = resumable_loader(images, BATCH, seed=1, num_workers=int(os.environ["WORKERS"]))
        run.track(model=model, optimizer=optimizer, loader=loader)
        for x, y in run.batches(epochs=float(os.environ["EPOCHS"])):
            wall, busy = time.perf_counter(), time.process_time()
            run.step(nn.functional.cross_entropy(model(x.to(run.device)), y.to(run.device)))
            images.follow_step(time.perf_counter() - wall, time.process_time() - busy)
        test_images, labels = read("t10k", TEST)
        with torch.no_grad():
            correct = model(test_images.to(run.device)).argmax(1).cpu() == labels
        run.log(test_accuracy=correct.float().mean().item())


if __name__ == "__main__":
    main()
