"""Several clusters in one simulation: the moves, their cost, and the effect of a drought in one cluster on
deadlines."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from everspot_core.capacity.catalogue import builtin
from everspot_core.federation.decision import DEFAULT, MoveWhy
from everspot_core.validation.problems import BadInputs
from everspot_simulator.federated import parse_federated
from everspot_simulator.federated_drive import simulate_federated
from everspot_simulator.federated_figures import federated_figures
from everspot_simulator.federated_generator import dried, generate_federated
from everspot_simulator.trace import Trace
from everspot_simulator.workload import load_traces
from workload_helpers import GAP, TYPE, offer, trace

HOUR = timedelta(hours=1)


def fleet(*pools, **more):
    terms = {"launch_hours": 0.25, "setup_hours": 0.25, "tick_seconds": 300, "types": [TYPE], "pools": list(pools)}
    return {"egress_usd_per_gb": 0.1, "fleet": terms | more}


def federation(jobs, clusters, traces=(), **terms):
    values = {
        "jobs": [{"arrival_hours": 0, "cluster": "a", "checkpoint_gb": 10, **job} for job in jobs],
        "clusters": clusters,
        "traces": {name: {"generator": "steady"} for name in traces},
        "federation": terms,
    }
    return parse_federated(values, "test", builtin())


def drive(jobs, clusters, traces=None, moving=True, **terms):
    traces = traces or {}
    return simulate_federated(federation(jobs, clusters, traces, **terms), traces, moving=moving)


def paths(run):
    return [(m.job_id, m.reason, m.origin, m.goal) for m in run.moves]


DRY = trace((288, 0), name="dry")
THERE = fleet(offer())
GONE = fleet(offer(availability="dry"))


def test_a_job_that_finds_nothing_at_home_moves_once_and_ends_elsewhere():
    run = drive([{"id": "j", "hours": 4}], {"a": GONE, "b": THERE}, {"dry": DRY})
    totals = federated_figures(run)
    assert paths(run) == [("j", MoveWhy.NO_CAPACITY, "a", "b")]
    (move,) = run.moves
    # Half an hour of patience, 2 min for the offer, 10 GB at 180 GB/h; then launch, set-up and work.
    assert move.usd == pytest.approx(1.0)
    task = run.jobs["j"].task
    assert task.finished_at - run.runs["a"].began_at == timedelta(minutes=35, seconds=20) + 4.5 * HOUR
    assert (totals.finished, totals.clusters["b"].finished, totals.usd) == (1, 1, pytest.approx(3.0 * 4.5))
    assert totals.total_usd == pytest.approx(3.0 * 4.5 + 1.0)


def test_a_job_that_is_told_to_stay_waits_for_its_home():
    totals = federated_figures(drive([{"id": "j", "hours": 4}], {"a": GONE, "b": THERE}, {"dry": DRY}, moving=False))
    assert (totals.finished, totals.unfinished, totals.moves) == (0, 1, {})


def test_a_running_job_moves_with_its_progress_where_that_saves_enough():
    cheap = fleet(offer("spot", 1.0, availability="soon"), offer())
    soon = trace((24, 0), (100_000, 9), name="soon")
    run = drive([{"id": "j", "hours": 40}], {"a": fleet(offer()), "b": cheap}, {"soon": soon})
    first, second = run.jobs["j"].task, paths(run)
    assert second == [("j", MoveWhy.CHEAPER, "a", "b")]
    at_home, away = ([x.work for x in run.runs[name].attempts] for name in ("a", "b"))
    assert len(at_home) == 1 and 1.4 * 3600 <= at_home[0] <= 3.6 * 3600
    assert sum(at_home) + sum(away) == pytest.approx(first.job.actual * 3600)
    totals = federated_figures(run)
    stayed = federated_figures(drive([{"id": "j", "hours": 40}], {"a": fleet(offer()), "b": cheap}, {"soon": soon},
                                     moving=False))  # fmt: skip
    assert totals.total_usd < 0.5 * stayed.total_usd


def test_a_checkpoint_that_costs_more_to_send_than_it_saves_stays():
    cheap = fleet(offer("spot", 1.0), offer())
    run = drive([{"id": "j", "hours": 40, "checkpoint_gb": 900}], {"a": fleet(offer()), "b": cheap})
    assert paths(run) == []


@pytest.mark.parametrize(("deadline", "reasons"), [(5.5, [MoveWhy.LATE]), (30, [])])
def test_a_job_on_spot_leaves_while_it_can_if_its_home_has_no_on_demand_to_fall_back_on(deadline, reasons):
    """Its spot stays for eight hours, which no policy knows. With time to spare, the job stays there."""
    spot = trace((96, 9), (100_000, 0), name="spot")
    here = fleet(offer("spot", 1.0, availability="spot"), offer(availability="dry"))
    job = {"id": "j", "hours": 4, "deadline_hours": deadline}
    run = drive([job], {"a": here, "b": THERE}, {"dry": trace((100_000, 0), name="dry"), "spot": spot})
    assert [m.reason for m in run.moves] == reasons and federated_figures(run).misses == 0
    assert sum(a.work for each in run.runs.values() for a in each.attempts) == pytest.approx(4 * 3600)


def test_a_cluster_under_its_cap_takes_no_more_than_it_has_room_for():
    jobs = [{"id": f"j{n}", "hours": 30, "deadline_hours": 60} for n in range(4)]
    run = drive(jobs, {"a": GONE, "b": fleet(offer(), max_instances=1), "c": THERE}, {"dry": DRY})
    goals = [goal for _, _, _, goal in paths(run)]
    assert sorted(goals) == ["b", "c", "c", "c"] and federated_figures(run).misses == 0


def test_from_one_host_to_the_next_the_bytes_go_home_first():
    once = {"a": GONE, "b": fleet(offer("spot", 2.5, availability="spell")), "c": fleet(offer(usd=4.0))}
    spell = trace((24, 9), (100_000, 0), name="spell")
    run = drive([{"id": "j", "hours": 20}], once, {"dry": trace((100_000, 0), name="dry"), "spell": spell})
    assert paths(run) == [("j", MoveWhy.NO_CAPACITY, "a", "b"), ("j", MoveWhy.NO_CAPACITY, "b", "c")]
    assert [m.usd for m in run.moves] == [pytest.approx(1.0), pytest.approx(2.0)]
    assert run.moves[1].at - run.moves[0].at >= DEFAULT.pause


def test_every_wrong_field_is_named_with_where_it_is():
    with pytest.raises(BadInputs) as error:
        parse_federated(
            {
                "jobs": [{"id": "j", "arrival_hours": 0, "hours": 1, "cluster": "x"},
                         {"id": "j", "arrival_hours": 0, "hours": 1, "cluster": "a"}],
                "clusters": {"a": fleet(offer(availability="none")), "b": {"egress_usd_per_gb": -1, "price": 1}},
                "federation": {"every_seconds": 1},
                "fleets": {},
            },
            "f", builtin(),
        )  # fmt: skip
    assert {p.path for p in error.value.problems} == {
        "fleets", "jobs[0].cluster", "jobs[1].id", "clusters.a.fleet.pools[0].availability", "clusters.b.price",
        "clusters.b.fleet", "federation.every_seconds",
    }  # fmt: skip


def test_the_same_workload_runs_the_same_again():
    values = dried(generate_federated(12, 3, clusters=2), "east", 4, 20)
    runs = []
    for _ in range(2):
        read = parse_federated(values, "w", builtin())
        runs.append(simulate_federated(read, load_traces(read, lambda path: pytest.fail("no files here"))))
    assert runs[0].moves == runs[1].moves != []
    assert federated_figures(runs[0]) == federated_figures(runs[1])


@pytest.mark.parametrize("seed", [11, 12])
def test_a_day_of_drought_on_one_side_misses_no_deadline_and_costs_no_more(seed):
    """Sixty jobs of a day each, with deadlines after 1.3 to 4 times their length, in three clusters. From the sixth
    hour on, one cluster has no spot or on-demand capacity for a day. The long form is `bench ONLY=federation`."""
    read = parse_federated(dried(generate_federated(60, seed), "east", 6, 24), "w", builtin())
    traces = load_traces(read, lambda path: pytest.fail("no files here"))
    run = simulate_federated(read, traces)
    moving, staying = federated_figures(run), federated_figures(simulate_federated(read, traces, moving=False))
    assert staying.misses >= 3 and moving.misses == 0
    moves = sorted(run.moves, key=lambda m: (m.job_id, m.at))
    for before, after in pairwise(moves):
        least_gap = DEFAULT.min_stay if after.reason is MoveWhy.CHEAPER else DEFAULT.pause
        assert after.job_id != before.job_id or after.at - before.at >= least_gap
    assert moving.finished == 60 and moving.total_usd <= staying.total_usd


def test_in_a_drought_of_spot_jobs_without_a_deadline_move_instead_of_waiting_for_hours():
    """Sixty jobs of a day, half of them without a deadline; for a day one of three clusters has no spot."""
    values = dried(generate_federated(60, 11, undated=0.5), "east", 6, 24, on_demand=False)
    read = parse_federated(values, "w", builtin())
    traces = load_traces(read, lambda path: pytest.fail("no files here"))
    run, stayed = (simulate_federated(read, traces, moving=moving) for moving in (True, False))
    moving, staying = federated_figures(run), federated_figures(stayed)
    assert staying.undated_waits.max > 10 and moving.undated_waits.max < 3
    assert (moving.misses, moving.finished) == (0, 60)
    assert moving.total_usd <= 1.02 * staying.total_usd
    assert max(Counter(move.job_id for move in run.moves).values()) <= 2


def test_a_trace_of_a_file_counts_times_and_is_dry_in_its_dry_hours():
    values = {"a": {"file": "f", "times": 3, "dry_hours": [0.1, 0.25]}, "b": {"generator": "full", "instances": 7}}
    read = federation([{"id": "j", "hours": 1}], {"a": THERE, "b": THERE})
    read = read.model_copy(
        update={
            "clusters": {
                name: type(each).model_validate({**each.model_dump(), "traces": values})
                for name, each in read.clusters.items()
            }
        }
    )
    traces = load_traces(read, lambda name: replace(Trace(name=name, gap=GAP, available=np.array([1, 2, 1, 1]))))
    assert traces["a"].available.tolist() == [3, 6, 0, 3]
    assert set(traces["b"].available.tolist()) == {7}
