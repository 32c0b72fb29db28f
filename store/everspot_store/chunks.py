"""Logs and metrics of a job, as chunks written once."""

from collections.abc import Iterator
from dataclasses import dataclass

from everspot_store.bucket import Bucket


@dataclass(frozen=True, order=True)
class Chunk:
    """A piece of a stream. Chunks of one job are ordered by epoch, then number."""

    epoch: int
    seq: int
    data: bytes

    @property
    def position(self) -> tuple[int, int]:
        """Where a reader goes on after this chunk."""
        return self.epoch, self.seq


class Stream:
    """One stream of a job: `jobs/{job}/{name}/{epoch}/{seq}{suffix}` in the data bucket. Thread-safe."""

    def __init__(self, bucket: Bucket, name: str, suffix: str) -> None:
        self._bucket = bucket
        self._name = name
        self._suffix = suffix

    def append(self, job_id: str, epoch: int, seq: int, data: bytes) -> None:
        """Write chunk `seq` of an epoch. Writing the same bytes again does nothing.

        Raises:
            KeyTaken: if the chunk exists with other bytes.
        """
        self._bucket.ensure(f"jobs/{job_id}/{self._name}/{epoch:06d}/{seq:06d}{self._suffix}", data)

    def read(self, job_id: str, after: tuple[int, int] | None = None) -> Iterator[Chunk]:
        """All chunks that exist now, in order, from behind the position `after`."""
        prefix = f"jobs/{job_id}/{self._name}/"
        for entry in self._bucket.list(prefix):
            epoch, _, name = entry.key[len(prefix) :].partition("/")
            if not name.endswith(self._suffix):
                continue
            position = int(epoch), int(name[: -len(self._suffix)])
            if after is not None and position <= after:
                continue
            found = self._bucket.get(entry.key)
            if found is not None:
                yield Chunk(*position, found.value)
