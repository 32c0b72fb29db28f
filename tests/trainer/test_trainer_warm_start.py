"""A warm start loads what fits of a smaller run's checkpoint, names what does not, and never fails for it."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_train.trainer.data import BatchOrder
from everspot_train.trainer.errors import StateMismatch
from everspot_train.trainer.state import TrainState
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
