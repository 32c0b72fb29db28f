"""The records that a run writes for a rehearsal, and the points where it waits."""

import json
import os
import random
import subprocess
from collections import UserDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import program_forks
import pytest
import torch
from everspot_train.trainer.digests import describe, flatten

SCRIPT = """
import copy
import numpy as np
import torch
from everspot_train.trainer import Run, resumable_loader

class Noisy(torch.utils.data.Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(3)
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return torch.full((4,), float(index)) + torch.from_numpy(self.rng.normal(size=4)).float()

def augmenting():
    own = np.random.default_rng(4)
    return lambda x: x + float(own.normal())

def main():
    augment, best, data = augmenting(), 9.0, Noisy()
    with Run.open(seed=1, precision="fp32") as run:
        model = run.prepare(torch.nn.Linear(4, 1))
        model.register_buffer("calls", torch.zeros(1), persistent=False)
        ema = copy.deepcopy(model)
        optimizer = torch.optim.Adam(model.parameters())
        run.track(model=model, optimizer=optimizer, loader=resumable_loader(data, 8, seed=1))
        for x in run.batches(total_steps=100):
            loss = model(augment(x)).square().mean()
            run.step(loss)
            best = min(best, loss.item())
            if run.steps_done == 3:
                model.eval(); model.train()
                run.log(best=best)

main()
"""


@dataclass
class Pair:
    left: Any
    right: Any


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The record of a run without orders."""
    return recorded(tmp_path_factory.mktemp("free"))


def recorded(folder: Path, **orders: Any) -> list[dict[str, Any]]:
    (folder / "train.py").write_text(SCRIPT)
    record = folder / "record.jsonl"
    if orders:
        (folder / "record.jsonl.orders").write_text(json.dumps(orders))
    command = [*program_forks.command(), "-m", "everspot_train.worker", "train.py"]
    subprocess.run(command, cwd=folder, env={**os.environ, "EVERSPOT_REHEARSAL": str(record)}, check=True, timeout=120)
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_each_boundary_has_batches_losses_state_random_numbers_and_the_scripts_own_variables(
    lines: list[dict[str, Any]],
) -> None:
    boundaries = [line for line in lines if line["event"] == "boundary"]
    assert [line["step"] for line in boundaries] == list(range(13))
    assert [line["step"] for line in lines if line["event"] == "epoch"] == [4, 8]
    assert [line["step"] for line in boundaries if line["evaluated"]] == [3]
    third = boundaries[3]
    assert len(third["batches"]) == len(third["losses"]) == 1
    assert list(third["metrics"]) == ["best"]
    assert {"model/weight", "optimizer/weight/exp_avg", "optimizer/group 0/lr", "buffer/calls"} <= set(third["state"])
    assert third["random"].keys() >= {"python", "numpy", "torch"}
    variables = third["variables"]
    assert variables["main.best"].startswith("value|")
    assert variables["main.ema.weight"].startswith("weights|")
    assert variables["main.data.rng"].startswith("generator|numpy.PCG64")
    assert variables["main.augment.own"].startswith("generator|numpy.PCG64")
    assert "main.model.weight" not in variables, "what the checkpoint holds is compared by itself"


def test_a_shorter_run_is_recorded_as_the_beginning_of_the_longer_one(
    lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    shorter = recorded(tmp_path, steps=2)
    assert [line["step"] for line in shorter] == [2, 0, 1, 2, 2]
    for line in shorter[1:4]:
        assert line["state"].pop("run/total_steps") == "2"
        line["state"]["run/total_steps"] = "12"
    assert shorter[1:4] == lines[1:4], "a text with an address or a time in it would differ"


def test_without_orders_a_short_epoch_is_rehearsed_beyond_its_end(lines: list[dict[str, Any]]) -> None:
    plan = lines[0]
    assert (plan["event"], plan["step"], plan["total"], plan["per_epoch"]) == ("plan", 12, 100, 4)


@pytest.mark.parametrize(
    ("value", "other_value"),
    [
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.bfloat16)),
        (torch.tensor(0.0), torch.tensor(-0.0)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.tensor([1.0]), torch.tensor([1.0 + 2**-23])),
        (np.float32([1, 2]), np.float32([2, 1])),
        (UserDict(a=torch.zeros(1)), UserDict(a=torch.ones(1))),
        (Pair("x", [1]), Pair("x", [2])),
        (["cat", "dog"], ["dog", "cat"]),
        (iter([1, 2, 3]), iter([2, 3])),
        (random.Random(1), random.Random(2)),
        (np.random.default_rng(1), np.random.default_rng(2)),
        (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)),
        ("x" * 100, "x" * 99 + "y"),
    ],
)
def test_values_that_differ_have_different_digests(value: Any, other_value: Any) -> None:
    assert describe(value) != describe(other_value)


@pytest.mark.parametrize(
    ("value", "other_value"),
    [
        (torch.arange(6.0).reshape(2, 3).t(), torch.arange(6.0).reshape(2, 3).t().contiguous()),
        (torch.ones(1, requires_grad=True), torch.ones(1)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (float("nan"), float("nan")),
    ],
)
def test_equal_values_have_equal_digests(value: Any, other_value: Any) -> None:
    assert describe(value) == describe(other_value)


def test_parts_have_the_names_of_their_path() -> None:
    assert list(flatten("ema", {"shadow": {"w": torch.zeros(1)}, "steps": 3})) == ["ema/shadow/w", "ema/steps"]
