"""`everspot rehearse`: its input, its output, and the suggestion that `submit` prints."""

import sys
from pathlib import Path
from typing import Any

import pytest
from everspot_cli.commands import rehearse as command
from everspot_cli.errors import CliError
from everspot_cli.rehearsal import engine, history
from everspot_core.jobs.job import JobSpec

JOB = "name: mine\nentrypoint: [train.py, --fast]\ncode: src\n"
DIFFERENCE = {
    "kind": "loss", "name": "", "step": 4, "rank": 1, "expected": "0.25", "actual": "0.5", "cause": ["main.rng"],
    "fix": "the random generator main.rng is not restored: derive its numbers from the step",
}  # fmt: skip
EXACT = {
    "verdict": "exact", "library": True, "steps": 12, "processes": 1, "undisturbed": None, "leftovers": [],
    "ignored": [], "message": "", "output": "",
    "places": [
        {"place": "in the middle of an epoch", "verdict": "exact", "step": 3, "difference": None, "message": ""},
        {"place": "twice in a row", "verdict": "not reached", "step": None, "difference": None, "message": "[none]"},
    ],
}  # fmt: skip
ROW = {"place": "in the middle of an epoch", "verdict": "differs", "step": 3, "difference": DIFFERENCE, "message": ""}
LEFTOVER = {"name": "main.best[0]", "expected": "0.4", "actual": "9.0", "fix": "track it"}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A job's file with its code."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')\n")
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests to the rehearsing process; its answer is the first item."""
    calls: list[Any] = [EXACT]

    def run(spec: Any, folder: Path | None, steps: int | None, seconds: float, show: Any) -> dict[str, Any]:
        show("undisturbed", 1, 8)
        calls.append((spec, sorted(p.name for p in folder.iterdir()) if folder else None, steps, seconds))
        return dict(calls[0])

    monkeypatch.setattr(command, "run_rehearsal", run)
    return calls


def test_a_job_is_rehearsed_without_what_only_a_cluster_has(world, code, answers):
    (code / "job.yaml").write_text(JOB + "deadline: 3h\nretries: {errors: 5}\nrequirements: lock.txt\nsecrets: {}\n")
    (code / "lock.txt").write_text("numpy==2.0\n")
    answer = world.run("rehearse", str(code / "job.yaml"), "--steps", "9", "--processes", "2", "--", "--epochs", "1")
    assert answer.code == 0, answer.err
    spec, files, steps, seconds = answers[1]
    assert spec.entrypoint == ["train.py", "--fast", "--epochs", "1"]
    assert (spec.deadline, spec.requirements, spec.retries.errors, spec.resources.gpus) == (None, None, 0, 2)
    assert (files, steps, seconds) == (["train.py"], 9, 600.0)
    assert "requirements are not installed" in answer.out
    assert "Exact: 12 steps, 1 place of interruption" in answer.out
    assert "[none]" in answer.out, "text of a user is no markup"
    assert "run 1 of 8: undisturbed" in answer.err


def test_a_streamed_dataset_is_read_from_the_folder_of_this_machine(world, code, answers):
    (code / "data" / "web").mkdir(parents=True)
    (code / "job.yaml").write_text(JOB + "datasets: [web]\nstream: [web]\n")
    answer = world.run("rehearse", str(code / "job.yaml"), env={"EVERSPOT_DATA": str(code / "data")})
    assert answer.code == 0, answer.err
    spec = answers[1][0]
    assert (spec.datasets, spec.stream) == ([], [])
    JobSpec.model_validate(spec.model_dump())  # as the agent that rehearses reads it
    assert "web is read from EVERSPOT_DATA, not streamed through a cache" in answer.out


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [((), (0, 2, 2)), (("--processes", "3"), (3, 3, 3)), (("--set", "resources.gpus=4"), (4, 2, 2))],
)
def test_a_job_is_rehearsed_with_its_processes_unless_others_are_chosen(world, code, answers, chosen, expected):
    (code / "job.yaml").write_text(JOB + "processes: 2\n")
    assert world.run("rehearse", str(code / "job.yaml"), *chosen).code == 0
    spec = answers[1][0]
    assert (spec.resources.gpus, spec.processes, spec.process_count) == expected


def test_a_script_alone_is_a_job_of_its_folder(world, code, answers):
    assert world.run("rehearse", str(code / "src" / "train.py")).code == 0
    assert (answers[1][0].entrypoint, answers[1][1]) == (["train.py"], ["train.py"])


def test_a_difference_ends_with_1_and_names_step_cause_and_remedy(world, code, answers):
    answers[0] = {**EXACT, "verdict": "differs", "places": [ROW], "leftovers": [LEFTOVER], "ignored": ["metric t"]}
    answer = world.run("rehearse", str(code / "job.yaml"))
    assert answer.code == 1
    assert "loss at step 4 on rank 1: 0.5 instead of 0.25" in answer.out
    assert "the random generator main.rng is not restored" in answer.out
    assert "main.best[0]: 9.0 instead of 0.4" in answer.out
    assert "Not exact: 12 steps, 1 place of interruption; 1 changes the result." in answer.out
    json = world.run("rehearse", str(code / "job.yaml"), "--json")
    assert (json.code, json.err) == (1, "")
    assert json.json["places"] == [ROW] and json.json["code_digest"]


def test_a_script_that_differs_from_itself_is_told_so_first(world, code, answers):
    answers[0] = {**EXACT, "verdict": "differs", "undisturbed": {**DIFFERENCE, "fix": "seed it"}}
    answer = world.run("rehearse", str(code / "job.yaml"))
    assert answer.code == 1
    assert answer.out.startswith("Two undisturbed runs differ from each other")
    assert "Not deterministic" in answer.out


def test_a_program_that_fails_ends_with_5_and_shows_its_output(world, code, answers):
    answers[0] = {
        **EXACT,
        "verdict": "failed",
        "message": "ValueError: no [data]",
        "output": "Traceback …",
        "places": [],
    }
    answer = world.run("rehearse", str(code / "job.yaml"))
    assert answer.code == 5
    assert "Traceback" in answer.err and "ValueError: no [data]" in answer.err


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("name: UPPER\nentrypoint: [train.py]\ncode: src\n", (), "name"),
        (JOB, ("--processes", "0"), "--processes"),
        (JOB, ("--steps", "1"), "steps"),
        (JOB, ("--timeout", "soon"), "--timeout"),
        (JOB, ("--set", "nothing"), "--set"),
        (JOB + "datasets: [flowers]\n", (), "EVERSPOT_DATA"),
        ("name: a\nrecipe: image-classification\n", ("--", "x=1"), "arguments"),
    ],
)
def test_bad_input_ends_with_2_before_anything_runs(world, code, answers, text, arguments, message):
    (code / "job.yaml").write_text(text)
    answer = world.run("rehearse", str(code / "job.yaml"), *arguments)
    assert answer.code == 2, answer.err
    assert message in answer.err
    assert len(answers) == 1


def test_a_machine_without_torch_is_told_what_to_install(world, code, monkeypatch):
    def missing(program: str, extra: str) -> None:
        raise CliError(f"{program} needs torch, which is not installed: pip install 'everspot[{extra}]'")

    monkeypatch.setattr(engine, "need", missing)
    answer = world.run("rehearse", str(code / "job.yaml"))
    assert answer.code == 4
    assert "pip install 'everspot[image]'" in answer.err


def test_a_rehearsal_that_dies_is_an_error_in_one_sentence(world, code, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    answer = world.run("rehearse", str(code / "job.yaml"))
    assert answer.code == 1
    assert "the rehearsal ended without an answer" in answer.err


def test_submit_suggests_a_rehearsal_until_the_code_was_exact(world, code, answers):
    submit = ("submit", str(code / "job.yaml"))
    answer = world.run(*submit)
    assert answer.code == 0, answer.err
    assert f"`everspot rehearse {code / 'job.yaml'}` shows it." in answer.out
    assert world.run(*submit, "--json").json["rehearsed"] is False
    answers[0] = {**EXACT, "verdict": "differs", "places": [ROW]}
    assert world.run("rehearse", str(code / "job.yaml")).code == 1
    assert world.run(*submit, "--json").json["rehearsed"] is False
    answers[0] = EXACT
    assert world.run("rehearse", str(code / "job.yaml")).code == 0
    assert world.run(*submit, "--json").json["rehearsed"] is True
    assert "rehearse" not in world.run(*submit).out
    (code / "src" / "train.py").write_text("print('changed')\n")
    assert world.run(*submit, "--json").json["rehearsed"] is False


def test_a_recipe_needs_no_rehearsal(world, tmp_path):
    (tmp_path / "job.yaml").write_text("name: a\nrecipe: image-classification\nresources: {vcpus: 1, memory_gib: 1}\n")
    answer = world.run("submit", str(tmp_path / "job.yaml"))
    assert answer.code == 0, answer.err
    assert "rehearse" not in answer.out
    assert world.run("submit", str(tmp_path / "job.yaml"), "--json").json["rehearsed"] is None


def test_a_history_that_cannot_be_read_or_written_hinders_nothing(world, code, answers):
    history.path().parent.mkdir(parents=True)
    history.path().write_text("{broken")
    assert world.run("submit", str(code / "job.yaml"), "--json").json["rehearsed"] is False
    history.path().unlink()
    history.path().mkdir()
    assert world.run("rehearse", str(code / "job.yaml")).code == 0
