"""Models that are sharded in the ways of torchtitan's recipes resume exactly, on fewer ranks within rounding."""

from pathlib import Path

import pytest
import torch
from trainer_parallel import TOTAL
from trainer_parallel import __file__ as PARALLEL
from trainer_post import Post, read_losses

pytestmark = pytest.mark.torch

STOP = 5
NIGHTLY = pytest.mark.nightly


def run(root: Path, store: Path, ranks: int, epoch: int = 1, **settings: object) -> Post:
    post = Post(root=root, store_root=store, epoch=epoch)
    post.run_ranks(root / "record", ranks, script=Path(PARALLEL), **settings)
    return post


def weights(post: Post) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(post.root / "record.weights")
    return loaded


@pytest.mark.parametrize(
    ("plan", "before", "after"),
    [
        ("mixed", 2, 2),
        pytest.param("mixed", 3, 2, marks=NIGHTLY),
        pytest.param("hybrid", 4, 4, marks=NIGHTLY),
        pytest.param("tensor", 4, 4, marks=NIGHTLY),
    ],
)
def test_a_model_of_torchtitans_kind_goes_on_as_if_undisturbed(
    plan: str, before: int, after: int, tmp_path: Path
) -> None:
    whole = run(tmp_path / "whole", tmp_path / "other", after, PLAN=plan)
    first = run(tmp_path / "first", tmp_path / "store", before, PLAN=plan, STOP_AT=STOP)
    second = run(tmp_path / "second", tmp_path / "store", after, epoch=2, PLAN=plan)
    assert (first.status.durable_step, second.status.resumed_from) == (STOP, STOP)
    for rank in range(min(before, after)):
        record = f"record.{rank}"
        expected = read_losses(whole.root / record)
        resumed = read_losses(first.root / record, second.root / record)
        if before == after:
            assert resumed == expected
        else:
            assert [line.split()[0] for line in resumed] == [f"{step}" for step in range(1, TOTAL + 1)]
            losses = [torch.tensor([float.fromhex(line.split()[1]) for line in lines]) for lines in (resumed, expected)]
            torch.testing.assert_close(*losses, atol=2e-2, rtol=1e-2)  # of bf16
    if before == after:
        assert all(torch.equal(value, weights(second)[name]) for name, value in weights(whole).items())
