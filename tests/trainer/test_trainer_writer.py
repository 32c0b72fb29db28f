"""The process that writes checkpoints may be killed at any moment, and ends with its trainer."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
import trainer_loop
from everspot_core.jobs.records import EventKind, Reason
from everspot_train.checkpoint.manifest import stream_name
from everspot_train.checkpoint.memory import SharedMemory
from everspot_train.checkpoint.saver import Saver
from everspot_train.rundir import CheckpointRequest, RunContext, StopRequest
from everspot_train.trainer.state import TrainState
from torch import nn
from trainer_loop import Settings
from trainer_post import JOB, Post, read_losses, wait_for

pytestmark = pytest.mark.torch


def writers(trainer: int) -> list[psutil.Process]:
    """The living writers of a training process."""
    alive = []
    for child in psutil.Process(trainer).children():
        try:
            if "everspot_train.writer" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                alive.append(child)
        except psutil.NoSuchProcess:
            continue
    return alive


def test_a_writer_that_is_killed_again_and_again_costs_no_step(
    post: Callable[..., Post], undisturbed: Path, tmp_path: Path
) -> None:
    first, dice = post(1), random.Random(7)
    process = first.start(tmp_path / "first", PAUSE=0.1)
    wait_for(lambda: first.status.step >= 1, first)
    killed = set[int]()
    for request in range(1, 9):
        first.rundir.write(CheckpointRequest(seq=request))
        time.sleep(dice.uniform(0, 0.3))
        for writer in writers(process.pid):
            writer.kill()
            killed.add(writer.pid)
    while len(killed) < 2:  # on a slow machine a writer has started too late for most of the requests
        wait_for(lambda: writers(process.pid), first)
        for writer in writers(process.pid):
            writer.kill()
            killed.add(writer.pid)
    assert process.wait(timeout=120) == 0
    assert (first.status.phase, first.status.durable_step, first.steps_published[0]) == ("finished", 40, 40)
    assert read_losses(tmp_path / "first.0") == read_losses(Path(f"{undisturbed}.0"))
    second = post(2)
    second.run(tmp_path / "second")  # what was published can be read
    assert second.status.resumed_from == 40


def test_a_writer_ends_with_a_trainer_that_is_killed(post: Callable[..., Post], tmp_path: Path) -> None:
    first = post(1)
    process = first.start(tmp_path / "first", PAUSE=0.3)
    wait_for(lambda: first.status.step >= 1, first)
    [writer] = writers(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    wait_for(lambda: not writer.is_running() or writer.status() == psutil.STATUS_ZOMBIE, first)


def test_a_users_file_with_the_name_of_a_library_does_not_reach_the_writer(
    post: Callable[..., Post], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = post(1)
    for name in ("xxhash", "mmap", "queue", "obstore"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is a module of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(first.root))
    trainer_loop.train(Settings(losses=tmp_path / "losses", total=3))
    assert first.steps_published == [3]


def test_where_there_is_no_memory_a_checkpoint_waits_on_disk(
    post: Callable[..., Post], undisturbed: Path, tmp_path: Path
) -> None:
    first = post(1)
    context = first.rundir.read(RunContext)
    assert context is not None
    nowhere = tmp_path / "a file, and no folder"
    nowhere.touch()
    first.rundir.write(context.model_copy(update={"memory_dir": str(nowhere)}))
    first.run(tmp_path / "first", STOP_AT=17)
    assert first.status.durable_step == 17
    assert "a file is used" in (first.root / "stderr").read_text()
    second = post(2)
    second.run(tmp_path / "second")
    parts = [tmp_path / "first.0", tmp_path / "second.0"]
    assert read_losses(*parts) == read_losses(Path(f"{undisturbed}.0"))


def test_an_attempt_on_the_same_machine_reads_the_memory_of_the_one_before(
    post: Callable[..., Post], undisturbed: Path, tmp_path: Path
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    first = post(1, machine={"memory_dir": str(memory)})
    process = first.start(tmp_path / "first", CHECKPOINT_AT=9, PAUSE=0.1)
    wait_for(lambda: first.status.durable_step == 9, first)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=120)
    [checkpoint] = first.store.checkpoints(JOB).head().checkpoints
    stream = [part for part in checkpoint.parts if part.stream]
    for part in stream:
        first.store.data.delete(part.key)

    second = post(2, machine={"memory_dir": str(memory)})
    second.run(tmp_path / "second")
    assert second.status.resumed_from == 9
    training = [e for e in second.store.events(JOB) if e.kind is EventKind.TRAINING and e.epoch == 2]
    assert [event.data["local_bytes"] for event in training] == [sum(part.size for part in stream)]
    last = {line.split()[0]: line for line in read_losses(tmp_path / "first.0", tmp_path / "second.0")}
    assert list(last.values()) == read_losses(Path(f"{undisturbed}.0"))
    assert list(memory.iterdir()) == []


def remove(memory: Path) -> None:
    memory.unlink()


def cut_off(memory: Path) -> None:
    os.truncate(memory, 0)


def replace(memory: Path) -> None:
    remove(memory)
    memory.write_bytes(b"something else")


@pytest.mark.parametrize("change", [remove, cut_off, replace])
def test_memory_that_was_removed_or_changed_costs_no_later_checkpoint(
    change: Callable[[Path], None], post: Callable[..., Post], undisturbed: Path, tmp_path: Path
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    first = post(1, machine={"memory_dir": str(memory)})
    process = first.start(tmp_path / "first", CHECKPOINT_AT=3, PAUSE=0.1)
    wait_for(lambda: first.status.durable_step is not None, first)
    change(memory / "memory-00000")
    first.rundir.write(StopRequest(reason=Reason.NOTICE))
    assert process.wait(timeout=120) == 0
    assert first.status.durable_step == first.status.step > 3
    second = post(2, machine={"memory_dir": str(memory)})
    second.run(tmp_path / "second")
    assert read_losses(tmp_path / "first.0", tmp_path / "second.0") == read_losses(Path(f"{undisturbed}.0"))


def test_the_memory_of_ranks_that_are_no_more_is_removed(post: Callable[..., Post], tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    for name in ("memory-00000", "memory-00003", "memory-of-somebody"):
        (memory / name).write_bytes(b"left over")
    post(1, machine={"memory_dir": str(memory)}).run(tmp_path / "first", STOP_AT=2)
    assert sorted(path.name for path in memory.glob("memory-*")) == ["memory-00000", "memory-of-somebody"]


def test_a_large_tensor_is_counted_while_it_is_copied(tmp_path: Path) -> None:
    counts = list[int]()

    class Counted(SharedMemory):
        def count(self, size: int) -> None:
            counts.append(size)
            super().count(size)

    tensor = torch.arange(40 << 20, dtype=torch.int32).view(-1, 1024)
    memory = Counted([tmp_path], "memory")
    saver = Saver(memory)
    sizes = saver.plan({"before": torch.ones(3), "large": tensor}).sizes
    saver.copy()
    assert counts == sorted(counts) and counts[-1] == sizes[0] and len(counts) > 3
    assert torch.equal(memory.reserve(0)[64 : 64 + tensor.nbytes].view(torch.int32), tensor.flatten())


def test_a_state_without_room_is_an_error_on_every_rank_and_can_be_saved_later(tmp_path: Path) -> None:
    state = TrainState()
    state.shared["model"] = nn.Linear(2, 2)
    with pytest.raises(OSError, match="/proc/stream"):
        state.save(tmp_path, 1, 0, Saver(SharedMemory([Path("/proc")], stream_name(0))))

    def gather(value: object) -> list[object]:
        return [value, "No space left on device"] if isinstance(value, str) else [value]

    with pytest.raises(OSError, match="rank 1: No space left on device"):
        state.save(tmp_path, 1, 0, Saver(SharedMemory([tmp_path], stream_name(0))), gather)
    state.save(tmp_path, 1, 0, Saver(SharedMemory([tmp_path], stream_name(0))))
    assert state.load(tmp_path, 0) == (1, True)


def test_memory_is_reserved_once_and_grows_with_the_state(tmp_path: Path) -> None:
    memory = SharedMemory([tmp_path], "memory")
    first = memory.reserve(1000)
    assert memory.reserve(900).data_ptr() == first.data_ptr()
    first[:3] = torch.tensor([1, 2, 3], dtype=torch.uint8)
    assert memory.path.read_bytes()[:3] == b"\1\2\3"
    larger = memory.reserve(1_000_000)
    larger[999_999] = 7
    assert memory.path.stat().st_size >= 1_000_000
    memory.close()
    assert not memory.path.exists()
