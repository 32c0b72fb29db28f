"""A program that streams a dataset also runs outside of a job: from a folder, or from a cluster's bucket."""

import io
import logging
import tarfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Reason
from everspot_store import Dataset, Store, StoreUnavailable
from everspot_train.agent.endings import judge_ending
from everspot_train.rundir import Status
from everspot_train.shards import ShardedDataset, ShardOrder, write_index
from everspot_train.shards.fetcher import Fetcher
from everspot_train.trainer.errors import TrainerError, last_word

SHARDS, SAMPLES = 6, 8
OUTAGE = """
import sys
if "everspot_train.shard_cache" in sys.orig_argv:
    from datetime import timedelta
    from everspot_store import StoreUnavailable
    from everspot_store.datasets import Datasets
    from everspot_train.shard_cache import cache
    def download(*arguments):
        raise StoreUnavailable("503")
    Datasets.download, cache._OUTAGE_PATIENCE = download, timedelta()
"""
"""A patch of the fetchers' processes: the store does not answer, and is not waited for."""
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")  # on two cores


def decode_key(sample: dict[str, Any]) -> str:
    return str(sample["__key__"])


def decode_row(row: dict[str, Any]) -> str:
    return str(row["key"])


def keys() -> list[str]:
    return [f"s{shard}-{number}" for shard in range(SHARDS) for number in range(SAMPLES)]


@pytest.fixture(autouse=True)
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EVERSPOT_RUN_DIR", "EVERSPOT_DATA", "EVERSPOT_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset `web` of tars, as WebDataset writes them."""
    root = tmp_path / "data" / "web"
    root.mkdir(parents=True)
    for shard in range(SHARDS):
        with tarfile.open(root / f"part-{shard}.tar", "w") as archive:
            for number in range(SAMPLES):
                member = tarfile.TarInfo(f"s{shard}-{number}.txt")
                member.size = 5000
                archive.addfile(member, io.BytesIO(bytes(5000)))
    write_index(root)
    return root


def read_epochs(dataset: ShardedDataset, epochs: int = 2) -> list[list[str]]:
    loader = dataset.loader(4, seed=3, num_workers=4, persistent_workers=True)
    read = []
    for _ in range(epochs):
        read.append([key for batch in loader for key in batch])
        loader.batch_sampler.next_epoch()  # as the training loop of `Run` does
    return read


def expected(digest: str) -> list[str]:
    order = ShardOrder([SAMPLES] * SHARDS, 4, seed=3, window=2, digest=digest)
    return [keys()[index] for batch in order for index in batch]


def test_a_folder_is_read_in_the_order_of_the_job_and_a_warning_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EVERSPOT_DATA", str(folder.parent))
    with caplog.at_level(logging.WARNING, "everspot.trainer"):
        dataset = ShardedDataset("web", cache_gb=1, window=2, decode=decode_key)
    assert caplog.messages == [f"dataset web is read from {folder}, a folder of this machine: `cache_gb` has no effect"]
    first, second = read_epochs(dataset)
    assert first == expected("0" * 12)
    assert first != second
    assert Counter(first) == Counter(second) == Counter(keys())
    assert (dataset.traffic().fetched, dataset.traffic().cached) == (0, 0)


def put_into_cluster(tmp_path: Path, folder: Path) -> tuple[str, Dataset]:
    """Make a cluster with the dataset. Returns the URL of its control bucket, and the dataset."""
    control, data = (f"file://{tmp_path}/{name}" for name in ("control", "bucket"))
    for name in ("control", "bucket"):
        (tmp_path / name).mkdir()
    store = Store.open(control, data)
    store.write_manifest(Manifest(cluster="c", cloud="folder", control_url=control, data_url=data))
    return control, store.datasets.put("web", folder)


def test_a_long_outage_of_the_store_is_no_error_of_the_program(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control, stored = put_into_cluster(tmp_path, folder)
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(OUTAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "patch"))
    with closing(Fetcher(tmp_path / "shards", 1 << 30, control)) as fetcher, pytest.raises(StoreUnavailable) as raised:
        fetcher.fetch(stored.digest, 1)
    phase, message = last_word(raised.value)
    ending = judge_ending(None, 1, Status(phase=phase, message=message))
    assert ending.reason is Reason.SHUTDOWN
    assert ending.message == (
        "the store could not be reached: a file of a streamed dataset cannot be had: StoreUnavailable: 503"
    )


def test_a_clusters_bucket_is_read_through_a_cache_of_the_user(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    control, stored = put_into_cluster(tmp_path, folder)
    monkeypatch.setenv("EVERSPOT_STORE", control)
    with caplog.at_level(logging.WARNING, "everspot.trainer"):
        dataset = ShardedDataset("web", cache_gb=1, window=2, decode=decode_key)
    cache = tmp_path / "cache" / "everspot" / "shards"
    assert caplog.messages == [
        f"dataset web is read from {control} with your own credentials, through a cache in {cache}"
    ]
    first, second = read_epochs(dataset)
    assert first == expected(stored.digest)
    assert Counter(first) == Counter(second) == Counter(keys())
    assert dataset.traffic().fetched == stored.size, "each byte is fetched once"
    assert dataset.traffic().cached > 0
    assert sum(path.stat().st_size for path in cache.iterdir() if len(path.name) == 64) == stored.size
    with pytest.raises(TrainerError, match=r"dataset other of EVERSPOT_STORE .*does not exist"):
        ShardedDataset("other", cache_gb=1)


def test_without_a_folder_and_a_bucket_the_error_names_both_ways() -> None:
    with pytest.raises(TrainerError, match=r"the folder EVERSPOT_DATA/web, or from the bucket .* EVERSPOT_STORE"):
        ShardedDataset("web", cache_gb=1)


@pytest.mark.parametrize("ending", ["parquet", "stream.arrow", "file.arrow"])
def test_tables_of_hugging_face_are_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    """As `datasets` writes them: `to_parquet`, and `save_to_disk`, whose files are Arrow's streams."""
    arrow = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed: run make setup")
    parquet = pytest.importorskip("pyarrow.parquet")
    root = tmp_path / "web"
    root.mkdir()
    for shard in range(SHARDS):
        names = [f"s{shard}-{number}" for number in range(SAMPLES)]
        table = arrow.table({"key": names, "image": [{"bytes": name.encode(), "path": None} for name in names]})
        path = root / f"data-{shard:05d}-of-{SHARDS:05d}.{ending}"
        if ending == "parquet":
            parquet.write_table(table, path, row_group_size=3)
            continue
        make = arrow.ipc.new_stream if ending.startswith("stream") else arrow.ipc.new_file
        with arrow.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    monkeypatch.setenv("EVERSPOT_DATA", str(tmp_path))
    with pytest.raises(TrainerError, match="the number of samples in data-00000-of-00006"):
        ShardedDataset("web", cache_gb=1)
    assert set(write_index(root).values()) == {SAMPLES}
    assert ShardedDataset("web", cache_gb=1)[9] == {"key": "s1-1", "image": {"bytes": b"s1-1", "path": None}}
    (read,) = read_epochs(ShardedDataset("web", cache_gb=1, window=2, decode=decode_row), epochs=1)
    assert Counter(read) == Counter(keys())
