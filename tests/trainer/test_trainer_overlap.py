"""Checkpoints whose copies overlap the next forward and backward are exact, or do not exist."""

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_train.checkpoint.loader import Loader
from everspot_train.checkpoint.manifest import MANIFEST, CheckpointManifest
from everspot_train.checkpoint.memory import DISCARDED, SharedMemory
from everspot_train.checkpoint.saver import Saver
from torch.distributed import TCPStore
from trainer_forks import Forked
from trainer_overlap import TOTAL, UNCOUNTED, describe
from trainer_post import JOB, Post

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("trainer_overlap.py")
PLAIN = ("several", "closure", "accumulated", "scaled", "recomputed", "compiled")
"""Loops that change weights by their optimizers only."""


def read_record(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_checkpoints(post: Post) -> dict[int, dict[str, str]]:
    """Return the digests of the tensors in each checkpoint, by step."""
    digests, checkpoints = dict[int, dict[str, str]](), post.store.checkpoints(JOB)
    head = checkpoints.head()
    for checkpoint in head.checkpoints if head is not None else []:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            assert checkpoints.restore(folder, order=lambda _, own=checkpoint: [own]) == checkpoint
            manifest = CheckpointManifest.load(folder / MANIFEST)
            loader = Loader(manifest, folder)
            shared = {n: loader.read(t, lambda *_: None, copy=True) for n, t in manifest.shared.items()}
            for name, tree in manifest.ranks[0].own.items():  # a rank's statistics of batches are its own
                shared[name].update(loader.read(tree, lambda *_: None, copy=True))
        digests[checkpoint.step] = describe(shared)
    return digests


def start(root: Path, ranks: int, environment: Callable[..., dict[str, str]], **settings: object) -> list[int]:
    """Run the script on each rank to its end, and return the exit codes."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    own = [{"RANK": n, "LOCAL_RANK": n, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks} for n in range(ranks)]
    environments = [environment(root / "record", **settings, **(meeting | rank if ranks > 1 else {})) for rank in own]
    processes = [Forked(SCRIPT, environment, root / "stderr") for environment in environments]
    return [process.wait(timeout=120) for process in processes]


def check(make_post: Callable[..., Post], habit: str, ranks: int = 1) -> tuple[list[dict[str, Any]], str]:
    """Train undisturbed, and again with a checkpoint at each step and a kill. Compare all losses, and all tensors of
    all checkpoints. Return the record of the attempt that was killed, and its stderr."""
    killed, resumed = (make_post(epoch, checkpoint={"steps": 100_000, "keep": 20}) for epoch in (1, 2))
    alone = killed.root.with_name("undisturbed")
    alone.mkdir()

    def without_agent(*arguments: Any, **settings: object) -> dict[str, str]:
        environment = killed.environment(*arguments, **settings)
        return {name: value for name, value in environment.items() if name != "EVERSPOT_RUN_DIR"}

    assert set(start(alone, ranks, without_agent, HABIT=habit)) == {0}
    assert start(killed.root, ranks, killed.environment, HABIT=habit, KILL_AT=5)[0] == -9
    assert set(start(resumed.root, ranks, resumed.environment, HABIT=habit)) == {0}, read_stderr(resumed)
    first, expected = read_record(killed.root / "record.0"), read_record(alone / "record.0")
    from_step = resumed.status.resumed_from or 0
    lines = [line for line in first if line["step"] <= from_step] + read_record(resumed.root / "record.0")
    assert [(line["step"], line["loss"]) for line in lines] == [(line["step"], line["loss"]) for line in expected]
    assert all(line["digests"] == other["digests"] for line, other in zip(lines, expected, strict=True))
    checkpoints = read_checkpoints(resumed)
    assert TOTAL in checkpoints and len(checkpoints) > 2
    for step, digests in checkpoints.items():
        own = expected[step - 1]["digests"]
        assert {path: digests.get(path) for path in own} == own
    return first, read_stderr(killed)


def read_stderr(post: Post) -> str:
    return (post.root / "stderr").read_text()


@pytest.mark.parametrize("habit", PLAIN)
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


@pytest.mark.parametrize("habit", UNCOUNTED)
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
