"""Submitting a job file: the stored submission, errors that name every wrong field, and the dry run."""

import json
import subprocess
import sys
from datetime import timedelta

import pytest

GOOD = """
name: fashion
recipe: image-classification
deadline: 6h
resources: {vcpus: 2, memory_gib: 4}
"""


def test_submit_creates_the_job_and_says_what_next_with_its_id(world, spec_file):
    answer = world.run("submit", str(spec_file(GOOD)))
    assert answer.code == 0, answer.err
    (job,) = world.store.jobs.scan()
    assert job.startswith("fashion-")
    assert "What next" in answer.out
    for command in ("logs -f", "job", "cluster interrupt", "cost report", "cancel"):
        assert f"everspot {command} {job}" in answer.out
    submission = world.store.jobs.get(job).value
    assert submission.deadline_at - submission.submitted_at == timedelta(hours=6)
    assert [e.kind.value for e in world.store.events(job)] == ["submitted"]


def test_submit_answers_json_with_the_flag_at_either_place(world, spec_file):
    path = str(spec_file(GOOD))
    for arguments in (("--json", "submit", path), ("submit", path, "--json")):
        answer = world.run(*arguments)
        assert answer.json["job_id"] in world.store.jobs.scan()


def test_submit_uploads_the_code_folder_relative_to_the_file(world, spec_file, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')\n")
    path = spec_file("name: own\nentrypoint: [train.py, --fast]\ncode: src\n")
    answer = world.run("--json", "submit", str(path))
    assert answer.code == 0, answer.err
    world.store.fetch_code(world.store.jobs.get(answer.json["job_id"]).value, tmp_path / "there")
    assert (tmp_path / "there" / "train.py").read_text() == "print('hello')\n"


def test_every_bad_field_is_named_at_once_with_what_is_allowed(world, spec_file):
    path = spec_file(
        """
name: Bad Name
recipe: image-clasification
priority: urgent
deadline: soon
resource: {vcpus: 1}
resources: {vcpus: 0, gpus: two}
checkpoint: {every: 1s}
"""
    )
    answer = world.run("submit", str(path))
    assert answer.code == 1
    for words in (
        "name: 1 to 40 small letters",
        "recipe: 'image-clasification' is no recipe (did you mean image-classification?); allowed: image-",
        "priority: must be 'critical' or 'normal', not 'urgent'",
        "deadline:",
        "resource: unknown field (did you mean resources?); allowed: name, recipe",
        "resources.vcpus:",
        "resources.gpus: has to be a number, not 'two'\n",
        "checkpoint.every: must be at least 5s",
    ):
        assert words in answer.err
    assert world.store.jobs.scan() == {}


def test_errors_are_json_too(world, spec_file):
    answer = world.run("--json", "submit", str(spec_file("name: x\n")))
    assert answer.code == 1
    import json

    error = json.loads(answer.err)
    assert error["exit_code"] == 1
    assert "either recipe or entrypoint has to say what runs" in error["problems"][0]["problem"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n- b\n", "mapping"),
        ("a: [", "neither YAML nor JSON"),
        ("name: x\nentrypoint: [t.py]\ncode: nowhere\n", "not a folder"),
    ],
)
def test_a_file_that_is_no_job_is_refused(world, spec_file, text, words):
    answer = world.run("submit", str(spec_file(text)))
    assert answer.code == 1
    assert words in answer.err


def test_a_deadline_in_the_past_is_refused(world, spec_file):
    answer = world.run(
        "submit", str(spec_file("name: x\nrecipe: image-classification\ndeadline: 2020-01-01T00:00:00Z\n"))
    )
    assert answer.code == 1
    assert "passed already" in answer.err


def test_dry_run_prices_the_candidates_and_submits_nothing(world, spec_file):
    path = spec_file(GOOD + "expected_duration: 2h\n")
    world.beat("i-spot2")
    table = world.run("submit", str(path), "--dry-run")
    assert table.code == 0, table.err
    assert "m7i.large *" in table.out
    assert "Nothing was submitted" in table.out
    assert "months old" in table.out or "years old" in table.out
    answer = world.run("--json", "submit", str(path), "--dry-run").json
    candidates = {c["name"]: c for c in answer["candidates"]}
    assert candidates["m7i.large"]["in_cluster"]
    assert {c["region"] for c in answer["candidates"]} == {"us-east-1"}
    assert all(c["price_source"] and c["price_as_of"] for c in answer["candidates"])
    assert candidates["m6i.large"]["expected_on_demand_usd"] == pytest.approx(0.192)
    assert world.store.jobs.scan() == {}


def test_dry_run_marks_what_lives_and_not_what_has_lived(world, spec_file):
    path = str(spec_file(GOOD))
    world.launch("i-spot2", 0)
    world.beat("i-spot2")
    assert world.run("--json", "submit", path, "--dry-run").json["fits_now"] == ["m7i.large"]
    world.end("i-spot2", 100)
    assert world.run("--json", "submit", path, "--dry-run").json["fits_now"] == []
    narrow = world.run("submit", path, "--dry-run", env={"COLUMNS": "80"}).out
    assert "…" not in narrow
    assert "candidates in us-east-1" in narrow


def test_dry_run_needs_no_store(spec_file, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", "--json", "submit", str(spec_file(GOOD)), "--dry-run"],
        capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path,
        env={"PATH": "/nowhere", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"us-central1"' in done.stdout


def test_a_job_that_nothing_can_hold_is_refused_with_the_nearest_types(world, spec_file):
    answer = world.run("submit", str(spec_file(GOOD.replace("vcpus: 2", "gpus: 99"))), "--dry-run")
    assert answer.code == 1
    assert "GPUs 8 of 99" in answer.err


def test_options_that_cannot_be_read_are_told_with_what_is_wrong_in_the_job(world, spec_file):
    path = str(spec_file("name: a\nrecipe: image-classification\n"))
    wrong = ["--set", "parameters.epochs=many", "--set", "foo.bar=1", "--set", "deadline", "--env", "NOTHING"]
    answer = world.run("--json", "submit", path, *wrong)
    error = json.loads(answer.err)
    assert (answer.code, error["exit_code"]) == (2, 2)
    fields = {problem["field"] for problem in error["problems"]}
    assert fields == {"--set deadline", "--env NOTHING", "parameters.epochs", "foo"}
    only = world.run("submit", path, "--set", "deadline")
    assert (only.code, "options cannot be read" in only.err) == (2, True)


def test_a_deadline_that_is_shorter_than_the_work_is_told_with_other_faults(world, spec_file):
    text = "name: a\nrecipe: image-classification\ndeadline: 1h\nexpected_duration: 2h\nparameters: {epochs: many}\n"
    path = str(spec_file(text))
    error = json.loads(world.run("--json", "submit", path).err)
    assert {p["field"]: p["problem"] for p in error["problems"]}["deadline"].startswith("is too early: expected")
    forced = json.loads(world.run("--json", "submit", path, "--force").err)
    assert [problem["field"] for problem in forced["problems"]] == ["parameters.epochs"]
