"""Programs without the trainer library, rehearsed with the real agent. They are small, and import no torch."""

from pathlib import Path

import pytest
from everspot_train.rehearse.plain import FIRST, SUDDEN
from rehearse_helpers import rehearsed

PROGRAM = """
import json, os, pathlib, random, time
folder = pathlib.Path(os.environ["EVERSPOT_CHECKPOINT_DIR"])
folder.mkdir(exist_ok=True)
last, state, draw = folder / "last.json", {"step": 0, "w": 1.0, "m": 0.0}, random.Random(3)
if last.exists() and LOADS:
    state = json.loads(last.read_text())
    draw.setstate((state["rng"][0], tuple(state["rng"][1]), state["rng"][2]))
    FORGETS
while state["step"] < 24:
    state["m"] = 0.9 * state["m"] + draw.random() + CLOCK
    state["w"] -= 0.01 * state["m"]
    state["step"] += 1
    time.sleep(0.1)
    SAYS
    if state["step"] % 6 == 0:
        whole = json.dumps({**state, "rng": draw.getstate()})
        WRITES
outputs = pathlib.Path(os.environ["EVERSPOT_OUTPUT_DIR"])
outputs.mkdir(exist_ok=True)
(outputs / "model.json").write_text(json.dumps({"w": state["w"]}))
"""
PARTS = {
    "LOADS": "True",
    "FORGETS": "pass",
    "CLOCK": "0",
    "SAYS": "print(f\"step {state['step']} w={state['w']:.9f} ({time.time():.2f})\", flush=True)",
    "WRITES": "(folder / 'x.tmp').write_text(whole); (folder / 'x.tmp').rename(last)",
}


def program(**parts: str) -> str:
    text = PROGRAM
    for name, value in {**PARTS, **parts}.items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize("place", [FIRST, pytest.param(SUDDEN, marks=pytest.mark.nightly)])
def test_a_program_that_restores_everything_is_exact(tmp_path: Path, place: str) -> None:
    answer = rehearsed(tmp_path, program(), place)
    assert (answer["verdict"], answer["library"], answer["undisturbed"]) == ("exact", False, None), answer
    assert [(row["place"], row["verdict"]) for row in answer["places"]] == [(place, "exact")]


@pytest.mark.nightly
def test_a_program_that_forgets_its_momentum_differs_in_its_log(tmp_path: Path) -> None:
    answer = rehearsed(tmp_path, program(FORGETS='state["m"] = 0.0'), FIRST)
    assert answer["verdict"] == "differs"
    difference = answer["places"][0]["difference"]
    assert (difference["kind"], difference["name"]) == ("log", "at step 7")


@pytest.mark.nightly
def test_a_program_that_prints_nothing_differs_in_its_files(tmp_path: Path) -> None:
    answer = rehearsed(tmp_path, program(FORGETS='state["m"] = 0.0', SAYS="pass"), FIRST)
    difference = answer["places"][0]["difference"]
    assert (answer["verdict"], difference["kind"]) == ("differs", "file")
    assert difference["name"] == "outputs/model.json w"


@pytest.mark.nightly
@pytest.mark.parametrize("printed_text", [PARTS["SAYS"], "pass"], ids=["a log", "no log"])
def test_a_program_that_begins_from_zero_is_not_exact_although_its_result_is_the_same(
    tmp_path: Path, printed_text: str
) -> None:
    answer = rehearsed(tmp_path, program(LOADS="False", SAYS=printed_text), FIRST)
    assert answer["verdict"] == "differs"
    assert answer["places"][0]["difference"]["kind"] == "step"
    assert "begins from zero" in answer["places"][0]["difference"]["fix"]


@pytest.mark.nightly
def test_a_program_that_uses_the_time_differs_from_itself(tmp_path: Path) -> None:
    answer = rehearsed(tmp_path, program(CLOCK="time.time() % 1"), FIRST)
    assert answer["verdict"] == "differs"
    assert (
        answer["undisturbed"]["name"].startswith("checkpoints/last.json")
        or "model.json" in answer["undisturbed"]["name"]
    )


def test_a_program_without_checkpoints_is_told_so(tmp_path: Path) -> None:
    answer = rehearsed(tmp_path, "print('step 1 loss 2')", FIRST)
    assert answer["verdict"] == "differs"
    assert "wrote nothing into its folder checkpoints/" in answer["message"]


def test_a_program_that_fails_is_not_rehearsed(tmp_path: Path) -> None:
    answer = rehearsed(tmp_path, "raise ValueError('no data here')")
    assert answer["verdict"] == "failed"
    assert "no data here" in answer["message"] + answer["output"]


HUGGING_FACE = """
import os, time
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint
set_seed(1)
torch.set_num_threads(1)
folder = os.environ["EVERSPOT_CHECKPOINT_DIR"]
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        time.sleep(0.05)
        ids = torch.randint(0, 50, (16,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2))
args = TrainingArguments(
    folder, max_steps=24, save_steps=6, logging_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
    save_total_limit=2, seed=1, disable_tqdm=True,
)
last = get_last_checkpoint(folder) if os.path.isdir(folder) else None
Trainer(model, args, train_dataset=Data()).train(resume_from_checkpoint=last)
"""


@pytest.mark.nightly
def test_a_trainer_of_hugging_face_is_exact(tmp_path: Path) -> None:
    answer = rehearsed(tmp_path, HUGGING_FACE, FIRST)
    assert (answer["verdict"], answer["library"], answer["undisturbed"]) == ("exact", False, None), answer
