"""Copies files and memory, and computes the digest of a file on the way."""

import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path

from everspot_store.backend import Moved

PIECE = 4 * 1024 * 1024
"""Bytes that are copied at once."""


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
    """Write all of `data` into an open file at `offset`. The system may take less than it is given at once."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
