"""Writes the event files that a job's program has written itself, with its pictures and histograms, into a folder."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from everspot_store import Chunk

FOLDER = "program"


class ProgramFiles:
    """The event files of one job, below `program/attempt-N` of its run.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._paths: set[Path] = set()

    @property
    def count(self) -> int:
        """The files that are there."""
        return len(self._paths)

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Add pieces, in their order. A piece whose path leads elsewhere is left out: the job's program chose it."""
        for chunk in chunks:
            line, _, content = chunk.data.partition(b"\n")
            place = _parse_header(line)
            if place is None:
                continue
            name, offset, attempt = place
            number = f"{chunk.epoch}" if attempt == chunk.epoch else f"{chunk.epoch}-{attempt}"  # of a visit
            path = self._folder / f"attempt-{number}" / name
            with suppress(OSError):  # such as a folder where a file was
                self._write(path, offset, content)

    def _write(self, path: Path, offset: int, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if offset == 0 and path not in self._paths:
            path.unlink(missing_ok=True)  # of an earlier command
        with path.open("r+b" if path.exists() else "xb") as file:
            if offset == 0:
                file.truncate()
            file.seek(offset)
            file.write(content)
        self._paths.add(path)


def _parse_header(line: bytes) -> tuple[PurePosixPath, int, int] | None:
    """Return path, position and attempt of a piece; None if it is none."""
    try:
        header = json.loads(line)
        path, offset, attempt = PurePosixPath(header["path"]), int(header["offset"]), int(header["attempt"])
    except (ValueError, KeyError, TypeError):
        return None
    is_below = not path.is_absolute() and ".." not in path.parts and path.name and "\0" not in str(path)
    return (path, offset, attempt) if is_below and "tfevents" in path.name and offset >= 0 else None
