"""Loops with the trainer library, rehearsed with the real agent: exact ones, and one for each habit that is not."""

from pathlib import Path

import pytest
from everspot_train.rehearse.places import MIDDLE, PLACES
from rehearse_helpers import rehearsed

LOOP = """
import copy, os, random, time
import numpy as np
import torch
from everspot_train.trainer import Run, resumable_loader
from torch import nn
torch.set_num_threads(1)
#TOP
class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.x = np.random.default_rng(7).normal(size=(48, 6)).astype(np.float32)
        #INIT
    def __len__(self):
        return 48
    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i])
        #ITEM
        return x, i % 3
def main():
    data = Data()
    with Run.open(seed=3, precision="fp32") as run:
        model = run.prepare(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        run.track(model=model, optimizer=optimizer, loader=resumable_loader(data, 8, seed=1))
        #BEFORE
        for x, y in run.batches(total_steps=100):
            #BODY
            loss = nn.functional.cross_entropy(model(x), y)
            run.step(loss)
            #AFTER
main()
"""
AVERAGE = "for a, b in zip(ema.parameters(), model.parameters()): a.data.mul_(0.9).add_(b.data, alpha=0.1)"


def loop(**parts: str) -> str:
    text = LOOP
    for name, code in parts.items():
        indent = next(line for line in text.splitlines() if line.strip() == f"#{name}").partition("#")[0]
        text = text.replace(f"#{name}", code.replace("\n", f"\n{indent}"))
    return text


def test_a_counter_that_steers_the_learning_rate_is_named(tmp_path: Path) -> None:
    parts, (kind, _, cause) = HABITS["a counter"]
    answer = rehearsed(tmp_path, loop(**parts), MIDDLE, steps=5, forked=True)
    assert (answer["verdict"], answer["undisturbed"]) == ("differs", None), answer
    difference = answer["places"][0]["difference"]
    assert (difference["kind"], difference["name"], difference["cause"]) == (kind, "optimizer/group 0/lr", [cause])
    assert "is not restored" in difference["fix"]


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["the data set", "a closure"])
def test_generators_that_the_trainer_finds_are_exact(tmp_path: Path, place: str) -> None:
    parts = {"INIT": "self.rng = np.random.default_rng(3)", "ITEM": "x = x + float(self.rng.normal()) * 0.01"}
    if place == "a closure":
        parts = {
            "TOP": "def make():\n    g = np.random.default_rng(3)\n    return lambda x: x + float(g.normal())",
            "BEFORE": "augment = make()",
            "BODY": "x = augment(x)",
        }
    answer = rehearsed(tmp_path, loop(**parts), MIDDLE, steps=5, forked=True)
    assert answer["verdict"] == "exact", answer


@pytest.mark.nightly
def test_an_exact_loop_is_exact_at_every_place(tmp_path: Path) -> None:
    evaluation = "if run.steps_done % 4 == 0:\n    model.eval(); run.log(val=float(model(x).sum())); model.train()"
    answer = rehearsed(tmp_path, loop(AFTER=evaluation), forked=True)
    assert answer["verdict"] == "exact", answer
    assert [(row["place"], row["verdict"]) for row in answer["places"]] == [(name, "exact") for name in PLACES]


@pytest.mark.nightly
def test_an_exact_loop_of_two_ranks_is_exact(tmp_path: Path) -> None:
    answer = rehearsed(tmp_path, loop(), MIDDLE, gpus=2, steps=5, forked=True)
    assert (answer["verdict"], answer["processes"]) == ("exact", 2), answer


HABITS = {
    "an average": ({"BEFORE": "ema = copy.deepcopy(model)", "AFTER": AVERAGE}, ("variable", 12, "main.ema.0.weight")),
    "a counter": (
        {"BEFORE": "n = 0", "BODY": "n += 1\noptimizer.param_groups[0]['lr'] = 0.01 / n"},
        ("optimizer", 4, "main.n"),
    ),
    "a metric of all steps": (
        {"BEFORE": "losses = []", "AFTER": "losses.append(loss.item())\nrun.log(mean=sum(losses) / len(losses))"},
        ("metric", 4, None),
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("habit", HABITS)
def test_each_habit_that_is_not_exact_is_named_with_its_cause(tmp_path: Path, habit: str) -> None:
    parts, (kind, step, cause) = HABITS[habit]
    answer = rehearsed(tmp_path, loop(**parts), MIDDLE, forked=True)
    assert (answer["verdict"], answer["undisturbed"]) == ("differs", None), answer
    difference = answer["places"][0]["difference"]
    assert (difference["kind"], difference["step"]) == (kind, step)
    assert cause is None or cause in difference["cause"], difference


@pytest.mark.nightly
@pytest.mark.parametrize(
    "body", ["x = x + (time.time() % 1) * 0.01", "x = x * len(list({'a', 'bb', 'ccc', 'dddd', 'eeeee'})[0])"]
)
def test_a_script_that_differs_from_itself_is_told_so(tmp_path: Path, body: str) -> None:
    answer = rehearsed(tmp_path, loop(BODY=body), MIDDLE)
    assert answer["verdict"] == "differs"
    assert (answer["undisturbed"]["kind"], answer["undisturbed"]["step"]) == ("loss", 1)


@pytest.mark.nightly
def test_what_had_no_effect_yet_is_listed(tmp_path: Path) -> None:
    answer = rehearsed(tmp_path, loop(BEFORE="best = 9.0", AFTER="best = min(best, loss.item())"), MIDDLE, forked=True)
    assert answer["verdict"] == "exact"
    assert "main.best" in [leftover["name"] for leftover in answer["leftovers"]]


STREAMED = """
import torch
from everspot_train.shards import ShardedDataset
from everspot_train.trainer import Run
from torch import nn
torch.set_num_threads(1)
def decode(sample):
    return torch.tensor([float(sample["txt"])])
with Run.open(seed=3) as run:
    model = run.prepare(nn.Linear(1, 1))
    dataset = ShardedDataset("web", cache_gb=1, window=2, decode=decode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = dataset.loader(4, seed=1, num_workers=1, persistent_workers=True)
    run.track(model=model, optimizer=optimizer, loader=loader)
    for x in run.batches(total_steps=100):
        run.step(model(x).square().mean())
"""


@pytest.mark.nightly
def test_a_loop_that_streams_is_rehearsed_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web = tmp_path / "data" / "web"
    web.mkdir(parents=True)
    for number in range(24):
        (web / f"{number:02d}.txt").write_text(str(number / 24))
    monkeypatch.setenv("EVERSPOT_DATA", str(tmp_path / "data"))
    answer = rehearsed(tmp_path, STREAMED, MIDDLE, steps=8, forked=True)
    assert answer["verdict"] == "exact", answer
