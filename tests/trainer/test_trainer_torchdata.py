"""torchdata's loader in real processes: killed, stopped, on one rank and on two."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from trainer_post import Post, read_losses, wait_for

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("trainer_torchdata.py")


def same_weights(path: Path, other: Path) -> bool:
    first, second = torch.load(f"{path}.weights"), torch.load(f"{other}.weights")
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_goes_on_bit_by_bit(workers: int, post: Callable[..., Post], tmp_path: Path) -> None:
    whole = Post(root=tmp_path / "whole", store_root=tmp_path / "other")
    whole.run_ranks(tmp_path / "whole-losses", 1, script=SCRIPT, WORKERS=workers)
    first = post(1)
    process = first.start(tmp_path / "first", SCRIPT, CHECKPOINT_AT=5, PAUSE=0.2, WORKERS=workers)
    wait_for(lambda: first.status.durable_step == 5 and first.status.step >= 7, first)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    second = post(2)
    second.run_ranks(tmp_path / "second", 1, script=SCRIPT, STOP_AT=15, WORKERS=workers)
    assert (second.status.resumed_from, second.status.durable_step) == (5, 15)
    third = post(3)
    third.run_ranks(tmp_path / "third", 1, script=SCRIPT, WORKERS=workers)
    losses = read_losses(tmp_path / "whole-losses.0")
    assert read_losses(tmp_path / "first.0")[:5] == losses[:5]
    assert read_losses(tmp_path / "second.0", tmp_path / "third.0") == losses[5:]
    assert same_weights(tmp_path / "third", tmp_path / "whole-losses")


def test_two_ranks_with_a_distributed_sampler_go_on_bit_by_bit(post: Callable[..., Post], tmp_path: Path) -> None:
    whole = Post(root=tmp_path / "whole", store_root=tmp_path / "other")
    whole.run_ranks(tmp_path / "whole-losses", 2, script=SCRIPT)
    first, second = post(1), post(2)
    first.run_ranks(tmp_path / "first", 2, script=SCRIPT, STOP_AT=9)
    second.run_ranks(tmp_path / "second", 2, script=SCRIPT)
    assert second.status.resumed_from == 9
    for rank in (0, 1):
        parts = [tmp_path / f"{name}.{rank}" for name in ("first", "second")]
        assert read_losses(*parts) == read_losses(tmp_path / f"whole-losses.{rank}")
    assert read_losses(tmp_path / "first.0") != read_losses(tmp_path / "first.1")
    assert same_weights(tmp_path / "second", tmp_path / "whole-losses")
