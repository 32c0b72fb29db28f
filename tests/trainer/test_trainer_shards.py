"""The cache of streamed datasets holds its limit and outlives a killed download; an order has each sample once."""

import hashlib
import io
import multiprocessing
import os
import signal
import tarfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from everspot_core.jobs.job import JobSpec
from everspot_store import ManualClock, NoRoom, StoreUnavailable, SystemClock
from everspot_store.tree_cache import RESERVE
from everspot_train.shard_cache.cache import ShardCache, open_cached
from everspot_train.shards import ShardedDataset, ShardOrder, write_index
from everspot_train.shards.index import read_counts
from everspot_train.shards.readers import open_shard
from everspot_train.trainer.errors import TrainerError
from pydantic import ValidationError

DIGESTS = [hashlib.sha256(bytes([number])).hexdigest() for number in range(6)]
LENGTH = 1000


def write_content(digest: str, path: Path) -> None:
    path.write_bytes(digest[:1].encode() * LENGTH)


def cache_at(folder: Path, limit: int = 3 * LENGTH) -> ShardCache:
    return ShardCache(folder, limit, write_content, SystemClock())


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


def test_the_longest_unused_files_make_space(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    assert [cache.fetch(digest, LENGTH) for digest in [*DIGESTS[:3], DIGESTS[0]]] == [True, True, True, False]
    for number, digest in enumerate(DIGESTS[:3]):
        os.utime(tmp_path / digest, (number + 1, number + 1))
    used = open_cached(tmp_path, DIGESTS[0])
    assert used is not None
    cache.fetch(DIGESTS[3], LENGTH)
    assert files(tmp_path) == {DIGESTS[0], DIGESTS[2], DIGESTS[3]}
    cache.fetch(DIGESTS[4], 2 * LENGTH)
    assert DIGESTS[0] not in files(tmp_path)
    assert len(os.pread(used, 2 * LENGTH, 0)) == LENGTH  # it was removed while a process reads it
    os.close(used)
    with pytest.raises(NoRoom):
        cache.fetch(DIGESTS[5], 3 * LENGTH + 1)


@pytest.mark.parametrize(("outage_seconds", "is_fetched"), [(0, True), (240, True), (360, False)])
def test_an_outage_of_the_store_is_waited_for_minutes(tmp_path: Path, outage_seconds: int, is_fetched: bool) -> None:
    clock = ManualClock()

    def download(digest: str, path: Path) -> None:
        if clock.monotonic().total_seconds() < outage_seconds:
            path.write_bytes(b"half")
            raise StoreUnavailable("503")
        write_content(digest, path)

    cache = ShardCache(tmp_path, 3 * LENGTH, download, clock)
    if is_fetched:
        assert cache.fetch(DIGESTS[0], LENGTH)
        assert files(tmp_path) == {DIGESTS[0]}
    else:
        with pytest.raises(StoreUnavailable):
            cache.fetch(DIGESTS[0], LENGTH)
        assert clock.monotonic().total_seconds() < outage_seconds
        assert files(tmp_path) == set()


@pytest.mark.parametrize(("capacity", "count"), [(9, 3), (2, 2), (1, 1)])
def test_a_smaller_disk_holds_fewer_files_than_the_limit(tmp_path: Path, capacity: int, count: int) -> None:
    """The disk has so many files of LENGTH beside the bytes that stay free. A download fills it while it is written."""

    def free() -> int:
        on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
        return RESERVE + capacity * LENGTH - on_disk

    def download(digest: str, path: Path) -> None:
        write_content(digest, path)
        assert free() >= RESERVE, "the disk is fuller than it may be"

    cache = ShardCache(tmp_path, 3 * LENGTH, download, ManualClock(), free)
    for number, digest in enumerate(DIGESTS):
        assert cache.fetch(digest, LENGTH)
        os.utime(tmp_path / digest, (number + 1, number + 1))
    assert files(tmp_path) == set(DIGESTS[-count:])
    with pytest.raises(NoRoom):
        ShardCache(tmp_path, 3 * LENGTH, download, ManualClock(), lambda: RESERVE - 1).fetch("f" * 64, 3 * LENGTH)


def _download_forever(folder: Path, begun: Event) -> None:
    def download(digest: str, path: Path) -> None:
        path.write_bytes(b"half")
        begun.set()
        time.sleep(600)

    ShardCache(folder, 3 * LENGTH, download, SystemClock()).fetch(DIGESTS[0], 2 * LENGTH)


def test_a_download_that_was_killed_leaves_no_file_and_takes_no_space(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    begun = spawn.Event()
    process = spawn.Process(target=_download_forever, args=(tmp_path, begun))
    process.start()
    assert begun.wait(120)
    cache = cache_at(tmp_path)
    cache.fetch(DIGESTS[1], LENGTH)
    assert files(tmp_path) == {DIGESTS[1], f"{DIGESTS[0]}.{2 * LENGTH}.part"}
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    cache.fetch(DIGESTS[2], 2 * LENGTH)
    assert files(tmp_path) == {DIGESTS[1], DIGESTS[2]}  # the part is gone, and its space is there again
    assert cache.fetch(DIGESTS[0], LENGTH)
    assert (tmp_path / DIGESTS[0]).stat().st_size == LENGTH


def test_an_order_has_each_sample_once_and_goes_on_with_other_ranks() -> None:
    counts = [5, 1, 9, 4, 5]

    def order(rank: int = 0, ranks: int = 1, window: int = 2) -> ShardOrder:
        return ShardOrder(counts, 2, seed=3, window=window, digest="ab" * 32, rank=rank, world_size=ranks)

    whole = order()
    first = [index for batch in whole for index in batch]
    assert sorted(first) == list(range(24))
    whole.next_epoch()
    assert [index for batch in whole for index in batch] != first
    state = order().state_dict() | {"consumed": 8}
    resumed = [order(rank, 2) for rank in (0, 1)]
    for part in resumed:
        part.load_state_dict(state)
    batches = list(zip(*resumed, strict=True))
    assert [index for pair in batches for batch in pair for index in batch] == first[8:]
    with pytest.raises(ValueError, match="window was 2 and is 3 now"):
        order(window=3).load_state_dict(state)


def test_a_tar_without_an_index_is_refused_and_a_file_is_one_sample(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "one.jpg").write_bytes(b"meow")
    assert open_shard("cats/one.jpg", tmp_path / "cats" / "one.jpg")[0] == {"__key__": "cats/one", "jpg": b"meow"}
    assert write_index(tmp_path) == {"cats/one.jpg": 1}
    assert read_counts(None, ["cats/one.jpg"]) == {"cats/one.jpg": 1}
    with pytest.raises(TrainerError, match=r"number of samples in a\.tar is not known"):
        read_counts(None, ["a.tar"])


def test_a_job_streams_only_datasets_that_it_names() -> None:
    fields = {"name": "web", "entrypoint": ["fit.py"], "code": "src", "datasets": ["web@" + "a" * 64]}
    assert JobSpec.model_validate(fields | {"stream": ["web"]}).stream == ["web"]
    with pytest.raises(ValidationError, match="'other' is none of the job's `datasets`"):
        JobSpec.model_validate(fields | {"stream": ["other"]})


def test_a_job_with_a_small_limit_leaves_the_files_of_one_with_a_large_limit(tmp_path: Path) -> None:
    large, small = cache_at(tmp_path, 5 * LENGTH), cache_at(tmp_path, 2 * LENGTH)
    for digest in DIGESTS[:4]:
        large.fetch(digest, LENGTH)
    small.fetch(DIGESTS[4], LENGTH)
    assert files(tmp_path) == set(DIGESTS[:5])
    with pytest.raises(NoRoom):
        small.fetch(DIGESTS[5], 3 * LENGTH)
    del large  # its process has ended
    small.fetch(DIGESTS[5], LENGTH)
    assert len(files(tmp_path)) == 2


def test_a_tar_of_a_mac_has_the_samples_that_were_packed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "shard.tar", "w") as archive:
        for number in range(3):
            for name in (f"._{number:04}.jpg", f"{number:04}.jpg", f"._{number:04}.cls", f"{number:04}.cls"):
                member = tarfile.TarInfo(f"./train/{name}")
                member.size = 1
                archive.addfile(member, io.BytesIO(b"x"))
        archive.addfile(tarfile.TarInfo("__MACOSX/train/0000.jpg"))
        archive.addfile(tarfile.TarInfo("__meta__"))
    assert write_index(tmp_path) == {"shard.tar": 3}
    shard = open_shard("shard.tar", tmp_path / "shard.tar")
    assert [shard[number] for number in range(3)] == [
        {"__key__": f"train/{number:04}", "jpg": b"x", "cls": b"x"} for number in range(3)
    ]


def test_files_beside_tables_are_no_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As `save_to_disk` of Hugging Face leaves them."""
    folder = tmp_path / "digits" / "train"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"x": list(range(12))}), folder / "data-00000-of-00001.parquet")
    for name in ("dataset_info.json", "state.json", "_metadata.parquet"):
        (folder / name).write_text("{}")
    images = tmp_path / "digits" / "images"
    images.mkdir()
    (images / "a.json").write_text("{}")  # one sample: no table is beside it
    assert write_index(tmp_path / "digits") == {"images/a.json": 1, "train/data-00000-of-00001.parquet": 12}
    assert "3 files beside tables and tars are no samples, such as train/_metadata.parquet" in caplog.text
    monkeypatch.setenv("EVERSPOT_DATA", str(tmp_path))
    dataset = ShardedDataset("digits", cache_gb=1)
    assert [dataset[index] for index in range(len(dataset))] == [
        {"__key__": "images/a", "json": b"{}"}, *({"x": number} for number in range(12)),
    ]  # fmt: skip
    assert set(write_index(tmp_path / "digits", lambda name, path: [path.name])) == {
        "images/a.json", *(f"train/{path.name}" for path in folder.iterdir()),
    }  # fmt: skip
