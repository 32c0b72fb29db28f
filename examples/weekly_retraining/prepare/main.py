"""Prepares the archive: normalized arrays of the first images of Fashion-MNIST."""

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np

TRAIN, TEST = 18_000, 4000


def read_images(path: Path, count: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the first images of a file in IDX format, a row each, from 0 to 1."""
    content = gzip.decompress(path.read_bytes())
    pixels = np.frombuffer(content, np.uint8, count * 784, offset=16)
    return pixels.reshape(count, 784).astype(np.float32) / 255


def read_labels(path: Path, count: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the first labels of a file in IDX format."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, count, offset=8).astype(np.int64)


data = Path(os.environ["EVERSPOT_DATA"]) / "fashion-mnist"
outputs = Path(os.environ["EVERSPOT_OUTPUT_DIR"])
outputs.mkdir(exist_ok=True)
images = read_images(data / "train-images-idx3-ubyte.gz", TRAIN)
mean, deviation = images.mean(), images.std()
np.savez(
    outputs / "arrays.npz",
    images=(images - mean) / deviation,
    labels=read_labels(data / "train-labels-idx1-ubyte.gz", TRAIN),
    test_images=(read_images(data / "t10k-images-idx3-ubyte.gz", TEST) - mean) / deviation,
    test_labels=read_labels(data / "t10k-labels-idx1-ubyte.gz", TEST),
)
