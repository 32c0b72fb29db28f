"""Which checkpoint each call of a program resumes from, and what is reported of several calls."""

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import program_forks
import pytest
from everspot_train.frameworks.calls import CallLabels, PastCall, read_call_site
from trainer_post import Post

PROGRAM = Path(__file__).parents[1] / "agent" / "programs" / "loops" / "calls.py"


@pytest.fixture
def post(tmp_path: Path) -> Post:
    return Post(tmp_path / "run-1", tmp_path / "store")


def run_attempt(post: Post, folder: Path, framework: str, stop_at: str = "", processes: int = 1) -> list[str]:
    env = os.environ | {
        "EVERSPOT_RUN_DIR": str(post.rundir.path), "EVERSPOT_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "FRAMEWORK": framework, "STOP_AT": stop_at, "USE_LIBUV": "0",
    }  # fmt: skip
    (folder / "checkpoints").mkdir(exist_ok=True)
    command = [*shlex.split(program_forks.launcher(processes)), str(PROGRAM)]
    done = subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def read_steps(lines: list[str], call: str) -> list[int]:
    return [int(line.split()[2]) for line in lines if line.startswith(f"made {call} ")]


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize("framework", ["lightning", "accelerate", "transformers"])
def test_a_skipped_first_stage_does_not_change_where_the_second_one_resumes(
    post: Post, tmp_path: Path, framework: str
) -> None:
    """The steps of both stages count as the job's: the second one's figures would be lost behind the first one's."""
    first = run_attempt(post, tmp_path, framework, "two 3")
    assert read_steps(first, "one") == list(range(1, 25))
    assert read_steps(first, "two")[-3:] == [1, 2, 3]  # Lightning's search for a learning rate comes before
    assert any(line.startswith("EVERSPOT step=27") for line in first)

    later = run_attempt(replace(post, root=tmp_path / "run-2", epoch=2), tmp_path, framework)
    assert read_steps(later, "one") == []
    assert read_steps(later, "two") == list(range(4, 25))
    reports = [line for line in later if line.startswith("EVERSPOT ")]
    assert reports[0].startswith("EVERSPOT step=27 total_steps=48")
    assert reports[-1].startswith("EVERSPOT step=48")
    if framework == "lightning":  # what `on_train_epoch_start` sets
        assert [line for line in later if line.startswith("made two 4 ")] == ["made two 4 1.0"]


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_lightning_resumes_from_a_checkpoint_that_is_a_folder(post: Post, tmp_path: Path) -> None:
    post = replace(post, root=tmp_path / "run-3", checkpoint={"steps": 3})
    run_attempt(post, tmp_path, "folders", "one 13")
    folder = tmp_path / "checkpoints" / "everspot" / "fit-1"
    assert sorted(path.name for path in folder.iterdir()) == ["step=12.ckpt", "step=13.ckpt"]
    later = run_attempt(replace(post, root=tmp_path / "run-4", epoch=2), tmp_path, "folders")
    assert read_steps(later, "one") == list(range(14, 25))


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_an_accelerate_loop_goes_on_with_more_ranks_from_the_beginning_of_the_epoch(post: Post, tmp_path: Path) -> None:
    run_attempt(post, tmp_path, "accelerate", "one 11")
    later = run_attempt(replace(post, root=tmp_path / "run-2", epoch=2), tmp_path, "accelerate", processes=2)
    assert sorted(read_steps(later, "one")) == sorted([*range(12, 20)] * 2)  # two epochs of four batches


@pytest.mark.torch
def test_an_accelerate_loop_refuses_loaders_that_restore_themselves(
    post: Post, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration
    from everspot_train.frameworks.accelerate import ResumableLoop

    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(post.rundir.path))
    monkeypatch.setenv("EVERSPOT_CHECKPOINT_DIR", str(tmp_path))
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    with pytest.raises(ValueError, match="use_stateful_dataloader=True would repeat samples after a resume; remove it"):
        ResumableLoop(accelerator)


def call_here() -> tuple[str, ...]:
    return read_call_site()


@pytest.mark.torch
def test_calls_of_a_program_get_the_checkpoints_of_the_same_calls() -> None:
    first_site = call_here()
    second_site = call_here()
    edited_site = (second_site[0].replace("two", "other"), *second_site[1:])
    finished = {1: PastCall(first_site, is_finished=True)}
    table = [
        ("the same call", first_site, finished, "1"),
        ("another call, that was never made", second_site, finished, "2"),
        ("another call, that was made", second_site, finished | {2: PastCall(second_site, is_finished=False)}, "2"),
        ("a call in a program that was edited", second_site, {1: PastCall(edited_site, is_finished=True)}, "1"),
        ("a call of a version without places", second_site, {1: PastCall((), is_finished=True)}, "1"),
    ]
    for case, site, past, label in table:
        assert CallLabels().assign(None, site, past) == label, case


@pytest.mark.torch
def test_calls_of_a_loop_are_warned_of_and_may_have_names(caplog: pytest.LogCaptureFixture) -> None:
    labels, site = CallLabels(), call_here()
    assert [labels.assign(f"fold-{number}", site, {}) for number in range(2)] == ["fold-0", "fold-1"]
    assert not caplog.records
    assert [labels.assign(None, site, {}) for _ in range(3)] == ["1", "2", "3"]
    (record,) = caplog.records
    assert "give each call a name of its own" in record.getMessage()
    for name, text in [("fold-1", "another call of this program has it"), ("../x", "a letter, then")]:
        with pytest.raises(ValueError, match=text):
            labels.assign(name, site, {})
