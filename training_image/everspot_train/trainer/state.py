"""Writes and reads the pieces of state that the next step depends on.

Every piece has `state_dict` and `load_state_dict`. A checkpoint holds the state of each piece once, or of each rank
where it differs between ranks: random generators, data position, and any shared piece that turns out to differ. Tensors
that are sharded between ranks (DTensor) are stored as shards, and loaded in the way in which they are sharded then.
Reading a checkpoint never executes code: see `everspot_train.checkpoint`.
"""

import copy
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from pydantic import JsonValue
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from everspot_train.checkpoint.legacy import HEAD, read_legacy
from everspot_train.checkpoint.loader import Loader, StoredState
from everspot_train.checkpoint.manifest import (
    MANIFEST,
    CheckpointManifest,
    ManifestError,
    RankPieces,
    TensorEntry,
)
from everspot_train.checkpoint.placement import CPU, MemoryPlacement
from everspot_train.checkpoint.saver import Saver
from everspot_train.checkpoint.sharding import Sharding, find_sharded
from everspot_train.checkpoint.tree import STORABLE, UnsupportedValue, encode, is_sharded
from everspot_train.trainer.errors import StateMismatch, UnsafeState
from everspot_train.trainer.fingerprints import fingerprint, fingerprints
from everspot_train.trainer.model_setup import plain_name, plain_names
from everspot_train.trainer.module_state import (
    ModuleState,
    find_uneven_buffers,
    leave_memory,
    leave_out_buffers,
    unexpand_buffers,
)
from everspot_train.trainer.optimizers import restore_dtypes
from everspot_train.trainer.trackable import (
    RESERVED,
    check_sharding,
    check_signatures,
    check_tensors,
    iterate_tensors,
    signature,
)
from everspot_train.trainer.verification import differences
from everspot_train.trainer.warm_start import load_fitting

log = logging.getLogger("everspot.trainer")

_ADDED = ("run", "modules")  # checkpoints of earlier versions lack them

Gather = Callable[[Any], list[Any]]
"""A function that returns the values of all ranks."""


class Stateful(Protocol):
    """An object whose state can be saved and restored."""

    def state_dict(self) -> Any:
        """Return the state as tensors, numbers, text and containers of these."""
        ...

    def load_state_dict(self, state: Any) -> Any:
        """Restore a state."""
        ...


def unwrapped(model: Any) -> Any:
    """Return the user's module without the wrappers of DDP and torch.compile, so that names do not depend on them; any
    other object unchanged."""
    while isinstance(model, torch.nn.Module):
        wraps = "module" if isinstance(model, torch.nn.parallel.DistributedDataParallel) else "_orig_mod"
        inner = getattr(model, wraps, None)
        if not isinstance(inner, torch.nn.Module):
            return model
        model = inner
    return model


class TrainState:
    """The pieces of one run: `shared` are the same on every rank, `local` are each rank's own. `device`: of the run."""

    def __init__(self, device: torch.device = CPU) -> None:
        self._device = device
        self.shared: dict[str, Stateful] = {}
        self.local: dict[str, Stateful] = {}

    def save(
        self,
        directory: Path,
        step: int,
        rank: int,
        saver: Saver,
        gather: Gather = lambda value: [value],
        begin: Callable[[list[int]], None] = lambda sizes: None,
        defer: Callable[[Mapping[str, torch.Tensor]], Collection[str]] = lambda tensors: (),
    ) -> None:
        """Save the tensors into the memory of `saver`, and the rest into `directory`. All ranks call it.

        `begin` is called before the tensors are copied, when all else is in place, with the sizes of the streams in
        bytes, of all ranks. `defer` returns the paths of tensors that may be copied in the background: see
        `Saver.copy`.

        Raises:
            UnsafeState: if a piece holds something that could not be read back.
            UnsupportedState: if tensors cannot be saved, or are sharded between ranks in a way that cannot be.
            OSError: without enough space.
        """
        shared = {name: _plain_state(piece) for name, piece in self.shared.items()}
        for name, piece in self.shared.items():
            check_sharding(name, piece, shared[name])
            check_tensors(name, shared[name], started=True)
        shared, own = self._divide(shared, gather)
        local = {name: piece.state_dict() for name, piece in self.local.items()}
        trees = _Trees()
        encoded = trees.encode("", shared)
        first = _Trees(trees.tensors, trees.shards)
        of_rank = RankPieces(
            pieces=first.encode(_rank_path(rank), local),
            own=first.encode(_own_path(rank), own),
        )
        trees.refuse_unsafe(first)
        with _Agreement(gather) as agreement:
            streams = saver.plan(trees.tensors, self._steady(trees.tensors))
        agreement.check()
        ranks = gather(of_rank)
        with _Agreement(gather) as agreement:
            if rank == 0:
                directory.mkdir(parents=True, exist_ok=True)
                manifest = CheckpointManifest(
                    step=step, shared=encoded, ranks=ranks, tensors=streams.entries, streams=streams.sizes
                )
                (directory / MANIFEST).write_bytes(manifest.to_json())
        agreement.check()
        begin(streams.sizes)
        saver.copy(defer(trees.tensors))

    def load(
        self, directory: Path, rank: int, streams: Path | None = None, *, fitting: bool = False
    ) -> tuple[int, bool]:
        """Restore every piece, and verify each of them. Return the step, and whether this rank has saved the
        checkpoint. A new rank takes the first rank's data position and keeps its own random numbers.

        Args:
            directory: with the files of the checkpoint.
            rank: of this process.
            streams: the folder with the files of the streams; None: `directory`.
            fitting: load what fits, and log what does not.

        Raises:
            StateMismatch: if a piece is missing, does not fit, or has not taken back what was stored.
        """
        state = self._read(directory, rank, streams or directory)
        stored, local = dict(state.shared), state.local
        unused = sorted(stored.keys() - self.shared.keys() - set(RESERVED))
        if unused and not fitting:
            raise StateMismatch(
                f"the checkpoint has {unused[0]!r}, which is not tracked now: name it in run.track as the attempt "
                "before did"
            )
        for name, part in state.own.items():
            merge = isinstance(self.shared.get(name), torch.nn.Module) and isinstance(stored.get(name), Mapping)
            stored[name] = _merge(stored[name], part) if merge else part
        pieces = [(n, p, stored) for n, p in self.shared.items() if n in stored or n not in _ADDED]
        pieces += [(n, p, local) for n, p in self.local.items() if state.took_part or n != "randomness"]
        if fitting:
            own = [(n, p, {**s, n: _fit_names(p, s[n])} if n in s else s) for n, p, s in pieces]
            skipped = load_fitting([(n, p, s) for n, p, s in own if n in s or n not in RESERVED], _load_and_verify)
            for sentence in [*skipped, *(f"{name} is not tracked now" for name in unused)] if rank == 0 else []:
                log.warning("warm start: skipped: %s", sentence)
            return state.step, state.took_part
        for name, piece, source in pieces:
            if name not in source:
                raise StateMismatch(f"the checkpoint has no {name!r}: was it written by another version of the loop?")
            source[name] = _fit_names(piece, source[name])
            _load(name, piece, source[name])
        for name, piece in self.shared.items():
            if name in stored and name not in RESERVED:  # the trainer's own take effect when the loop begins
                _verify(name, piece, stored[name])
        return state.step, state.took_part

    def size(self, world_size: int) -> int:
        """Return about how many bytes of modules and optimizers each rank saves. Whole tensors are divided between the
        ranks; shards are each rank's own."""
        size = 0
        for piece in self.shared.values():
            if isinstance(piece, torch.nn.Module):
                tensors: list[Any] = [t for _, t in iterate_tensors([*piece.parameters(), *piece.buffers()])]
            elif isinstance(piece, torch.optim.Optimizer):
                tensors = [tensor for state in piece.state.values() for _, tensor in iterate_tensors(state)]
            else:
                continue
            size += sum(
                _count_bytes(t._local_tensor) if is_sharded(t) else _count_bytes(t) // world_size for t in tensors
            )
        return size

    def fingerprint(self) -> str:
        """Return a text that differs if any piece that the program named has changed."""
        tracked = {name: piece.state_dict() for name, piece in self.shared.items() if name not in RESERVED}
        return fingerprint(tracked)

    def _read(self, directory: Path, rank: int, streams: Path) -> StoredState:
        try:
            if (directory / HEAD).exists():
                return read_legacy(directory, rank)
            return self._read_manifest(CheckpointManifest.load(directory / MANIFEST), rank, streams)
        except FileNotFoundError as error:
            raise StateMismatch(f"the checkpoint has no {Path(error.filename or str(error)).name}") from error
        except ManifestError as error:
            raise StateMismatch(f"the checkpoint cannot be read: {error}") from error

    def _read_manifest(self, manifest: CheckpointManifest, rank: int, streams: Path) -> StoredState:
        if not manifest.ranks:
            raise ManifestError("the manifest names no rank")
        loader, sharded = Loader(manifest, streams), find_sharded(self.shared)
        took_part = rank < len(manifest.ranks)
        number = rank if took_part else 0
        of_rank = manifest.ranks[number]
        shared, own = dict[str, Any](), dict[str, Any]()

        def shared_path(path: str) -> str:
            return plain_name(path.removeprefix(f"{_own_path(number)}/"))

        for name, tree in manifest.shared.items():
            piece = self.shared.get(name)
            state = piece.templates() if isinstance(piece, ModuleState) else _state_now(piece)
            sharding = Sharding(name, piece, state, sharded)
            placement = _place(name, piece, state, self._device)

            def template(path: str, entry: TensorEntry, sharding: Sharding = sharding) -> Any:
                return sharding.template(shared_path(path), entry)

            def place(path: str, entry: TensorEntry, placement: MemoryPlacement = placement) -> torch.device | None:
                return placement.device(shared_path(path), entry)

            shared[name] = loader.read(tree, template, place)
            if name in of_rank.own:
                own[name] = loader.read(of_rank.own[name], template, place)
        local = dict[str, Any]()
        for name, tree in of_rank.pieces.items():
            placement = MemoryPlacement(f"{_rank_path(number)}/{name}", {}, self._device)
            local[name] = loader.read(tree, place=placement.device)
        return StoredState(manifest.step, shared, local, own, took_part)

    def _steady(self, tensors: Mapping[str, torch.Tensor]) -> set[str]:
        """Return the paths of frozen parameters."""
        frozen = {
            f"{name}/{plain(parameter)}"
            for name, piece in self.shared.items()
            if isinstance(piece, torch.nn.Module)
            for plain in [plain_names(piece)]
            for parameter, value in piece.named_parameters(remove_duplicate=False)
            if not value.requires_grad
        }
        return frozen & tensors.keys()

    def _divide(self, shared: dict[str, Any], gather: Gather) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the shared pieces, and their parts that are not the same on every rank: of a module the entries that
        differ, of any other piece all of it. Shards differ by their nature, and do not count.

        A buffer outside of the `state_dict`, such as a cache of positions, may have another size on each rank. It is no
        part of the shared pieces then.

        Raises:
            UnsupportedState: if another tensor differs in shape or dtype.
        """
        all_signatures = gather(signature(shared))
        if len(all_signatures) == 1:
            return shared, {}
        uneven = find_uneven_buffers(all_signatures)
        check_signatures([{p: s for p, s in of_rank.items() if p not in uneven} for of_rank in all_signatures])
        own = self._own(shared, gather)
        if uneven:
            shared = shared | {"modules": leave_out_buffers(shared["modules"], uneven)}
        return shared, own

    def _own(self, shared: dict[str, Any], gather: Gather) -> dict[str, Any]:
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


def _rank_path(rank: int) -> str:
    return f"rank-{rank:05d}"


def _own_path(rank: int) -> str:
    return f"{_rank_path(rank)}/own"


def _count_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor. One of the layout COO has no `nbytes`."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices().nbytes + tensor._values().nbytes
    return tensor.nbytes


class _Agreement:
    """Lets all ranks fail together if one of them lacks space. A rank that failed alone would leave the others
    waiting."""

    def __init__(self, gather: Gather) -> None:
        self._gather = gather
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        self._error = error if isinstance(error, OSError) else None
        return self._error is not None

    def check(self) -> None:
        """Raise the error of this rank, or of another one.

        Raises:
            OSError: if a rank lacks space.
        """
        texts = self._gather(str(self._error) if self._error is not None else "")
        if self._error is not None:
            raise self._error
        for rank, text in enumerate(texts):
            if text:
                raise OSError(f"rank {rank}: {text}")


class _Trees:
    """Encodes the states of pieces, and collects their tensors.

    Tensors in the same memory, such as tied weights, are stored once.

    Args:
        tensors: where the tensors are collected, by their paths.
        shards: the paths of sharded tensors that are collected there already. All ranks together store such a tensor,
            so it has no path of one rank.
    """

    def __init__(
        self, tensors: dict[str, torch.Tensor] | None = None, shards: Mapping[tuple[object, ...], str] | None = None
    ) -> None:
        self.tensors: dict[str, torch.Tensor] = tensors if tensors is not None else {}
        self._paths: dict[tuple[object, ...], str] = dict(shards or {})
        self._unsafe: list[str] = []

    @property
    def shards(self) -> dict[tuple[object, ...], str]:
        """The paths of the sharded tensors."""
        return {place: path for place, path in self._paths.items() if is_sharded(self.tensors[path])}

    def encode(self, path: str, states: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the trees of these states, by piece."""
        encoded: dict[str, JsonValue] = {}
        for name, state in states.items():
            try:
                encoded[name] = encode(state, f"{path}/{name}" if path else name, self._collect)
            except UnsupportedValue as error:
                self._unsafe.append(f"{name!r} holds {error.kind} at {error.path!r}")
        return encoded

    def refuse_unsafe(self, *others: "_Trees") -> None:
        """Refuse what could not be encoded.

        Raises:
            UnsafeState: with the pieces and the types in them.
        """
        unsafe = [text for trees in (self, *others) for text in trees._unsafe]
        if unsafe:
            raise UnsafeState(f"{', '.join(unsafe)}: {STORABLE}")

    def _collect(self, path: str, tensor: Any) -> str:
        local = tensor._local_tensor if is_sharded(tensor) else tensor
        storage = local.untyped_storage()._cdata  # the same for all views, also of memory without a byte
        bits = (tensor.dtype, local.is_conj(), local.is_neg())
        key = (storage, local.storage_offset(), tensor.shape, local.stride(), bits, is_sharded(tensor))
        stored = self._paths.setdefault(key, path)
        if stored != path:
            return stored
        unique = path
        while unique in self.tensors:  # of a key 1 and a key "1" in the same dict
            unique += "'"
        self._paths[key] = unique
        self.tensors[unique] = tensor
        return unique


def _load(name: str, piece: Stateful, state: Any) -> None:
    if isinstance(piece, torch.nn.Module):
        unexpand_buffers(piece)
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
    if isinstance(piece, torch.nn.Module):
        leave_memory(piece, iterate_tensors(state))
    restore_dtypes(piece, state)


def _load_and_verify(name: str, piece: Stateful, state: Any) -> None:
    _load(name, piece, state)
    if name not in RESERVED:
        _verify(name, piece, state)


def _merge(state: Any, part: Mapping[str, Any]) -> Any:
    """Return a module's state with the entries of `part` instead of its own."""
    merged = copy.copy(state)  # with its _metadata, which has the versions of its modules
    merged.update(part)
    return merged


def _copy_containers(state: Any) -> Any:
    """Return a state with dicts, lists and tuples of its own, and the same tensors.

    A `load_state_dict` may modify its argument, as CyclicLR's does (it pops `_scale_fn_custom`), and what was stored is
    still compared afterwards.
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


def _plain_state(piece: Any) -> Any:
    """Return the state of a piece; of a module with the names of its parts as if none was compiled."""
    state = piece.state_dict()
    if not isinstance(piece, torch.nn.Module) or not isinstance(state, Mapping):
        return state
    return _with_plain_names(state, plain_names(piece))


def _state_now(piece: Any) -> Any:
    """Return the state of a piece; an empty one if it has none yet."""
    try:
        state = _plain_state(piece)
    except Exception:  # a user's class may raise anything before its first use
        return {}
    return state


def _place(name: str, piece: Any, state: Any, device: torch.device) -> MemoryPlacement:
    """Return the placement of a shared piece."""
    if name in RESERVED or piece is None:
        return MemoryPlacement(name, {}, CPU)
    if isinstance(piece, torch.nn.Module):
        tensors = [*piece.named_parameters(remove_duplicate=False), *piece.named_buffers(remove_duplicate=False)]
        plain = plain_names(piece)
        return MemoryPlacement(name, state, device, copied=[plain(path) for path, _ in tensors])
    if isinstance(piece, torch.optim.Optimizer):
        return MemoryPlacement(name, state, device, moved=["state"])
    return MemoryPlacement(name, state, device)


def _with_plain_names(state: Mapping[str, Any], plain: Callable[[str], str]) -> Any:
    return _rename(state, plain, lambda metadata: {plain(path): value for path, value in metadata.items()})


def _rename(state: Any, name_of: Callable[[str], str], paths_of: Callable[[Any], dict[str, Any]]) -> Any:
    """Return a module's state, with its metadata, under other names; the same object where no name changes."""
    names = {key: name_of(key) for key in state if isinstance(key, str)}
    if all(key == name for key, name in names.items()):
        return state
    renamed: Any = OrderedDict((names.get(key, key), value) for key, value in state.items())
    if (metadata := getattr(state, "_metadata", None)) is not None:
        renamed._metadata = paths_of(metadata)
    return renamed


def _fit_names(piece: Stateful, state: Any) -> Any:
    """Return a module's state under the names of its parts as they are now, whichever of them are compiled. Earlier
    versions stored the names of wrappers."""
    if not isinstance(piece, torch.nn.Module) or not isinstance(state, Mapping) or not state:
        return state
    current, plain = piece.state_dict(), plain_names(piece)
    names = {plain(name): name for name in current if isinstance(name, str)}
    state = _with_plain_names(state, plain)
    prefix = "module."
    while all(str(key).startswith(prefix) for key in state) and not any(name.startswith(prefix) for name in names):
        state = copy.copy(state)
        consume_prefix_in_state_dict_if_present(state, prefix)
    paths = {path: plain(path) for path in getattr(current, "_metadata", {})}
    shorten, shorten_path = _shorten(names, state), _shorten(set(paths.values()))
    state = _rename(state, shorten, lambda metadata: {shorten_path(path): value for path, value in metadata.items()})
    return _rename(
        state,
        lambda key: names.get(key, key),
        lambda metadata: {path: metadata[name] for path, name in paths.items() if name in metadata},
    )


def _shorten(names: Collection[str], existing: Collection[str] = ()) -> Callable[[str], str]:
    """Return a function that takes the part `module` of a wrapper inside of a module out of a name, if the name is not
    one of `names`, and the shorter one is, and does not exist yet."""

    def shorten(name: str) -> str:
        parts = name.split(".")
        shorter = (".".join(parts[:n] + parts[n + 1 :]) for n, part in enumerate(parts) if part == "module")
        fitting = (other for other in shorter if other in names and other not in existing)
        return name if name in names else next(fitting, name)

    return shorten
