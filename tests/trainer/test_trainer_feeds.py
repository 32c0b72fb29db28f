"""Whatever feeds the loop: an interrupted run has the losses and weights of an undisturbed one, bit by bit."""

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trainer_feeds
from everspot_core.records import Reason
from everspot_train.rundir import StopRequest
from everspot_train.trainer import Run, RunStopped
from trainer_feeds import Net
from trainer_post import Post

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine of one core
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata's own call
]

TOTAL = 13
STOPS = (1, 4, 10)  # after the first batch, before an epoch's last, and at its end

Body = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(make: Callable[[], Any], lines: list[str], stop: Callable[[int], None], body: Any = None) -> None:
    """Append the loss of each step as exact text, and at last the weights."""
    trainer_feeds.MODULE_RNG = np.random.default_rng(1)  # a new process would begin like this
    trainer_feeds.ByClass.rng = random.Random(2)
    with Run.open(seed=3, precision="fp32") as run:
        model = run.prepare(Net())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        change: Body = body() if body else torch.clone
        run.track(model=model, optimizer=optimizer, loader=make())
        for batch in run.batches(TOTAL):
            x = change(batch.reshape(-1, 2))
            run.step((model(x).squeeze(-1) - x[:, 0]).square().mean() + x[:, 1].mean())
            lines.append(f"{run.steps_done} {run.last_loss.hex()}")
            stop(run.steps_done)
        lines += [str(value.tolist()) for value in model.state_dict().values()]


def undisturbed(make: Callable[[], Any], body: Any = None) -> list[str]:
    lines: list[str] = []
    train(make, lines, lambda _: None, body)
    return lines


def interrupted(tmp_path: Path, patch: pytest.MonkeyPatch, make: Callable[[], Any], body: Any = None) -> list[str]:
    """The same of a run that is stopped and resumed several times."""
    lines: list[str] = []
    for epoch, at in enumerate((*STOPS, None), 1):
        post = Post(root=tmp_path / f"run-{epoch}", store_root=tmp_path / "store", epoch=epoch)
        patch.setenv("EVERSPOT_RUN_DIR", str(post.root))

        def stop(step: int, post: Post = post, at: int | None = at) -> None:
            if step == at:
                post.rundir.write(StopRequest(reason=Reason.NOTICE))

        with contextlib.suppress(RunStopped):
            train(make, lines, stop, body)
        assert (post.status.resumed_from or 0) == (STOPS[epoch - 2] if epoch > 1 else 0)
    patch.delenv("EVERSPOT_RUN_DIR")
    return lines


@pytest.mark.parametrize("name", trainer_feeds.SAMPLED)
def test_the_order_goes_on_whatever_chooses_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = trainer_feeds.SAMPLED[name]
    assert interrupted(tmp_path, monkeypatch, make) == undisturbed(make)


@pytest.mark.parametrize("name", trainer_feeds.GENERATORS)
def test_generators_that_the_feed_refers_to_go_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = trainer_feeds.GENERATORS[name]
    lines = interrupted(tmp_path, monkeypatch, make)
    if name != "not seeded":  # its first attempt decides
        assert lines == undisturbed(make)


@pytest.mark.parametrize("name", trainer_feeds.IN_WORKERS)
def test_random_numbers_of_workers_go_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = trainer_feeds.IN_WORKERS[name]
    lines = interrupted(tmp_path, monkeypatch, make)
    if not name.startswith("not seeded"):
        assert lines == undisturbed(make)


@pytest.mark.parametrize("name", trainer_feeds.STATEFUL)
def test_feeds_with_a_state_of_their_own_go_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = trainer_feeds.STATEFUL[name]
    assert interrupted(tmp_path, monkeypatch, make) == undisturbed(make)
