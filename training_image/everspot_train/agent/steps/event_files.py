"""Reads new scalars from TensorBoard's event files in a job's folders.

The job may write anything there, and files may grow while they are read. So this module splits a file into records,
with a limit for each, and TensorBoard's own package (of the extra `image`) only parses their contents. A record with a
wrong checksum has no scalars.
"""

import importlib
import logging
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from everspot_core.clock import Clock
from everspot_core.jobs.reported_values import MOST_STEPS
from everspot_core.jobs.step_lines import MOST_NAMES, StepReport, to_metric_name

from everspot_train.agent.threads import DueTimer
from everspot_train.rundir import open_regular

LOOK_EVERY = timedelta(seconds=5)
MOST_PER_FILE = 1024 * 1024
MOST_PER_LOOK = 2 * MOST_PER_FILE
"""The most bytes that one call of `read` reads, some 60,000 scalars. The next calls continue."""
LARGEST_RECORD = 256 * 1024
"""The largest record that is parsed, in bytes. Scalars have some dozens; pictures and histograms are ignored."""
MOST_FILES = 64
MOST_ENTRIES = 5000
"""The most entries of a job's folders that one call visits."""
DEEPEST = 6
"""The deepest folder that is searched, below the working directory."""

_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEADER, _FOOTER = struct.Struct("<QI"), _CHECKSUM.size
"""A record: its length, the checksum of the length, the content, and the checksum of the content."""
_FLOAT = 1  # tensorflow's DT_FLOAT
_LATEST = 8e13
"""The latest time of an event in seconds since 1970, within the range of `timedelta`. Milliseconds that are mistaken
for seconds are below it."""
_PLACEHOLDER = ("hp_metric", -1.0)
"""The placeholder that Lightning's TensorBoardLogger writes with hyperparameters without a metric."""
_LEFT_OUT = {".git", ".venv", "__pycache__", "node_modules"}

_log = logging.getLogger(__name__)


@dataclass
class _Position:
    """The position in a file: `offset` is the byte at which the next record begins. `broken`: the file is no longer
    read. `read_at`: the number of the last call that read it."""

    offset: int
    read_at: int = 0
    broken: bool = False


class EventFiles:
    """The event files below one folder. Not thread-safe.

    Files that exist before the program starts were written by an earlier attempt: only later records count. If several
    folders have a tag, such as those of training and validation, it is the metric of the first one. In the names of the
    others' metrics the folder precedes it.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._due = DueTimer(LOOK_EVERY, clock)
        self._positions = {path: _Position(size) for path, size in find_event_files(root, most=None)}
        self._clock = clock
        self._looks = 0
        self._folders: dict[str, Path] = {}
        self._parse: Any = None
        self._checksum: Any = None
        self._missing = False

    def read(self, *, now: bool = False) -> list[tuple[timedelta, StepReport]]:
        """Return the new scalars by step, each with the time in the file (which may be wrong), or the time of the call.
        Reads only once LOOK_EVERY has passed, or with `now`. Unreadable files have no scalars.

        If there are more files than one call can read, the least recently read files come first.
        """
        if not (self._due.due() or now) or self._missing:
            return []
        scalars: dict[int, dict[str, float]] = {}
        moments: dict[int, timedelta] = {}
        remaining = MOST_PER_LOOK
        self._looks += 1
        files = [
            (path, size, self._positions.setdefault(path, _Position(0))) for path, size in find_event_files(self._root)
        ]
        grown = [file for file in files if not file[2].broken and file[1] > file[2].offset]
        for path, size, position in sorted(grown, key=lambda file: (file[2].read_at, file[0].parent)):
            if remaining <= 0:
                break
            remaining -= min(size - position.offset, MOST_PER_FILE)
            position.read_at = self._looks
            if self._parse is None and not self._import():
                return []
            for step, moment, tag, value in self._read_file(path, position):
                scalars.setdefault(step, {})[self._name(tag, path.parent)] = value
                moments[step] = moment
        return [(moments[step], StepReport(step, metrics=metrics)) for step, metrics in sorted(scalars.items())]

    def _name(self, tag: str, folder: Path) -> str:
        """Return the name of a folder's metric."""
        if tag not in self._folders and len(self._folders) < MOST_NAMES:
            self._folders[tag] = folder
        first = self._folders.get(tag, folder)
        if first == folder:
            return to_metric_name(tag)
        below = folder.relative_to(os.path.commonpath([first, folder]))
        return to_metric_name(f"{below if below.parts else folder.name}/{tag}")

    def _import(self) -> bool:
        try:
            self._parse = importlib.import_module("tensorboard.compat.proto.event_pb2").Event.FromString
            stub = importlib.import_module("tensorboard.compat.tensorflow_stub.pywrap_tensorflow")
            self._checksum = stub.masked_crc32c
        except ImportError:
            _log.warning(
                "TensorBoard's event files are not read: the package tensorboard of the extra image is missing"
            )
            self._missing = True
        return not self._missing

    def _read_file(self, path: Path, position: _Position) -> Iterator[tuple[int, timedelta, str, float]]:
        try:
            with open_regular(path) as file:
                file.seek(position.offset)
                data = file.read(MOST_PER_FILE)
        except OSError:
            return
        begin = 0
        while begin + _HEADER.size <= len(data):
            length, checksum = _HEADER.unpack_from(data, begin)
            if self._checksum(data[begin : begin + _LENGTH.size]) != checksum:
                position.broken = True  # the beginning of the next record is unknown
                return
            end = begin + _HEADER.size + length + _FOOTER
            if length > LARGEST_RECORD:
                begin = end
                break
            if end > len(data):
                break
            content = data[begin + _HEADER.size : end - _FOOTER]
            if self._checksum(content) == _CHECKSUM.unpack_from(data, end - _FOOTER)[0]:
                yield from self._scalars(content, position)
            if position.broken:
                return
            begin = end
        position.offset += begin

    def _scalars(self, content: bytes, position: _Position) -> Iterator[tuple[int, timedelta, str, float]]:
        try:
            event = self._parse(content)
        except Exception:  # the package's DecodeError: the file is no event file, or is damaged
            position.broken = True
            return
        if not 0 <= event.step <= MOST_STEPS:
            return
        is_dated = 0 < event.wall_time <= _LATEST
        moment = timedelta(seconds=event.wall_time) if is_dated else self._clock.monotonic()
        for value in event.summary.value:
            number = _number(value)
            if number is not None and (value.tag, number) != _PLACEHOLDER:
                yield event.step, moment, value.tag, number


def find_event_files(root: Path, most: int | None = MOST_FILES) -> list[tuple[Path, int]]:
    """Return the event files below a folder with their sizes, the newest first. `most`: at most this many; None: all
    files among the first MOST_ENTRIES entries."""
    files: list[tuple[float, Path, int]] = []
    visited, folders = 0, [(root, 0)]
    while folders and visited < MOST_ENTRIES:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    visited += 1
                    if visited >= MOST_ENTRIES:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        if depth < DEEPEST and entry.name not in _LEFT_OUT:
                            folders.append((Path(entry.path), depth + 1))
                    elif "tfevents" in entry.name:
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            files.append((status.st_mtime, Path(entry.path), status.st_size))
        except OSError:
            continue
    return [(path, size) for _, path, size in sorted(files, key=lambda item: item[0], reverse=True)[:most]]


def _number(value: Any) -> float | None:
    """Return the scalar of a summary's value, in the older form or as a tensor; None for other values."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return float(value.simple_value)
    if kind == "tensor" and value.tensor.dtype == _FLOAT and not value.tensor.tensor_shape.dim:
        if value.tensor.float_val:
            return float(value.tensor.float_val[0])
        if len(value.tensor.tensor_content) == 4:
            return float(struct.unpack("<f", value.tensor.tensor_content)[0])
    return None
