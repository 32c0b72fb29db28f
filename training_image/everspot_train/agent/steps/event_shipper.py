"""Copies TensorBoard's event files that a program writes to the store while it runs, with all that is in them.

A piece is a line of JSON, with the file's path below the working directory, the position of the piece and the attempt,
and then the bytes. A file that was written anew begins again at position 0.
"""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.counting import size
from everspot_store import ChunkWriter, Store

from everspot_train.agent.actions import JobKey
from everspot_train.agent.steps.event_files import find_event_files
from everspot_train.agent.threads import DueTimer
from everspot_train.safe_open import open_file_below

SHIP_EVERY = timedelta(minutes=1)
MOST_PER_PIECE = 4 * 1024 * 1024
MOST_PER_LOOK = 4 * MOST_PER_PIECE
"""The most bytes that one look uploads. The rest follows in the next looks."""
MOST_PER_ATTEMPT = 256 * 10**6
"""The most bytes of one attempt: thousands of histograms. A program that writes more keeps the files in `outputs/`."""


class EventFileShipper:
    """The event files of one attempt. Not thread-safe.

    Args:
        root: the program's working directory.
        note: writes a line into the job's log.
    """

    def __init__(self, store: Store, job: JobKey, root: Path, clock: Clock, note: Callable[[str], None]) -> None:
        self._root, self._epoch, self._note = root, job.epoch, note
        self._chunks = ChunkWriter(store.event_files, job.job_id, job.epoch)
        self._due = DueTimer(SHIP_EVERY, clock)
        self._due.due()
        self._offsets: dict[Path, int] = {}
        self._pending: bytes | None = None
        self._shipped = 0
        self._is_full = False

    def ship(self, *, last: bool = False) -> None:
        """Upload what was added since the last look, if it is due or the `last`. Raises `StoreError`; then it stays."""
        if not (self._due.due() or last) or self._is_full:
            return
        self._flush()
        remaining = MOST_PER_LOOK
        for path, length in find_event_files(self._root):
            if length < self._offsets.get(path, 0):
                self._offsets[path] = 0
            while remaining > 0 and (data := self._read(path, self._offsets.get(path, 0))):
                if self._shipped + len(data) > MOST_PER_ATTEMPT:
                    self._is_full = True
                    self._note(
                        f"warning: event files of more than {size(MOST_PER_ATTEMPT)} are not copied any further: "
                        "`everspot tensorboard` lacks the rest"
                    )
                    return
                self._pending = self._header(path) + data
                self._offsets[path] = self._offsets.get(path, 0) + len(data)
                self._shipped += len(data)
                remaining -= len(data)
                self._flush()

    def _flush(self) -> None:
        if self._pending is not None:
            self._chunks.append(self._pending)
            self._pending = None

    def _header(self, path: Path) -> bytes:
        header = {
            "path": os.fsencode(path.relative_to(self._root)).decode(errors="replace"),
            "offset": self._offsets.get(path, 0),
            "attempt": self._epoch,
        }
        return json.dumps(header).encode() + b"\n"

    def _read(self, path: Path, offset: int) -> bytes:
        """Return the next bytes of a file; none if there is no regular file."""
        try:
            with open_file_below(self._root, path.relative_to(self._root).parts) as file:
                return os.pread(file.fileno(), MOST_PER_PIECE, offset)
        except OSError:
            return b""
