"""Reads checkpoints of format 1, which version 0.1 wrote: one file of torch.save for each piece.

The files are read with `weights_only`, so that reading a checkpoint never executes code.
"""

from pathlib import Path
from typing import Any

import torch

from everspot_train.checkpoint.loader import StoredState

HEAD = "state.pt"
"""The file with the step and the shared pieces that have no file of their own."""
_OWN_FILE = ("model", "optimizer")


def read_legacy(directory: Path, rank: int) -> StoredState:
    """Read a checkpoint of format 1.

    Raises:
        FileNotFoundError: if a file is missing. Its message is the name of the file.
        pickle.UnpicklingError: if a file holds more than data.
    """
    head = _read(directory / HEAD)
    shared = dict(head["pieces"])
    for name in _OWN_FILE:
        if (directory / f"{name}.pt").exists():
            shared[name] = _read(directory / f"{name}.pt")
    took_part = (directory / _rank_file(rank)).exists()
    of_rank = _read(directory / _rank_file(rank if took_part else 0))
    return StoredState(int(head["step"]), shared, of_rank["pieces"], of_rank.get("own", {}), took_part)


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def _read(path: Path) -> Any:
    """Read a file. Tensors are mapped, so that their contents are not read before they are used."""
    if not path.exists():
        raise FileNotFoundError(path.name)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
