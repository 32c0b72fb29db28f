"""A job's outputs: the files of its folder `outputs/`, kept under the epoch that wrote them.

The keys are `jobs/{job}/outputs/{epoch:06d}/{path}`. An owner writes under its own epoch only, so one that was presumed
dead cannot overwrite what its successor kept. If several epochs wrote a path, the highest counts.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from everspot_store.bucket import Bucket
from everspot_store.errors import KeyTaken, UnsafeArchive


@dataclass(frozen=True)
class Output:
    """One kept file. `path`: below the folder, with `/`; `size` in bytes."""

    path: str
    epoch: int
    size: int
    key: str


class Outputs:
    """The outputs of one job.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`.
    """

    def __init__(self, data: Bucket, job_id: str) -> None:
        self._data = data
        self._prefix = f"jobs/{job_id}/outputs/"

    def keep(self, epoch: int, folder: Path, go_on: Callable[[], bool]) -> tuple[int, list[str]]:
        """Upload the folder's files, the smallest first, while `go_on` holds.

        Returns the number of kept files, and the paths that were not kept, because no time was left for them or because
        they are no files of this folder. A missing folder counts as empty.
        """
        kept, left = 0, []
        there = {entry.key for entry in self._data.list(f"{self._prefix}{epoch:06d}/")} if folder.is_dir() else set()
        for size, path in sorted(_files_of(folder)):
            key = f"{self._prefix}{epoch:06d}/{path}"
            if size < 0 or not go_on():
                left.append(path)
            elif key in there or self._sent(key, folder / path):
                kept += 1
            else:
                left.append(path)
        return kept, left

    def list(self, under: str = "") -> list[Output]:
        """The newest output of each path at or below `under`, sorted."""
        found: dict[str, Output] = {}
        for entry in self._data.list(self._prefix):  # in order of epochs
            epoch, _, path = entry.key.removeprefix(self._prefix).partition("/")
            wanted = not under or path == under or path.startswith(f"{under.rstrip('/')}/")
            if epoch.isdigit() and path and wanted:
                found[path] = Output(path, int(epoch), entry.size, entry.key)
        return [found[path] for path in sorted(found)]

    def fetch(self, output: Output, folder: Path) -> Path:
        """Download one file to its path below `folder`. Returns the local path.

        Raises:
            UnsafeArchive: if the path would lead out of the folder.
            FileNotFoundError: if it is gone.
        """
        target = (folder / output.path).resolve()
        if not target.is_relative_to(folder.resolve()) or ".." in PurePosixPath(output.path).parts:
            raise UnsafeArchive(f"{output.path!r} must not be written")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._data.download(output.key, target)
        return target

    def _sent(self, key: str, path: Path) -> bool:
        try:
            self._data.upload(key, path)
        except KeyTaken:  # our own upload, whose answer was lost
            return True
        except OSError:  # removed meanwhile, or not to be read
            return False
        return True


def _files_of(folder: Path) -> Iterator[tuple[int, str]]:
    """Size and path of every file, with size -1 for links and other entries. Names that begin with a dot are left out,
    because they are some program's own."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        names = [name for name in names if not name.startswith(".")]
        for path in (Path(parent, name) for name in (*names, *folders)):
            inside = path.relative_to(folder).as_posix()
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                yield -1, inside
            elif path.is_file():
                yield path.stat().st_size, inside
