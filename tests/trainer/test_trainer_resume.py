"""A resumed run is bitwise identical to an uninterrupted one, and this check can fail."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trainer_loop
from everspot_train.rundir import RESTORED
from everspot_train.trainer import Run, StateMismatch, resumable_loader
from trainer_post import Post, read_losses, wait_for
from trainer_state import read_shared

pytestmark = pytest.mark.torch


def same_weights(path: Path, other: Path) -> bool:
    first, second = torch.load(path), torch.load(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_stopped_at_an_arbitrary_step_resumes_bit_identically(
    undisturbed: Path, stopped: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped / "store", tmp_path / "copy")
    second = Post(root=tmp_path / "second", store_root=tmp_path / "copy", epoch=2)
    second.run(tmp_path / "losses")
    assert read_losses(stopped / "losses.0", tmp_path / "losses.0") == read_losses(Path(f"{undisturbed}.0"))
    assert same_weights(tmp_path / "losses.weights", Path(f"{undisturbed}.weights"))
    assert (second.status.phase, second.status.resumed_from, second.status.durable_step) == ("finished", 17, 40)
    assert second.status.mixed in (True, False)
    assert (second.status.gpu_memory_gib is not None) == torch.cuda.is_available()


def test_a_killed_run_repeats_only_what_was_not_durable(
    post: Callable[..., Post], undisturbed: Path, tmp_path: Path
) -> None:
    first = post(1)
    process = first.start(tmp_path / "first", CHECKPOINT_AT=9, PAUSE=0.2)
    wait_for(lambda: first.status.durable_step == 9 and first.status.step >= 12, first)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    second = post(2)
    second.run(tmp_path / "second")
    before, after = read_losses(tmp_path / "first.0"), read_losses(tmp_path / "second.0")
    whole = read_losses(Path(f"{undisturbed}.0"))
    assert before == whole[: len(before)]
    assert after == whole[9:]
    assert same_weights(tmp_path / "second.weights", Path(f"{undisturbed}.weights"))


def resumed_in_this_process(folder: Path, store: Path, patch: pytest.MonkeyPatch, **settings: Any) -> list[str]:
    """Losses of a run that goes on from a copy of `store`."""
    shutil.copytree(store, folder / "store")
    second = Post(root=folder / "run", store_root=folder / "store", epoch=2)
    patch.setenv("EVERSPOT_RUN_DIR", str(second.root))
    trainer_loop.train(trainer_loop.Settings(losses=folder / "losses", **settings))
    assert second.status.resumed_from is not None
    return read_losses(folder / "losses")


def test_a_resume_in_another_process_on_the_same_machine_gives_the_same_losses(
    undisturbed: Path, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = resumed_in_this_process(tmp_path, stopped / "store", monkeypatch)
    assert losses == read_losses(Path(f"{undisturbed}.0"))[17:]


@pytest.mark.parametrize("loading", [False, True])
def test_only_a_failure_after_the_restore_began_is_a_failed_load(
    loading: bool, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(stopped / "store", tmp_path / "store")
    second = Post(root=tmp_path / "run", store_root=tmp_path / "store", epoch=2)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(second.root))
    model = torch.nn.Linear(2, 2)

    def fail() -> None:
        with Run.open(seed=3) as run:
            assert run.resume_step == 17
            if loading:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                run.track(model=model, optimizer=optimizer, loader=resumable_loader(trainer_loop.Digits(100), 8))
                run.restore()
            raise ArithmeticError

    with pytest.raises((ArithmeticError, StateMismatch)):
        fail()
    assert (second.status.phase, second.status.resumed_from) == ("failed", None)
    assert (second.root / "scratch" / RESTORED).is_dir() is loading  # the agent's sign of a failed load


@pytest.mark.parametrize("piece", ["randomness", "position", "precision"])
def test_without_one_piece_of_the_state_the_losses_differ(
    piece: str, undisturbed: Path, stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = resumed_in_this_process(tmp_path, stopped / "store", monkeypatch, drop=piece)
    assert len(losses) == 40 - 17
    assert losses != read_losses(Path(f"{undisturbed}.0"))[17:]


def test_a_piece_of_the_checkpoint_that_is_not_tracked_any_more_is_named(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StateMismatch, match="'scheduler', which is not tracked now"):
        resumed_in_this_process(tmp_path, stopped / "store", monkeypatch, drop="scheduler")


def test_the_scaler_of_the_test_loop_has_left_its_initial_scale(stopped: Path, tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing about it."""
    post = Post(root=tmp_path / "run", store_root=stopped / "store", epoch=2)
    assert read_shared(post)["precision"]["scaler"]["scale"] < 65536
