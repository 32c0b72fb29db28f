import json
import os
import subprocess
import sys
from dataclasses import asdict
from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from everspot_simulator import (
    GENERATORS,
    POLICIES,
    Regions,
    Setting,
    Trace,
    aggregate_runs,
    aggregate_traces,
    optima,
    parse,
    runs,
    starts,
)

JOB = ("--job-hours", "6", "--deadline-hours", "9", "--starts", "7", "--seed", "3")
SETTING = Setting(job_hours=6, deadline_hours=9, changeover_hours=0.2, price_ratio=3.1446)
GAP = timedelta(seconds=600)
FIGURES = {"saving_percent", "deadline_misses", "spot_hours", "on_demand_hours", "changeovers"}
MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}
COMPARED = ("--policy", "greedy", "--policy", "up", "--policy", "optimal")


@cache
def make_trace(name: str, pool: int = 0) -> Trace:
    """Five days of a synthetic trace, with three instances where there are any."""
    trace = GENERATORS[name](np.random.default_rng(5), 720, GAP, SETTING)[pool]
    return Trace(name=name, gap=GAP, available=trace.available * 3)


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """Two traces that differ."""
    paths = [tmp_path / "traces" / f"{name}.json" for name in ("markov", "droughts")]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_text(make_trace(path.stem).to_json())
    return paths


def options(files: list[Path]) -> list[str]:
    return [argument for path in files for argument in ("--trace", str(path))]


def run_without_a_store(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """The command where no store is named and there is no pulumi to ask for one."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EVERSPOT_")}
    return subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={**inherited, "PATH": "/nowhere", "COLUMNS": "200", "NO_COLOR": "1", **env},
    )


@pytest.mark.parametrize("policy", ["greedy", "up", "on-demand", "optimal"])
def test_the_figures_are_the_core_s(world, files, policy):
    answer = world.run("simulate", *options(files), *JOB, "--policy", policy, "--json")
    assert (answer.code, answer.err) == (0, "")
    expected = []
    for path in files:
        trace = parse(path.read_text(), str(path))
        at = starts(trace, SETTING, 7, 3)
        outcomes = optima(trace, at, SETTING) if policy == "optimal" else runs(trace, at, SETTING, POLICIES[policy])
        expected.append(aggregate_runs(outcomes))
    assert answer.json == {
        "policy": policy,
        "overall": asdict(aggregate_traces(expected)),
        "traces": [{"path": str(path), **asdict(t)} for path, t in zip(files, expected, strict=True)],
    }
    assert set(answer.json["overall"]) >= FIGURES


def test_pools_are_one_job_s(world, files):
    answer = world.run("simulate", *options(files), *JOB, "--policy", "up", "--pools", "--json").json
    traces = [parse(path.read_text(), str(path)) for path in files]
    expected = aggregate_runs(runs(traces, starts(traces, SETTING, 7, 3), SETTING, POLICIES["up"]))
    assert answer["overall"] == asdict(expected) | {"runs": 7}
    (row,) = answer["traces"]
    assert row["path"] == f"{files[0]}, {files[1]}"
    assert [pool["path"] for pool in row["pools"]] == [str(path) for path in files]
    assert sum(pool["spot_hours"] for pool in row["pools"]) == pytest.approx(expected.spot_hours)
    assert all(pool["spot_hours"] > 0 for pool in row["pools"])


def test_a_job_moves_between_the_regions_of_its_pools(world, files):
    where = ("--pools", "--region", "east", "--region", "west:2.5", "--checkpoint-gb", "50", "--egress-usd", "0.01")
    answer = world.run("simulate", *options(files), *JOB, *where, "--policy", "optimal", "--json").json
    traces = [parse(path.read_text(), str(path)) for path in files]
    regions = Regions(
        names=("east", "west"), pools=(0, 1), price_ratios=(SETTING.price_ratio, 2.5), checkpoint_gb=50.0,
        egress_usd=(0.01, 0.01),
    )  # fmt: skip
    expected = aggregate_runs(optima(traces, starts(traces, SETTING, 7, 3), SETTING, regions))
    assert answer["overall"] == asdict(expected) and expected.moves > 0
    shown = world.run("simulate", *options(files), *JOB, *where, "--policy", "optimal").out
    (row,) = (line for line in shown.splitlines() if line.startswith("moves to another region"))
    assert row.split()[-1] == f"{expected.moves:.1f}"


def test_a_gang_needs_all_its_nodes(world, files):
    def spot_hours(nodes: str) -> float:
        answer = world.run("simulate", *options(files), *JOB, "--policy", "greedy", "--nodes", nodes, "--json")
        return answer.json["overall"]["spot_hours"]

    assert spot_hours("3") == spot_hours("1") > 0
    assert spot_hours("4") == 0


def test_every_start_is_run_where_all_are_asked_for(world, files):
    answer = world.run("simulate", *options(files[:1]), *JOB[:4], "--starts", "all", "--policy", "greedy", "--json")
    assert answer.json["overall"]["runs"] == 720 - 9 * 6 + 1


def test_the_table_has_a_row_for_each_trace_and_one_for_all(world, files):
    answer = world.run("simulate", *options(files), *JOB, "--policy", "up")
    figures = world.run("simulate", *options(files), *JOB, "--policy", "up", "--json").json
    assert (answer.code, answer.err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in answer.out.splitlines() if line}
    for name, expected in (("markov.json", figures["traces"][0]), ("overall", figures["overall"])):
        assert rows[name][0] == f"{expected['saving_percent']:.1f}"
        assert rows[name][2] == str(expected["deadline_misses"])
        assert [float(figure) for figure in rows[name][3:]] == [
            pytest.approx(expected[key], abs=0.051)
            for key in ("spot_hours", "on_demand_hours", "idle_hours", "changeovers")
        ]
    assert f"Traces of {files[0].parent}" in answer.out
    assert "7 starts of each trace, seed 3: 6 h of computing in 9 h" in answer.out


def test_policies_stand_side_by_side(world, files):
    answer = world.run("simulate", *options(files), *JOB, *COMPARED)
    documents = world.run("simulate", *options(files), *JOB, *COMPARED, "--json").json["policies"]
    assert [d["policy"] for d in documents] == ["greedy", "up", "optimal"]
    lines = answer.out.splitlines()
    assert lines[0].split() == ["SAVING", "%", "greedy", "up", "optimal"]
    assert lines[1].split() == ["markov.json", *(f"{d['traces'][0]['saving_percent']:.1f}" for d in documents)]
    assert lines[3].split() == ["overall", *(f"{d['overall']['saving_percent']:.1f}" for d in documents)]
    assert documents[2]["overall"]["saving_percent"] >= documents[1]["overall"]["saving_percent"]
    assert {line.split()[0] for line in lines[4:] if line} >= {"greedy", "up", "optimal"}


def test_misses_and_impossible_deadlines_are_reported(world, files):
    job = ("--job-hours", "6", "--deadline-hours", "6.1", "--starts", "4", "--policy", "on-demand")
    answer = world.run("simulate", *options(files[:1]), *job, "--nodes", "9")
    assert answer.code == 0
    assert answer.out.splitlines()[2].split()[3] == "4"
    assert "The deadline cannot be met: 6 h and a changeover of 0.2 h do not fit into 6.1 h." in answer.out
    assert f"{files[0]} never has 9 at once." in answer.out


def test_synthetic_traces_are_the_same_for_the_same_seed_and_whatever_stands_beside(world, tmp_path):
    def traces(folder: str, *names: str, seed: str = "1") -> dict[str, str]:
        generators = [argument for name in names for argument in ("--synthetic", name)]
        where = ("--days", "2", "--gap-seconds", "600", "--write-traces", str(tmp_path / folder))
        answer = world.run("simulate", *generators, *where, *JOB[:6], "--seed", seed, "--policy", "greedy", "--json")
        assert answer.code == 0, answer.err
        assert answer.json["traces"][0]["path"] == f"synthetic:{names[0]}"
        return {path.name: path.read_text() for path in (tmp_path / folder).iterdir()}

    alone = traces("alone", "markov")
    together = traces("both", "diurnal", "markov", "markov")
    assert set(together) == {"diurnal.json", "markov.json", "markov-again-2.json"}
    assert together["markov.json"] == alone["markov.json"] != together["markov-again-2.json"]
    assert traces("other", "markov", seed="2") != alone
    trace = parse(alone["markov.json"], "markov")
    assert (len(trace), trace.gap) == (288, GAP)


def test_a_synthetic_trace_is_like_one_from_its_file(world, tmp_path):
    job = (*JOB, "--policy", "up", "--json")
    length = ("--days", "3", "--gap-seconds", "600", "--write-traces", str(tmp_path))
    made_up = world.run("simulate", "--synthetic", "markov", *length, *job).json
    read = world.run("simulate", "--trace", str(tmp_path / "markov.json"), *job).json
    assert made_up["overall"] == read["overall"]
    assert made_up["overall"]["spot_hours"] > 0


@pytest.mark.parametrize(
    ("suffix", "more"),
    [
        (".png", ("--policy", "up")),
        (".svg", (*COMPARED, "--policy", "on-demand")),
        (".pdf", ("--policy", "up", "--pools")),
    ],
)
def test_the_picture_is_of_the_kind_that_its_name_says(world, files, tmp_path, suffix, more):
    pictures = [tmp_path / "new" / f"{name}{suffix}" for name in ("one", "two")]
    for picture in pictures:
        answer = world.run("simulate", *options(files), *JOB, *more, "--plot", str(picture))
        assert (answer.code, answer.err) == (0, "")
        assert f"The picture, {picture}: " in answer.out
    content = pictures[0].read_bytes()
    assert content.startswith(MAGIC[suffix])
    assert len(content) > 5000
    assert content == pictures[1].read_bytes()
    if suffix == ".svg":
        words = (
            "greedy",
            "up",
            "optimal",
            "on-demand",
            "idle",
            "spot",
            "changeover",
            "hours since submission",
            "deadline: 9 h",
            "last safe line for on-demand",
            "needed: 1",
            "done: 6 h",
        )
        assert [label for label in words if f"<!-- {label} -->" not in content.decode()] == []
        # Each policy's result follows its row.
        assert content.decode().count(" % saved") == 4


def test_without_matplotlib_it_is_told_how_to_install_it_before_anything_is_run(files, tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    picture = tmp_path / "run.png"
    command = ("simulate", *options(files), *JOB, "--policy", "up")
    answer = run_without_a_store(*command, "--plot", str(picture), PYTHONPATH=str(tmp_path))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "--plot: needs matplotlib, which is not installed: pip install 'everspot[simulate]'" in answer.stderr
    assert not picture.exists()
    assert run_without_a_store(*command, PYTHONPATH=str(tmp_path)).returncode == 0


def test_it_needs_no_store(files):
    answer = run_without_a_store("simulate", *options(files), *JOB, "--policy", "up", "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert run_without_a_store("jobs").returncode == 4


def test_pools_must_go_together(world, files):
    slower = Trace(name="slower", gap=2 * GAP, available=make_trace("markov").available)
    priced = Trace(name="priced", gap=GAP, available=make_trace("markov").available, prices=np.full(720, 0.5))
    for trace in (slower, priced):
        (files[0].parent / f"{trace.name}.json").write_text(trace.to_json())
    unlike = [files[0].parent / f"{name}.json" for name in ("slower", "priced")]
    arguments = (*options([files[0], *unlike]), *JOB, "--policy", "up", "--json")
    answer = world.run("simulate", *arguments, "--pools")
    problems = json.loads(answer.err)["problems"]
    assert answer.code == 1
    assert [problem["field"] for problem in problems] == ["--pools", "--pools"]
    assert (
        "pools need equal ticks" in problems[0]["problem"] and "all pools need them or none" in problems[1]["problem"]
    )
    assert world.run("simulate", *arguments).code == 0


def test_prices_count_and_are_drawn(world, tmp_path):
    up = np.tile([1, 1, 1, 1, 1, 1, 0, 0], 90)
    trace = Trace(name="priced", gap=GAP, available=up, prices=np.where(np.arange(720) % 16 < 8, 0.25, 0.75))
    path, picture = tmp_path / "priced.json", tmp_path / "priced.svg"
    path.write_text(trace.to_json())
    answer = world.run("simulate", "--trace", str(path), *JOB, "--policy", "up", "--plot", str(picture), "--json")
    expected = aggregate_runs(runs(trace, starts(trace, SETTING, 7, 3), SETTING, POLICIES["up"]))
    unpriced = Trace(name="unpriced", gap=GAP, available=up)
    assert answer.json["overall"] == asdict(expected)
    assert expected != aggregate_runs(runs(unpriced, starts(unpriced, SETTING, 7, 3), SETTING, POLICIES["up"]))
    assert "<!-- ($/h) -->" in picture.read_text()


def test_everspot_decides_unless_another_is_named(world, files):
    default = world.run("simulate", *options(files), *JOB, "--json").json
    assert default["policy"] == "everspot"
    assert default == world.run("simulate", *options(files), *JOB, "--policy", "everspot", "--json").json


def test_all_policies_can_be_compared(world, files):
    answer = world.run("simulate", *options(files[:1]), *JOB, "--compare", "--json").json
    savings = {row["policy"]: row["overall"]["saving_percent"] for row in answer["policies"]}
    assert set(savings) == {*POLICIES, "optimal"}
    assert max(savings.values()) == savings["optimal"]


def test_the_help_names_every_policy_and_every_generator(world):
    out = world.run("simulate", "--help").out
    assert [name for name in (*POLICIES, "optimal", *GENERATORS) if name not in out] == []
