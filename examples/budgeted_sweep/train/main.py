"""Trains a small network on Fashion-MNIST with the learning rate and the epochs of a trial, and reports its accuracy on
images that it was not trained on.

A step takes at least `STEP_SECONDS`, so that the duration of a trial depends on its epochs and not on the load of the
machine.
"""

import gzip
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

TRAIN, TEST = 6000, 4000
BATCH = 64
STEP_SECONDS = 0.05


def read(name: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first images and labels of a part of Fashion-MNIST."""
    folder = Path(os.environ["EVERSPOT_DATA"]) / "fashion-mnist"
    pixels = gzip.decompress((folder / f"{name}-images-idx3-ubyte.gz").read_bytes())
    classes = gzip.decompress((folder / f"{name}-labels-idx1-ubyte.gz").read_bytes())
    images = np.frombuffer(pixels, np.uint8, count * 784, offset=16).reshape(count, 784)
    labels = np.frombuffer(classes, np.uint8, count, offset=8)
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


torch.manual_seed(1)
images, labels = read("train", TRAIN)
test_images, test_labels = read("t10k", TEST)
model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=float(os.environ["LEARNING_RATE"]))
step = 0
for _ in range(int(os.environ["EPOCHS"])):
    for batch in torch.randperm(len(images)).split(BATCH):
        began = time.monotonic()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"EVERSPOT step={step} loss={loss.item():.4f} test_accuracy={accuracy:.4f}", flush=True)
