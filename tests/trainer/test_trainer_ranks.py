"""Several ranks on one machine: one model, with separate random numbers and a share of the data for each rank."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from everspot_train.trainer import BatchOrder
from trainer_post import Post, read_losses

pytestmark = pytest.mark.torch


def test_two_ranks_take_up_a_checkpoint_of_one_and_resume_bit_identically(stopped: Path, tmp_path: Path) -> None:
    for name in ("other", "store"):
        shutil.copytree(stopped / "store", tmp_path / name)
    whole = Post(root=tmp_path / "whole", store_root=tmp_path / "other", epoch=2)
    whole.run_ranks(tmp_path / "whole-losses", 2)
    assert (whole.status.phase, whole.status.resumed_from, whole.status.step) == ("finished", 17, 40)
    log = (whole.root / "stderr").read_text()
    assert "world_size was 1 and is 2 now" in log
    assert not (whole.root / "scratch" / "restored").exists()
    assert "accumulation is" not in log  # the loop halves its batch by itself
    assert "rank 1 took no part in the checkpoint" in log

    first, second = (Post(root=tmp_path / str(n), store_root=tmp_path / "store", epoch=n) for n in (2, 3))
    first.run_ranks(tmp_path / "first", 2, STOP_AT=27)
    assert (first.status.phase, first.status.durable_step) == ("stopped", 27)
    second.run_as_users_do(tmp_path / "second", ranks=2)
    assert (second.status.resumed_from, second.status.step) == (27, 40)
    for rank in (0, 1):
        parts = [tmp_path / f"{name}.{rank}" for name in ("first", "second")]
        assert read_losses(*parts) == read_losses(tmp_path / f"whole-losses.{rank}")
    assert read_losses(tmp_path / "first.0") != read_losses(tmp_path / "first.1")
    weights, other = (torch.load(tmp_path / f"{name}.weights") for name in ("second", "whole-losses"))
    assert all(torch.equal(weights[name], other[name]) for name in weights)


def test_ranks_wait_for_the_first_one_longer_than_the_timeout_of_torch(
    post: Callable[..., Post], tmp_path: Path
) -> None:
    post(1).run_ranks(tmp_path / "losses", 2, script=Path(__file__).with_name("trainer_waiting.py"))


def test_ranks_with_uneven_loaders_and_caches_end_together_and_resume(
    post: Callable[..., Post], tmp_path: Path
) -> None:
    for epoch, caches in enumerate([(None, None), (4, 5)], 1):
        run = post(epoch)
        run.run_ranks(tmp_path / "record", len(caches), script=Path(__file__).with_name("trainer_uneven.py"))
        assert (run.status.phase, run.status.step, run.status.durable_step) == ("finished", 11, 11)
        for rank, cache in enumerate(caches):
            assert (tmp_path / f"record.{rank}").read_text() == f"11 {cache}"
        if epoch == 1:
            assert "the loaders of the ranks make 11, 10 steps" in (run.root / "stderr").read_text()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_an_epoch_without_overlap(ranks: int) -> None:
    orders = [BatchOrder(50, 4, seed=1, rank=rank, world_size=ranks) for rank in range(ranks)]
    batches = [list(order) for order in orders]
    assert {len(rank_batches) for rank_batches in batches} == {len(orders[0])} == {50 // (4 * ranks)}
    indices = [index for rank_batches in batches for batch in rank_batches for index in batch]
    assert len(indices) == len(set(indices)) == len(orders[0]) * 4 * ranks


def test_a_position_left_by_other_ranks_goes_on_behind_what_they_consumed() -> None:
    single_rank = BatchOrder(50, 4, seed=1, rank=0, world_size=1)
    for _ in range(3):
        single_rank.advance()
    two = [BatchOrder(50, 4, seed=1, rank=rank, world_size=2) for rank in (0, 1)]
    for order in two:
        order.load_state_dict(single_rank.state_dict())
    whole = [index for batch in BatchOrder(50, 4, seed=1, rank=0, world_size=1) for index in batch]
    remaining_indices = [index for pair in zip(*two, strict=True) for batch in pair for index in batch]
    assert remaining_indices == whole[12 : 12 + len(remaining_indices)]
    assert len(remaining_indices) == 32


def test_ranks_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="drop_last"):
        BatchOrder(50, 4, rank=0, world_size=2, drop_last=False)
    with pytest.raises(ValueError, match="no batch"):
        BatchOrder(7, 4, rank=0, world_size=2)
