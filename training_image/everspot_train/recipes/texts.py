"""Loads text as sequences of bytes: Python's documentation, or the user's files."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import torch

from everspot_train.recipes.images import BadDataset

PYTHON_DOCS = "python-docs"
_TEST_SHARE = 10  # one of this many sequences is for the test


@dataclass(frozen=True)
class Sequences:
    """Sequences of `context + 1` bytes, uint8, (n, context + 1). Every byte but the first is a target."""

    train: torch.Tensor
    test: torch.Tensor


def load_sequences(data: str, context: int, limit: int | None = None) -> Sequences:
    """Return the sequences of the text that `data` names: `python-docs`, a file, or a folder of .txt files.

    Args:
        context: the bytes of a sequence that the model sees.
        limit: use this many training sequences only.

    Raises:
        BadDataset: if the text does not exist, or is too short.
    """
    text = _read_python_docs() if data == PYTHON_DOCS else _read_files(Path(data))
    count = (len(text) - 1) // context
    if count < 2 * _TEST_SHARE:
        raise BadDataset(f"{data} has {len(text)} bytes, and {2 * _TEST_SHARE * context + 1} are needed")
    values = np.frombuffer(text, np.uint8)
    places = context * np.arange(count)[:, None] + np.arange(context + 1)[None, :]
    sequences = torch.from_numpy(values[places])
    is_test = torch.arange(count) % _TEST_SHARE == _TEST_SHARE - 1
    return Sequences(sequences[~is_test][:limit], sequences[is_test])


def _read_python_docs() -> bytes:
    """Return Python's language reference, which is installed for `help()`, in a fixed order: about 466 kB."""
    try:
        topics = import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise BadDataset(f"this Python comes without its documentation ({error}): give a text file as data") from error
    return "\n".join(topics[name] for name in sorted(topics)).encode()


def _read_files(path: Path) -> bytes:
    files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
    try:
        return b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise BadDataset(f"data names {PYTHON_DOCS}, a file or a folder of .txt files: {error}") from error
