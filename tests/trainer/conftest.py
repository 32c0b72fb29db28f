"""Fixtures of the trainer's tests. trainer_post.py has helpers for the agent's side, trainer_loop.py the loop."""

import fcntl
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

import program_forks
import trainer_forks
import trainer_writers
from trainer_post import Post


@pytest.fixture(scope="session", autouse=True)
def forks() -> Iterator[None]:
    """The servers of the processes that the tests of this folder train and write in, if there were any, end with
    them."""
    yield
    trainer_forks.close()
    program_forks.close()
    trainer_writers.close()


@pytest.fixture(autouse=True)
def forked_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainers in this process have forked writers. Those in processes of their own start theirs as users' do."""
    link = sys.modules.get("everspot_train.trainer.agent_link")
    if link is not None:
        publisher = functools.partial(link.Publisher, command=trainer_writers.command())
        monkeypatch.setattr(link, "Publisher", publisher)


@pytest.fixture
def post(tmp_path: Path) -> Callable[..., Post]:
    """Makes posts, one per epoch, on a store of this test's own."""

    def make(epoch: int = 1, **settings: object) -> Post:
        settings.setdefault("store_root", tmp_path / "store")
        return Post(root=tmp_path / f"run-{epoch}", epoch=epoch, **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Losses (`.0`) and weights (`.weights`) of a run that nothing happened to: a process of its own."""

    def train(folder: Path) -> None:
        Post(root=folder / "run", store_root=folder / "store").run_as_users_do(folder / "losses")

    return shared_folder(tmp_path_factory, "undisturbed", train) / "losses"


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a run that was stopped at step 17, in the middle of an epoch, and its losses so far (`losses.0`)."""

    def train(folder: Path) -> None:
        post = Post(root=folder / "run", store_root=folder / "store")
        post.run(folder / "losses", STOP_AT=17)
        assert post.status.phase == "stopped"
        assert post.status.step == post.status.durable_step == 17

    return shared_folder(tmp_path_factory, "stopped", train)


def shared_folder(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder that the first worker of a test run fills, and all of them read."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / f"{name}.ready").exists():
            (root / name).mkdir()
            fill(root / name)
            (root / f"{name}.ready").touch()
    return root / name
