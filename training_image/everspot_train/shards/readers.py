"""Reads the samples of one shard: a tar as WebDataset writes it, a table, or a file that is one sample."""

import importlib
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from everspot_train.trainer.errors import TrainerError

Sample = dict[str, Any]
TAR, PARQUET, ARROW = ".tar", ".parquet", ".arrow"


class Shard(Protocol):
    """The samples of one file."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def _is_junk(path: str) -> bool:
    """Return whether a file in a tar is no part of a sample, as WebDataset skips it: of a name that begins with a dot,
    such as the `._0001.jpg` that a Mac's tar adds, or `__MACOSX` and `__meta__`."""
    pure = PurePosixPath(path)
    folders = [part for part in pure.parts if part == "__MACOSX" or (part.startswith("__") and part.endswith("__"))]
    return pure.name.startswith(".") or bool(folders)


class TarShard:
    """The samples of an uncompressed tar. Files with the same path up to the first dot of their name are one sample: a
    dictionary of their contents by the rest of their names, with the path as `__key__`."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._samples: list[tuple[str, dict[str, tuple[int, int]]]] = []
        with os.fdopen(os.dup(self._handle), "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                if member.isfile() and not _is_junk(member.name):
                    self._add(member)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Sample:
        key, parts = self._samples[index]
        contents = {name: os.pread(self._handle, length, offset) for name, (offset, length) in parts.items()}
        return {"__key__": key, **contents}

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            os.close(self._handle)

    def _add(self, member: tarfile.TarInfo) -> None:
        key, name = split_name(member.name)
        if not self._samples or self._samples[-1][0] != key or name in self._samples[-1][1]:
            self._samples.append((key, {}))
        self._samples[-1][1][name] = (member.offset_data, member.size)


class FileShard(Sequence[Sample]):
    """A file that is one sample, of the same form."""

    def __init__(self, name: str, path: Path) -> None:
        self._key, self._name = split_name(name)
        self._content = path.read_bytes()

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        if index not in (0, -1):
            raise IndexError(index)
        return {"__key__": self._key, self._name: self._content}


class TableShard(Sequence[Sample]):
    """The rows of a table, as dictionaries of Python's values by column.

    A file of Parquet is read into memory as a whole. One of Arrow, also as Hugging Face's `save_to_disk` writes it, is
    mapped.
    """

    def __init__(self, name: str, path: Path) -> None:
        try:
            arrow = importlib.import_module("pyarrow")
            parquet = importlib.import_module("pyarrow.parquet")
        except ImportError as error:
            raise TrainerError(f"{name}: shards in this format need pyarrow, among the job's `requirements`") from error
        if name.endswith(PARQUET):
            self._table = parquet.read_table(path)
            return
        source = arrow.memory_map(str(path))
        try:
            self._table = arrow.ipc.open_stream(source).read_all()
        except arrow.ArrowInvalid:
            self._table = arrow.ipc.open_file(source).read_all()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: Any) -> Any:
        return self._table.slice(index, 1).to_pylist()[0]


def split_name(path: str) -> tuple[str, str]:
    """Return the key of a sample and the rest of the name: `a/b.c.jpg` is `a/b` and `c.jpg`."""
    pure = PurePosixPath(path)
    stem, _, ending = pure.name.partition(".")
    return str(pure.with_name(stem)) if stem else path, ending


def open_shard(name: str, path: Path) -> Shard:
    """Return the samples of a file. `name`: its path in the dataset; `path`: where its content is."""
    if name.endswith(TAR):
        return TarShard(path)
    return TableShard(name, path) if name.endswith((PARQUET, ARROW)) else FileShard(name, path)
