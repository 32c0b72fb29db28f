"""Writes and reads the pieces of state on which the next step depends.

Every piece has `state_dict` and `load_state_dict`. The model and the optimizer get a file each, and the other shared
pieces one together. State that differs between ranks (random generators, data position) goes into one file per rank.
torch.save writes the files, and they are read with `weights_only`, so that reading a checkpoint never executes code.
"""

import io
import pickle
import re
from pathlib import Path
from typing import Any, Protocol

import torch

from everspot_train.trainer.errors import StateMismatch, UnsafeState

_OWN_FILE = ("model", "optimizer")
_REST = "state.pt"
FORMAT = 1


class Stateful(Protocol):
    """An object whose state can be saved and restored."""

    def state_dict(self) -> Any:
        """The state as tensors, numbers, text and containers of these."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Restore a state."""
        ...


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The user's module without the wrappers of DDP and torch.compile, so that names do not depend on them."""
    while True:
        wraps = "module" if isinstance(model, torch.nn.parallel.DistributedDataParallel) else "_orig_mod"
        inner = getattr(model, wraps, None)
        if not isinstance(inner, torch.nn.Module):
            return model
        model = inner


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


class TrainState:
    """The pieces of one run: `shared` are the same on every rank, `local` are each rank's own."""

    def __init__(self) -> None:
        self.shared: dict[str, Stateful] = {}
        self.local: dict[str, Stateful] = {}
        self._checked: set[str] = set()

    def save(self, directory: Path, step: int, rank: int) -> None:
        """Write this rank's files into `directory`; the first rank's include the shared ones.

        Raises:
            UnsafeState: if a piece holds something that could not be read back.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._write(directory / _rank_file(rank), {}, self.local)
        if rank != 0:
            return
        for name in _OWN_FILE:
            if name in self.shared:
                self._write(directory / f"{name}.pt", None, {name: self.shared[name]})
        rest = {name: piece for name, piece in self.shared.items() if name not in _OWN_FILE}
        self._write(directory / _REST, {"format": FORMAT, "step": step}, rest)

    def load(self, directory: Path, rank: int) -> tuple[int, bool]:
        """Restore every piece. Returns the step, and whether this rank found its own file.

        A rank that took no part in the checkpoint takes the first rank's data position and keeps its own random
        numbers.

        Raises:
            StateMismatch: if a piece is missing or does not fit.
        """
        rest = self._read(directory / _REST)
        saved: dict[str, Any] = dict(rest["pieces"])
        for name in _OWN_FILE:
            if name in self.shared:
                saved[name] = self._read(directory / f"{name}.pt")
        own = (directory / _rank_file(rank)).exists()
        local = self._read(directory / _rank_file(rank if own else 0))["pieces"]
        pieces = [(n, p, saved) for n, p in self.shared.items()]
        pieces += [(n, p, local) for n, p in self.local.items() if own or n != "randomness"]
        for name, piece, source in pieces:
            if name not in source:
                raise StateMismatch(f"the checkpoint has no {name!r}: was it written by another version of the loop?")
            try:
                piece.load_state_dict(source[name])
            except (KeyError, RuntimeError, ValueError, TypeError) as error:
                raise StateMismatch(f"{name!r} in the checkpoint does not fit: {error}") from error
        return int(rest["step"]), own

    def _write(self, path: Path, head: dict[str, int] | None, pieces: dict[str, Stateful]) -> None:
        """Write one file: the state of the only piece if there is no head, else head and pieces by name."""
        states = {name: piece.state_dict() for name, piece in pieces.items()}
        torch.save(head | {"pieces": states} if head is not None else next(iter(states.values())), path)
        if path.name not in self._checked:  # once per file: better now than at the resume
            try:
                self._read(path)
            except pickle.UnpicklingError as error:
                raise UnsafeState(_complaint(states)) from error
            self._checked.add(path.name)

    @staticmethod
    def _read(path: Path) -> Any:
        if not path.exists():
            raise StateMismatch(f"the checkpoint has no {path.name}")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def _complaint(states: dict[str, Any]) -> str:
    """The pieces that cannot be read back, and the types in them that prevent it."""
    wrong = []
    for name, state in states.items():
        copy = io.BytesIO()
        torch.save(state, copy)
        copy.seek(0)
        try:
            torch.load(copy, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            kind = re.search(r"GLOBAL (\S+)", str(error))
            wrong.append(f"{name!r} holds {kind.group(1) if kind else 'objects'}")
    return f"{', '.join(wrong)}: a checkpoint holds tensors, numbers, text, and lists, tuples and dicts of these only"
