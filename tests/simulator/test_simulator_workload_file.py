"""The workload file: valid contents, and errors."""

import pytest
from everspot_core.capacity.catalogue import builtin
from everspot_core.validation.problems import BadInputs
from everspot_simulator.workload import load_traces
from everspot_simulator.workload_file import parse
from workload_helpers import TYPE, offer, standing, trace

JOB = {"id": "a", "arrival_hours": 0, "hours": 2}
FLEET = {"types": [TYPE], "standing": [standing()]}
GOOD = {"jobs": [JOB], "fleet": FLEET}


def wrong(values):
    with pytest.raises(BadInputs) as caught:
        parse(values, "w.yaml", builtin())
    assert str(caught.value).startswith("workload w.yaml has ")
    return {p.path: p.reason for p in caught.value.problems}


def test_the_least_that_a_file_needs():
    read = parse(GOOD, "w.yaml", builtin())
    (job,) = read.jobs
    assert (job.actual, job.upper, job.nodes, job.deadline_hours) == (2, 2, 1, None)
    assert (read.fleet.changeover_hours, read.fleet.upper_hours) == (0.1, 0.1)
    assert [t.name for t in read.fleet.types] == ["four"]
    assert read.horizon_hours == 720


def test_types_of_the_catalogue_need_no_declaration():
    fleet = {"standing": [standing() | {"instance_type": "g5.xlarge"}]}
    (kind,) = parse({"jobs": [JOB], "fleet": fleet}, "w", builtin()).fleet.types
    assert (kind.name, kind.gpus) == ("g5.xlarge", 1)


def fleet(**more):
    return GOOD | {"fleet": FLEET | more}


def job(**more):
    return GOOD | {"jobs": [JOB | more]}


@pytest.mark.parametrize(
    ("values", "path", "words"),
    [
        (["x"], "", "must be a mapping"),
        (GOOD | {"jbs": 1}, "jbs", "unknown field (did you mean jobs?)"),
        ({"fleet": FLEET}, "jobs", "at least one"),
        (GOOD | {"jobs": {"a": 1}}, "jobs", "must be a list"),
        (GOOD | {"fleet": {}}, "fleet", "at least one of `standing` and `pools`"),
        (GOOD | {"fleet": 3}, "fleet", "must be a mapping"),
        (GOOD | {"jobs": [JOB, JOB]}, "jobs[1].id", "is the id of jobs[0] too"),
        (GOOD | {"jobs": [{"id": "a", "hours": 1}]}, "jobs[0].arrival_hours", "is missing"),
        (job(hours=0), "jobs[0].hours", "greater than 0"),
        (job(hours=float("inf")), "jobs[0].hours", "finite"),
        (job(hours=float("nan")), "jobs[0].hours", "finite"),
        (job(arrival_hours=-1), "jobs[0].arrival_hours", "greater than or equal to 0"),
        (job(id="Not a name"), "jobs[0].id", "1 to 40 small letters, digits and hyphens"),
        (job(priority="high"), "jobs[0].priority", "'critical' or 'normal'"),
        (job(dedline_hours=3), "jobs[0].dedline_hours", "did you mean deadline_hours"),
        (job(hours_upper=1), "jobs[0]", "above hours_upper"),
        (job(hours_upper=3, hours_actual=4), "jobs[0]", "above hours_upper"),
        (job(nodes=0), "jobs[0].nodes", "greater than or equal to 1"),
        (job(resources={"gpus": "two"}), "jobs[0].resources.gpus", "not 'two'"),
        (job(resources={"gpus": 5}), "jobs[0].resources", "no type of the fleet has all of that"),
        (job(speeds={"fuor": 1}), "jobs[0].speeds.fuor", "did you mean four"),
        (job(speeds={"four": 0}), "jobs[0].speeds.four", "greater than 0"),
        (fleet(setup_hour=1), "fleet.setup_hour", "did you mean setup_hours"),
        (fleet(changeover_upper_hours=0.01), "fleet", "must not be below"),
        (fleet(max_instances=0), "fleet.max_instances", "greater than or equal to 1"),
        (fleet(max_instance=8), "fleet.max_instance", "did you mean max_instances"),
        (fleet(notice_seconds=-1), "fleet.notice_seconds", "greater than or equal to 0"),
        (fleet(save_seconds=4000), "fleet.save_seconds", "less than or equal to 3600"),
        (fleet(free_within_hours=-1), "fleet.free_within_hours", "greater than or equal to 0"),
        (fleet(idle_limit_seconds=-1), "fleet.idle_limit_seconds", "greater than or equal to 0"),
        (fleet(max_usd_per_hour=0), "fleet.max_usd_per_hour", "greater than 0"),
        (fleet(tick_seconds=0), "fleet.tick_seconds", "greater than 0"),
        (fleet(standing=[standing(0)]), "fleet.standing[0].count", "greater than or equal to 1"),
        (fleet(standing=[standing(market="spt")]), "fleet.standing[0].market", "'spot' or 'on-demand'"),
        (fleet(pools=[offer(usd=4)]), "fleet.pools[0].usd_per_hour", "must be the same"),
        (fleet(pools=[offer(), offer()]), "fleet.pools[1]", "twice"),
        (fleet(pools=[offer("spot", availability="x")]), "fleet.pools[0].availability", "one of: always"),
        (fleet(pools=[offer() | {"instance_type": "g5.xlrge"}]), "fleet.pools[0].instance_type", "g5.xlarge"),
        (GOOD | {"traces": {"t": {}}}, "traces.t", "exactly one of file and generator"),
        (GOOD | {"traces": {"t": {"file": "x", "generator": "steady"}}}, "traces.t", "exactly one"),
        (GOOD | {"traces": {"t": {"generator": "stedy"}}}, "traces.t", "one of: markov"),
        (GOOD | {"traces": {"always": {"generator": "steady"}}}, "traces.always", "never runs dry"),
        (GOOD | {"traces": ["t"]}, "traces", "must be a mapping"),
        (GOOD | {"teams": {"x": 0}}, "teams.x", "must be a number > 0"),
        (GOOD | {"teams": {"x": True}}, "teams.x", "must be a number > 0"),
        (GOOD | {"teams": "x"}, "teams", "must be a mapping"),
        (GOOD | {"horizon_hours": 0}, "horizon_hours", "above the last arrival"),
        (GOOD | {"horizon_hours": "1"}, "horizon_hours", "above the last arrival"),
    ],
)
def test_a_bad_field_is_named(values, path, words):
    messages = wrong(values)
    assert words in messages[path]


def test_all_bad_fields_are_named_at_once_and_what_is_right_is_not():
    values = {
        "jobs": [JOB | {"hours": -1}, JOB | {"id": "b"}, JOB | {"id": "b", "speeds": {"x": 1}}],
        "fleet": FLEET | {"pools": [offer("spot", availability="t"), offer("spot", availability="u") | {"zone": "y"}]},
        "traces": {"t": {"generator": "nothing"}},
        "teams": {"x": -1},
    }
    assert set(wrong(values)) == {
        "jobs[0].hours",
        "jobs[2].id",
        "jobs[2].speeds.x",
        "fleet.pools[1].availability",
        "traces.t",
        "teams.x",
    }


def test_traces_are_loaded_by_file_or_made():
    sources = {"f": {"file": "some.json"}, "g": {"generator": "markov", "seed": 3, "instances": 10, "hours": 24}}
    read = parse(GOOD | {"traces": sources}, "w", builtin())
    paths = []

    def load(path):
        paths.append(path)
        return trace((3, 1))

    traces = load_traces(read, load)
    assert paths == ["some.json"]
    assert traces["f"].available.tolist() == [1, 1, 1]
    counts = set(traces["g"].available.tolist())
    assert len(traces["g"]) == 288
    assert counts <= {0, 2, 4, 6, 8, 10}  # groups of 4, 4 and 2
    assert len(counts) > 2  # and not all at the same time
    again = load_traces(read, load)["g"].available.tolist()
    assert again == traces["g"].available.tolist()
