"""Uploads the output of the training process."""

import ctypes
import errno
import logging
import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_store import ChunkWriter, Store

from everspot_train.agent.actions import JobKey
from everspot_train.agent.threads import DueTimer
from everspot_train.rundir import open_regular, read_regular, replace_file

SPACING = timedelta(seconds=60)
FOLLOWED_SPACING = timedelta(seconds=5)
"""The time between two uploads while somebody follows the log."""
LOOK_FOR_FOLLOWERS = timedelta(seconds=30)
CHUNK_BYTES = 8 * 1024 * 1024
"""The largest piece. It is uploaded as soon as it is full."""
KEPT_BYTES = 1024 * 1024
"""The uploaded bytes that stay on the disk, because a failure report quotes the end of the output."""
MOST_BACKLOG = 1024 * 1024 * 1024
"""The most bytes on the disk that are not uploaded yet. Older bytes are dropped, with a line in the log."""
OUTPUT = "output.log"
SHIPPED = ".shipped"
"""The file with the number of bytes of the output that are uploaded, for the next agent if this one is killed."""
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01  # linux/falloc.h

_log = logging.getLogger(__name__)


class LogShipper:
    """Uploads the output of one attempt. The keys contain the epoch and are written once. Not thread-safe.

    The file on disk is the buffer: after a failure of the store the next call continues. The disk space of uploaded
    bytes is freed, while the program appends to the same file.

    Attributes:
        is_followed: whether somebody followed the job at the last check.
    """

    def __init__(
        self, store: Store, job: JobKey, run_dir: Path, clock: Clock, most_backlog: int = MOST_BACKLOG
    ) -> None:
        self._store = store
        self._job = job
        self._output = run_dir / OUTPUT
        self._clock = clock
        self._most_backlog = most_backlog
        self._shipped_at = clock.monotonic()
        self._followers = DueTimer(LOOK_FOR_FOLLOWERS, clock)
        self.is_followed = False
        self._offset = 0
        self._punched = 0
        self._chunks = ChunkWriter(store.logs, job.job_id, job.epoch)

    @classmethod
    def resumed(cls, store: Store, job: JobKey, run_dir: Path, clock: Clock) -> "LogShipper":
        """Return a shipper that continues after the last upload of an earlier, killed agent."""
        shipper = cls(store, job, run_dir, clock)
        with suppress(OSError, ValueError):  # otherwise nothing was uploaded
            shipped = int(read_regular(run_dir / SHIPPED, 32))
            # The job may have written any number into this file.
            shipper._offset = shipper._punched = min(max(0, shipped), shipper._size())
        return shipper

    def ship_if_due(self) -> None:
        """Upload a piece if the last upload is long enough ago or a full piece is waiting. Raises `StoreError`."""
        now, backlog = self._clock.monotonic(), self._size() - self._offset
        if self._followers.due():
            self.is_followed = self._store.following.is_followed(self._job.job_id)
        spacing = FOLLOWED_SPACING if self.is_followed else SPACING
        if backlog < CHUNK_BYTES and now - self._shipped_at < spacing:
            return
        self._shipped_at = now
        self._leave_out(backlog)
        self._ship_chunk()

    def ship_rest(self) -> None:
        """Upload all remaining output. Raises `StoreError`."""
        end = self._size()
        self._leave_out(end - self._offset)
        while self._offset < end and self._ship_chunk():
            continue

    def tail(self, limit: int) -> str:
        """Return the last `limit` bytes of the output, as text."""
        try:
            with open_regular(self._output) as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - limit, self._punched))
                return file.read(limit).decode(errors="replace")
        except OSError:
            return ""

    def _size(self) -> int:
        try:
            return self._output.stat().st_size
        except OSError:
            return 0

    def _ship_chunk(self) -> bool:
        try:
            with open_regular(self._output) as file:
                data, end = read_written(file.fileno(), self._offset, CHUNK_BYTES)
        except OSError:  # the job may have removed or replaced it
            return False
        if end == self._offset:
            return False
        if data:
            self._chunks.append(data)
        self._offset = end
        with suppress(OSError):  # otherwise the next agent uploads it again
            replace_file(self._output.parent / SHIPPED, str(self._offset).encode())
        self._give_back(self._offset - KEPT_BYTES)
        return True

    def _leave_out(self, backlog: int) -> None:
        """Drop the oldest waiting bytes beyond MOST_BACKLOG. Raises `StoreError`."""
        excess = backlog - self._most_backlog
        if excess <= 0:
            return
        _log.error("job %s, epoch %d: %d bytes of output are left out of the log", *self._job, excess)
        self._chunks.append(
            f"\n[everspot: {excess} bytes of output are left out here: too much for the disk]\n".encode()
        )
        self._offset += excess
        self._give_back(self._offset)

    def _give_back(self, end: int) -> None:
        """Free the file's blocks up to `end`. Later offsets do not change, because the program appends."""
        if end - self._punched < KEPT_BYTES:
            return
        try:
            handle = os.open(self._output, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            mode, start, length = _PUNCH_HOLE | _KEEP_SIZE, self._punched, end - self._punched
            if libc.fallocate(handle, mode, ctypes.c_int64(start), ctypes.c_int64(length)) == 0:
                self._punched = end
        finally:
            os.close(handle)


def read_written(handle: int, start: int, limit: int) -> tuple[bytes, int]:
    """Read at most `limit` written bytes of a file from `start` on, without holes: a program can extend its output to
    any size without writing a byte. Returns the bytes and the offset after them.

    Raises:
        OSError: if the file cannot be read.
    """
    size = os.fstat(handle).st_size  # before the search: later bytes are no hole
    pieces: list[bytes] = []
    while limit > 0:
        try:
            begin = os.lseek(handle, start, os.SEEK_DATA)
            end = os.lseek(handle, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return b"".join(pieces), max(start, size)  # no byte is written after `start`
        piece = os.pread(handle, min(limit, end - begin), begin)
        if not piece:
            break
        pieces.append(piece)
        start, limit = begin + len(piece), limit - len(piece)
    return b"".join(pieces), start
