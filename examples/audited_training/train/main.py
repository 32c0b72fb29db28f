"""Trains a small convolutional network on pictures that are larger than it needs: each is decompressed and scaled down
by a worker of the loader.

Decoding is real work, and how much of it there is follows from the machine: the pictures are as large as it takes for
one worker to be `DECODE_SECONDS` busy for each second of a step, both in processor time. So on any machine one worker
and the loop, which has one thread, keep 1 + 1 / `DECODE_SECONDS` processors busy: 37 % of four. The pixels that the
network sees do not depend on it.

It trains for `SECONDS` and ends with the epoch, or after `EPOCHS`.
"""

import gzip
import os
import time
import zlib
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from everspot_train.trainer import Run, resumable_loader
from torch import nn

SIDE = 28
TRAIN, TEST = 9600, 4000
BATCH = 64
DECODE_SECONDS = 1 / (4 * 0.37 - 1)


def read(name: str, count: int) -> tuple[Any, torch.Tensor]:
    """Return the first images, as bytes, and labels of a part of Fashion-MNIST."""
    folder = Path(os.environ["EVERSPOT_DATA"]) / "fashion-mnist"
    pixels, classes = (
        gzip.decompress((folder / f"{name}-{kind}-ubyte.gz").read_bytes()) for kind in ("images-idx3", "labels-idx1")
    )
    images = np.frombuffer(pixels, np.uint8, count * SIDE**2, offset=16).reshape(count, SIDE, SIDE)
    return images, torch.from_numpy(np.frombuffer(classes, np.uint8, count, offset=8).astype(np.int64))


def as_input(images: Any) -> torch.Tensor:
    """Return what the network takes of images."""
    return torch.from_numpy(images.astype(np.float32) / 255).unsqueeze(-3)


class Pictures(torch.utils.data.Dataset[Any]):
    """Images that are stored `times` as wide and as high, compressed."""

    def __init__(self, images: Any, labels: torch.Tensor, times: int) -> None:
        self.times, self.labels = times, labels
        self.stored = [zlib.compress(image.repeat(times, 0).repeat(times, 1).tobytes(), 1) for image in images]

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.stored)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Decode a batch."""
        return [self[index] for index in indices]

    def __getitem__(self, index: int) -> Any:
        """Decode a picture, and return it with its label."""
        pixels = np.frombuffer(zlib.decompress(self.stored[index]), np.uint8)
        blocks = pixels.reshape(SIDE, self.times, SIDE, self.times)
        return as_input(blocks.mean((1, 3))), self.labels[index]


def processor_seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the processor time that some work takes, the median."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return float(np.median(seconds))


def enlargement(model: nn.Module, images: Any, labels: torch.Tensor) -> int:
    """Return how many times as wide the stored pictures have to be. It tries steps on a copy of the model."""
    trial = deepcopy(model)
    optimizer = torch.optim.Adam(trial.parameters(), lr=1e-3)
    inputs, classes = as_input(images[:BATCH]), labels[:BATCH]

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(trial(inputs), classes).backward()
        optimizer.step()

    processor_seconds(step, 10)  # the first ones are slower
    due, times = processor_seconds(step, 30) * DECODE_SECONDS, 16
    for _ in range(4):  # the work grows about with the square
        pictures = Pictures(images[:BATCH], labels, times)
        share = due / processor_seconds(partial(pictures.__getitems__, range(BATCH)), 5)
        times = max(1, round(times * share**0.5))
    return times


def main() -> None:
    """Train, and report the accuracy on the test images."""
    torch.set_num_threads(1)
    with Run.open(seed=1) as run:
        model = run.prepare(
            nn.Sequential(
                *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                nn.Flatten(),
                nn.Linear(32 * 49, 10),
            )
        )
        images, labels = read("train", TRAIN)
        pictures = Pictures(images, labels, enlargement(model, images, labels))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        workers = int(os.environ["WORKERS"])
        loader = resumable_loader(pictures, BATCH, seed=1, num_workers=workers, persistent_workers=True)
        run.track(model=model, optimizer=optimizer, loader=loader)
        epochs, end = int(os.environ["EPOCHS"]), time.monotonic() + float(os.environ["SECONDS"])
        for x, y in run.batches(epochs=epochs):
            run.step(nn.functional.cross_entropy(model(x), y))
            if run.steps_done % len(loader) == 0 and time.monotonic() >= end:
                run.finish()
        test_images, test_labels = read("t10k", TEST)
        with torch.no_grad():
            correct = model(as_input(test_images)).argmax(1) == test_labels
        run.log(test_accuracy=correct.float().mean().item())


if __name__ == "__main__":
    main()
