"""Arbitrary and malicious job files: each is accepted, or refused in a few lines that name the problem."""

import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from everspot_cli.errors import CliError
from everspot_cli.specs import Overrides, override_spec, read_spec
from everspot_cli.yamlfile import read_yaml
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.validation.problems import SHOWN_AT_MOST
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

GOOD: dict[str, Any] = {"name": "mine", "recipe": "image-classification"}
SCRIPT: dict[str, Any] = {"name": "mine", "entrypoint": ["train.py"], "code": "src"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src/lib").mkdir(parents=True)
    (tmp_path / "src/train.py").write_text("print(1)\n")
    (tmp_path / "outside.py").write_text("print(2)\n")
    (tmp_path / "src/leads_out.py").symlink_to(tmp_path / "outside.py")
    return tmp_path


def write_and_read(folder: Path, values: Any) -> JobSpec:
    path = folder / "job.yaml"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return read_spec(path)


def read_problems(folder: Path, values: Any) -> dict[str, str]:
    with pytest.raises(CliError) as caught:
        write_and_read(folder, values)
    return {p["field"]: p["problem"] for p in caught.value.problems}


def test_what_the_file_says_is_taken_by_its_word(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(
        "\ufeffdeadline: 2026-01-31T12:00:00Z\nspan: '12:30'\nzip: \"007\"\nrate: 1.0e-3\n"
        "base: &b {x: 1, y: 2}\nmore: *b\n"
    )
    assert read_yaml(path) == {
        "deadline": "2026-01-31T12:00:00Z", "span": "12:30", "zip": "007", "rate": 0.001,
        "base": {"x": 1, "y": 2}, "more": {"x": 1, "y": 2},
    }  # fmt: skip


def test_what_readers_take_differently_is_refused_with_every_place_and_the_quoted_form(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("name: mine\nenv: {DEBUG: yes, ZIP: 007}\nspan: 12:30\nrate: 1e-3\nsince: 2026-01-31\non: x\n")
    with pytest.raises(CliError, match="has 6 values that readers of YAML take differently") as caught:
        read_yaml(path)
    assert [problem["field"] for problem in caught.value.problems] == [
        "line 2, env.DEBUG", "line 2, env.ZIP", "line 3, span", "line 4, rate", "line 5, since", "line 6, on",
    ]  # fmt: skip
    assert all('write "' in problem["problem"] for problem in caught.value.problems)
    assert Overrides.read(None, ["parameters.learning_rate=1e-3"], []).fields == {"parameters.learning_rate": 0.001}


@pytest.mark.parametrize(
    ("policy", "sets", "interval"),
    [
        ({"keep": 3}, [], "auto"),
        ({}, [], "auto"),
        ({"every": None}, [], "auto"),
        (None, ["checkpoint.keep=3"], "auto"),
        ({"steps": 10, "every": "auto"}, [], "auto"),
        ({"every": "1m"}, ["checkpoint.every=auto"], "auto"),
        ({"steps": 10}, [], None),
        ({"steps": 10, "every": "1m"}, [], timedelta(minutes=1)),
    ],
)
def test_periodic_checkpoints_are_made_whatever_else_is_said_of_them(tmp_path: Path, policy, sets, interval) -> None:
    words = {"name": "mine", "recipe": "image-classification"} | ({"checkpoint": policy} if policy is not None else {})
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(words))
    spec = read_spec(tmp_path / "job.yaml", Overrides.read(None, sets, []))
    assert spec.checkpoint.every == interval
    stored = spec.model_dump(mode="json", exclude_none=True)
    assert stored["checkpoint"].get("every") == (
        interval.total_seconds() if isinstance(interval, timedelta) else interval
    )
    assert JobSpec.model_validate(stored, context={"stored": True}) == spec
    assert override_spec(spec, "mine", Overrides.read(None, ["checkpoint.keep=4"], [])).checkpoint.every == interval


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"resources": {"gpus": True}}, "resources.gpus", "has to be a number, not True"),
        ({"resources": {"vcpus": "4"}}, "resources.vcpus", "has to be a number, not '4'"),
        ({"processes": 0}, "processes", "greater than or equal to 1"),
        ({"processes": "two"}, "processes", "has to be a number, not 'two'"),
        ({"processes": 1025}, "processes", "less than or equal to 1024"),
        ({"processes": 3, "resources": {"gpus": 2}}, "processes", "3 are more than the 2 GPUs of resources.gpus"),
        ({"resources": {"memory_gib": 1e308}}, "resources.memory_gib", "less than or equal to 100000"),
        ("name: mine\nrecipe: image-classification\nresources: {memory_gib: .nan}", "resources.memory_gib", "finite"),
        ("name: mine\nrecipe: image-classification\nbudget: {dollars: .inf}", "budget.dollars", "finite"),
        ({"resources": {"memory_gib": 1e-300}}, "resources.memory_gib", "has to be at least 0.001"),
        (
            {**SCRIPT, "recipe": None, "entrypoint": ["train.py", "\x1b[2J"]},
            "entrypoint[1]",
            "has control or invisible characters",
        ),
        ({**SCRIPT, "recipe": None, "entrypoint": ["train.py", "x" * 140_000]}, "entrypoint[1]", "than the 128 KiB"),
        ({"setup": ["true", "echo \u202eabc"]}, "setup[1]", "invisible characters: 'echo \\u202eabc'"),
        ({"env": {"A": "a\x9bb"}}, "env.A", "has control or invisible characters"),
        ({"tags": {f"t{n}": "x" for n in range(101)}}, "tags", "has 101 entries; 100 are allowed"),
        ({"clouds": ["aws", "aws"]}, "clouds", "aws: listed twice"),
        ({"resources": {"gpu": " "}}, "resources.gpu", "is empty"),
        ({"budget": {"dollars": 1e-300}}, "budget.dollars", "has to be at least 0.0001"),
        ({"budget": {"dollars": True}}, "budget.dollars", "has to be a number, not True"),
        ({"deadline": "0001-01-01T00:00:00Z"}, "deadline", "a moment lies in the years 2020 to 2100"),
        ({"start_after": "9999-12-31T00:00:00Z"}, "start_after", "a moment lies in the years 2020 to 2100"),
        ({"retries": {"errors": 10**30}}, "retries.errors", "less than or equal to 1000"),
        ({"retries": {"backoff": -5}}, "retries.backoff", "between 0s and 3650d"),
        ({"retries": {"backoff": "-5s"}}, "retries.backoff", "not a duration"),
        ({"retries": {"backoff": True}}, "retries.backoff", "not a duration"),
        ({"checkpoint": {"keep": "1_000"}}, "checkpoint.keep", "has to be a number, not '1_000'"),
        ({"checkpoint": {"every": "9" * 400 + "d"}}, "checkpoint.every", "not a duration"),
        ({"checkpoint": {"every": "automatic"}}, "checkpoint.every", "'automatic' is not a duration"),
        ({"checkpoint": {"every": ["5m"]}}, "checkpoint.every", "has to be a duration such as 10m, or auto"),
        ({"checkpoint": {"every": "99999999d"}}, "checkpoint.every", "between 0s and 3650d"),
        ({"checkpoint": {"steps": 10**13}}, "checkpoint.steps", "less than or equal to"),
        ({"deadline": -3600}, "deadline", "between 0s and 3650d"),
        ({"expected_duration": 1e300}, "expected_duration", "between 0s and 3650d"),
        ({"budget": {"wall_clock": -1}}, "budget.wall_clock", "between 0s and 3650d"),
        ({"retries": {"stalled": "no"}}, "retries.stalled", "has to be true or false, not 'no'"),
        ({"retries": {"stalled": 1}}, "retries.stalled", "has to be true or false, not 1"),
        ({"retries": {"stalled": 0}}, "retries.stalled", "has to be true or false, not 0"),
        ({"parameters": {"flip": "no"}}, "parameters.flip", "has to be true or false, not 'no'"),
        ({"deadline": "1700000000"}, "deadline", "a moment is written with its zone"),
        ({"deadline": "0s"}, "deadline", "has to be longer than 0s"),
        ({"expected_duration": "0s"}, "expected_duration", "has to be longer than 0s"),
        ({"budget": {"wall_clock": 0}}, "budget.wall_clock", "has to be longer than 0s"),
        ("name: mine\nrecipe: image-classification\nbudget:\n  dollars:\n", "budget.dollars", "is empty: give a limit"),
        ("name: mine\nrecipe: image-classification\nparameters: {learning_rate: .nan}", "parameters", "NaN"),
        ({"env": {"A=B": "x"}}, "env", "'A=B' is no name of a variable"),
        ({"env": {"": "x"}}, "env", "'' is no name of a variable"),
        ({"env": {"1A": "x"}}, "env", "'1A' is no name of a variable"),
        ({"env": {"AWS_REGION": "x"}}, "env", "belong to the instance"),
        ({"env": {"A": "a\0b"}}, "env", "no NUL"),
        ({"env": {"A": "x" * 40_000}}, "env", "at most 32 KiB"),
        ({"tags": {"Team": "x" * 300}}, "tags", "a tag's value has 0 to 256 characters"),
        ({"tags": {" ": "x"}}, "tags", "a tag's key has 1 to 128 characters"),
        ({"tags": {"Team": "\x1b[2J"}}, "tags", "cannot be printed"),
        ({"name": "Mine"}, "name", "small letters"),
        (
            {"recipe": "image_klassification"},
            "recipe",
            "is no recipe (did you mean image-classification?); allowed: im",
        ),
        ({"parameters": {"epochs": -1, "leraning_rate": 1}}, "parameters.epochs", "must be greater than 0, not -1"),
        ({"parameters": {"epochs": -1, "leraning_rate": 1}}, "parameters.leraning_rate", "did you mean learning_rate?"),
        (
            {"parameters": {"flop": 1}},
            "parameters.flop",
            "allowed: data, epochs, batch_size, global_batch, accumulation, dropout, compile, seed",
        ),
        ({"parameters": {"width": "wide"}}, "parameters.width", "must be a whole number, not 'wide'"),
        ({"datasets": ["a", 3]}, "datasets[1]", "must be a text, not 3"),
        ({**SCRIPT, "recipe": None, "entrypoint": ["/bin/sh"]}, "entrypoint", "does not lie in `code`"),
        ({**SCRIPT, "recipe": None, "entrypoint": ["../outside.py"]}, "entrypoint", "does not lie in `code`"),
        ({**SCRIPT, "recipe": None, "entrypoint": ["leads_out.py"]}, "entrypoint", "leads_out.py leads out of"),
        ({**SCRIPT, "recipe": None, "entrypoint": ["lib"]}, "entrypoint", "there is no lib in"),
        ({**SCRIPT, "recipe": None, "entrypoint": [""]}, "entrypoint", "must name a script"),
        ({**SCRIPT, "recipe": None, "entrypoint": ["train.py", "a\0b"]}, "entrypoint", "NUL"),
        ({**SCRIPT, "recipe": None, "code": "s\0rc"}, "code", "cannot be printed"),
        ({**SCRIPT, "recipe": None, "code": "x" * 100_000}, "code", "at most 1024 characters"),
        ({**SCRIPT, "recipe": None, "code": "x" * 1000}, "code", "cannot be read: File name too long"),
        ({**SCRIPT, "recipe": None, "parameters": {"a": 1}}, "parameters", "parameters belong to recipe"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_field(folder: Path, values: Any, field: str, message: str) -> None:
    problems = read_problems(folder, {**GOOD, **values} if isinstance(values, dict) else values)
    assert message in problems[field], problems
    assert all(len(words) < 1000 for words in problems.values())
    assert not any("Extra inputs" in words or "Input should" in words for words in problems.values())
    assert all(words.count(", not ") <= 1 for words in problems.values()), "the value is told once"


def test_lines_and_joined_letters_may_stand_in_what_programs_are_given(folder: Path) -> None:
    values = {
        **SCRIPT,
        "entrypoint": ["train.py", "one\ntwo\tthree", "👩\u200d🚀"],
        "setup": ["a\nb"],
        "env": {"A": "x\ny"},
    }
    assert write_and_read(folder, values).env == {"A": "x\ny"}


def test_every_mistake_of_a_file_is_named_at_once(folder: Path) -> None:
    values = {
        "name": "Bad Name", "recipe": "image-classification", "entrypoint": ["missing.py"], "code": "src",
        "requirements": "gone.txt", "env": {"AWS_REGION": "x", "EVERSPOT_X": "y", "N": 1, "TWICE": "z"},
        "secrets": {"TWICE": "ssm:/a", "OPEN": "hunter2"}, "setup": [""], "datasets": ["Bad!", "a", "a"],
        "tags": {" ": "x"}, "checkpoint": {"every": "1s", "keep": 1}, "deadline": 6, "resources": {"vcpu": 1},
    }  # fmt: skip
    problems = read_problems(folder, values)
    assert set(problems) == {
        "name", "recipe", "entrypoint", "requirements", "env", "env.N", "secrets", "secrets.TWICE", "setup", "datasets",
        "tags", "checkpoint.every", "checkpoint.keep", "deadline", "resources.vcpu",
    }  # fmt: skip
    assert "AWS_REGION" in problems["env"] and "EVERSPOT_X" in problems["env"]
    assert "'Bad!'" in problems["datasets"] and "each name once" in problems["datasets"]
    problems = read_problems(folder, {"name": "a", "entrypoint": ["/x"], "code": "nowhere", "env": {"AWS_REGION": "x"}})
    assert set(problems) == {"entrypoint", "code", "env"}


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"deadline": 6}, "deadline"),
        ({"expected_duration": 1.5}, "expected_duration"),
        ({"checkpoint": {"every": 600}}, "checkpoint.every"),
        ({"budget": {"wall_clock": 6}}, "budget.wall_clock"),
        ({"retries": {"backoff": 6}}, "retries.backoff"),
    ],
)
def test_a_span_has_to_say_its_unit_where_a_person_writes_it(folder: Path, values: Any, field: str) -> None:
    (problem,) = read_problems(folder, {**GOOD, **values}).values()
    assert list(read_problems(folder, {**GOOD, **values})) == [field]
    assert problem.startswith("has to say its unit: ") and "zone" not in problem


@pytest.mark.parametrize("value", ["tomorrow", "6", True, [1], "2026-13-01T00:00:00Z"])
@pytest.mark.parametrize("field", ["start_after", "deadline"])
def test_a_moment_or_a_duration_that_is_neither_is_told_with_examples_of_both(folder: Path, field: str, value: Any):
    (problem,) = read_problems(folder, {**GOOD, field: value}).values()
    words = (
        "a moment is written with its zone, such as 2026-11-23T08:00:00+01:00, and a duration with its unit, such as 6h"
    )
    assert problem == f"{words}, not {value!r}"
    (zone,) = read_problems(folder, {**GOOD, field: "2026-11-23T08:00:00"}).values()
    assert zone.startswith("a time needs its zone")


def test_a_rule_that_several_variables_break_is_told_once(folder: Path) -> None:
    (problem,) = read_problems(folder, {**GOOD, "env": {"AWS_REGION": "x", "EVERSPOT_X": "1"}}).values()
    assert problem.count("belong to the instance") == 1
    assert problem.startswith("'AWS_REGION', 'EVERSPOT_X': EVERSPOT_*")


def test_a_stored_job_carries_seconds_and_is_read() -> None:
    stored = b'{"job_id": "a-1", "submitted_at": "2026-01-01T00:00:00Z", "spec": {"name": "a", "deadline": 21600.0, '
    stored += b'"recipe": "image-classification", "checkpoint": {"every": 90}}}'
    spec = JobSubmission.read(stored).spec
    assert (spec.deadline, spec.checkpoint.every) == (timedelta(hours=6), timedelta(seconds=90))
    assert JobSubmission.read(JobSubmission.read(stored).to_json()).spec == spec


@pytest.mark.parametrize(
    ("policy", "stored"),
    [({}, None), ({"every": "auto"}, None), ({"every": "2m"}, 120.0), ({"every": "auto", "steps": 9}, "auto")],
)
def test_an_earlier_release_reads_a_job_whose_interval_is_chosen_for_it(policy: Any, stored: Any) -> None:
    """The earlier release has no word for it, and takes nothing for its own default."""
    spec = JobSpec.model_validate({"name": "a", "recipe": "image-classification", "checkpoint": policy})
    written = JobSubmission(job_id="a-1", spec=spec, submitted_at="2026-01-01T00:00:00Z").to_json()  # type: ignore[arg-type]
    assert json.loads(written)["spec"]["checkpoint"].get("every") == stored
    assert JobSubmission.read(written).spec == spec


def test_of_many_faults_twenty_are_told_and_the_rest_counted(folder: Path) -> None:
    values = {**GOOD, **{f"key{n}": n for n in range(9000)}}
    with pytest.raises(CliError) as caught:
        write_and_read(folder, values)
    assert "9000 fields are wrong" in str(caught.value)
    assert len(caught.value.problems) == SHOWN_AT_MOST + 1
    assert caught.value.problems[-1]["field"] == "(and 8980 more)"
    assert len(json.dumps(caught.value.problems)) < 20_000


def test_an_honest_job_is_taken_whole(folder: Path) -> None:
    spec = write_and_read(
        folder,
        "name: mine\nentrypoint: [train.py, --epochs, '3']\ncode: src\n"
        "resources: {vcpus: 4, memory_gib: 7.5, gpus: 1}\n"
        "deadline: 2026-01-31T12:00:00Z\nexpected_duration: 1h30m\ncheckpoint: {every: 90s, keep: 3}\n"
        "env: {OMP_NUM_THREADS: '2'}\ntags: {Team: Vision & Co}\n",
    )
    assert (spec.code, spec.expected_duration) == (str(folder / "src"), timedelta(minutes=90))
    assert spec.checkpoint.every == timedelta(seconds=90)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**40), 10**40), st.floats(), st.text(max_size=40), st.just("x" * 5000),
    st.sampled_from(["1h", "-1h", "1e9d", "../..", "/etc/passwd", "\0", "1_000", "NaN", "on", "2026-01-31", "name"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = sorted(JobSpec.model_fields)


@st.composite
def jobs(draw: st.DrawFn) -> str:
    values = dict(draw(st.sampled_from([GOOD, SCRIPT])))
    for field in draw(st.lists(st.sampled_from(FIELDS), max_size=4)):
        values[field] = draw(VALUES)
        inner = JobSpec.model_fields[field].annotation
        if hasattr(inner, "model_fields") and draw(st.booleans()):
            values[field] = {name: draw(VALUES) for name in draw(st.lists(st.sampled_from(sorted(inner.model_fields))))}
    values.update(draw(st.dictionaries(st.text(max_size=8), VALUES, max_size=2)))
    text = yaml.safe_dump(values)
    for _ in range(draw(st.integers(0, 3))):
        at, length = draw(st.integers(0, len(text))), draw(st.integers(0, 20))
        put = draw(
            st.sampled_from(["", "*a", "&a ", "[", "{", "- ", "!!int ", "<<: ", "\t", "\0", "\ud7ff", ": ", "'"])
        )
        text = text[:at] + put + text[at + length * draw(st.integers(0, 1)) :]
    return text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=jobs())
@example(text='env:\n  "\\uD7FC": "1"\nname: mine\nrecipe: image-classification\nsecrets:\n  "\\uD7FC": "2"\n')
@example(text='budget:\n  "\\uD7FC": null\nname: mine\nrecipe: image-classification\n')
def test_whatever_is_written_is_a_job_or_an_answer_that_can_be_read(folder: Path, text: str) -> None:
    path = folder / "fuzzed.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        spec = read_spec(path)
    except CliError as error:
        refusal = json.dumps([str(error), error.problems])
        assert len(error.problems) <= SHOWN_AT_MOST + 1
        assert len(refusal) < 25_000
        assert all(char.isprintable() for problem in error.problems for char in "".join(problem.values()))
        return
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
    assert 1 <= spec.resources.vcpus <= 10_000
    assert math.isfinite(spec.resources.memory_gib)
    assert spec.retries.backoff >= timedelta(0)
    if spec.entrypoint:
        assert spec.code is not None
        assert Path(spec.code, spec.entrypoint[0]).resolve().is_relative_to(spec.code)
    assert not any("\0" in part for pair in spec.env.items() for part in pair)
