"""Streams of a checkpoint: segments are uploaded once and read in place, and damage is detected."""

import mmap
import os
import random
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.checkpoint import Checkpoint, Part
from everspot_store import LocalCopies, ManualClock, Store
from everspot_store.backend import Moved
from everspot_store.copying import write_new
from everspot_store.errors import CheckpointCorrupt, StoreUnavailable
from everspot_store.segments import split_stream
from everspot_store.testing import Fault, FaultScript, MemoryBackend, faulty_store

SIZE = (64 << 20) + 5
"""The size of a stream of two segments, in bytes."""


def stream(first: int, last: int) -> memoryview:
    """A stream with one value in each of its two segments."""
    content = bytearray(SIZE)
    content[0], content[-1] = first, last
    return memoryview(content)


def segments(checkpoint: Checkpoint) -> list[Part]:
    return [part for part in checkpoint.parts if part.stream]


def memory_store(clock: ManualClock, faults: FaultScript | None = None) -> Store:
    return faulty_store(MemoryBackend(), MemoryBackend(), clock, faults or FaultScript())


@pytest.mark.parametrize("size", [0, 1, 64 << 20, SIZE])
def test_segments_make_up_the_stream(size: int) -> None:
    content = memoryview(bytes(size))
    parts = split_stream("s", content)
    assert [part.offset for part in parts] == [n * (64 << 20) for n in range(len(parts))]
    assert sum(len(part.view) for part in parts) == size
    assert len({part.name for part in parts}) == len(parts) == -(-size // (64 << 20))


def test_a_stream_comes_back_from_any_store(store: Store, tmp_path: Path) -> None:
    content = memoryview(bytes(range(256)) * 1000)
    published = store.checkpoints("j", 1).publish(1, {}, streams={"stream-00000": content, "stream-00001": content[:7]})
    assert [part.name for part in segments(published)] == ["stream-00000-000", "stream-00001-000"]
    assert store.checkpoints("j").restore(tmp_path / "files", streams=tmp_path / "memory") is not None
    assert (tmp_path / "memory" / "stream-00000").read_bytes() == content
    assert (tmp_path / "memory" / "stream-00001").read_bytes() == content[:7]


def test_a_segment_with_the_same_bytes_is_uploaded_once_a_week(clock: ManualClock, tmp_path: Path) -> None:
    owner = memory_store(clock).checkpoints("j", 1)
    first = segments(owner.publish(1, {}, streams={"s": stream(1, 1)}, keep=1))
    second = segments(owner.publish(2, {}, streams={"s": stream(1, 2)}, keep=1))
    owner.retire()
    assert second[0] == first[0]
    assert second[1].key != first[1].key
    assert owner.restore(tmp_path) is not None
    assert (tmp_path / "s").read_bytes() == stream(1, 2)
    clock.advance(timedelta(days=8))
    third = segments(owner.publish(3, {}, streams={"s": stream(1, 2)}, keep=1))
    assert {part.key for part in third}.isdisjoint(part.key for part in second)


def test_a_segment_from_a_machine_whose_clock_is_ahead_is_uploaded_again(clock: ManualClock) -> None:
    control, data, ahead = MemoryBackend(), MemoryBackend(), ManualClock()
    ahead.advance(timedelta(days=60))
    keys = []
    for epoch, machine_clock in ((1, ahead), (2, clock), (3, clock)):
        store = faulty_store(control, data, machine_clock, FaultScript())
        [part] = segments(store.checkpoints("j", epoch).publish(epoch, {}, streams={"s": memoryview(b"frozen")}))
        keys.append(part.key)
    assert keys[0] != keys[1] == keys[2]


@pytest.mark.parametrize("damage", ["flipped", "torn", "missing"])
def test_a_damaged_segment_is_found_and_the_checkpoint_before_is_taken(
    clock: ManualClock, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = memory_store(clock)
    owner = store.checkpoints("j", 1)
    owner.publish(1, {}, streams={"s": memoryview(b"one" * 100)})
    [part] = segments(owner.publish(2, {}, streams={"s": memoryview(b"two" * 100)}))
    stored = store.data.get(part.key)
    assert stored is not None
    if damage == "missing":
        store.data.delete(part.key)
    else:
        store.data.put(part.key, stored.value[:50] if damage == "torn" else b"x" + stored.value[1:])
    heir = store.checkpoints("j", 2)
    restored = heir.restore(tmp_path)
    assert restored is not None and restored.step == 1
    assert (tmp_path / "s").read_bytes()[:300] == b"one" * 100
    assert part.key in caplog.text
    [again] = segments(heir.publish(3, {}, streams={"s": memoryview(b"two" * 100)}))
    assert again.key != part.key  # a damaged segment is never named again


@pytest.mark.parametrize("fault", [Fault.NEVER_ARRIVED, Fault.ANSWER_LOST, Fault.BUSY])
def test_an_upload_whose_answer_is_lost_ends_under_one_key(clock: ManualClock, tmp_path: Path, fault: Fault) -> None:
    faults = FaultScript().on("upload", key="*/s-000", fault=fault)
    owner = memory_store(clock, faults).checkpoints("j", 1)
    owner.publish(1, {}, streams={"s": memoryview(b"content")})
    assert faults.spent
    assert owner.restore(tmp_path) is not None
    assert (tmp_path / "s").read_bytes() == b"content"


class Counting(MemoryBackend):
    """Counts the uploads."""

    def __init__(self) -> None:
        super().__init__()
        self.uploaded: list[str] = []

    def upload_view(self, key: str, view: memoryview, moved: Moved | None = None) -> None:
        super().upload_view(key, view, moved)
        self.uploaded.append(key)


def test_a_further_try_uploads_only_the_segments_that_are_missing(clock: ManualClock, tmp_path: Path) -> None:
    data, faults = Counting(), FaultScript()
    for nth in range(1, 5):  # all tries of one upload
        faults.on("upload", key="*/s-001", nth=nth, fault=Fault.NEVER_ARRIVED)
    owner = faulty_store(MemoryBackend(), data, clock, faults).checkpoints("j", 1)
    with pytest.raises(StoreUnavailable):
        owner.publish(1, {}, streams={"s": stream(1, 2)})
    [first] = data.uploaded
    published = owner.publish(1, {}, streams={"s": stream(1, 2)})
    assert data.uploaded == [part.key for part in segments(published)]
    assert segments(published)[0].key == first
    owner.retire()
    assert owner.restore(tmp_path) is not None
    assert (tmp_path / "s").read_bytes() == stream(1, 2)


@pytest.mark.parametrize("change", ["bytes", "step"])
def test_a_further_try_takes_nothing_that_has_changed(clock: ManualClock, tmp_path: Path, change: str) -> None:
    data, faults = Counting(), FaultScript()
    for nth in range(1, 5):
        faults.on("upload", key="*/s-001", nth=nth, fault=Fault.NEVER_ARRIVED)
    owner = faulty_store(MemoryBackend(), data, clock, faults).checkpoints("j", 1)
    with pytest.raises(StoreUnavailable):
        owner.publish(1, {}, streams={"s": stream(1, 2)})
    content = stream(7 if change == "bytes" else 1, 2)
    owner.publish(2 if change == "step" else 1, {}, streams={"s": content})
    assert len(data.uploaded) == 3
    owner.retire()
    assert owner.restore(tmp_path) is not None
    assert (tmp_path / "s").read_bytes() == content


def test_segments_that_are_on_this_machine_are_not_downloaded(clock: ManualClock, tmp_path: Path) -> None:
    store = memory_store(clock)
    first, second = segments(store.checkpoints("j", 1).publish(1, {}, streams={"s": stream(1, 2)}))
    store.data.delete(first.key)
    local = bytearray(stream(1, 7))  # the second segment has changed since
    copies = LocalCopies({"s": memoryview(local), "of another checkpoint": memoryview(b"")})
    assert store.checkpoints("j", 2).restore(tmp_path, copies=copies) is not None
    assert (tmp_path / "s").read_bytes() == stream(1, 2)
    assert copies.used_bytes == first.size

    local[0] = 9
    store.data.delete(second.key)
    with pytest.raises(CheckpointCorrupt):
        store.checkpoints("j", 2).restore(tmp_path / "again", copies=LocalCopies({"s": memoryview(local)}))


@pytest.mark.parametrize("size", [0, 1, 4 << 20, (4 << 20) + 1, (12 << 20) - 4096])
@pytest.mark.parametrize("shift", [0, 1, 4096], ids=["aligned", "odd", "page"])
def test_memory_is_written_as_it_is_whatever_its_alignment(tmp_path: Path, size: int, shift: int) -> None:
    mapped = mmap.mmap(-1, size + shift + 1)
    mapped.write(random.Random(size).randbytes(size + shift + 1))
    content, moved = memoryview(mapped)[shift : shift + size], list[int]()
    write_new(tmp_path / "file", content, moved.append)
    assert (tmp_path / "file").read_bytes() == content
    assert sum(moved) == size
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "file", content)


def test_a_file_system_in_memory_takes_the_same_writes() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        write_new(Path(folder, "file"), memoryview(b"x" * (4 << 20)))
        assert Path(folder, "file").stat().st_size == 4 << 20


def test_an_upload_in_the_background_gives_precedence(clock: ManualClock) -> None:
    class Watched(MemoryBackend):
        def upload_view(self, key: str, view: memoryview, moved: Moved | None = None) -> None:
            niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            super().upload_view(key, view, moved)

    own, niceness = os.getpriority(os.PRIO_PROCESS, 0), list[int]()
    owner = faulty_store(MemoryBackend(), Watched(), clock, FaultScript()).checkpoints("j", 1)
    owner.publish(1, {}, streams={"s": memoryview(b"1")}, background=True)
    owner.publish(2, {}, streams={"s": memoryview(b"2")})
    assert niceness == [max(own, 10), own]
