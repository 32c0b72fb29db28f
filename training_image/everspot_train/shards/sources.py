"""Where the shards of a dataset are read from: the cache of a job that streams it, a folder, or a cluster's bucket.

A program that streams in a job also runs outside of one, such as on a laptop: the same samples in the same order.
"""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from everspot_store import Dataset, DatasetFile, DatasetMissing, Store, StoreError

from everspot_train.prepare.data import DATA_VARIABLE
from everspot_train.rundir import RunContext, RunDir
from everspot_train.shard_cache.cache import open_cached
from everspot_train.shard_cache.traffic import CACHED, FETCHED, STREAMED, TrafficFile
from everspot_train.shards.fetcher import Fetcher
from everspot_train.trainer.errors import TrainerError
from everspot_train.trainer.ranks import rank_from_environment

STORE_VARIABLE = "EVERSPOT_STORE"
"""The URL of a cluster's control bucket, as for the command `everspot`."""

_FOLDER_DIGEST = "0" * 12
_TRIES = 20  # of opening a file that others remove as fast as it is fetched
_HANDLES = "/proc/self/fd" if sys.platform.startswith("linux") else "/dev/fd"

log = logging.getLogger("everspot.trainer")


@dataclass(frozen=True)
class Traffic:
    """Bytes of shards that the processes of this attempt have opened: `fetched` from the bucket, or `cached`."""

    fetched: int
    cached: int


class ShardSource(Protocol):
    """The shards of one dataset. It is copied into the workers of a DataLoader, by a fork or by pickle.

    Attributes:
        digest: of the dataset, hexadecimal: a position in the order of its samples belongs to it.
        files: of the dataset.
    """

    digest: str
    files: Sequence[DatasetFile]

    def opened(self, file: DatasetFile) -> AbstractContextManager[Path]:
        """Return a context with a path under which the file can be read; what has opened it reads on afterwards."""
        ...

    def traffic(self) -> Traffic:
        """Return what was fetched, and what was not."""
        ...

    def close(self) -> None:
        """Release what this process holds. Its next use begins anew, also in a copy of another process."""
        ...


def open_source(name: str, cache_bytes: int) -> ShardSource:
    """Return where the shards of a dataset are, for this process.

    Raises:
        TrainerError: if they are nowhere, with the ways to have them.
    """
    rundir, data = RunDir.from_environment(), os.environ.get(DATA_VARIABLE)
    context = rundir.read(RunContext) if rundir is not None else None
    description = Path(data, STREAMED, f"{name}.json") if data else None
    if description is not None and context is not None and context.cache_dir is not None and description.is_file():
        dataset, folder = Dataset.read(description.read_bytes()), Path(context.cache_dir, "shards")
        return CachedShards(dataset, Fetcher(folder, cache_bytes), folder, TrafficFile(description.parent, name))
    if data and Path(data, name).is_dir():
        where = "a folder of this machine" if context is None else "the folder of the job's dataset"
        _explain(name, f"{Path(data, name)}, {where}: `cache_gb` has no effect")
        return FolderShards(Path(data, name))
    if context is not None:
        raise TrainerError(f"the job does not stream a dataset {name}: name it in `datasets` and in `stream`")
    url = os.environ.get(STORE_VARIABLE)
    if not url:
        raise TrainerError(
            f"outside of a job, the shards of {name} are read from the folder {DATA_VARIABLE}/{name}, or from the "
            f"bucket of the cluster whose URL {STORE_VARIABLE} is: set one of them"
        )
    return _open_bucket(name, url, cache_bytes)


class FolderShards:
    """The shards of a folder."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
        self.digest = _FOLDER_DIGEST
        self.files: Sequence[DatasetFile] = [
            DatasetFile(path=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256="") for path in paths
        ]
        self._folder = folder

    @contextmanager
    def opened(self, file: DatasetFile) -> Iterator[Path]:
        """Return its path."""
        yield self._folder / file.path

    def traffic(self) -> Traffic:
        """Return nothing: nothing is fetched."""
        return Traffic(0, 0)

    def close(self) -> None:
        """Hold nothing."""


class CachedShards:
    """The shards of a dataset of a bucket, through the machine's cache.

    Args:
        dataset: with the files and their digests.
        fetcher: downloads into `folder`.
        traffic_file: counts the bytes.
    """

    def __init__(self, dataset: Dataset, fetcher: Fetcher, folder: Path, traffic_file: TrafficFile) -> None:
        self.digest = dataset.digest
        self.files: Sequence[DatasetFile] = dataset.files
        self._fetcher, self._folder, self._traffic_file = fetcher, folder, traffic_file

    @contextmanager
    def opened(self, file: DatasetFile) -> Iterator[Path]:
        """Fetch the file if it is not in the cache, and keep it open for the block, because it may be removed."""
        handle = self._open(file)
        try:
            yield Path(_HANDLES, str(handle))
        finally:
            os.close(handle)

    def traffic(self) -> Traffic:
        """Return the bytes over all processes."""
        traffic = self._traffic_file.read()
        return Traffic(fetched=traffic.fetched_bytes, cached=traffic.cached_bytes)

    def close(self) -> None:
        """End the process that downloads."""
        self._fetcher.close()

    def _open(self, file: DatasetFile) -> int:
        was_fetched = False
        for _ in range(_TRIES):
            handle = open_cached(self._folder, file.sha256)
            if handle is not None:
                if not was_fetched:
                    self._traffic_file.add(CACHED, file.size)
                return handle
            if self._fetcher.fetch(file.sha256, file.size):
                self._traffic_file.add(FETCHED, file.size)
                was_fetched = True
        raise TrainerError(f"{file.path} is removed from the cache as fast as it is fetched: cache_gb is too small")


def _open_bucket(name: str, url: str, cache_bytes: int) -> CachedShards:
    """Return the shards of the newest version of a dataset, outside of a job."""
    try:
        dataset = Store.open(url).datasets.find(name)
    except (DatasetMissing, StoreError) as error:
        raise TrainerError(f"dataset {name} of {STORE_VARIABLE} ({url}): {error}") from error
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "everspot")
    folder = cache / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    counts = cache / "traffic" / str(os.getpid())
    counts.mkdir(parents=True, exist_ok=True)
    _explain(name, f"{url} with your own credentials, through a cache in {folder}")
    return CachedShards(dataset, Fetcher(folder, cache_bytes, url), folder, TrafficFile(counts, name))


def _explain(name: str, source: str) -> None:
    """Log once, on the first rank, where the samples come from if no job streams them."""
    if rank_from_environment() == 0:
        log.warning("dataset %s is read from %s", name, source)
