"""Invalid input of `simulate`: one error names every wrong field, with the documented exit code."""

import json

import pytest


def test_everything_that_is_wrong_is_told_at_once(world, tmp_path):
    (tmp_path / "text.json").write_text("spot")
    (tmp_path / "bad.json").write_text('{"metadata": {"gap_seconds": 0}, "data": [1, -1], "prices": [1]}')
    (tmp_path / "folder").mkdir()
    names = ("missing.json", "text.json", "bad.json", "folder")
    traces = [argument for name in names for argument in ("--trace", str(tmp_path / name))]
    answer = world.run(
        "simulate", *traces, "--synthetic", "markof", "--days", "-1",
        "--gap-seconds", "0.5", "--job-hours", "0", "--deadline-hours", "-1", "--changeover-hours", "-0.1",
        "--price-ratio", "0", "--nodes", "0", "--starts", "some", "--seed", "-1", "--policy", "gredy",
        "--plot", "run.gif", "--json",
    )  # fmt: skip
    assert (answer.code, answer.out) == (1, "")
    error = json.loads(answer.err)
    problems = {problem["field"]: problem["problem"] for problem in error["problems"]}
    assert set(problems) == {
        *("--job-hours", "--deadline-hours", "--changeover-hours", "--price-ratio", "--nodes", "--starts", "--seed"),
        *(
            "--policy",
            "--plot",
            "--synthetic",
            "--days",
            "--gap-seconds",
            f"{tmp_path}/missing.json",
            f"{tmp_path}/text.json",
        ),
        *(f"{tmp_path}/bad.json {field}" for field in ("metadata.gap_seconds", "data[1]", "prices")),
        f"{tmp_path}/folder",
    }
    assert error["error"] == f"simulate: {len(problems)} inputs are wrong"
    assert problems[f"{tmp_path}/missing.json"] == "there is no such file"
    assert problems["--policy"].startswith("'gredy' is not known (did you mean greedy?); one of: ")
    assert problems["--synthetic"].startswith("'markof' is not known (did you mean markov?); one of: ")


@pytest.mark.parametrize(
    ("arguments", "code", "field", "words"),
    [
        (("--trace", "nowhere.json"), 3, "nowhere.json", "there is no such file"),
        (("--synthetic", "markov", "--days", "1"), 1, "--deadline-hours", "60 h do not fit into the 24 h of markov"),
        (("--synthetic", "markov", "--days", "1e9"), 1, "--days", "at most 34722.2"),
        (("--synthetic", "markov", "--starts", "0"), 1, "--starts", "from 1 to 1000000, or all; it is 0"),
        (("--synthetic", "last-moment", "--deadline-hours", "1e15"), 1, "--deadline-hours", "must be <= 1000000"),
        (("--synthetic", "markov", "--job-hours", "1e-9"), 1, "--job-hours", "at least a second; it is 1e-09"),
        (("--trace", "nowhere.json", "--days", "1"), 1, "--days", "--synthetic NAME makes one"),
        (("--trace", "nowhere.json", "--write-traces", "there"), 1, "--write-traces", "--synthetic NAME makes one"),
        (("--synthetic", "markov", "--plot", "/proc/run.png"), 1, "", "--plot: /proc/run.png cannot be written"),
        (("--synthetic", "markov", "--write-traces", "/proc/x"), 1, "", "--write-traces: /proc/x cannot be written"),
        (
            ("--synthetic", "markov", "--region", "east"),
            1,
            "--region",
            "needs --pools, and one region for each",
        ),
        (("--synthetic", "markov", "--pools", "--region", "east:x"), 1, "--region", "'east:x' must be a name"),
        (("--synthetic", "markov", "--pools", "--region", "east:0"), 1, "--region", "must be positive numbers"),
        (("--synthetic", "markov", "--checkpoint-gb", "1"), 1, "--checkpoint-gb", "is for several regions"),
        ((), 2, "", "there is no trace to run through"),
        (("--synthetic", "markov", "--nodes", "two"), 2, "", "--nodes"),
    ],
)
def test_exit_codes(world, arguments, code, field, words):
    answer = world.run("simulate", *arguments, "--policy", "greedy", "--json")
    assert (answer.code, answer.out) == (code, "")
    error = json.loads(answer.err)
    problems = {problem["field"]: problem["problem"] for problem in error["problems"]}
    assert words in (problems[field] if field else error["error"])
