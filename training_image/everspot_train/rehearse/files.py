"""Compares the files of two runs: tensors by name if the format is known, otherwise bytes."""

import importlib
import json
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Flat = dict[str, str]
_LESSER = ("rng", "random", "training_args", "events.out", ".log", ".txt", ".csv", ".jsonl")
_RESULTS = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".npz", ".npy", ".distcp", ".json")


@dataclass(frozen=True)
class FileEntry:
    """A difference in one file. `name`: of the differing part, such as a tensor; empty for the whole file."""

    name: str
    expected: str
    actual: str


def list_files(folder: Path) -> dict[str, Path]:
    """Return the files below a folder by their relative paths. Links to files count as files."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def differences_between(expected: Path, actual: Path) -> list[FileEntry]:
    """Return all differences of two files. If the format is unknown and the bytes differ, the result is one entry with
    an empty name."""
    if expected.stat().st_size == actual.stat().st_size and expected.read_bytes() == actual.read_bytes():
        return []
    expected_structure, actual_structure = read_structure(expected), read_structure(actual)
    if expected_structure is None or actual_structure is None:
        return [FileEntry("", f"{expected.stat().st_size} bytes", f"{actual.stat().st_size} other bytes")]
    names = [*expected_structure, *(name for name in actual_structure if name not in expected_structure)]
    entries = [
        FileEntry(name, expected_structure.get(name, "missing"), actual_structure.get(name, "missing"))
        for name in names
    ]
    return [entry for entry in entries if entry.expected != entry.actual]


class Trees:
    """Compares the files of runs with those of the first undisturbed run, without files that differ in a second one."""

    def __init__(self, first: Path, second: Path) -> None:
        self._files = list_files(first)
        self.unstable: dict[str, set[str]] = {}
        self.undisturbed: list[tuple[str, FileEntry]] = self.differences(second)
        for path, entry in self.undisturbed:
            self.unstable.setdefault(path, set()).add(entry.name)

    def comparable(self) -> bool:
        """Return whether the undisturbed runs agree in a file of results, at least in part."""
        whole = FileEntry("", "", "")
        steady = [path for path in self._files if "" not in self.unstable.get(path, set())]
        return any(matters(path, whole) for path in steady)

    def differences(self, folder: Path) -> list[tuple[str, FileEntry]]:
        """Return the differences by path: weights first, then optimizers, then others."""
        other, entries_by_path = list_files(folder), []
        for path in sorted({*self._files, *other}, key=_rank):
            masked = self.unstable.get(path, set())
            if "" in masked:
                continue
            if path not in other or path not in self._files:
                words = ("there", "missing") if path in self._files else ("missing", "there")
                entries_by_path.append((path, FileEntry("", *words)))
                continue
            entries = differences_between(self._files[path], other[path])
            entries_by_path += [(path, entry) for entry in entries if entry.name not in masked]
        return entries_by_path


def matters(path: str, entry: FileEntry) -> bool:
    """Return whether a difference concerns results (weights and numbers), and not logs or random states."""
    name = path.rpartition("/")[2].lower()
    if any(part in name for part in _LESSER):
        return False
    return bool(entry.name) or name.endswith(_RESULTS)


def _rank(path: str) -> tuple[int, str]:
    order = (("model", 0), ("weights", 0), ("optim", 1))
    lesser = any(part in path.lower() for part in _LESSER)
    return (min((rank for part, rank in order if part in path.lower()), default=3 if lesser else 2), path)


def read_structure(path: Path) -> Flat | None:
    """Return the content of a file by name, or None if its format is unknown. No code of the file is run."""
    readers: list[Callable[[Path], Flat | None]] = [_safetensors, _torch, _numpy, _json]
    for reader in readers:
        try:
            flat = reader(path)
        except Exception:  # another format, or damaged: compare bytes
            flat = None
        if flat is not None:
            return flat
    return None


def _torch(path: Path) -> Flat | None:
    if not (zipfile.is_zipfile(path) and path.suffix != ".npz"):
        return None
    import torch

    from everspot_train.trainer.digests import flatten

    with torch.serialization.safe_globals(_harmless()):
        return flatten("", torch.load(path, map_location="cpu", weights_only=True))


def _harmless() -> list[Any]:
    """Return the types in checkpoints of frameworks beside tensors: numpy's arrays and numbers."""
    import numpy as np

    internals = importlib.import_module("numpy._core.multiarray")
    kinds = [type(np.dtype(code)) for code in "?bhilBHILefd"]
    return [np.ndarray, np.dtype, internals._reconstruct, internals.scalar, *kinds]


def _safetensors(path: Path) -> Flat | None:
    """Parse the header, which lists each tensor with its dtype, shape and offsets (safetensors, format
    specification)."""
    if path.suffix != ".safetensors":
        return None
    from everspot_train.trainer.digests import digest_bytes

    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    flat: Flat = {}
    for name, entry in sorted(header.items()):
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            piece = data[8 + length + begin : 8 + length + end]
            flat[name] = f"{entry['dtype']}[{','.join(map(str, entry['shape']))}]:{digest_bytes(piece)}"
    return flat


def _numpy(path: Path) -> Flat | None:
    if path.suffix not in (".npy", ".npz"):
        return None
    import numpy as np

    from everspot_train.trainer.digests import flatten

    loaded = np.load(path, allow_pickle=False)
    return flatten("", dict(loaded) if path.suffix == ".npz" else loaded)


def _json(path: Path) -> Flat | None:
    if path.suffix != ".json":
        return None
    flat: Flat = {}

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, part in sorted(value.items()):
                walk(f"{name}/{key}" if name else str(key), part)
        elif isinstance(value, list):
            flat[f"{name}/length"] = str(len(value))
            for place, part in enumerate(value):
                walk(f"{name}/{place}", part)
        else:
            flat[name] = "nan" if isinstance(value, float) and math.isnan(value) else repr(value)

    walk("", json.loads(path.read_text()))
    return flat
