"""A job's logs and metrics, stored as pieces that are written once."""

import re
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from everspot_store.backend import Entry
from everspot_store.bucket import Bucket
from everspot_store.errors import KeyTaken

_READERS = 8
_TRIES = 8
"""The most numbers that are tried for one chunk. A second number is free, unless another process writes, too."""


@dataclass(frozen=True, order=True)
class Chunk:
    """A piece of a stream. Chunks of one job are ordered by epoch, then number."""

    epoch: int
    seq: int
    data: bytes

    @property
    def position(self) -> tuple[int, int]:
        """The position from which a reader continues after this chunk."""
        return self.epoch, self.seq


class ChunkWriter:
    """Appends chunks to a stream for one owner of a job, after the chunks of an earlier process of this owner. Not
    thread-safe."""

    def __init__(self, stream: "Stream", job_id: str, epoch: int) -> None:
        self._stream, self._job_id, self._epoch = stream, job_id, epoch
        self._seq = 0

    def append(self, data: bytes) -> None:
        """Write a chunk under the next free number. After an error, call `append` again with the same bytes. Bytes that
        were written already are not written twice.

        Raises:
            KeyTaken: if no number is free.
            StoreError: if the store fails.
        """
        for _ in range(_TRIES):
            try:
                self._stream.append(self._job_id, self._epoch, self._seq, data)
            except KeyTaken:
                # The newest chunk may have the same bytes, if its answer was lost.
                self._seq = max(self._seq + 1, self._find_newest())
                continue
            self._seq += 1
            return
        raise KeyTaken(f"{self._stream.name} of job {self._job_id}, epoch {self._epoch}")

    def _find_newest(self) -> int:
        """Return the highest number of the chunks of this epoch."""
        return max((seq for epoch, seq in self._stream.positions(self._job_id) if epoch == self._epoch), default=0)


class Stream:
    """One stream of each job: `jobs/{job}/{name}/{epoch}/{seq}{suffix}` in the data bucket. Thread-safe.

    The prefix is `{root}/{id}/{name}/`. Without a name it is `{root}/{id}/`, and the keys of pieces have a number and
    no epoch, which counts as 0.
    """

    def __init__(self, bucket: Bucket, name: str, suffix: str, root: str = "jobs") -> None:
        self._bucket = bucket
        self._name = name
        self._suffix = suffix
        self._root = root

    @property
    def name(self) -> str:
        """The name of the stream, such as `logs`."""
        return self._name

    def append(self, job_id: str, epoch: int, seq: int, data: bytes) -> None:
        """Write chunk `seq` of an epoch. Writing the same bytes again does nothing.

        Raises:
            KeyTaken: if the chunk exists with other bytes.
        """
        self._bucket.ensure(f"{self._prefix(job_id)}{epoch:06d}/{seq:06d}{self._suffix}", data)

    def read(self, job_id: str, after: tuple[int, int] | None = None, since: datetime | None = None) -> Iterator[Chunk]:
        """Return the existing chunks in order: those after the position `after` that were written at or after `since`
        (by the store's clock). Several are fetched at a time."""
        return self._fetch(self._entries(job_id, after, since))

    def positions(self, job_id: str) -> list[tuple[int, int]]:
        """Return the positions of the existing chunks, in order."""
        return [position for position, _ in self._entries(job_id, None, None)]

    def tail(self, job_id: str, lines: int, since: datetime | None = None) -> list[Chunk]:
        """Return the chunks with the last `lines` lines. The first chunk is cut to begin with the first of these lines.
        Nothing before them is fetched."""
        chunks: deque[Chunk] = deque()
        missing = lines
        for position, entry in reversed(self._entries(job_id, None, since)):
            got = self._bucket.get(entry.key)
            if got is None:
                continue
            data = got.value
            # The newline at the very end ends the last line and begins none.
            body = data.removesuffix(b"\n") if not chunks else data
            pieces = body.split(b"\n")
            if len(pieces) > missing:
                cut = b"\n".join(pieces[len(pieces) - missing :]) + data[len(body) :]
                chunks.appendleft(Chunk(*position, cut))
                break
            chunks.appendleft(Chunk(*position, data))
            missing -= len(pieces) - 1
        return list(chunks)

    def _prefix(self, id: str) -> str:
        return f"{self._root}/{id}/{self._name}/" if self._name else f"{self._root}/{id}/"

    def _entries(
        self, id: str, after: tuple[int, int] | None, since: datetime | None
    ) -> list[tuple[tuple[int, int], Entry]]:
        prefix, entries = self._prefix(id), []
        chunk_key = re.compile(rf"((?P<epoch>[0-9]+)/)?(?P<seq>[0-9]+){re.escape(self._suffix)}")
        for entry in self._bucket.list(prefix):
            match = chunk_key.fullmatch(entry.key, len(prefix))
            if match is None:  # another object, which a job may have written
                continue
            position = int(match["epoch"] or 0), int(match["seq"])
            if (after is None or position > after) and (since is None or entry.modified >= since):
                entries.append((position, entry))
        return sorted(entries, key=lambda item: item[0])

    def _fetch(self, entries: list[tuple[tuple[int, int], Entry]]) -> Iterator[Chunk]:
        """Fetch chunks in order, a bounded number ahead of the reader."""
        waiting: deque[tuple[tuple[int, int], Future[bytes | None]]] = deque()
        remaining = iter(entries)
        with ThreadPoolExecutor(_READERS, thread_name_prefix="everspot-chunks") as pool:
            for position, entry in remaining:
                waiting.append((position, pool.submit(self._get, entry.key)))
                if len(waiting) < _READERS:
                    continue
                yield from self._next(waiting)
            while waiting:
                yield from self._next(waiting)

    @staticmethod
    def _next(waiting: "deque[tuple[tuple[int, int], Future[bytes | None]]]") -> Iterator[Chunk]:
        position, future = waiting.popleft()
        data = future.result()
        if data is not None:
            yield Chunk(*position, data)

    def _get(self, key: str) -> bytes | None:
        content = self._bucket.get(key)
        return None if content is None else content.value
