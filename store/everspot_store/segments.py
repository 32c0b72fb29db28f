"""Segments of a checkpoint's streams, which are uploaded in parallel and reused by later checkpoints."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from everspot_core.jobs.checkpoint import Part
from xxhash import xxh3_128

_SEGMENT_BYTES = 64 << 20
"""The size of a segment. Larger segments delay the end of an upload, which waits for the last segment. Smaller ones
make the head larger, which lists them all."""
_MOST_SEGMENTS = 256
"""The most segments of a stream. A larger stream has larger segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a stream. `offset`: in the stream, in bytes."""

    name: str
    stream: str
    offset: int
    view: memoryview


def split_stream(stream: str, view: memoryview) -> list[Segment]:
    """Return the segments of a stream. They are the same for each checkpoint of the same size."""
    size = max(_SEGMENT_BYTES, -(-len(view) // _MOST_SEGMENTS))
    return [
        Segment(name=f"{stream}-{number:03d}", stream=stream, offset=at, view=view[at : at + size])
        for number, at in enumerate(range(0, len(view), size))
    ]


class LocalCopies:
    """Streams on this machine that may still contain published segments.

    Args:
        streams: by name.
    """

    def __init__(self, streams: Mapping[str, memoryview]) -> None:
        self._streams = streams
        self._lock = threading.Lock()
        self.used_bytes = 0
        """Bytes of the segments that `find` has returned."""

    def find(self, part: Part) -> memoryview | None:
        """Return the bytes of a segment if they still have the published digest; otherwise None."""
        segment = self._streams.get(part.stream, memoryview(b""))[part.offset : part.offset + part.size]
        if len(segment) != part.size or xxh3_128(segment).hexdigest() != part.xxh3:
            return None
        with self._lock:
            self.used_bytes += part.size
        return segment
