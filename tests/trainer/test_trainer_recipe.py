"""The recipe: accepted and refused inputs, and learning."""

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch
from everspot_core.jobs.recipes import METRICS
from everspot_train.recipes import image_classification as recipe
from everspot_train.recipes.command import parse_arguments
from everspot_train.recipes.image_classification import ResNet
from everspot_train.recipes.images import FASHION_MNIST_SHA256, BadDataset, find_folder, load_images, parse_idx
from everspot_train.recipes.parameters import BadParameters, ImageClassification, read_parameters
from everspot_train.recipes.progress import ProgressLog
from everspot_train.rundir import CheckpointRequest, TrainingPhase
from everspot_train.trainer import Run
from trainer_post import Post

pytestmark = pytest.mark.torch

TINY = {"data": "synthetic", "limit_train": 256, "epochs": 4, "batch_size": 32, "width": 4, "learning_rate": 0.2}


def idx(*shape: int, content: bytes | None = None, kind: int = 8) -> bytes:
    size = 1
    for extent in shape:
        size *= extent
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape) + (content or bytes(size))


def write_set(folder: Path, count: int = 6, labels: int = 6, packed: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in FASHION_MNIST_SHA256:
        content = idx(count, 28, 28) if "images" in name else idx(labels)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def test_an_idx_file_is_read_by_its_header() -> None:
    assert parse_idx(idx(2, 3, content=bytes(range(6))), "x").tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "begins with nothing"),
        (b"PK\x03\x04rest", "begins with 504b0304"),
        (idx(2, kind=13), "not an IDX file of unsigned bytes"),
        (idx(2, 3)[:7], "ends within its header"),
        (idx(2, 3)[:-1], "should hold 6 bytes for shape \\(2, 3\\) and holds 5"),
        (idx(2, 3) + b"x", "holds 7"),
        (idx(2**31, 2**31, content=b"x"), "and holds 1"),
    ],
)
def test_a_file_that_is_no_idx_or_is_cut_off_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(BadDataset, match=complaint):
        parse_idx(content, "x")


@pytest.mark.parametrize("packed", [True, False])
def test_a_folder_of_idx_files_is_read_packed_or_not(tmp_path: Path, packed: bool) -> None:
    write_set(tmp_path / "usr/share/datasets/fashion-mnist", packed=packed)
    images = load_images(str(tmp_path), limit=4)
    assert (images.x.shape, images.test_x.shape) == ((4, 1, 28, 28), (6, 1, 28, 28))


def test_files_that_only_look_like_the_official_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_set(tmp_path)
    monkeypatch.setenv("EVERSPOT_DATA", str(tmp_path))
    with pytest.raises(BadDataset, match="not the official file"):
        load_images("fashion-mnist")


def test_images_and_labels_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    write_set(tmp_path, labels=5)
    with pytest.raises(BadDataset, match="do not fit"):
        load_images(str(tmp_path))


def test_missing_data_names_every_place_that_was_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadDataset, match=f"{tmp_path}.*usr/share/datasets/fashion-mnist"):
        find_folder(str(tmp_path))
    monkeypatch.delenv("EVERSPOT_DATA", raising=False)
    with pytest.raises(BadDataset, match="EVERSPOT_DATA is not set"):
        load_images("fashion-mnist")


def test_one_error_names_every_wrong_parameter() -> None:
    with pytest.raises(BadParameters) as caught:
        read_parameters(ImageClassification, {"epochs": 0, "batch_size": "many", "lr": 1, "width": 8})
    assert all(name in str(caught.value) for name in ("3 wrong", "epochs", "batch_size", "lr"))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"batch_size": "auto"}, "batch_size: auto needs global_batch"),
        ({"global_batch": 64}, "global_batch goes with batch_size: auto"),
        ({"batch_size": "auto", "global_batch": 64, "accumulation": 2}, "accumulation follows from global_batch"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_the_global_batch_is_decided_once(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadParameters, match=complaint):
        read_parameters(ImageClassification, values)


def test_words_on_the_command_line_become_parameters() -> None:
    words = parse_arguments(["epochs=2", "data=/some/where", "clip=null"])
    assert words == {"epochs": 2, "data": "/some/where", "clip": None}
    with pytest.raises(BadParameters, match="'epochs' is not"):
        parse_arguments(["epochs"])


@pytest.fixture
def job(post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Post]:
    """A post whose job is this recipe with these parameters; this process is its trainer."""

    def make(epoch: int = 1, **parameters: object) -> Post:
        posted = post(epoch, spec={"recipe": "image_classification", "parameters": TINY | parameters})
        monkeypatch.setenv("EVERSPOT_RUN_DIR", str(posted.root))
        return posted

    return make


def test_the_recipe_learns_and_reports_its_test_accuracy(job: Callable[..., Post]) -> None:
    torch.set_num_threads(1)
    post = job()
    assert recipe.main([]) == 0
    assert (post.status.phase, post.status.step) == (TrainingPhase.FINISHED, 32)
    assert post.status.metrics["test_accuracy"] > 0.9


def test_the_recipe_ends_with_the_same_weights_when_it_goes_on_from_a_checkpoint(
    job: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    first = job(1, dropout=0.2, flip=True)
    take = recipe.Scale.__call__

    def scale_and_wish(self: recipe.Scale, x: torch.Tensor) -> torch.Tensor:
        if first.status.step >= 0 and not first.rundir.file_path(CheckpointRequest).exists():
            first.rundir.write(CheckpointRequest(seq=1))
        return take(self, x)

    monkeypatch.setattr(recipe.Scale, "__call__", scale_and_wish)
    assert recipe.main([]) == 0
    head = first.store.heads.get("digits-1").value
    final, early = head.checkpoints
    assert (final.step, early.step) == (32, 1)
    first.store.heads.put("digits-1", head.model_copy(update={"checkpoints": [early]}))
    second = job(2, dropout=0.2, flip=True)
    assert recipe.main([]) == 0
    assert second.status.resumed_from == 1
    digests = {part.name: part.sha256 for part in final.parts}
    again = {part.name: part.sha256 for part in second.store.heads.get("digits-1").value.checkpoints[0].parts}
    assert again == digests


def test_an_automatic_batch_size_makes_the_steps_of_the_global_batch(
    job: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    post = job(batch_size="auto", global_batch=64, compile=False)
    assert recipe.main([]) == 0
    assert (post.status.phase, post.status.step) == (TrainingPhase.FINISHED, 16)
    assert post.store.heads.get("digits-1").value.checkpoints[0].info["global_batch"] == 64


@pytest.mark.nightly  # compiles for half a minute; test_trainer_model_setup.py compiles, test_trainer_habits.py resumes
def test_a_compiled_network_is_checkpointed_like_any_other(
    job: Callable[..., Post], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("EVERSPOT_OUTPUT_DIR", str(tmp_path / "outputs"))
    post = job(compile=True, epochs=0.5)
    assert recipe.main([]) == 0
    assert (post.status.phase, post.status.step) == (TrainingPhase.FINISHED, 4)
    ResNet(10, 4, 2, 0.0).load_state_dict(torch.load(tmp_path / "outputs" / "model.pt", weights_only=True))


def test_wrong_parameters_of_a_job_are_told_to_its_agent(job: Callable[..., Post]) -> None:
    """A job's own are refused at submission; those of the command line come on top of them."""
    post = job(width=8)
    assert recipe.main(["width=0"]) == 2
    assert post.status.phase is TrainingPhase.FAILED
    assert "width" in post.status.message


def test_missing_data_is_told_to_the_agent(job: Callable[..., Post], tmp_path: Path) -> None:
    post = job(data=str(tmp_path / "nowhere"))
    assert recipe.main([]) == 2
    assert post.status.phase is TrainingPhase.FAILED
    assert "nowhere" in post.status.message


def test_the_log_tells_step_loss_and_rate_every_ten_seconds_and_reads_no_loss_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Counting:
        rank, steps_done, reads, epoch = 0, 0, 0, 0

        @property
        def last_loss(self) -> float:
            self.reads += 1
            return 0.5

    run, now = Counting(), 0.0
    caplog.set_level("INFO", "everspot.recipe")
    progress_log = ProgressLog(total=1000, samples=64, clock=lambda: now)
    for number in range(500):  # 20 steps a second, 300 in an epoch
        run.epoch = number // 300
        run.steps_done += 1
        progress_log.step(cast(Run, run))
        now += 0.05
    assert caplog.messages == [
        "step 1 of 1000, epoch 1: loss 0.5000",
        "step 201 of 1000, epoch 1: loss 0.5000, 1280 samples/s",
        "step 401 of 1000, epoch 2: loss 0.5000, 1280 samples/s",
    ]
    assert run.reads == 3
    run.rank = 1
    now += 60
    progress_log.step(cast(Run, run))
    assert run.reads == 3


def test_the_recipe_leaves_its_figures_and_weights_in_the_folder_that_is_kept(
    job: Callable[..., Post], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("EVERSPOT_OUTPUT_DIR", str(tmp_path / "outputs"))
    caplog.set_level("INFO", "everspot.recipe")
    post = job(epochs=0.25)
    assert recipe.main([]) == 0
    metrics = json.loads((tmp_path / "outputs" / "metrics.json").read_text())
    assert metrics["test_accuracy"] == post.status.metrics["test_accuracy"]
    assert {"test_accuracy"} <= set(post.status.metrics) <= METRICS["image-classification"]
    assert (metrics["steps"], metrics["parameters"]["width"]) == (2, 4)
    weights = torch.load(tmp_path / "outputs" / "model.pt", weights_only=True)
    ResNet(10, 4, 2, 0.0).load_state_dict(weights)
    assert any(message.startswith("step 1 of 2, epoch 1: loss ") for message in caplog.messages)
