"""`everspot simulate --workload` and `--generate-workload`."""

import json

import pytest
import yaml
from everspot_core.capacity.catalogue import builtin
from everspot_simulator.drive import simulate
from everspot_simulator.federated_generator import generate_federated
from everspot_simulator.figures import figures
from everspot_simulator.workload import load_traces
from everspot_simulator.workload_file import parse
from everspot_simulator.workload_generator import generate

GPU = {"instance_type": "g5.xlarge", "zone": "z", "market": "on-demand", "usd_per_hour": 1.0}
FLEET = {"launch_hours": 0.25, "setup_hours": 0.25}
OFFER = {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": "on-demand", "usd_per_hour": 2.0}
# a works from 0.25 h to 1.25 h, b, which arrives at 0.5 h, from 1.5 h to 2.5 h: 2.5 h at $2.
VALUES = {
    "jobs": [
        {"id": "a", "team": "x", "arrival_hours": 0, "hours": 1},
        {"id": "b", "team": "y", "arrival_hours": 0.5, "hours": 1, "deadline_hours": 1.5},
    ],
    "fleet": {"launch_hours": 0, "setup_hours": 0.25, "standing": [OFFER | {"count": 1}]},
}


@pytest.fixture
def file(tmp_path):
    def write(values, name="w.yaml"):
        path = tmp_path / name
        path.write_text(yaml.safe_dump(values) if name.endswith("yaml") else json.dumps(values))
        return str(path)

    return write


@pytest.mark.parametrize("name", ["w.yaml", "w.json"])
def test_the_figures_of_a_workload(world, file, name):
    path = file(VALUES, name)
    document = world.run("simulate", "--workload", path, "--json").json
    assert document["path"] == path
    assert document["cost"] == {"total": 5, "spot": 0, "on_demand": 5, "idle": 0}
    assert (document["jobs"], document["finished"], document["misses"], document["latest_hours"]) == (2, 2, 1, 0.5)
    assert (document["waiting"]["mean"], document["waiting"]["max"]) == (0.375, 0.75)
    assert document["waiting_by_team"]["y"]["max"] == 0.75
    assert (document["utilization"], document["preemptions"], document["changeovers"], document["hours"]) == (
        1,
        0,
        2,
        2.5,
    )
    assert document["fairness"]["teams"] == {"y": 0}


def test_the_table_tells_the_same(world, file):
    answer = world.run("simulate", "--workload", file(VALUES))
    assert answer.code == 0
    rows = [line.split() for line in answer.out.splitlines()]
    assert ["2", "2", "1", "0", "0", "0", "2", "0"] in rows
    assert ["5.00", "0.00", "5.00", "0.00", "0.0", "2.5", "2.5", "100", "%"] in rows
    assert ["team", "y", "1", "0.75", "0.75", "0.75", "0.75", "0.00"] in rows
    assert "the latest by 0.50 h" in answer.out


@pytest.mark.parametrize("name", ["made.yaml", "deep/made.json"])
def test_a_made_up_workload_is_written_and_can_be_simulated(world, tmp_path, name):
    path = tmp_path / name
    answer = world.run("simulate", "--generate-workload", str(path), "--jobs", "25", "--seed", "4", "--json")
    assert answer.json == {"path": str(path), "jobs": 25, "seed": 4}
    assert yaml.safe_load(path.read_text()) == generate(25, 4)
    document = world.run("simulate", "--workload", str(path), "--json").json
    workload = parse(generate(25, 4), "same", builtin())
    expected = figures(simulate(workload, load_traces(workload, lambda path: pytest.fail("no files here")))).to_json()
    assert document == {"path": str(path)} | json.loads(json.dumps(expected))


def test_a_workload_on_several_clusters_is_told_with_moves_and_without(world, file):
    dear = {"egress_usd_per_gb": 0.1, "fleet": FLEET | {"pools": [GPU | {"usd_per_hour": 9.0}]}}
    cheap = {"fleet": FLEET | {"pools": [GPU]}}
    jobs = [{"id": "a", "cluster": "dear", "arrival_hours": 0, "hours": 4, "deadline_hours": 8, "checkpoint_gb": 2}]
    path = file({"jobs": jobs, "clusters": {"dear": dear, "cheap": cheap}})
    document = world.run("simulate", "--workload", path, "--json").json
    assert (document["moves"], document["moved"], document["met_share"], document["egress_usd"]) == (
        {"cheaper": 1},
        1,
        1,
        0.2,
    )
    assert document["clusters"]["cheap"]["finished"] == 1 and document["clusters"]["dear"]["left"] == 1
    assert document["total_usd"] < document["without_moves"]["total_usd"] == pytest.approx(9 * 4.5)
    text = world.run("simulate", "--workload", path).out
    rows = [line.split() for line in text.splitlines()]
    assert ["without", "1", "1", "0", "0", "100.0", "40.50", "0.00", "40.50"] in rows
    assert "Moves: 1 for money; 1 of 1 jobs moved, with 2 GB of checkpoints; 0 offers were declined." in text


def test_a_made_up_workload_on_several_clusters_can_be_simulated(world, tmp_path):
    path = tmp_path / "made.yaml"
    command = ("simulate", "--generate-workload", str(path), "--jobs", "6", "--seed", "4")
    assert world.run(*command, "--clusters", "2").code == 0
    assert yaml.safe_load(path.read_text()) == generate_federated(6, 4, 2)
    assert world.run("simulate", "--workload", str(path), "--json").json["finished"] == 6
    wrong = world.run(*command, "--clusters", "9")
    assert wrong.code == 1 and "--clusters: must be from 2 to 8; it is 9" in wrong.err


def test_traces_lie_beside_the_workload(world, file, tmp_path):
    # There for the first hour of three, away for two: a is preempted at 1 h, and is done at 3.5 h.
    counts = [1] * 12 + [0] * 24
    (tmp_path / "spot.json").write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": counts}))
    spot = OFFER | {"market": "spot", "usd_per_hour": 1.0, "availability": "t", "count": 1}
    fleet = {"launch_hours": 0, "setup_hours": 0.25, "standing": [spot]}
    values = {"jobs": VALUES["jobs"][:1], "fleet": fleet, "traces": {"t": {"file": "spot.json"}}}
    document = world.run("simulate", "--workload", file(values), "--json").json
    assert (document["preemptions"], document["hours"], document["cost"]["total"]) == (1, 3.5, 1.5)


def test_all_that_is_wrong_with_a_file_is_told_at_once(world, file):
    values = {
        "jobs": [{"id": "a", "arrival_hours": 0, "hours": -1}, {"id": "b", "hours": 1}],
        "fleet": VALUES["fleet"] | {"tick": 3},
    }
    answer = world.run("simulate", "--workload", file(values), "--json")
    error = json.loads(answer.err or answer.out)
    assert answer.code == 1
    assert {p["field"] for p in error["problems"]} == {"jobs[0].hours", "jobs[1].arrival_hours", "fleet.tick"}


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, 3, "there is no file"),
        ("jobs: [", 1, "neither YAML nor JSON"),
        ("- a", 1, "must be a mapping"),
        ("", 1, "must be a mapping"),
    ],
)
def test_what_is_no_workload(world, tmp_path, content, code, words):
    path = tmp_path / "w.yaml"
    if content is not None:
        path.write_text(content)
    answer = world.run("simulate", "--workload", str(path))
    assert answer.code == code
    assert words in answer.err


@pytest.mark.parametrize(
    ("data", "words"),
    [(None, "there is no file"), ({"metadata": {"gap_seconds": 300}, "data": [1, -1]}, "data[1]")],
)
def test_a_trace_that_cannot_be_read_is_named(world, file, tmp_path, data, words):
    if data is not None:
        (tmp_path / "spot.json").write_text(json.dumps(data))
    answer = world.run("simulate", "--workload", file(VALUES | {"traces": {"t": {"file": "spot.json"}}}))
    assert answer.code == 1
    assert "spot.json" in answer.err
    assert words in answer.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--workload", "w", "--trace", "t", "--starts", "3"), "--workload does not go with --trace, --starts"),
        (("--workload", "w", "--jobs", "3"), "--workload does not go with --jobs"),
        (("--generate-workload", "w", "--policy", "up"), "--generate-workload does not go with --policy"),
        (("--generate-workload", "w", "--workload", "w"), "does not go with"),
        (("--jobs", "3"), "--jobs is for --generate-workload"),
        (("--clusters", "3"), "--clusters is for --generate-workload"),
    ],
)
def test_options_that_do_not_go_together(world, options, words):
    answer = world.run("simulate", *options)
    assert answer.code == 2
    assert words in answer.err


def test_a_workload_that_cannot_be_made(world, tmp_path):
    command = ("simulate", "--generate-workload", str(tmp_path / "w.yaml"))
    answer = world.run(*command, "--jobs", "0", "--seed", "-1")
    assert answer.code == 1
    assert "--jobs: must be from 1" in answer.err
    assert "--seed: must be >= 0" in answer.err
    (tmp_path / "file").write_text("")
    answer = world.run("simulate", "--generate-workload", str(tmp_path / "file" / "w.yaml"))
    assert answer.code == 1
    assert "cannot be written" in answer.err
