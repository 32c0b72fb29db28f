"""The recipe `language-model`: accepted and refused inputs, learning, resume, and sharding."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_core.jobs.recipes import METRICS
from everspot_train.recipes import language_model as recipe
from everspot_train.recipes.gpt import Gpt
from everspot_train.recipes.images import BadDataset
from everspot_train.recipes.language_model import load_sequences
from everspot_train.recipes.parameters import BadParameters, LanguageModel, read_parameters
from everspot_train.rundir import CheckpointRequest, TrainingPhase
from trainer_post import Post

pytestmark = pytest.mark.torch

TINY = {"context": 16, "width": 16, "heads": 2, "layers": 2, "epochs": 1, "batch_size": 8, "limit_train": 128}


def test_the_documentation_that_comes_with_python_is_divided_into_training_and_test() -> None:
    sequences = load_sequences("python-docs", 64)
    assert sequences.train.dtype is torch.uint8 and sequences.train.shape[1] == sequences.test.shape[1] == 65
    assert 8 <= len(sequences.train) / len(sequences.test) <= 10
    text = bytes(sequences.train[0].tolist())
    assert bytes(sequences.train[1].tolist())[0] == text[-1], "each byte but the first is predicted once"
    assert len(load_sequences("python-docs", 64, limit=100).train) == 100


def test_files_are_read_alone_or_by_the_folder(tmp_path: Path) -> None:
    for name, content in (("b.txt", b"b" * 400), ("a.txt", b"a" * 400), ("c.bin", b"c" * 400)):
        (tmp_path / name).write_bytes(content)
    assert load_sequences(str(tmp_path / "a.txt"), 8).train.unique().tolist() == [ord("a")]
    train = load_sequences(str(tmp_path), 8).train
    assert (train[0, 0], train[-1, -1]) == (ord("a"), ord("b")) and ord("c") not in train


@pytest.mark.parametrize(
    ("content", "complaint"), [(b"short", "has 5 bytes, and 161 are needed"), (None, "a file or a folder of .txt")]
)
def test_a_text_that_is_missing_or_too_short_is_refused(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "text").write_bytes(content)
    with pytest.raises(BadDataset, match=complaint):
        load_sequences(str(tmp_path / "text"), 8)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"width": 30, "heads": 4}, r"width \(30\) has to be a multiple of heads \(4\)"),
        ({"batch_size": "auto"}, "batch_size: auto needs global_batch"),
        ({"parallel": "zero"}, "parallel"),
    ],
)
def test_wrong_parameters_are_named(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadParameters, match=complaint):
        read_parameters(LanguageModel, values)


@pytest.fixture
def job(post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Post]:
    """A post whose job is this recipe with these parameters; this process is its trainer."""
    torch.set_num_threads(1)

    def make(epoch: int = 1, **parameters: object) -> Post:
        spec = {"recipe": "language-model", "precision": "fp32", "parameters": TINY | parameters}
        posted = post(epoch, spec=spec)
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(posted.root))
        return posted

    return make


def test_the_recipe_learns_and_leaves_its_figures(
    job: Callable[..., Post], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERSPOT_OUTPUT_DIR", str(tmp_path / "outputs"))
    text = tmp_path / "text"
    text.write_text("the quick brown fox jumps over the lazy dog, and " * 100)
    post = job(epochs=6, learning_rate=0.02, data=str(text))
    assert recipe.main([]) == 0
    assert (post.status.phase, post.status.step, post.status.steps_per_epoch) == (TrainingPhase.FINISHED, 96, 16)
    assert post.status.metrics["test_loss"] < 1, "256 values that are equally likely have 5.5 nats"
    assert set(post.status.metrics) <= METRICS["language-model"]
    metrics = json.loads((tmp_path / "outputs" / "metrics.json").read_text())
    assert metrics["test_loss"] == post.status.metrics["test_loss"]
    Gpt(16, 16, 2, 2, 0.0).load_state_dict(torch.load(tmp_path / "outputs" / "model.pt", weights_only=True))


@pytest.mark.parametrize("later", [{}, {"activation_checkpointing": True}])
def test_the_recipe_goes_on_from_a_checkpoint_to_the_same_weights(
    job: Callable[..., Post], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, later: dict[str, Any]
) -> None:
    monkeypatch.setenv("EVERSPOT_OUTPUT_DIR", str(tmp_path))
    first = job(1, dropout=0.1)
    take = recipe.next_byte_loss

    def loss_and_request(model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
        if not first.rundir.file_path(CheckpointRequest).exists():
            first.rundir.write(CheckpointRequest(seq=1))
        return take(model, text)

    monkeypatch.setattr(recipe, "next_byte_loss", loss_and_request)
    assert recipe.main([]) == 0
    head = first.store.heads.get("digits-1").value
    final, early = head.checkpoints
    assert (final.step, early.step) == (16, 1)
    whole = torch.load(tmp_path / "model.pt", weights_only=True)
    first.store.heads.put("digits-1", head.model_copy(update={"checkpoints": [early]}))
    second = job(2, dropout=0.1, **later)
    assert recipe.main([]) == 0
    assert second.status.resumed_from == 1
    weights = torch.load(tmp_path / "model.pt", weights_only=True)
    assert list(weights) == list(whole)
    assert all(torch.equal(weights[name], value) for name, value in whole.items())


SCRIPT = """
import json, os
from everspot_train.recipes import language_model as recipe
import torch
torch.set_num_threads(1)
raise SystemExit(recipe.main(json.loads(os.environ["WORDS"])))
"""


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_two_ranks_share_the_model_and_learn_the_same(parallel: str, post: Callable[..., Post], tmp_path: Path) -> None:
    """The same sequences in each step: 16 in one batch, or 4 in each of 2 batches on 2 ranks."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for name, ranks, settings in (
        ("one", 1, {"batch_size": 16}),
        ("two", 2, {"batch_size": 4, "accumulation": 2, "parallel": parallel, "activation_checkpointing": True}),
    ):
        words = [f"{key}={json.dumps(value)}" for key, value in (TINY | settings).items()]
        environment = {"EVERSPOT_RUN_DIR": "", "EVERSPOT_OUTPUT_DIR": str(tmp_path / name), "WORDS": json.dumps(words)}
        post(ranks).run_ranks(tmp_path / "losses", ranks, script=script, **environment)
    first, second = (torch.load(tmp_path / name / "model.pt", weights_only=True) for name in ("one", "two"))
    assert list(first) == list(second)
    figures = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("one", "two")]
    assert figures[0]["steps"] == figures[1]["steps"] == 8
    assert figures[1]["test_loss"] == pytest.approx(figures[0]["test_loss"], rel=0.02)  # auto may be bf16 here


def test_an_automatic_batch_size_keeps_the_global_batch(job: Callable[..., Post]) -> None:
    post = job(batch_size="auto", global_batch=32)
    assert recipe.main([]) == 0
    assert post.status.step == 4
    assert post.store.heads.get("digits-1").value.checkpoints[0].info["global_batch"] == 32
