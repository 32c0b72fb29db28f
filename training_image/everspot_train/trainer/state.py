"""Writes and reads the pieces of state on which the next step depends.

Every piece has `state_dict` and `load_state_dict`. The model and the optimizer get a file each, and the other shared
pieces one together. State that differs between ranks (random generators, data position, and any shared piece that turns
out to differ) goes into one file per rank. torch.save writes the files, and they are read with `weights_only`, so that
reading a checkpoint never executes code.
"""

import copy
import io
import logging
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from everspot_train.trainer.errors import StateMismatch, UnsafeState
from everspot_train.trainer.fingerprints import fingerprint, fingerprints
from everspot_train.trainer.optimizers import restore_dtypes
from everspot_train.trainer.trackable import RESERVED, check_sharding, check_signatures, signature
from everspot_train.trainer.verification import differences

log = logging.getLogger("everspot.trainer")

_OWN_FILE = ("model", "optimizer")
_REST = "state.pt"
_ADDED = ("run", "modules")  # checkpoints of earlier versions have them not
FORMAT = 1

Gather = Callable[[Any], list[Any]]
"""A function that returns the values of all ranks."""


class Stateful(Protocol):
    """An object whose state can be saved and restored."""

    def state_dict(self) -> Any:
        """The state as tensors, numbers, text and containers of these."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Restore a state."""
        ...


def unwrapped(model: Any) -> Any:
    """The user's module without the wrappers of DDP and torch.compile, so that names do not depend on them; any other
    object as it is."""
    while isinstance(model, torch.nn.Module):
        wraps = "module" if isinstance(model, torch.nn.parallel.DistributedDataParallel) else "_orig_mod"
        inner = getattr(model, wraps, None)
        if not isinstance(inner, torch.nn.Module):
            return model
        model = inner
    return model


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


class TrainState:
    """The pieces of one run: `shared` are the same on every rank, `local` are each rank's own."""

    def __init__(self) -> None:
        self.shared: dict[str, Stateful] = {}
        self.local: dict[str, Stateful] = {}

    def save(self, directory: Path, step: int, rank: int, gather: Gather = lambda value: [value]) -> None:
        """Write this rank's files into `directory`; the first rank's include the shared ones. All ranks call it.

        What is written is read back at once, without the contents of the tensors.

        Raises:
            UnsafeState: if a piece holds something that could not be read back.
            UnsupportedState: if tensors are sharded between ranks.
        """
        directory.mkdir(parents=True, exist_ok=True)
        shared = {name: piece.state_dict() for name, piece in self.shared.items()}
        for name, piece in self.shared.items():
            check_sharding(name, piece, shared[name])
        own = self._own(shared, gather)
        local = {name: piece.state_dict() for name, piece in self.local.items()}
        head = {"own": own} if rank != 0 and own else {}
        _write(directory / _rank_file(rank), head | {"pieces": local}, local | head.get("own", {}))
        if rank != 0:
            return
        for name in _OWN_FILE:
            if name in shared:
                _write(directory / f"{name}.pt", shared[name], {name: shared[name]})
        remaining = {name: state for name, state in shared.items() if name not in _OWN_FILE}
        _write(directory / _REST, {"format": FORMAT, "step": step, "pieces": remaining}, remaining)

    def load(self, directory: Path, rank: int) -> tuple[int, bool]:
        """Restore every piece, and make sure that each has taken its state back. Returns the step, and whether this
        rank found its own file.

        A rank that took no part in the checkpoint takes the first rank's data position and keeps its own random
        numbers.

        Raises:
            StateMismatch: if a piece is missing, does not fit, or has not taken back what was stored.
        """
        head = _read(directory / _REST)
        stored: dict[str, Any] = dict(head["pieces"])
        for name in _OWN_FILE:
            if name in self.shared:
                stored[name] = _read(directory / f"{name}.pt")
        own = (directory / _rank_file(rank)).exists()
        of_rank = _read(directory / _rank_file(rank if own else 0))
        local = of_rank["pieces"]
        unused = sorted(stored.keys() - self.shared.keys() - set(RESERVED))
        if unused:
            raise StateMismatch(
                f"the checkpoint has {unused[0]!r}, which is not tracked now: name it in run.track as the attempt "
                "before did"
            )
        for name, state in of_rank.get("own", {}).items():
            merge = isinstance(self.shared.get(name), torch.nn.Module) and isinstance(stored.get(name), Mapping)
            stored[name] = {**stored[name], **state} if merge else state
        pieces = [(n, p, stored) for n, p in self.shared.items() if n in stored or n not in _ADDED]
        pieces += [(n, p, local) for n, p in self.local.items() if own or n != "randomness"]
        for name, piece, source in pieces:
            if name not in source:
                raise StateMismatch(f"the checkpoint has no {name!r}: was it written by another version of the loop?")
            source[name] = _fit_names(piece, source[name])
            _load(name, piece, source[name])
        for name, piece in self.shared.items():
            if name in stored and name not in RESERVED:  # the trainer's own take effect when the loop begins
                _verify(name, piece, stored[name])
        return int(head["step"]), own

    def fingerprint(self) -> str:
        """Return a text that differs if any piece that the program named has changed."""
        tracked = {name: piece.state_dict() for name, piece in self.shared.items() if name not in RESERVED}
        return fingerprint(tracked)

    def _own(self, shared: dict[str, Any], gather: Gather) -> dict[str, Any]:
        """Return the parts of the shared pieces that are not the same on every rank: of a module the entries that
        differ, of any other piece all of it."""
        all_signatures = gather(signature(shared))
        if len(all_signatures) == 1:
            return {}
        check_signatures(all_signatures)
        all_prints = gather({name: fingerprints(state) for name, state in shared.items()})
        own: dict[str, Any] = {}
        for name, state in shared.items():
            prints = [rank_prints.get(name, {}) for rank_prints in all_prints]
            keys = set().union(*prints)
            differing = {key for key in keys if len({p.get(key) for p in prints}) > 1}
            if differing and isinstance(self.shared[name], torch.nn.Module):
                own[name] = {key: part for key, part in state.items() if str(key) in differing}
            elif differing:
                own[name] = state
        return own


def _load(name: str, piece: Stateful, state: Any) -> None:
    try:
        piece.load_state_dict(_copy_containers(state))
    except (KeyError, RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        hint = ""
        if "parameter group" in str(error) or "in state_dict:" in str(error):  # torch's words
            hint = (
                ". If the loop adds layers, buffers or groups at a step, add them before run.track when "
                "run.resume_step is past it"
            )
        reason = " ".join(str(error).split()).rstrip(".: ")  # torch's text has lines, and ends with a period
        raise StateMismatch(f"{name!r} in the checkpoint does not fit: {reason}{hint}") from error
    restore_dtypes(piece, state)


def _copy_containers(state: Any) -> Any:
    """Return a state with dicts, lists and tuples of its own, and the same tensors.

    A `load_state_dict` may take its argument apart, as CyclicLR's does (it pops `_scale_fn_custom`), and what was
    stored is still compared afterwards.
    """
    if isinstance(state, dict):
        own = copy.copy(state)  # an OrderedDict of a module keeps its _metadata
        for key, part in state.items():
            own[key] = _copy_containers(part)
        return own
    if type(state) in (list, tuple):
        return type(state)(_copy_containers(part) for part in state)
    return state


def _verify(name: str, piece: Stateful, stored: Any) -> None:
    """Compare a piece's state with what it was restored from.

    Raises:
        StateMismatch: with the first part that differs. A part that changes with each call, as a time does, is left
            out.
    """
    current = piece.state_dict()
    changes = {path for path, _ in differences(current, piece.state_dict())}
    if changes:
        log.warning("%s: %s changes with each call of state_dict, and is not compared", name, sorted(changes)[0])
    path, how = next((d for d in differences(stored, current) if d[0] not in changes), (None, ""))
    if path is None:
        return
    raise StateMismatch(
        f"{name} was not restored exactly: {path} {how}. load_state_dict must take back what state_dict returned: "
        "same names, shapes, dtypes and values; `everspot rehearse` shows it before a job is submitted"
    )


def _fit_names(piece: Stateful, state: Any) -> Any:
    """Return a module's state without the prefix of a wrapper that the piece has not; earlier versions stored it."""
    if not isinstance(piece, torch.nn.Module) or not isinstance(state, Mapping) or not state:
        return state
    names = piece.state_dict().keys()
    for prefix in ("module.", "_orig_mod."):
        if all(key.startswith(prefix) for key in state) and not any(key.startswith(prefix) for key in names):
            return _fit_names(piece, {key.removeprefix(prefix): part for key, part in state.items()})
    return state


def _write(path: Path, content: Any, states: dict[str, Any]) -> None:
    """Write one file and read it back: better now than at the resume. `states`: by piece, for the complaint."""
    torch.save(content, path)
    try:
        _read(path)
    except pickle.UnpicklingError as error:
        raise UnsafeState(_complaint(states)) from error


def _read(path: Path) -> Any:
    """Read a file. Tensors are mapped, so that their contents are not read before they are used."""
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
