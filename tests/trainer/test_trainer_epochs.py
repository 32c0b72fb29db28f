"""Loops over epochs: the number of steps, the current epoch, and a resume within an epoch."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_core.jobs.records import Reason
from everspot_train.rundir import RunDir, StopRequest
from everspot_train.trainer import BatchOrder, Run, RunStopped, TensorLoader
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from trainer_post import Post

pytestmark = pytest.mark.torch

SAMPLES = 50
X = torch.linspace(-1, 1, SAMPLES).unsqueeze(1)


def ordered(batch_size: int = 8) -> Any:
    return TensorLoader((X,), BatchOrder(SAMPLES, batch_size, seed=3))


def sampled() -> Any:
    return DataLoader(TensorDataset(X), batch_size=8, shuffle=True, drop_last=True)


class Counting:
    """A loader that keeps its position itself."""

    def __init__(self) -> None:
        self.position = 0

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
        while self.position < 6:
            self.position += 1
            yield (X[self.position :: 7],)
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def train(
    loader: Any, epochs: float, accumulation: int = 4, stop_at: int | None = None
) -> list[tuple[int, int, str, str]]:
    """Train, and return the step, the epoch, the loss and the batch at each loss."""
    torch.set_num_threads(1)
    trace = []
    with Run.open(seed=1, precision="fp32", accumulation=accumulation) as run:
        model = run.prepare(nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.2), nn.Linear(4, 1)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=loader)
        for (x,) in run.batches(epochs=epochs):
            loss = model(x).square().mean()
            epoch, done = run.epoch, run.step(loss)
            trace.append((run.steps_done, epoch, loss.item().hex(), str(x.flatten().tolist())))
            if done and run.steps_done == stop_at:
                rundir = RunDir.from_environment()
                assert rundir is not None
                rundir.write(StopRequest(reason=Reason.NOTICE))
    return trace


@pytest.mark.parametrize(
    ("epochs", "accumulation", "steps", "last_epoch"),
    [(2, 1, 12, 1), (3, 4, 4, 2), (0.5, 1, 3, 0), (1.5, 1, 9, 1), (0.01, 1, 1, 0), (1, 100, 1, 16)],
)
def test_epochs_are_the_loader_s_length_divided_by_the_accumulation(
    epochs: float, accumulation: int, steps: int, last_epoch: int
) -> None:
    trace = train(ordered(), epochs, accumulation)
    assert (trace[-1][0], trace[-1][1]) == (steps, last_epoch)
    assert [epoch for _, epoch, _, _ in trace] == [number // 6 for number in range(len(trace))]


def test_a_tenth_of_an_epoch_is_not_a_batch_less_by_rounding() -> None:
    with Run.open(precision="fp32") as run:
        assert 0.07 * 100 != 7
        assert run.steps_for(0.29, BatchOrder(100, 1)) == 29


@pytest.mark.parametrize(
    ("make", "stop_at"),
    [
        pytest.param(make, stop_at, marks=() if stop_at == place else pytest.mark.nightly)
        for place, make in enumerate([ordered, sampled, Counting], 1)
        for stop_at in (1, 2, 3)
    ],
)
def test_an_interrupted_loop_goes_on_in_the_middle_of_its_epoch(
    make: Callable[[], Any], stop_at: int, post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is four batches, and an epoch six: steps end in the middle of an epoch, at its end, and behind it."""
    whole = train(make(), 3)
    first = post(1)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(first.root))
    with pytest.raises(RunStopped):
        train(make(), 3, stop_at=stop_at)
    assert (first.status.step, first.status.steps_per_epoch, first.status.total_steps) == (stop_at, 1.5, 4)
    second = post(2)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(second.root))
    remainder = train(make(), 3)
    assert second.status.resumed_from == stop_at
    assert remainder == whole[4 * stop_at :]


def test_more_epochs_may_be_asked_for_at_a_resume(post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(post(1).root))
    train(ordered(), 1, accumulation=1)
    second = post(2)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(second.root))
    assert len(train(ordered(), 3, accumulation=1)) == 12
    assert (second.status.resumed_from, second.status.total_steps) == (6, 18)


def test_another_number_of_batches_keeps_the_steps_of_the_first_attempt(
    post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another number of ranks has: 8 epochs are 24 batches of 16, or 200 batches of 2, of which 8 make a step."""
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(post(1).root))
    with pytest.raises(RunStopped):
        train(ordered(16), 8, accumulation=1, stop_at=2)
    second = post(2)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(second.root))
    train(ordered(2), 8, accumulation=8)
    assert (second.status.resumed_from, second.status.total_steps, second.status.step) == (2, 24, 24)


def test_the_epoch_is_known_after_a_restore(post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(post(1).root))
    with pytest.raises(RunStopped):
        train(ordered(), 3, accumulation=1, stop_at=8)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(post(2).root))
    with Run.open(seed=1, precision="fp32") as run:
        model = nn.Sequential(nn.Linear(1, 4), nn.Dropout(0.2), nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=ordered())
        assert (run.epoch, run.restore(), run.epoch) == (0, 8, 1)
        run.finish()


class Endless(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield torch.ones(1)


class WithoutLength:
    """A loader with a position and no length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield torch.ones(1, 1)

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        del state


def test_what_no_number_of_steps_follows_from_is_refused() -> None:
    with Run.open(precision="fp32") as run:
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run.track(model=model, optimizer=optimizer, loader=ordered())
        for arguments in ({}, {"total_steps": 3, "epochs": 1}):
            with pytest.raises(ValueError, match=r"either total_steps or epochs"):
                run.batches(**arguments)
        for epochs in (0, -1, float("inf"), float("nan")):
            with pytest.raises(ValueError, match="above zero"):
                run.batches(epochs=epochs)
        with pytest.raises(ValueError, match="DataLoader has none: give total_steps"):
            run.steps_for(1, DataLoader(Endless()))
        run.track(model=model, optimizer=optimizer, loader=WithoutLength())
        with pytest.raises(ValueError, match="WithoutLength has none: give total_steps"):
            run.batches(epochs=1)


def test_a_total_and_epochs_report_the_steps_of_an_epoch(
    post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, (loader, expected) in enumerate([(ordered(), 3.0), (WithoutLength(), None)], 1):
        posted = post(number, store_root=tmp_path / f"store-{number}")
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(posted.root))
        with Run.open(precision="fp32", accumulation=2) as run:
            model = nn.Linear(1, 1)
            run.track(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loader=loader)
            for batch in run.batches(2):
                run.step(model(batch[0]).sum())
        assert posted.status.steps_per_epoch == expected
