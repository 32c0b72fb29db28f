"""Checkpoints whose copies overlap the next forward and backward are exact, or do not exist."""

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from everspot_train.checkpoint.memory import DISCARDED, SharedMemory
from everspot_train.checkpoint.saver import Saver
from everspot_train.trainer.agent_link import memory_file
from trainer_overlap import GROWS_AT, PLAIN, UNCOUNTED
from trainer_overlap_runs import SCRIPT, check, compare, train_alone
from trainer_post import Post

pytestmark = pytest.mark.torch


NIGHTLY = {"compiled_step", "merge", "decay_by_numpy"}
"""Habits like another one: `compiled` compiles, too; all of UNCOUNTED are found by one comparison of sums."""


def habits(names: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.nightly if name in NIGHTLY else ()) for name in names]


@pytest.mark.parametrize("habit", habits(PLAIN))
def test_copies_beside_the_next_step_are_exact(habit: str, post: Callable[..., Post]) -> None:
    record, messages = check(post, habit)
    assert any(line["overlaps"] for line in record)
    assert "is discarded" not in messages


def test_a_weight_that_changes_before_the_step_ends_the_overlap_and_leaves_no_checkpoint(
    post: Callable[..., Post],
) -> None:
    record, messages = check(post, "clamp")
    overlaps = [line["overlaps"] for line in record]
    assert sum(overlaps) == 1, overlaps
    assert messages.count("is discarded") == 1 and "was changed before the optimizer stepped" in messages


@pytest.mark.parametrize("habit", habits(UNCOUNTED))
def test_a_change_that_torch_does_not_count_is_in_no_checkpoint(habit: str, post: Callable[..., Post]) -> None:
    """It comes before a copy, which is discarded then, or after it."""
    _, messages = check(post, habit)
    assert messages.count("is discarded") <= 1


@pytest.mark.parametrize("counted", [True, False])
def test_a_change_between_the_checkpoint_and_the_copy_is_detected(tmp_path: Path, *, counted: bool) -> None:
    changed = threading.Event()

    class Late(SharedMemory):
        """Memory that takes the second tensor after its change."""

        def count(self, size: int) -> None:
            super().count(size)
            if threading.current_thread() is not threading.main_thread():
                changed.wait(60)

    first, second = torch.ones(16 << 20), torch.tensor([1.0, 2.0, 3.0, 4.0])
    memory = Late([tmp_path], "memory")
    saver = Saver(memory)
    [size] = saver.plan({"first": first, "second": second}).sizes
    saver.copy({"first", "second"})
    if counted:  # with the same sum
        second.copy_(torch.tensor([3.0, 4.0, 1.0, 2.0]))
    else:
        second.data.fill_(7)
    changed.set()
    assert saver.is_copying
    assert saver.finish(lambda stall: None) == "second"
    assert not saver.is_copying
    counter = memory.path.read_bytes()[memory.counter_at :][:8]
    assert int.from_bytes(counter, sys.byteorder, signed=True) == DISCARDED
    saver.plan({"first": first, "second": second})
    saver.copy({"first", "second"})
    assert saver.finish(lambda stall: None) is None
    counter = memory.path.read_bytes()[memory.counter_at :][:8]
    assert int.from_bytes(counter, sys.byteorder, signed=True) == size
    assert memory.reserve(0)[first.nbytes :][:16].view(torch.float32).tolist() == second.tolist()


@pytest.mark.parametrize("habit", ["decay", "unhooked"])
def test_other_ways_to_change_weights_are_exact_too(habit: str, post: Callable[..., Post]) -> None:
    """A weight may be replaced while its memory is copied. An optimizer without hooks has nothing copied beside it."""
    record, messages = check(post, habit)
    assert any(line["overlaps"] for line in record) == (habit == "decay")
    assert "is discarded" not in messages


@pytest.mark.parametrize("habit", ["adamw", "fsdp2"])
def test_each_rank_copies_its_part_beside_the_next_step(habit: str, post: Callable[..., Post]) -> None:
    record, messages = check(post, habit, ranks=2)
    assert any(line["overlaps"] for line in record)
    assert "is discarded" not in messages


def test_a_model_may_grow_while_its_checkpoint_is_copied(post: Callable[..., Post], tmp_path: Path) -> None:
    """The next checkpoint needs more memory than is reserved, and mapped by the writer."""
    record, messages = check(post, "grows", machine={"memory_dir": str(tmp_path)})
    assert any(line["overlaps"] for line in record if line["step"] > GROWS_AT)
    assert "is discarded" not in messages
    assert [len(line["digests"]) for line in record] == sorted(len(line["digests"]) for line in record)
    assert len(record[0]["digests"]) < len(record[-1]["digests"])


def test_a_writer_that_is_killed_during_the_copies_costs_one_checkpoint(post: Callable[..., Post]) -> None:
    record, messages = check(post, "several", KILL_WRITER_AT=2)
    assert messages.count("could not be published") == 1 and "status -9" in messages
    assert any(line["overlaps"] for line in record)


def test_one_rank_whose_memory_is_full_has_its_shards_on_disk(post: Callable[..., Post], tmp_path: Path) -> None:
    (tmp_path / memory_file(1)).symlink_to("/dev/full")
    record, messages = check(post, "fsdp2", ranks=2, machine={"memory_dir": str(tmp_path)})
    assert messages.count("a file is used") == 1
    assert any(line["overlaps"] for line in record)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_random_kills_of_trainer_and_writer_during_copies_leave_exact_checkpoints(
    seed: int, post: Callable[..., Post]
) -> None:
    dice, kills = random.Random(seed), Counter[str]()
    settings = {"HABIT": "clamp_data" if seed % 2 else "several", "TOTAL": 40}
    posts = [post(1, checkpoint={"steps": 100_000, "keep": 50})]
    expected = train_alone(posts[0].root.with_name("undisturbed"), 1, posts[0].environment, **settings)
    while strike(posts[-1], dice, kills, settings) != 0:
        posts.append(post(len(posts) + 1, checkpoint={"steps": 100_000, "keep": 50}))
    assert kills.total() >= 3, "the run was too short"
    compare(expected, posts)


def strike(attempt: Post, dice: random.Random, kills: Counter[str], settings: dict[str, object]) -> int:
    """Train, and kill the trainer or its writers at random moments. Return the trainer's exit code."""
    process = attempt.start(attempt.root / "record", SCRIPT, **settings)
    while kills.total() < 8 and Path(f"/proc/{process.pid}").exists():
        time.sleep(dice.uniform(0, 4))
        victim = dice.choice(("trainer", "writer", "writer"))
        for pid in [process.pid] if victim == "trainer" else find_writers(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills[victim] += 1
    return process.wait(timeout=300)


def find_writers(trainer: int) -> list[int]:
    """Return the writers of a training process, none if it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(trainer).children()
        return [child.pid for child in children if "everspot_train.writer" in child.cmdline()]
    return []
