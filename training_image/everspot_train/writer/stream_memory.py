"""The memory of the ranks, mapped into the writer."""

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass

from everspot_store import StoreUnavailable

from everspot_train.writer.protocol import StreamFile

_COUNTER_BYTES = 8


@dataclass(frozen=True, slots=True)
class _MappedFile:
    """A mapped file. `identity`: its device, inode and size."""

    identity: tuple[int, int, int]
    view: memoryview


class StreamMemory:
    """Maps the memory of the ranks, and keeps it mapped for the next checkpoint, which is usually in the same files. To
    map 0.8 GB again takes the kernel about as long as the writer needs for their digests."""

    def __init__(self) -> None:
        self._files: dict[str, _MappedFile] = {}

    def map(self, streams: Mapping[str, StreamFile]) -> tuple[dict[str, memoryview], dict[str, memoryview]]:
        """Return the streams and their counters of copied bytes. Files that are not among `streams` are unmapped.

        Raises:
            StoreUnavailable: if the memory of a rank is gone or truncated, so that there is nothing to publish.
        """
        paths = {stream.path for stream in streams.values()}
        self._files = {path: mapped for path, mapped in self._files.items() if path in paths}
        views: dict[str, memoryview] = {}
        counters: dict[str, memoryview] = {}
        for name, stream in streams.items():
            if stream.size:
                view = self._map(name, stream)
                views[name] = view[: stream.size]
                counters[name] = view[stream.counter_at : stream.counter_at + _COUNTER_BYTES]
        return views, counters

    def _map(self, name: str, stream: StreamFile) -> memoryview:
        try:
            file = os.open(stream.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreUnavailable(f"the memory of {name} is gone: {error}") from error
        try:
            status = os.fstat(file)
            if status.st_size < stream.counter_at + _COUNTER_BYTES:
                raise StoreUnavailable(f"the memory of {name} was cut off")
            identity = status.st_dev, status.st_ino, status.st_size
            mapped = self._files.get(stream.path)
            if mapped is None or mapped.identity != identity:
                self._files.pop(stream.path, None)
                mapped = _MappedFile(identity, memoryview(mmap.mmap(file, status.st_size, prot=mmap.PROT_READ)))
                self._files[stream.path] = mapped
        finally:
            os.close(file)
        return mapped.view
