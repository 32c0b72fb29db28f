"""Loads images with labels into memory: IDX files, as used by MNIST and similar datasets, and synthetic images for
tests."""

import gzip
import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

DATA_VARIABLE = "EVERSPOT_DATA"
SYNTHETIC = "synthetic"
FASHION_MNIST = "fashion-mnist"

_UNSIGNED_BYTES = 0x08
_PLACES = ("", FASHION_MNIST, f"usr/share/datasets/{FASHION_MNIST}")
_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

FASHION_MNIST_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""SHA-256 of the official unpacked files. Their compression differs between sources."""


class BadDataset(Exception):
    """Missing or invalid data."""


@dataclass(frozen=True)
class Images:
    """Images and labels for training and test. `x`: uint8, (n, 1, height, width). `y`: int64, (n)."""

    x: torch.Tensor
    y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(max(self.y.max(), self.test_y.max())) + 1


def parse_idx(content: bytes, name: str) -> torch.Tensor:
    """Return an IDX file of unsigned bytes as a tensor.

    Raises:
        BadDataset: if it is another format or its size does not fit its header. The message contains `name`.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTES or content[3] == 0:
        raise BadDataset(
            f"{name} is not an IDX file of unsigned bytes: it begins with {content[:4].hex() or 'nothing'}"
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise BadDataset(f"{name} ends within its header")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    expected = int(np.prod(shape, dtype=np.uint64))
    if len(content) - start != expected:
        raise BadDataset(f"{name} should hold {expected} bytes for shape {shape} and holds {len(content) - start}")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def find_folder(data: str) -> Path:
    """Return the folder with the files: `data`, its folder in EVERSPOT_DATA, or the subfolder of Debian's package.

    Raises:
        BadDataset: listing every place that was searched.
    """
    root = os.environ.get(DATA_VARIABLE) if data == FASHION_MNIST else data
    if root is None:
        raise BadDataset(f"{DATA_VARIABLE} is not set: it names the folder with the {FASHION_MNIST} files")
    places = [Path(root, place) for place in _PLACES]
    for place in places:
        if all(_path(place, name) for name in _FILES):
            return place
    raise BadDataset(f"no {', '.join(_FILES)} (.gz or not) in any of: {', '.join(map(str, places))}")


def load_images(data: str, limit: int | None = None) -> Images:
    """Return the images that `data` names: `fashion-mnist`, `synthetic`, or a folder of IDX files.

    Args:
        data: the name; the digests of `fashion-mnist` are verified.
        limit: use this many training images only.

    Raises:
        BadDataset: if they are missing, damaged, or images and labels do not belong together.
    """
    if data == SYNTHETIC:
        return _synthetic(limit or 512)
    folder = find_folder(data)
    x, y, test_x, test_y = (_read(folder, name, data == FASHION_MNIST) for name in _FILES)
    for images, labels, part in ((x, y, "training"), (test_x, test_y, "test")):
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels) or len(labels) == 0:
            raise BadDataset(
                f"{folder}: {part} images {tuple(images.shape)} and labels {tuple(labels.shape)} do not fit"
            )
    return Images(x[:limit].unsqueeze(1), y[:limit].long(), test_x.unsqueeze(1), test_y.long())


def _path(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read(folder: Path, name: str, official: bool) -> torch.Tensor:
    path = _path(folder, name)
    if path is None:
        raise BadDataset(f"{folder / name} has vanished")
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError) as error:
            raise BadDataset(f"{path} cannot be unpacked: {error}") from error
    if official and hashlib.sha256(content).hexdigest() != FASHION_MNIST_SHA256[name]:
        raise BadDataset(f"{path} is not the official file: its SHA-256 is another")
    return parse_idx(content, str(path))


def _synthetic(count: int) -> Images:
    """Return images of bright bars at ten heights in noise, which a net learns within seconds."""
    source = np.random.default_rng(0)

    def some(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = source.integers(0, 10, size=number)
        images = source.integers(0, 80, size=(number, 1, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[0, 2 + 2 * label : 5 + 2 * label, 4:24] += 150
        return torch.from_numpy(images), torch.from_numpy(labels)

    return Images(*some(count), *some(256))
