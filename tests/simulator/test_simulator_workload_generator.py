"""Generated workloads."""

import json
from collections import Counter

import pytest
from everspot_core.capacity.catalogue import builtin
from everspot_simulator.drive import simulate
from everspot_simulator.figures import figures
from everspot_simulator.workload import load_traces
from everspot_simulator.workload_file import parse
from everspot_simulator.workload_generator import generate


def test_the_same_seed_gives_the_same_file_and_another_one_another():
    assert json.dumps(generate(80, 5)) == json.dumps(generate(80, 5))
    assert generate(80, 5) != generate(80, 6)


@pytest.mark.parametrize("jobs", [1, 7, 300])
def test_it_can_be_read_and_has_as_many_jobs_as_were_asked_for(jobs):
    read = parse(generate(jobs, 1), "made", builtin())
    assert len(read.jobs) == jobs
    assert len({j.id for j in read.jobs}) == jobs


def test_no_jobs_are_no_workload():
    with pytest.raises(ValueError, match="at least one job"):
        generate(0, 1)


def test_it_is_like_a_real_one():
    jobs = parse(generate(600, 3), "made", builtin()).jobs
    teams = Counter(j.team for j in jobs)
    assert teams == {"language": 180, "vision": 120, "sweeps": 240, "production": 60}
    assert {j.team for j in jobs if j.priority == "critical"} == {"production"}
    assert 5 <= sum(j.nodes > 1 for j in jobs) <= 100
    assert 150 <= sum(j.deadline_hours is not None for j in jobs) <= 350
    assert all(j.deadline_hours > j.upper for j in jobs if j.deadline_hours is not None)
    # Floods: many sweeps at the very same moment.
    assert max(Counter(j.arrival_hours for j in jobs if j.team == "sweeps").values()) >= 10
    assert max(Counter(j.arrival_hours for j in jobs if j.team != "sweeps").values()) < 5
    # Lognormal: the mean is well above the median.
    hours = sorted(j.hours for j in jobs if j.team == "language")
    assert sum(hours) / len(hours) > 1.3 * hours[len(hours) // 2]
    # By day more than by night.
    by_day = sum(8 <= j.arrival_hours % 24 < 20 for j in jobs if j.team != "sweeps")
    assert by_day > 0.6 * sum(j.team != "sweeps" for j in jobs)


def cost_and_all(values):
    read = parse(values, "made", builtin())
    return figures(simulate(read, load_traces(read, lambda path: pytest.fail("no files here"))))


def test_the_plan_carries_it_without_missing_a_deadline_and_for_less_than_without_spot_pools():
    """Sixty jobs of a day: everything runs, and what critical jobs wait is the launch at most."""
    values = generate(60, 1)
    totals = cost_and_all(values)
    assert (totals.finished, totals.misses, totals.refused) == (60, 0, 0)
    assert totals.preemptions > 0
    assert totals.waiting_by_priority["critical"].max <= values["fleet"]["launch_hours"]
    values["fleet"]["pools"] = [p for p in values["fleet"]["pools"] if p["market"] == "on-demand"]
    dear = cost_and_all(values)
    assert (dear.finished, dear.misses) == (60, 0)
    assert totals.cost.total < 0.8 * dear.cost.total
    assert json.dumps(totals.to_json())
