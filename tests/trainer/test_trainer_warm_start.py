"""A warm start loads what fits of a smaller run's checkpoint, names what does not, and never fails for it."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import trainer_loop
from everspot_core.jobs.early_stop import StopRule
from everspot_core.jobs.visit_records import Visit
from everspot_train.rundir import RunContext
from everspot_train.trainer import RunStopped
from everspot_train.trainer.data import BatchOrder
from everspot_train.trainer.errors import StateMismatch
from everspot_train.trainer.loop_state import LoopState
from everspot_train.trainer.state import TrainState
from torch.optim import lr_scheduler
from trainer_loop import Settings
from trainer_post import JOB, Post
from trainer_state import save

pytestmark = pytest.mark.torch


class Position(BatchOrder):
    """A data position that a checkpoint holds for each rank."""


def pieces(width: int, samples: int, *, head: str = "head") -> TrainState:
    torch.manual_seed(width)
    layers: dict[str, torch.nn.Module] = {"body": torch.nn.Linear(4, 4), head: torch.nn.Linear(4, width)}
    model = torch.nn.ModuleDict(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for layer in layers.values():
        layer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    state = TrainState()
    state.shared = {"model": model, "optimizer": optimizer}
    state.local = {"position": Position(samples, 2)}
    return state


def load(state: TrainState, folder: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "everspot.trainer"):
        assert state.load(folder, 0, fitting=True) == (7, True)
    return [message.removeprefix("warm start: skipped: ") for message in caplog.messages]


def tensors(state: TrainState, name: str) -> Any:
    piece: Any = state.shared[name]
    return {key: value.clone() for key, value in piece.state_dict().items()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small = pieces(3, 10)
    small.local["position"].advance()  # type: ignore[attr-defined]
    save(small, tmp_path, 7)
    return tmp_path


def test_what_fits_is_loaded_whole_and_nothing_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    same = pieces(3, 10)
    with torch.no_grad():
        for parameter in same.shared["model"].parameters():  # type: ignore[attr-defined]
            parameter.zero_()
    assert load(same, folder, caplog) == []
    assert all(
        torch.equal(value, tensors(pieces(3, 10), "model")[key]) for key, value in tensors(same, "model").items()
    )
    assert same.local["position"].state_dict()["consumed"] == 2


def test_weights_of_another_shape_are_named_and_begin_from_scratch(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    larger = pieces(5, 10)
    fresh = tensors(larger, "model")
    with pytest.raises(StateMismatch):
        pieces(5, 10).load(folder, 0)
    assert load(larger, folder, caplog) == [
        "model: head.weight was (3, 4) and is (5, 4)",
        "model: head.bias was (3,) and is (5,)",
        "optimizer: its state belongs to other weights",
    ]
    loaded = tensors(larger, "model")
    assert torch.equal(loaded["head.weight"], fresh["head.weight"])
    assert torch.equal(loaded["body.weight"], tensors(pieces(3, 10), "model")["body.weight"])
    optimizer: Any = larger.shared["optimizer"]
    optimizer.zero_grad()
    model: Any = larger.shared["model"]
    model["head"](model["body"](torch.ones(2, 4))).sum().backward()
    optimizer.step()  # with moments of the new shapes


def test_a_position_in_other_data_is_named_and_the_data_begin_anew(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more_data = pieces(3, 40)
    (message,) = load(more_data, folder, caplog)
    assert "data length was 10 and is 40 now" in message
    assert more_data.local["position"].state_dict()["consumed"] == 0
    assert more_data.shared["optimizer"].state_dict()["state"][0]["step"] == 1


def test_layers_and_objects_of_other_names_are_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = pieces(3, 10, head="classifier")
    other.shared["average"] = torch.nn.Linear(1, 1)
    other.shared["tuner"] = other.shared.pop("optimizer")
    messages = load(other, folder, caplog)
    assert "model: classifier.weight is new" in messages
    assert "model: head.bias is gone" in messages
    assert "the checkpoint has no average" in messages
    assert "optimizer is not tracked now" in messages


def test_the_end_of_the_smaller_run_is_not_that_of_the_larger_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule = StopRule(metric="val_loss", patience=1)
    small, large = pieces(3, 10), pieces(3, 10)
    loops = [LoopState(rule), LoopState(rule)]
    small.shared["run"], large.shared["run"] = loops
    assert loops[0].plan_epochs(3.0, 46) == 46
    for step, value in enumerate((1.0, 1.1)):
        loops[0].evaluate(step, {"val_loss": value})
    loops[0].log({"val_loss": 1.1})
    assert loops[0].early_stop is not None
    loops[0].finished, loops[0].total_steps = True, 46
    save(small, tmp_path, 7)
    assert load(large, tmp_path, caplog) == []
    assert (loops[1].finished, loops[1].early_stop, loops[1].unreported_metric) == (False, None, "val_loss")
    assert loops[1].plan_epochs(3.0, 414) == 414
    assert loops[1].metrics == {"val_loss": 1.1}


SCHEDULES = {
    "one cycle": lambda optimizer, steps: lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=steps),
    "cosine": lr_scheduler.CosineAnnealingLR,
    "sequence": lambda optimizer, steps: lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, steps)], [3]
    ),
}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_schedule_goes_on_as_that_of_the_larger_run(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make_steps(state: TrainState, count: int) -> list[float]:
        optimizer, schedule = state.shared["optimizer"], state.shared["scheduler"]
        rates = []
        for _ in range(count):
            optimizer.step()  # type: ignore[attr-defined]
            rates.append(schedule.get_last_lr()[0])  # type: ignore[attr-defined]
            schedule.step()  # type: ignore[attr-defined]
        return rates

    def scheduled(steps: int) -> TrainState:
        state = pieces(3, 10)
        state.shared["scheduler"] = SCHEDULES[kind](state.shared["optimizer"], steps)
        return state

    small, large = scheduled(10), scheduled(30)
    make_steps(small, 10)
    save(small, tmp_path, 7)
    assert load(large, tmp_path, caplog) == []
    assert make_steps(large, 19) == pytest.approx(make_steps(scheduled(30), 29)[10:])
    assert large.shared["optimizer"].state_dict()["state"][0]["step"] == 11 + 19


def test_a_schedule_that_is_over_by_then_is_named_and_one_that_follows_a_metric_is_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small, large = pieces(3, 10), pieces(3, 10)
    for state, steps in ((small, 10), (large, 5)):
        optimizer: Any = state.shared["optimizer"]
        state.shared["scheduler"] = lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=steps)
        other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
        state.shared["plateau"] = lr_scheduler.ReduceLROnPlateau(other, patience=0)
    small.shared["optimizer"].step()  # type: ignore[attr-defined]
    for loss in (1.0, 2.0, 3.0):
        small.shared["plateau"].step(loss)  # type: ignore[attr-defined]
    for _ in range(9):
        small.shared["scheduler"].step()  # type: ignore[attr-defined]
    save(small, tmp_path, 7)
    (message,) = load(large, tmp_path, caplog)
    assert message.startswith("scheduler: Tried to step 6 times")
    assert large.shared["plateau"].state_dict() == small.shared["plateau"].state_dict()


@pytest.mark.parametrize("home_id", [JOB, "digits-1-r1"])
def test_a_trial_that_has_moved_loads_its_own_checkpoint_whole(
    post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home_id: str
) -> None:
    """A visit finds the job's own checkpoint under epoch 0, as a promoted trial finds that of the smaller run."""

    def train(run: Post, **settings: Any) -> None:
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(run.root))
        trainer_loop.train(Settings(losses=tmp_path / f"losses-{run.epoch}", **settings))

    first, second = post(1), post(2)
    with pytest.raises(RunStopped):
        train(first, stop_at=2, drop="ballast")
    head = second.store.heads.get(JOB)
    checkpoints = [checkpoint.model_copy(update={"epoch": 0}) for checkpoint in head.value.checkpoints]
    second.store.heads.put(JOB, head.value.model_copy(update={"checkpoints": checkpoints, "epoch": 0}))
    context = second.rundir.read(RunContext)
    visit = Visit(home="eu", job_id=home_id, number=1)
    submission = context.submission.model_copy(update={"visit": visit, "warm_start": True})
    second.rundir.write(context.model_copy(update={"submission": submission}))
    with pytest.raises(StateMismatch, match="no 'ballast'") if home_id == JOB else pytest.raises(RunStopped):
        train(second, stop_at=4)
