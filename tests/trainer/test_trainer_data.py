"""The data order is a function of seed and epoch, and the position counts the batches that the loop received."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from everspot_train.trainer import BatchOrder, Run, TensorLoader, resumable_loader
from everspot_train.trainer.feeds import as_feed
from torch import nn

pytestmark = pytest.mark.torch


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        return index


def epoch(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in as_feed(loader).open_epoch()]


def test_epochs_differ_and_seeds_differ_and_the_same_ones_do_not() -> None:
    loader = resumable_loader(Numbers(), 8, seed=1)
    first, second = epoch(loader), epoch(loader)
    assert first != second
    assert epoch(resumable_loader(Numbers(), 8, seed=1)) == first
    assert epoch(resumable_loader(Numbers(), 8, seed=2)) != first
    assert sorted(index for batch in first for index in batch) == list(range(40))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on a machine of one core
@pytest.mark.parametrize("workers", [0, 2])
def test_the_position_is_what_was_handed_out_and_not_what_was_read_ahead(workers: int) -> None:
    whole = epoch(resumable_loader(Numbers(), 8, seed=1))
    loader = resumable_loader(Numbers(), 8, seed=1, num_workers=workers)
    feed = as_feed(loader)
    batches = feed.open_epoch()
    assert [next(batches).tolist() for _ in range(2)] == whole[:2]
    state = feed.state_dict()
    other = resumable_loader(Numbers(), 8, seed=1, num_workers=workers)
    resumed = as_feed(other)
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed.open_epoch()] == whole[2:]


def test_iterating_a_loader_draws_nothing_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    epoch(resumable_loader(Numbers(), 8))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_last_small_batch_is_kept_where_that_is_wished() -> None:
    order = BatchOrder(10, 4, shuffle=False, drop_last=False)
    assert list(order) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(order) == 3


def test_tensors_are_batched_in_the_same_order_as_a_data_set() -> None:
    loader = TensorLoader((torch.arange(40),), BatchOrder(40, 8, seed=1))
    assert [batch.tolist() for (batch,) in as_feed(loader).open_epoch()] == epoch(
        resumable_loader(Numbers(), 8, seed=1)
    )
    assert len(loader) == 5


def test_a_position_in_another_order_is_refused() -> None:
    with pytest.raises(ValueError, match="seed was 1 and is 2"):
        BatchOrder(10, 2, seed=2).load_state_dict(BatchOrder(10, 2, seed=1).state_dict())
    with pytest.raises(ValueError, match="length was 12 and is 10"):
        BatchOrder(10, 2).load_state_dict(BatchOrder(12, 2).state_dict())


def test_a_loader_without_a_position_is_refused_with_a_way_out() -> None:
    class Lines(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(9))

    loaders = [torch.utils.data.DataLoader(Lines(), batch_size=8), zip([1], [2], strict=True), [1, 2]]
    for loader in loaders:
        with pytest.raises(TypeError, match="resumable_loader"):
            as_feed(loader)


class Counter:
    """A loader that keeps its own position, as torchdata's does."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.at < 3:
            self.at += 1
            yield torch.full((2, 3), float(self.at))
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_a_loader_with_a_state_of_its_own_is_taken_as_it_is() -> None:
    with Run.open(precision="fp32") as run:
        model = nn.Linear(3, 1)
        run.track(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loader=Counter())
        first_values = []
        for batch in run.batches(5):
            first_values.append(batch[0, 0].item())
            run.step(model(batch).sum())
    assert first_values == [1, 2, 3, 1, 2]


def test_accumulated_batches_give_the_gradient_of_one_large_batch() -> None:
    x, y = torch.from_numpy(np.random.default_rng(0).normal(size=(16, 3))).float(), torch.zeros(16, 1)
    weights = []
    for size, accumulation in ((16, 1), (4, 4)):
        with Run.open(precision="fp32", seed=0, accumulation=accumulation, clip_norm=0.5) as run:
            model = nn.Linear(3, 1)
            loader = TensorLoader((x, y), BatchOrder(16, size))
            run.track(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loader=loader)
            for a, b in run.batches(10):
                run.step(nn.functional.mse_loss(model(a), b))
            weights.append(model.weight.detach().clone())
    assert torch.allclose(*weights, atol=1e-6)


def read_steps(orders: list[BatchOrder], count: int, accumulation: int) -> list[list[int]]:
    """Return the samples of so many steps of all ranks."""

    def read() -> Iterator[list[int]]:
        while True:
            for batches in zip(*orders, strict=True):
                for order in orders:
                    order.advance()
                yield [sample for batch in batches for sample in batch]
            for order in orders:
                order.next_epoch()

    batches = read()
    return [sorted(sample for _ in range(accumulation) for sample in next(batches)) for _ in range(count)]


@pytest.mark.parametrize(("ranks", "batch_size"), [(1, 8), (2, 8), (2, 16), (1, 32)])
def test_steps_have_the_same_samples_on_another_number_of_ranks(ranks: int, batch_size: int) -> None:
    def make(ranks: int, batch_size: int) -> list[BatchOrder]:
        return [BatchOrder(110, batch_size, seed=1, rank=rank, world_size=ranks) for rank in range(ranks)]

    before, undisturbed, now, again = make(4, 8), make(4, 8), make(ranks, batch_size), make(4, 8)
    samples = read_steps(before, 2, 1)
    for order in now:
        order.load_state_dict(before[0].state_dict())
    samples += read_steps(now, 6, 32 // (ranks * batch_size))
    for order in again:
        order.load_state_dict(now[0].state_dict())
    samples += read_steps(again, 4, 1)
    assert samples == read_steps(undisturbed, 12, 1)


def test_batches_that_do_not_divide_the_epoch_of_a_checkpoint_are_named(caplog: pytest.LogCaptureFixture) -> None:
    before, now, after = BatchOrder(110, 8), BatchOrder(110, 32), BatchOrder(110, 8)
    now.load_state_dict(before.state_dict())
    assert len(now) == 3
    assert "an epoch had 104 samples, which batches of 32 on 1 ranks do not divide" in caplog.text
    after.load_state_dict(now.state_dict())
    assert len(after) == 13


def test_an_epoch_of_a_large_data_set_is_not_listed_before_its_first_batch() -> None:
    """A list of the indices as Python's numbers takes several times the memory of the order itself."""
    order, same = (BatchOrder(1_000_000, 1000, seed=1) for _ in range(2))
    tracemalloc.start()
    try:
        batches = iter(order)
        first = next(batches)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 8 * order.length
    order.next_epoch()  # the open epoch goes on in its own order
    assert [first, *batches] == list(same)
