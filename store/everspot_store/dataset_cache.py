"""The datasets on one machine: one copy of each version, shared by all its users, and removed when the disk is full."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from everspot_core.clock import Clock

from everspot_store.datasets import Dataset, Datasets
from everspot_store.tree_cache import TreeCache, TreeInUse


class DatasetCache:
    """Versions under `folder/{digest}/`, as `TreeCache` has them.

    Args:
        free: returns the free bytes on the disk; by default those of the file system.
    """

    def __init__(self, folder: Path, datasets: Datasets, clock: Clock, free: Callable[[], int] | None = None) -> None:
        self._datasets = datasets
        self._cache = TreeCache(folder, clock, free)

    def use(self, dataset: Dataset) -> TreeInUse:
        """Return the version on this disk. Fetch it if it is missing, and check every digest on arrival.

        Raises:
            NoRoom: if the disk cannot hold it, even after all unused versions are removed. Nothing was fetched.
            DigestMismatch, FileNotFoundError: if the bucket's files are damaged or gone; see `Datasets.fetch`.
            StoreUnavailable: if the bucket does not answer, or another process fetches it for too long.
        """
        return self._cache.use(dataset.digest, f"dataset {dataset.id}", partial(self._fetch, dataset))

    def cached_versions(self) -> list[Path]:
        """Return the complete versions, the longest unused first."""
        return self._cache.trees()

    def make_room(self, size: int) -> None:
        """See `TreeCache.make_room`."""
        self._cache.make_room(size)

    def _fetch(self, dataset: Dataset, part: Path) -> None:
        done = sum(file.stat().st_size for file in part.rglob("*") if file.is_file()) if part.is_dir() else 0
        self._cache.make_room(max(0, dataset.size - done))
        self._datasets.fetch(dataset, part)
        _set_modes(part, 0o555, 0o444)  # jobs share the files: a change by one job would reach the others


def _set_modes(folder: Path, folders: int, files: int | None) -> None:
    """Set the modes of a folder and its content, from the top, so that unreadable folders become readable before they
    are listed."""
    folder.chmod(folders)
    for at, inner, names in os.walk(folder):
        for name in (name for name in inner if not (Path(at) / name).is_symlink()):
            (Path(at) / name).chmod(folders)
        if files is not None:
            for name in names:
                (Path(at) / name).chmod(files)
