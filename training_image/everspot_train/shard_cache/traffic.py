"""Counts the bytes of a streamed dataset that the processes of one attempt have opened, in a file of its run directory.

A line is `fetched BYTES` or `cached BYTES`. Many processes append, and a killed one leaves whole lines only.
"""

from pathlib import Path

from everspot_core.jobs.shard_traffic import ShardTraffic

from everspot_train.rundir import append_regular, open_regular

FETCHED, CACHED = "fetched", "cached"
STREAMED = ".streamed"
"""The folder, in the folder of a job's datasets, with the lists of files of those that the program streams."""
DATA_FOLDER = "data"
"""The folder of a job's datasets, in its run directory."""

_MOST_PER_READ = 4 * 1024 * 1024
_LONGEST_LINE = 64


class TrafficFile:
    """The count of one dataset, read as far as it has grown. The job may have written anything there."""

    def __init__(self, folder: Path, dataset: str) -> None:
        self._path = folder / f"{dataset}.traffic"
        self._offset = 0
        self._bytes = {FETCHED: 0, CACHED: 0}

    def add(self, kind: str, length: int) -> None:
        """Count a file that was opened. Raises `OSError`."""
        append_regular(self._path, f"{kind} {length}\n".encode())

    def read(self) -> ShardTraffic:
        """Return the sums. Lines that are no counts are left out."""
        try:
            with open_regular(self._path) as file:
                while True:
                    file.seek(self._offset)
                    content = file.read(_MOST_PER_READ)
                    lines = content[: content.rfind(b"\n") + 1]
                    if not lines:
                        break
                    self._offset += len(lines)
                    for line in lines.splitlines():
                        self._take(line[:_LONGEST_LINE])
        except OSError:
            pass
        return ShardTraffic(fetched_bytes=self._bytes[FETCHED], cached_bytes=self._bytes[CACHED])

    def _take(self, line: bytes) -> None:
        kind, _, length = line.decode(errors="replace").partition(" ")
        if kind in self._bytes and length.isascii() and length.isdigit():
            self._bytes[kind] += int(length)
