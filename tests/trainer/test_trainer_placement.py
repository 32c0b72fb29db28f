"""A loaded tensor is on the device on which it was saved, and keeps nothing of the checkpoint in memory."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_train.checkpoint.manifest import MANIFEST, stream_name
from everspot_train.checkpoint.memory import SharedMemory
from everspot_train.checkpoint.placement import choose_device
from everspot_train.checkpoint.saver import Saver
from everspot_train.trainer import UnsupportedState
from everspot_train.trainer.ranks import Ranks
from everspot_train.trainer.state import TrainState
from everspot_train.trainer.trackable import check_tracked
from torch import nn
from torch.ao.quantization import HistogramObserver, MinMaxObserver
from trainer_state import save

pytestmark = pytest.mark.torch

META = torch.device("meta")
"""Stands for the GPU of a run: torch puts tensors there without a GPU."""


class Average:
    """The usual average of weights: it keeps the tensors that it loads."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = state["shadow"]


class Counting(nn.Module):
    """A layer that counts its calls in a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.counts = torch.zeros(3)

    def get_extra_state(self) -> Any:
        return {"counts": self.counts}

    def set_extra_state(self, state: Any) -> None:
        self.counts = state["counts"]


class Observed(nn.Module):
    """A layer with torch's observers of quantization, which assign some of the buffers that they load."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.observers = nn.ModuleList([HistogramObserver(), MinMaxObserver()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        for observer in self.observers:
            observer(y.detach())
        return y


class Assigning(nn.Linear):
    """A layer that takes the loaded tensors instead of copying them, and has its bias under two names."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.register_buffer("shift", torch.zeros(3))
        self.register_buffer("again", self.shift)

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        return super().load_state_dict(state, strict, assign=True)


@pytest.mark.parametrize(
    ("stored", "current", "run", "expected"),
    [
        ("cuda", None, "cuda:1", "cuda:1"),  # made by the first step, so a new object has none
        ("cuda", "cuda:0", "cuda:1", "cuda:0"),
        ("cuda", "cpu", "cuda:0", "cuda:0"),
        ("cuda", None, "cpu", "cpu"),
        (None, None, "cuda:0", "cpu"),
        (None, "cpu", "cuda:0", "cpu"),
        (None, "cuda:0", "cuda:0", "cuda:0"),  # saved by an earlier version, or on a machine without a GPU
        (None, "meta", "cuda:0", "cpu"),
    ],
)
def test_the_device_is_that_of_the_saved_tensor(
    stored: str | None, current: str | None, run: str, expected: str
) -> None:
    now = torch.device(current) if current is not None else None
    assert choose_device(stored, now, torch.device(run)) == torch.device(expected)


def test_a_checkpoint_names_the_devices_of_its_tensors_but_not_the_cpu(tmp_path: Path) -> None:
    saver = Saver(SharedMemory([tmp_path], stream_name(0)))
    tensors = {"weight": torch.ones(2), "average": torch.ones(2, device=META)}
    assert {path: entry.device for path, entry in saver.plan(tensors).entries.items()} == {
        "weight": None,
        "average": "meta",
    }
    moved = saver.plan({"weight": torch.ones(2, device=META), "average": torch.ones(2)}).entries
    assert (moved["weight"].device, moved["average"].device) == ("meta", None)


def test_what_an_object_keeps_is_loaded_on_its_device_and_what_torch_moves_is_not(tmp_path: Path) -> None:
    model = Counting()
    rate = torch.tensor(0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    model.layer(torch.ones(3)).sum().backward()
    optimizer.step()
    state = TrainState(META)
    average = Average(model)
    state.shared |= {"model": model, "optimizer": optimizer, "average": average}
    save(state, tmp_path)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    for entry in manifest["tensors"].values():
        entry["device"] = "meta"
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    state.load(tmp_path, 0)
    assert {tensor.device for tensor in average.shadow.values()} == {META}
    assert model.counts.device == optimizer.param_groups[0]["lr"].device == META
    device_tensors = [*model.parameters(), *(t for entry in optimizer.state.values() for t in entry.values())]
    assert {tensor.device.type for tensor in device_tensors} == {"cpu"}


@pytest.mark.parametrize("kind", [Counting, Observed, Assigning])
def test_a_module_that_keeps_loaded_tensors_does_not_keep_the_checkpoint(kind: type[nn.Module], tmp_path: Path) -> None:
    saved, loaded = kind(), kind()
    for module in (saved, loaded):
        getattr(module, "layer", module)(torch.rand(4, 3))
    if kind is Observed:
        saved(torch.rand(4, 3))
    parameters = list(loaded.parameters())
    for module, act in ((saved, save), (loaded, lambda state, folder: state.load(folder, 0))):
        state = TrainState()
        state.shared["model"] = module
        act(state, tmp_path)
    tensors = [*loaded.parameters(), *loaded.buffers(), *(t for t in vars(loaded).values() if torch.is_tensor(t))]
    assert tensors and all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors)
    if kind is Observed:
        loaded(torch.rand(4, 3))
    if kind is Assigning:
        assert loaded.again is loaded.shift
    else:
        assert all(now is before for now, before in zip(loaded.parameters(), parameters, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), loaded.parameters(), strict=True))


class Metric(nn.Module):
    """A metric as torchmetrics makes them: its numbers are in no `state_dict` until they are persistent."""

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(1)

    def persistent(self, mode: bool) -> None:
        self.register_buffer("number", self.total, persistent=mode)


class FocalLoss(nn.Module):
    """A loss whose weights are an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = torch.ones(2)


def test_a_module_of_which_a_checkpoint_would_hold_nothing_is_refused_or_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metric = Metric()
    with pytest.raises(UnsupportedState, match=r"holds anything of it: call accuracy\.persistent\(True\)"):
        check_tracked({"accuracy": metric}, Ranks(), checkpointed=True)
    check_tracked({"criterion": nn.Sequential(FocalLoss())}, Ranks(), checkpointed=True)
    assert re.search(r"criterion \(Sequential\) has an empty state_dict.*register them as buffers", caplog.text)
    metric.persistent(True)
    check_tracked({"accuracy": metric}, Ranks(), checkpointed=True)


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.CrossEntropyLoss(label_smoothing=0.1), nn.Identity()])
def test_a_module_without_state_may_be_tracked(loss: nn.Module) -> None:
    check_tracked({"criterion": loss}, Ranks(), checkpointed=True)
