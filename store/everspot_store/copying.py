"""Copies files and memory, and computes the digest of a file on the way."""

import errno
import fcntl
import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path

from everspot_store.backend import Moved

_DIRECT = getattr(os, "O_DIRECT", 0)  # Linux has it
PIECE = 4 * 1024 * 1024
"""Bytes that are copied per call."""


def copy_with_digest(reader: FileIO, target: Path, *, sync: bool, moved: Moved | None = None) -> tuple[int, str]:
    """Copy the rest of a file. Returns its size in bytes and its SHA-256.

    `sync`: make it durable before this returns. `moved` is called before each piece is copied; an exception ends the
    copying. One piece is hashed while the next is read and written, because hashing a large checkpoint takes as long
    as writing it, and a notice does not wait.
    """
    digest, size = hashlib.sha256(), 0
    hashing: Future[None] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="everspot-digest") as pool, target.open("wb") as writer:
        while piece := reader.read(PIECE):
            if moved is not None:
                moved(len(piece))
            if hashing is not None:
                hashing.result()
            hashing = pool.submit(digest.update, piece)
            writer.write(piece)
            size += len(piece)
        if sync:
            writer.flush()
            os.fsync(writer.fileno())
    return size, digest.hexdigest()


def write_at(file: int, data: memoryview, offset: int) -> None:
    """Write all of `data` into an open file at `offset`. One system call may write only a part."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def write_new(path: Path, data: memoryview, moved: Moved | None = None) -> None:
    """Write memory into a new file, and make it durable. `moved` is called before each piece is written.

    The write bypasses the page cache (open(2), `O_DIRECT`) if the file system and the memory's alignment allow it.
    Large files then take half the time, and no processor time that a training step needs.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        whole = len(data) // PIECE * PIECE
        direct = whole > 0 and _DIRECT > 0 and _set_direct(file, True)
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            if moved is not None:
                moved(len(piece))
            if direct:
                direct = at < whole and _write_directly(file, piece, at)
                if direct:
                    continue
                _set_direct(file, False)
            write_at(file, piece, at)
        os.fsync(file)
    finally:
        os.close(file)


def _set_direct(file: int, direct: bool) -> bool:
    """Switch the page cache off or on for an open file. Returns whether it is off; some file systems refuse that."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, flags | _DIRECT if direct else flags & ~_DIRECT)
    except OSError:
        return False
    return direct


def _write_directly(file: int, piece: memoryview, at: int) -> bool:
    """Write a piece past the page cache. Returns False if its alignment does not allow that."""
    try:
        return os.pwrite(file, piece, at) == len(piece)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
