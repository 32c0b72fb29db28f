"""The number of samples in each shard, in a file of the dataset: without it every shard would have to be read first."""

import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from everspot_train.shards import readers
from everspot_train.shards.readers import ARROW, PARQUET, TAR, Shard, open_shard
from everspot_train.trainer.errors import TrainerError

INDEX = "everspot-shards.json"
_MANY = (TAR, PARQUET, ARROW)
"""The endings of files of many samples."""
log = logging.getLogger("everspot.trainer")
OpenShard = Callable[[str, Path], Shard]


def write_index(folder: str | Path, open_shard: OpenShard = open_shard) -> dict[str, int]:
    """Count the samples of the files below a folder, and write the numbers beside them, before `everspot data put`.

    Args:
        folder: with the shards.
        open_shard: returns the samples of a file, which is given as its path below the folder and its path.
    """
    root = Path(folder)
    paths = [Path(parent, name) for parent, _, names in os.walk(root) for name in names]
    files = sorted(path.relative_to(root).as_posix() for path in paths)
    names = select_shards(files, open_shard)
    left_out = [name for name in files if name not in {*names, INDEX}]
    if left_out:
        log.warning("%d files beside tables and tars are no samples, such as %s", len(left_out), left_out[0])
    counts = {name: len(open_shard(name, root / name)) for name in names}
    (root / INDEX).write_text(json.dumps({"samples": counts}) + "\n")
    return counts


def select_shards(paths: Iterable[str], open_shard: OpenShard) -> list[str]:
    """Return the files with samples of a dataset, in their order. In a folder with tars or tables all other files are
    none, such as the `state.json` of `save_to_disk`, and a hidden one. A program's own `open_shard` gets all files.

    Args:
        paths: of the dataset's files.
        open_shard: opens them.
    """
    names = [path for path in paths if path != INDEX]
    if open_shard is not readers.open_shard:
        return names
    shards = {name for name in names if name.endswith(_MANY) and not PurePosixPath(name).name.startswith((".", "_"))}
    folders = {PurePosixPath(name).parent for name in shards}
    return [name for name in names if name in shards or PurePosixPath(name).parent not in folders]


def read_counts(index: bytes | None, names: Iterable[str]) -> dict[str, int]:
    """Return the number of samples in each shard.

    Args:
        index: the content of the dataset's index; None: it has none, and each file but a tar or a table is one sample.
        names: of the shards.

    Raises:
        TrainerError: if the number of a shard is not known.
    """
    counts = json.loads(index)["samples"] if index is not None else {n: 1 for n in names if not n.endswith(_MANY)}
    missing = [name for name in names if not isinstance(counts.get(name), int)]
    if missing:
        raise TrainerError(
            f"the number of samples in {missing[0]} is not known: run everspot_train.shards.write_index(folder), and "
            "`everspot data put` again"
        )
    return {name: int(counts[name]) for name in names}
