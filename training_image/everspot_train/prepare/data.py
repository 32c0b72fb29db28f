"""Provides a job's datasets: one copy per machine, and a folder with links for the job."""

import errno
import os
import sys
from pathlib import Path

from everspot_core.counting import counted, size
from everspot_core.jobs.job import JobSubmission
from everspot_store import DatasetCache, DatasetMissing, NoRoom, Store

from everspot_train.prepare.errors import NotReady
from everspot_train.shard_cache.traffic import STREAMED

DATA_VARIABLE = "EVERSPOT_DATA"


def lay_datasets(store: Store, submission: JobSubmission, cache: Path, folder: Path) -> dict[str, str]:
    """Fetch the datasets that are not on this machine yet, and fill `folder` with a link for each, by its name. Of
    streamed datasets only the list of files is written.

    Returns the environment variable with the folder; empty for a job without datasets. The copies are locked against
    removal until the last process that this one starts has ended.

    Raises:
        NotReady: if a dataset does not exist, or this machine has no room for it.
        StoreError: if the store fails, or a digest does not match.
    """
    if not submission.datasets:
        return {}
    dataset_cache = DatasetCache(cache / "datasets", store.datasets, store.clock)
    folder.mkdir(parents=True, exist_ok=True)
    for reference in submission.datasets:
        name, _, digest = reference.partition("@")
        try:
            dataset = store.datasets.find(name, digest or None)
            description = f"{size(dataset.size)} in {counted(len(dataset.files), 'file')}"
            sys.stdout.write(f"everspot: dataset {name}, {description}\n")
            sys.stdout.flush()
            if name in submission.spec.stream:
                (folder / STREAMED).mkdir(exist_ok=True)
                (folder / STREAMED / f"{name}.json").write_bytes(dataset.to_json())
                continue
            used = dataset_cache.use(dataset)
        except DatasetMissing as error:
            raise NotReady(f"dataset {name}: {error}") from error
        except NoRoom as error:
            # The agent recognizes the system's message, and blames the machine and not the job.
            raise NotReady(f"dataset {name}: {error}: {os.strerror(errno.ENOSPC)}") from error
        used.outlive()
        (folder / name).symlink_to(used.path, target_is_directory=True)
    return {DATA_VARIABLE: str(folder)}
