"""Checkpoints: fallback, fence, retirement, cut-off uploads; on a folder and on S3."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.checkpoint import AFTER_LOOP, before_loop_end
from everspot_store import CheckpointCorrupt, Checkpoints, Fenced, ManualClock, Store, StoreUnavailable
from everspot_store.backend import Versioned
from everspot_store.testing import Crash, Fault, FaultScript, MemoryBackend, faulty_store


def publish(checkpoints: Checkpoints, step: int, scratch: Path, *, keep: int = 2) -> list[str]:
    files = {}
    for name in ("model", "optimizer"):
        files[name] = scratch / name
        files[name].write_text(f"{name} at {step}")
    return [part.key for part in checkpoints.publish(step, files, keep=keep).parts]


def test_a_reader_falls_back_when_a_digest_is_wrong(store: Store, tmp_path: Path) -> None:
    owner = store.checkpoints("j", 1)
    publish(owner, 10, tmp_path)
    newest = publish(owner, 20, tmp_path)
    store.data.put(newest[0], b"rotten")
    heir = store.checkpoints("j", 2)
    restored = heir.restore(tmp_path / "out")
    assert restored is not None and restored.step == 10
    assert (tmp_path / "out" / "model").read_text() == "model at 10"

    publish(heir, 15, tmp_path)
    head = heir.head()
    assert head is not None and [checkpoint.step for checkpoint in head.checkpoints] == [15, 10]


def test_a_reader_falls_back_when_a_part_is_missing(store: Store, tmp_path: Path) -> None:
    owner = store.checkpoints("j", 1)
    publish(owner, 10, tmp_path)
    store.data.delete(publish(owner, 20, tmp_path)[1])
    restored = store.checkpoints("j").restore(tmp_path / "out")
    assert restored is not None and restored.step == 10


def test_it_is_an_error_when_no_checkpoint_is_whole(store: Store, tmp_path: Path) -> None:
    owner = store.checkpoints("j", 1)
    for step in (10, 20):
        store.data.delete(publish(owner, step, tmp_path)[0])
    with pytest.raises(CheckpointCorrupt, match="step 10"):
        store.checkpoints("j", 2).restore(tmp_path / "out")


def test_only_the_newest_are_kept_and_the_rest_is_retired(store: Store, tmp_path: Path) -> None:
    owner = store.checkpoints("j", 1)
    keys = [publish(owner, step, tmp_path) for step in (10, 20, 30)]
    store.data.put("jobs/j/checkpoints/000001/000000000040/model", b"upload under way")
    store.data.put("jobs/j/checkpoints/000002/000000000010/model", b"a successor's")
    assert sorted(owner.retire()) == sorted(keys[0])
    remaining = [entry.key for entry in store.data.list("jobs/j/checkpoints/")]
    assert set(remaining) == {*keys[1], *keys[2], remaining[-1], remaining[-2]} and len(remaining) == 6
    assert owner.retire() == []


class Counting(MemoryBackend):
    """Counts the reads of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = Counter[str]()

    def get(self, key: str) -> Versioned[bytes] | None:
        self.reads[key] += 1
        return super().get(key)


def test_a_deletion_reads_the_head_once_and_ends_when_it_is_asked_to(clock: ManualClock, tmp_path: Path) -> None:
    control = Counting()
    owner = faulty_store(control, MemoryBackend(), clock, FaultScript()).checkpoints("j", 1)
    (tmp_path / "part").write_text("state")
    for step in (10, 20, 30):
        owner.publish(step, {f"part-{number:02d}": tmp_path / "part" for number in range(40)})
    before = control.reads.total()
    answers = iter([True] * 25 + [False])
    assert len(owner.retire(go_on=lambda: next(answers))) == 25
    assert len(owner.retire()) == 15
    assert control.reads.total() - before == 2


def test_objects_that_are_no_parts_stop_no_retirement(store: Store, tmp_path: Path) -> None:
    """A job may write below its own epoch, and anything."""
    owner = store.checkpoints("j", 1)
    keys = [publish(owner, step, tmp_path) for step in (10, 20, 30)]
    strays = [f"jobs/j/checkpoints/{name}" for name in ("000001/notes.txt", "000001/last/model", "stray", "x/y/z")]
    for key in strays:
        store.data.put(key, b"not a part")
    assert sorted(owner.retire()) == sorted(keys[0])
    assert {entry.key for entry in store.data.list("jobs/j/checkpoints/")} == {*keys[1], *keys[2], *strays}


@pytest.mark.parametrize("again", [False, True])
def test_a_head_whose_write_arrives_late_lists_each_step_once(clock: ManualClock, tmp_path: Path, again: bool) -> None:
    faults = FaultScript()
    store = faulty_store(MemoryBackend(), MemoryBackend(), clock, faults)
    owner = store.checkpoints("j", 1)
    (tmp_path / "part").write_text("state")
    for step in (100, 200, 300)[: 3 if again else 2]:
        owner.publish(step, {"part": tmp_path / "part"}, keep=3)
    clock.advance(timedelta(minutes=1))
    faults.on("replace", key="heads/*", fault=Fault.ARRIVES_LATER)
    for nth in range(1, 5):
        faults.on("get", key="heads/*", nth=nth, fault=Fault.NEVER_ARRIVED)
    with pytest.raises(StoreUnavailable):
        owner.publish(300, {"part": tmp_path / "part"}, keep=3, again=again)
    owner.publish(300, {"part": tmp_path / "part"}, keep=3, again=again)
    owner.retire()
    head = owner.head()
    assert head is not None
    assert [checkpoint.step for checkpoint in head.checkpoints] == ([300, 300, 200] if again else [300, 200, 100])
    assert store.checkpoints("j", 2).restore(tmp_path / "restored") == head.checkpoints[0]


def test_publishing_a_step_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    owner = store.checkpoints("j", 1)
    assert publish(owner, 10, tmp_path) == publish(owner, 10, tmp_path)
    with pytest.raises(ValueError, match="no checkpoint"):
        publish(owner, 11, tmp_path, keep=0)
    with pytest.raises(ValueError, match="behind"):
        publish(owner, 9, tmp_path)
    assert len(store.data.list("jobs/j/checkpoints/")) == 2


@pytest.mark.parametrize("keep", [1, 2])
def test_the_end_of_the_loop_stays_however_often_the_code_after_it_ends(
    store: Store, tmp_path: Path, keep: int
) -> None:
    file = tmp_path / "file"
    for epoch in (1, 2, 3):
        owner = store.checkpoints("j", epoch)
        restored = owner.restore(tmp_path / str(epoch), order=before_loop_end)
        assert restored is None if epoch == 1 else restored is not None and AFTER_LOOP not in restored.info
        if epoch == 1:
            file.write_text("loop end")
            owner.publish(100, {"model": file}, keep=keep)
        file.write_text(f"after the loop, epoch {epoch}")
        owner.publish(100, {"model": file}, {AFTER_LOOP: True}, keep, again=True)
        owner.retire()
    head = store.checkpoints("j").head()
    assert head is not None and [(c.epoch, AFTER_LOOP in c.info) for c in head.checkpoints] == [(3, True), (1, False)]
    assert (tmp_path / "3" / "model").read_text() == "loop end"


def test_a_fenced_owner_writes_and_deletes_nothing(store: Store, tmp_path: Path) -> None:
    stale = store.checkpoints("j", 1)
    publish(stale, 10, tmp_path)
    publish(stale, 20, tmp_path)
    heir = store.checkpoints("j", 2)
    heir.fence()
    publish(heir, 30, tmp_path)
    before = store.data.list("jobs/")
    head = heir.head()
    with pytest.raises(Fenced):
        stale.retire()
    with pytest.raises(Fenced):
        stale.fence()
    with pytest.raises(Fenced):
        publish(store.checkpoints("j", 1), 40, tmp_path)
    assert store.data.list("jobs/") == before
    with pytest.raises(Fenced):
        publish(stale, 40, tmp_path)  # fenced long ago: it may upload only under its own epoch
    assert heir.head() == head
    assert {entry.key for entry in before} <= {entry.key for entry in store.data.list("jobs/")}


def test_a_guard_that_says_no_stops_everything(store: Store, tmp_path: Path) -> None:
    valid = True
    owner = store.checkpoints("j", 1, guard=lambda: valid)
    for step in (10, 20, 30):
        publish(owner, step, tmp_path)
    before = store.data.list("jobs/")
    with pytest.raises(Fenced):
        owner.retire(guard=lambda: False)
    valid = False
    with pytest.raises(Fenced):
        publish(owner, 40, tmp_path)
    with pytest.raises(Fenced):
        owner.retire()
    assert store.data.list("jobs/") == before


def test_a_lease_that_ends_during_the_upload_publishes_nothing(store: Store, tmp_path: Path) -> None:
    answers = iter([True] * 4 + [False])  # fence, publish, two uploads; then the head
    owner = store.checkpoints("j", 1, guard=lambda: next(answers))
    owner.fence()
    with pytest.raises(Fenced):
        publish(owner, 10, tmp_path)
    head = owner.head()
    assert head is not None and head.checkpoints == []
    assert len(store.data.list("jobs/")) == 2


@pytest.mark.parametrize("nth", range(1, 12))
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.ANSWER_LOST, Fault.NEVER_ARRIVED])
def test_a_checkpoint_is_whole_or_not_there_wherever_publishing_stops(
    clock: ManualClock, tmp_path: Path, nth: int, fault: Fault
) -> None:
    control, data, faults = MemoryBackend(), MemoryBackend(), FaultScript()
    owner = faulty_store(control, data, clock, faults).checkpoints("j", 1)
    publish(owner, 10, tmp_path)
    faults.on(nth=nth, fault=fault)
    try:
        publish(owner, 20, tmp_path)
    except Crash:
        owner = faulty_store(control, data, clock, FaultScript()).checkpoints("j", 1)
    heir = faulty_store(control, data, clock, FaultScript()).checkpoints("j", 2)
    restored = heir.restore(tmp_path / "out")
    died = fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
    assert restored is not None and restored.step in ((10, 20) if died else (20,))
    assert (tmp_path / "out" / "model").read_text() == f"model at {restored.step}"
    publish(heir, 30, tmp_path)
    heir.retire()
    head = heir.head()
    assert head is not None
    published = {part.key for checkpoint in head.checkpoints for part in checkpoint.parts}
    assert {entry.key for entry in data.list("jobs/")} == published


def test_reading_takes_no_epoch_and_writes_nothing(store: Store, tmp_path: Path) -> None:
    reader = store.checkpoints("j")
    assert reader.restore(tmp_path / "out") is None and reader.head() is None
    with pytest.raises(ValueError, match="epoch"):
        reader.fence()
