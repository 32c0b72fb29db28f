"""State that a loop uses and no checkpoint contains is reported: a second loader that is read by hand, a hook's
state."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from everspot_core.jobs.records import EventKind
from everspot_train.trainer import Run, resumable_loader
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from trainer_habits import data, endless
from trainer_post import Post

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine of one core
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's own call
]

Read = Callable[[], Any]


def by_next() -> Read:
    batches = iter(DataLoader(data(), 4, shuffle=True))
    return lambda: next(batches)


def by_a_generator() -> Read:
    batches = endless(DataLoader(data(), 8, shuffle=True))
    return lambda: next(batches)


def of_torchdata() -> Read:
    batches = iter(StatefulDataLoader(data(), 4))
    return lambda: next(batches)


def by_workers() -> Read:
    batches = endless(DataLoader(data(), 8, num_workers=1, persistent_workers=True))
    return lambda: next(batches)


def whole() -> Read:
    loader = DataLoader(data(), 20)
    return lambda: [x for (x,) in loader]


def whole_by_workers() -> Read:
    loader = DataLoader(data(), 20, num_workers=1, persistent_workers=True)
    return lambda: [x for (x,) in loader]


def broken_off() -> Read:
    loader = DataLoader(data(), 8)
    return lambda: [x for (x,), _ in zip(loader, range(2), strict=False)]


class Endless:
    """A loader of the user's own, with a state and an iterator of its own."""

    def __init__(self) -> None:
        self.count = 0
        self.batches = self.read()

    def read(self) -> Iterator[Any]:
        for batch in endless(DataLoader(data(), 8)):
            self.count += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        for _ in range(state["count"]):
            next(self.batches)


def train(post: Post, read: Read, **tracked: Any) -> list[dict[str, Any]]:
    """Four steps of two losses each. Returns the data of the events."""
    with Run.open(seed=1, precision="fp32", accumulation=2) as run:
        model = torch.nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run.track(model=model, optimizer=optimizer, loader=resumable_loader(data(), 4, seed=2), **tracked)
        for (x,) in run.batches(4):
            run.step(model(x).square().mean())
            read()
    return [event.data for event in post.store.events("digits-1") if event.kind is EventKind.NOT_TRACKED]


@pytest.fixture
def run_dir(post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch) -> Post:
    current = post(1)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(current.root))
    return current


@pytest.mark.parametrize("make", [by_next, by_a_generator, of_torchdata, by_workers])
def test_a_second_loader_that_is_read_over_several_steps_is_reported_once(
    make: Callable[[], Read], run_dir: Post, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert train(run_dir, make()) == [{"what": "a DataLoader over TensorDataset"}]
    lines = [r.getMessage() for r in caplog.records if "not tracked" in r.getMessage()]
    assert len(lines) == 1
    assert "run.steps_done" in lines[0]


@pytest.mark.parametrize("make", [whole, whole_by_workers, broken_off])
def test_a_loader_for_evaluation_is_not(make: Callable[[], Read], run_dir: Post) -> None:
    assert train(run_dir, make()) == []


def test_a_tracked_one_is_not(run_dir: Post) -> None:
    own = Endless()
    assert train(run_dir, lambda: next(own.batches), second=own) == []


def test_the_iterator_of_a_tracked_loader_that_is_older_than_the_restore_is_reported(
    post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reports = []
    for epoch in (1, 2):
        current = post(epoch)
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(current.root))
        with Run.open(seed=1, precision="fp32") as run:
            model = torch.nn.Linear(6, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            second = StatefulDataLoader(TensorDataset(torch.randn(400, 6)), batch_size=4)
            run.track(model=model, optimizer=optimizer, loader=resumable_loader(data(), 4, seed=2), second=second)
            batches = iter(second)
            for (x,) in run.batches(4 * epoch):
                run.step(model(torch.cat([x, *next(batches)])).square().mean())
        events = current.store.events("digits-1")
        reports.append([event.epoch for event in events if event.kind is EventKind.NOT_TRACKED])
    assert reports == [[], [2]]


@pytest.mark.parametrize("tracked", [False, True])
def test_the_state_of_a_communication_hook_is_reported_unless_it_is_tracked(
    tracked: bool, run_dir: Post, tmp_path: Path
) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "group"), 1), rank=0, world_size=1)
    try:
        with Run.open(seed=1, precision="fp32") as run:
            model = nn.parallel.DistributedDataParallel(nn.Linear(6, 1))
            state = PowerSGDState(None)
            model.register_comm_hook(state, powerSGD_hook)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            pieces = {"hook": HookState(state)} if tracked else {}
            run.track(model=model, optimizer=optimizer, loader=resumable_loader(data(), 4, seed=2), **pieces)
            for (x,) in run.batches(2):
                run.step(model(x).square().mean())
    finally:
        dist.destroy_process_group()
    reports = [event.data for event in run_dir.store.events("digits-1") if event.kind is EventKind.NOT_TRACKED]
    assert reports == ([] if tracked else [{"what": "the state of a communication hook (PowerSGDState)"}])


class HookState:
    """The errors that PowerSGD feeds back, as a tracked object."""

    def __init__(self, state: PowerSGDState) -> None:
        self.state = state

    def state_dict(self) -> dict[int, torch.Tensor]:
        return dict(self.state.error_dict)

    def load_state_dict(self, state: dict[int, torch.Tensor]) -> None:
        self.state.error_dict = dict(state)
