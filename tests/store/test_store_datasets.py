"""Datasets: uploaded once, found by name, fetched whole, with one copy per machine."""

import fcntl
import hashlib
import json
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.clock import Clock
from everspot_store import (
    DatasetCache,
    DatasetMissing,
    DigestMismatch,
    ManualClock,
    NoRoom,
    Store,
    StoreUnavailable,
    SystemClock,
    UnsafeArchive,
)
from everspot_store.testing import Fault, FaultScript, MemoryBackend, faulty_store
from everspot_store.tree_cache import RESERVE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, two of them the same."""
    path = tmp_path / "digits"
    (path / "deep").mkdir(parents=True)
    (path / "a.bin").write_bytes(b"a" * 1000)
    (path / "deep/b.bin").write_bytes(b"b" * 10)
    (path / "deep/.again").write_bytes(b"a" * 1000)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_put_is_fetched_and_the_same_content_is_sent_once(store: Store, folder: Path, tmp_path: Path) -> None:
    sent: list[str] = []
    first = store.datasets.put("digits", folder, on_file=lambda file, new: sent.append(file.path) if new else None)
    assert (len(sent), first.size, len(first.files)) == (2, 2010, 3)
    assert (
        store.datasets.put("digits", folder, on_file=lambda file, new: sent.append(file.path) if new else None) == first
    )
    store.clock.sleep(timedelta(seconds=1))
    (folder / "c.bin").write_bytes(b"c")
    second = store.datasets.put("digits", folder, on_file=lambda file, new: sent.append(file.path) if new else None)
    assert sent[2:] == ["c.bin"]
    assert [version.id for version in store.datasets.versions("digits")] == [second.id, first.id]
    assert store.datasets.find("digits") == second
    assert store.datasets.find("digits", first.digest[:9]) == store.datasets.find("digits", first.digest) == first
    store.datasets.fetch(second, tmp_path / "there")
    assert contents(tmp_path / "there") == contents(folder)


def test_names_links_and_unknown_versions_are_refused(folder_store: Store, folder: Path, tmp_path: Path) -> None:
    for name in ("", "_files", "Up", "a/b", "../x", "x" * 64):
        with pytest.raises(ValueError, match="no name of a dataset"):
            folder_store.datasets.put(name, folder)
    with pytest.raises(NotADirectoryError):
        folder_store.datasets.put("empty", tmp_path / "nowhere")
    with pytest.raises(DatasetMissing, match=r"digits does not exist.*everspot data put"):
        folder_store.datasets.find("digits")
    folder_store.datasets.put("digits", folder)
    with pytest.raises(DatasetMissing, match="version 00"):
        folder_store.datasets.find("digits", "00" * 32)
    (folder / "out").symlink_to("/etc/hostname")
    with pytest.raises(UnsafeArchive, match="out"):
        folder_store.datasets.put("digits", folder)


def test_a_list_that_leads_out_of_the_folder_is_not_followed(store: Store, folder: Path, tmp_path: Path) -> None:
    dataset = store.datasets.put("digits", folder)
    bad = dataset.model_copy(update={"files": [dataset.files[0].model_copy(update={"path": "../x"})]})
    with pytest.raises(UnsafeArchive):
        store.datasets.fetch(bad, tmp_path / "there")
    assert not (tmp_path / "x").exists()


def test_a_version_of_another_cluster_is_taken_over_with_what_is_missing_alone(
    store: Store, folder: Path, tmp_path: Path, clock: ManualClock
) -> None:
    home = faulty_store(MemoryBackend(), MemoryBackend(), clock, FaultScript())
    dataset = home.datasets.put("digits", folder)
    (folder / "c.bin").write_bytes(b"c")
    more = home.datasets.put("digits", folder)
    assert store.datasets.take_over(dataset, home.datasets, visit="visit-1") == 1010, "each content is sent once"
    assert store.datasets.find("digits", dataset.digest) == dataset.model_copy(update={"visit": "visit-1"})
    assert store.datasets.take_over(dataset, home.datasets, visit="visit-2") == 0
    assert store.datasets.take_over(more, home.datasets, visit="visit-3") == 1
    store.datasets.fetch(store.datasets.find("digits", more.digest), tmp_path / "there")
    assert contents(tmp_path / "there") == contents(folder)


@pytest.fixture
def shelf(clock: ManualClock) -> tuple[Store, FaultScript, MemoryBackend]:
    """A store in memory, its script of faults, and its data bucket."""
    faults, data = FaultScript(), MemoryBackend()
    return faulty_store(MemoryBackend(), data, clock, faults), faults, data


def test_damaged_content_is_refused_and_a_cut_fetch_goes_on(
    shelf: tuple[Store, FaultScript, MemoryBackend], folder: Path, tmp_path: Path
) -> None:
    store, faults, data = shelf
    dataset = store.datasets.put("digits", folder)
    cache = DatasetCache(tmp_path / "cache", store.datasets, store.clock)
    key = next(file.key for file in dataset.files if file.path == "deep/b.bin")
    good = data.objects[key]
    data.put(key, b"x" * 10)
    with pytest.raises(DigestMismatch):
        cache.use(dataset)
    assert cache.cached_versions() == []
    data.put(key, good)
    faults.on("download", key=f"*{dataset.files[0].sha256}", fault=Fault.DENIED)  # that one is here already
    with cache.use(dataset) as fetched:
        assert contents(fetched.path) == contents(folder)
    assert not faults.spent


def test_two_users_of_one_machine_share_one_copy(
    shelf: tuple[Store, FaultScript, MemoryBackend], folder: Path, tmp_path: Path
) -> None:
    store, _, _ = shelf
    version = store.datasets.put("digits", folder)
    counted: list[str] = []
    fetch = store.datasets.fetch
    store.datasets.fetch = lambda dataset, into: (counted.append(dataset.id), fetch(dataset, into))[1]  # type: ignore[method-assign]
    users = []
    threads = [
        threading.Thread(
            target=lambda: users.append(DatasetCache(tmp_path / "cache", store.datasets, SystemClock()).use(version))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [version.id]
    assert {user.path for user in users} == {tmp_path / "cache" / version.digest}
    for user in users:
        user.close()


def test_whoever_comes_while_another_fetches_shares_what_that_one_then_uses_for_days(
    shelf: tuple[Store, FaultScript, MemoryBackend], folder: Path, tmp_path: Path
) -> None:
    store, _, _ = shelf
    dataset = store.datasets.put("digits", folder)
    whole = tmp_path / "cache" / dataset.digest

    class OtherFetches(ManualClock):
        """While this one waits, the other has fetched the version; it uses it from then on."""

        def sleep(self, duration: timedelta) -> None:
            super().sleep(duration)
            whole.mkdir(exist_ok=True)

    cache = DatasetCache(tmp_path / "cache", store.datasets, OtherFetches())
    with (tmp_path / "cache" / f"{dataset.digest}.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with cache.use(dataset) as used:
            assert used.path == whole


def test_what_jobs_share_is_read_only_and_goes_all_the_same(
    shelf: tuple[Store, FaultScript, MemoryBackend], folder: Path, tmp_path: Path
) -> None:
    store, _, _ = shelf
    cache_folder = tmp_path / "cache"
    room = [1 << 50]
    cache = DatasetCache(cache_folder, store.datasets, store.clock, lambda: room[0])
    with cache.use(store.datasets.put("digits", folder)) as fetched:
        paths = [fetched.path, *fetched.path.rglob("*")]
        assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o555}
        assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o444}
    room[0] = 0
    with pytest.raises(NoRoom):
        cache.make_room(1)
    assert [path for path in cache_folder.iterdir() if path.is_dir()] == []


def test_short_room_takes_what_nobody_uses_and_never_what_somebody_does(
    shelf: tuple[Store, FaultScript, MemoryBackend], tmp_path: Path
) -> None:
    store, _, _ = shelf
    datasets = []
    for number in range(3):
        (tmp_path / "d" / "x").parent.mkdir(exist_ok=True)
        (tmp_path / "d" / "x").write_bytes(bytes([number]) * 100)
        datasets.append(store.datasets.put(f"d{number}", tmp_path / "d"))
    cache_folder = tmp_path / "cache"

    def free() -> int:
        return RESERVE + 250 - sum(path.stat().st_size for path in cache_folder.rglob("x"))

    cache = DatasetCache(cache_folder, store.datasets, store.clock, free)
    cache.use(datasets[0]).close()
    in_use = cache.use(datasets[1])
    cache.use(datasets[2]).close()
    assert {path.name for path in cache.cached_versions()} == {datasets[1].digest, datasets[2].digest}
    big = datasets[0].model_copy(update={"files": [datasets[0].files[0].model_copy(update={"size": 200})]})
    with pytest.raises(NoRoom, match="needs 200 bytes more on this disk, which has 150"):
        cache.use(big)
    assert [path.name for path in cache.cached_versions()] == [datasets[1].digest]
    in_use.close()


def test_the_digest_is_that_of_the_list(folder_store: Store, folder: Path) -> None:
    dataset = folder_store.datasets.put("digits", folder)
    text = json.dumps([[f.path, f.size, f.sha256] for f in dataset.files], separators=(",", ":"))
    assert dataset.digest == hashlib.sha256(text.encode()).hexdigest()


def test_a_put_sends_again_what_was_removed_while_it_went_on(folder: Path, tmp_path: Path, clock: ManualClock) -> None:
    def watch(key: str, new: bytes | None) -> None:
        if new is not None and key == f"datasets/_files/{digests['deep/b.bin']}" and old in data.objects:
            del data.objects[old]  # as a removal of what no version names does
        elif new is not None and key.startswith("datasets/digits/"):
            del data.objects[f"datasets/_files/{digests['deep/b.bin']}"]  # right before the version names it

    digests = {path: hashlib.sha256(content).hexdigest() for path, content in contents(folder).items()}
    old = f"datasets/_files/{digests['a.bin']}"
    data = MemoryBackend(watch)
    data.objects[old], data._tags[old] = b"a" * 1000, "v0"
    store = faulty_store(MemoryBackend(), data, clock, FaultScript())
    dataset = store.datasets.put("digits", folder)
    store.datasets.fetch(dataset, tmp_path / "there")
    assert contents(tmp_path / "there") == contents(folder)


def test_a_put_whose_files_vanish_ends_and_makes_no_version(folder: Path, clock: ManualClock) -> None:
    data = MemoryBackend()
    store = faulty_store(MemoryBackend(), data, clock, FaultScript())
    listed = store.data.list
    store.data.list = lambda prefix="": [] if prefix == "datasets/_files/" else listed(prefix)  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="vanish"):
        store.datasets.put("digits", folder)
    assert store.datasets.versions() == []


def test_what_killed_processes_left_goes_when_room_is_short_and_what_is_fetched_stays(
    shelf: tuple[Store, FaultScript, MemoryBackend], tmp_path: Path
) -> None:
    store, _, _ = shelf
    cache_folder = tmp_path / "cache"
    for name in ("a.gone", "b.part", "c.part", "d.part", "e"):
        (cache_folder / name).mkdir(parents=True)
        (cache_folder / name / "x").write_bytes(bytes(100))

    def free() -> int:
        return RESERVE + 500 - sum(path.stat().st_size for path in cache_folder.rglob("x"))

    cache = DatasetCache(cache_folder, store.datasets, store.clock, free)

    def folder_names() -> set[str]:
        return {path.name for path in cache_folder.iterdir() if path.is_dir()}

    with (cache_folder / "c.lock").open("w") as fetching:
        fcntl.flock(fetching, fcntl.LOCK_EX)
        cache.make_room(50)
        assert folder_names() == {"b.part", "c.part", "d.part", "e"}  # there is room, and a fetch may be gone on with
        cache.make_room(300)
        assert folder_names() == {"c.part", "e"}
        with pytest.raises(NoRoom):
            cache.make_room(500)
    assert folder_names() == {"c.part"}


def test_a_list_that_was_written_over_is_taken_for_no_version(store: Store, folder: Path, tmp_path: Path) -> None:
    whole = store.datasets.put("digits", folder)
    (folder / "a.bin").write_bytes(b"poison")
    other = store.datasets.put("other", folder)
    key = f"datasets/digits/{whole.digest}.json"
    forged = whole.model_copy(update={"files": other.files})
    renamed = other.model_copy(update={"name": "digits"})
    for document in (forged, renamed, other):
        store.data.put(key, document.to_json())
        with pytest.raises(DigestMismatch, match=f"digits@{whole.digest}"):
            store.datasets.find("digits", whole.digest)
    store.data.put(key, forged.to_json())
    with pytest.raises(DigestMismatch):
        store.datasets.find("digits")
    store.data.put(key, whole.to_json())
    assert store.datasets.find("digits", whole.digest) == whole


def open_store(root: Path, clock: Clock) -> Store:
    for bucket in ("control", "data"):
        (root / bucket).mkdir(exist_ok=True)
    return Store.open((root / "control").as_uri(), (root / "data").as_uri(), clock=clock)


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=2)], ids=["same clocks", "a clock that is ahead"])
def test_the_version_that_was_put_last_is_the_newest_whoevers_clock_is_ahead(
    tmp_path: Path, folder: Path, ahead: timedelta
) -> None:
    """Also an earlier content that is put again, to go back to it."""
    clock = ManualClock()
    laptop, colleague = (open_store(tmp_path, c) for c in (clock, ManualClock(clock.now() + ahead)))
    labels = folder / "labels.txt"
    labels.write_text("good")
    good = colleague.datasets.put("digits", folder)
    clock.sleep(timedelta(minutes=1))
    labels.write_text("broken")
    broken = laptop.datasets.put("digits", folder)
    assert laptop.datasets.find("digits").digest == broken.digest != good.digest
    labels.write_text("good")
    put_back = laptop.datasets.put("digits", folder)
    assert put_back.digest == good.digest and put_back.created_at > broken.created_at > good.created_at
    assert colleague.datasets.find("digits") == colleague.datasets.find("digits", good.digest) == put_back
    assert [version.digest for version in laptop.datasets.versions("digits")] == [good.digest, broken.digest]


def test_a_copy_for_a_job_of_another_cluster_is_not_the_newest_version_here(
    store: Store, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    home = open_store(tmp_path / "home", store.clock)
    own_version = store.datasets.put("digits", folder)
    store.clock.sleep(timedelta(minutes=1))
    (folder / "labels.txt").write_text("of the other cluster")
    other = home.datasets.put("digits", folder)
    store.datasets.take_over(other, home.datasets, visit="visit-1")
    assert store.datasets.find("digits") == own_version
    assert store.datasets.find_reference(other.id).digest == other.digest
    assert [version.digest for version in store.datasets.versions()] == [own_version.digest, other.digest]
    put_here = store.datasets.put("digits", folder)  # now it is this cluster's, too
    assert put_here.digest == other.digest and put_here.visit is None
    assert store.datasets.find("digits") == put_here
