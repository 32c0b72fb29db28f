"""Models that are sharded between ranks (FSDP2): they resume exactly, also on another number of ranks."""

import shutil
from pathlib import Path

import pytest
import torch
from everspot_train.checkpoint.manifest import MANIFEST, CheckpointManifest
from trainer_post import Post

pytestmark = pytest.mark.torch

SCRIPT = Path(__file__).with_name("trainer_sharded.py")
STOP = 17
NIGHTLY = pytest.mark.nightly
RESUMES = [
    pytest.param(1, 2, marks=NIGHTLY), (2, 1), (2, 2), (2, 3), pytest.param(4, 2, marks=NIGHTLY),
    pytest.param(4, 3, marks=NIGHTLY),
]  # fmt: skip
"""Numbers of ranks before and after an interruption."""


def run(root: Path, store: Path, ranks: int, epoch: int = 1, **settings: object) -> Post:
    post = Post(root=root, store_root=store, epoch=epoch)
    post.run_ranks(root / "record", ranks, script=SCRIPT, **settings)
    return post


def read_record(post: Post, rank: int = 0) -> list[tuple[int, float, list[int]]]:
    """Return step, loss and samples of each step of a rank."""
    lines = [line.split() for line in (post.root / f"record.{rank}").read_text().splitlines()]
    return [(int(step), float.fromhex(loss), [int(n) for n in samples.split(",")]) for step, loss, samples in lines]


def weights(post: Post) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(post.root / "record.weights")
    return loaded


def averages(post: Post, rank: int) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(post.root / f"record.average.{rank}")
    return loaded


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Post:
    """A run on two ranks that nothing happened to."""
    root = tmp_path_factory.mktemp("undisturbed")
    return run(root / "run", root / "store", 2)


@pytest.fixture(scope="module")
def interrupted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Post]:
    """A run on one, two or four ranks that was interrupted by a notice."""
    root = tmp_path_factory.mktemp("interrupted")
    post = run(root / "run", root / "store", request.param, STOP_AT=STOP)
    assert (post.status.phase, post.status.step, post.status.durable_step) == ("stopped", STOP, STOP)
    return request.param, post


@pytest.mark.parametrize(("interrupted", "after"), RESUMES, indirect=["interrupted"])
def test_a_sharded_model_resumes_exactly_and_on_another_number_of_ranks_within_rounding(
    interrupted: tuple[int, Post], after: int, undisturbed: Post, tmp_path: Path
) -> None:
    before, first = interrupted
    shutil.copytree(first.store_root, tmp_path / "store")
    second = run(tmp_path / "second", tmp_path / "store", after, epoch=2)
    assert (second.status.phase, second.status.resumed_from, second.status.step) == ("finished", STOP, 30)
    whole, resumed = read_record(undisturbed), read_record(first) + read_record(second)
    assert [step for step, _, _ in resumed] == [step for step, _, _ in whole]
    samples = [
        sorted(n for ranks, post in ((before, first), (after, second)) for rank in range(ranks)
               for s, _, numbers in read_record(post, rank) if s == step for n in numbers)
        for step in range(1, 31)
    ]  # fmt: skip
    assert samples == [
        sorted(read_record(undisturbed, 0)[step][2] + read_record(undisturbed, 1)[step][2]) for step in range(30)
    ]
    if before == after == 2:
        assert [loss for _, loss, _ in resumed] == [loss for _, loss, _ in whole]
        assert all(torch.equal(value, weights(second)[name]) for name, value in weights(undisturbed).items())
        for rank in range(2):
            expected, resumed_averages = averages(undisturbed, rank), averages(second, rank)
            assert all(torch.equal(value, resumed_averages[name]) for name, value in expected.items())
        assert averages(second, 1)["of_rank"] == 2.0**30
    else:
        torch.testing.assert_close(*(torch.tensor([loss for _, loss, _ in lines]) for lines in (resumed, whole)))
        torch.testing.assert_close(weights(second), weights(undisturbed))


def test_each_rank_uploads_its_shards_and_no_shard_twice(tmp_path: Path) -> None:
    first = run(tmp_path / "first", tmp_path / "store", 2, STOP_AT=STOP)
    manifest = first.store.checkpoints("digits-1").restore(tmp_path / "restored")
    assert manifest is not None
    tensors = CheckpointManifest.load(tmp_path / "restored" / MANIFEST).tensors
    sharded = {path: entry for path, entry in tensors.items() if entry.placements}
    assert sharded.keys() >= {"model/3.weight", "optimizer/state/4/exp_avg"}
    assert all({chunk.stream for chunk in entry.chunks} == {0, 1} for entry in sharded.values())
    frozen = sharded["model/0.weight"]
    assert {chunk.at for chunk in frozen.chunks} == {0}  # first, so that its segments are not uploaded again
    whole = {path: entry for path, entry in tensors.items() if path.startswith("model/") and path not in sharded}
    assert whole.keys() >= {"model/2.running_mean"}
    assert all(len(entry.chunks) == 1 for entry in whole.values())  # not once by each rank
