"""Properties of any workload, with any traces and the scheduler's own plan. The simulation itself checks the rules at
every moment."""

from datetime import timedelta
from itertools import pairwise

import numpy as np
import pytest
from everspot_core.jobs.records import JobState, Market, Reason
from everspot_simulator import drive as driving
from everspot_simulator.drive import simulate
from everspot_simulator.figures import figures, jain
from everspot_simulator.trace import Trace
from hypothesis import example, given, settings
from hypothesis import strategies as st
from workload_helpers import drive, offer, standing, trace, workload

HOUR = timedelta(hours=1)
NO_DEADLINE = st.none()


@st.composite
def jobs(draw, deadlines=NO_DEADLINE, nodes=(1, 1, 1, 2), shared=False):
    job_values = []
    for n in range(draw(st.integers(1, 7))):
        hours = draw(st.integers(1, 60)) / 10
        job = {
            "id": f"j{n}",
            "team": draw(st.sampled_from("xy")),
            "arrival_hours": draw(st.integers(0, 80)) / 10,
            "hours": hours,
            "hours_actual": hours * draw(st.sampled_from([0.5, 1, 1.2])),
            "hours_upper": hours * 1.25,
            "nodes": draw(st.sampled_from(nodes)),
            "priority": draw(st.sampled_from(["normal", "normal", "normal", "critical"])),
        }
        if shared:
            job["resources"] = {"gpus": draw(st.integers(0, 4)), "vcpus": draw(st.integers(1, 4))}
        slack = draw(deadlines)
        job_values.append(job if slack is None else job | {"deadline_hours": job["hours_upper"] + slack})
    return job_values


@st.composite
def traces(draw, most=4):
    spells = st.tuples(st.integers(1, 40), st.integers(0, most))
    return trace(*draw(st.lists(spells, min_size=1, max_size=8)))


def check_bill(run, totals):
    """The bill against sums over what each instance and each attempt tells."""
    cost = sum(m.usd_per_hour * ((m.ended_at - m.launched_at) / HOUR) for m in run.machines)
    assert totals.cost.total == pytest.approx(cost)
    assert totals.cost.spot + totals.cost.on_demand == pytest.approx(cost)
    rates = {m.instance_id: m for m in run.machines}
    for attempt in run.attempts:
        for name in attempt.instances:
            assert rates[name].ready_at <= attempt.began_at <= attempt.ended_at <= rates[name].ended_at
    if not run.workload.fleet.shared:
        used = sum(a.usd_per_hour * ((a.ended_at - a.began_at) / HOUR) for a in run.attempts)
        assert used + totals.cost.idle == pytest.approx(cost)
        assert sum(a.usd_per_hour for a in run.attempts) == pytest.approx(
            sum(rates[n].usd_per_hour for a in run.attempts for n in a.instances)
        )


def check_work(run):
    """Check that no work is lost, done twice, or done at two places at the same time."""
    for name, task in run.tasks.items():
        attempts = sorted((a for a in run.attempts if a.job_id == name), key=lambda a: a.began_at)
        assert all(a.ended_at <= b.began_at for a, b in pairwise(attempts))
        assert all(len(set(a.instances)) == task.job.nodes for a in attempts)
        work = sum(a.work for a in attempts)
        if task.state is JobState.SUCCEEDED:
            assert work == pytest.approx(task.job.actual * 3600, abs=1e-3)
            assert [a.reason for a in attempts].count(Reason.FINISHED) == 1
        else:
            assert work < task.job.actual * 3600


def check_capacity(run, market):
    """Check tick by tick that no spot pool was used beyond its trace's capacity."""
    spot = [m for m in run.machines if m.pool.market is Market.SPOT]
    ticks = int((run.ended_at - run.began_at) / market.gap)
    for tick in range(ticks):
        middle = run.began_at + (tick + 0.5) * market.gap
        held_count = sum(m.launched_at <= middle < m.ended_at for m in spot)
        assert held_count <= market.available[tick % len(market)]


def feasible(job, changeover):
    """Return whether immediate on-demand meets the deadline if everything takes its maximum time."""
    return job.deadline_hours is None or job.deadline_hours + 1e-6 >= job.upper + changeover


def check(run, market):
    totals = figures(run)
    check_bill(run, totals)
    check_work(run)
    check_capacity(run, market)
    assert totals.preemptions == sum(a.reason is Reason.NOTICE for a in run.attempts)
    assert totals.finished + totals.refused + totals.unfinished == totals.jobs
    assert 0 <= totals.utilization <= 1 + 1e-9
    return totals


@settings(max_examples=settings.default.max_examples * 3 // 5, deadline=None)
@given(jobs(), traces(), st.integers(1, 3), st.integers(0, 3), st.booleans())
def test_on_what_stands(drawn_jobs, market, base, spot, shared):
    """As long as the base is large enough for every gang, all jobs end."""
    parts = [standing(base + 1)]
    if spot:
        parts.append(standing(spot, "spot", 1.0, availability="t"))
    run = simulate(workload(drawn_jobs, {"t"}, standing=parts, shared=shared), {"t": market})
    totals = check(run, market)
    assert (totals.unfinished, totals.launched) == (0, 0)
    base_hours = (run.ended_at - run.began_at) / HOUR
    assert totals.cost.on_demand == pytest.approx((base + 1) * 3 * base_hours)


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(jobs(st.sampled_from([None, 0.2, 0.6, 1.5, 5, 12])), traces(), st.integers(0, 2), st.booleans())
def test_with_pools_to_launch_from_no_deadline_that_could_be_kept_is_missed(drawn_jobs, market, base, late):
    """On-demand is always to be had; whatever spot does and however wrong the expected hours are."""
    parts = [standing(base)] if base else []
    pools = [offer(), offer("spot", 1.0, availability="t")]
    upper = 0.9 if late else 0.5
    read = workload(drawn_jobs, {"t"}, standing=parts, pools=pools, changeover_upper_hours=upper)
    run = simulate(read, {"t": market})
    totals = check(run, market)
    assert totals.refused + totals.misses <= sum(not feasible(t.job, upper) for t in run.tasks.values())
    for task in run.tasks.values():
        deadline = task.submission.deadline_at
        if deadline is not None and feasible(task.job, upper):
            assert not task.refused
            assert task.finished_at <= deadline
        # A job without a deadline waits for spot, possibly for ever.
        patient = deadline is None and task.job.priority == "normal"
        assert task.state.final or (patient and market.available.max() < base + task.job.nodes)


@settings(max_examples=settings.default.max_examples * 2 // 5, deadline=None)
@given(jobs(st.sampled_from([None, 5, 12]), nodes=(1,), shared=True), traces(), st.integers(1, 2))
def test_sharing_with_pools(drawn_jobs, market, base):
    pools = [offer(), offer("spot", 1.0, availability="t")]
    read = workload(drawn_jobs, {"t"}, standing=[standing(base)], pools=pools, shared=True)
    totals = check(simulate(read, {"t": market}), market)
    assert totals.misses == 0


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(jobs(st.sampled_from([None, 1.5, 5])), traces(), traces(), st.integers(0, 2))
def test_where_on_demand_runs_dry_as_well(drawn_jobs, market, dry, base):
    """Then nothing can be promised, but no rule is broken, no work is lost, and the bill is right."""
    parts = [standing(base) | {"zone": "y"}] if base else []
    pools = [offer(availability="dry"), offer("spot", 1.0, availability="t")]
    read = workload(drawn_jobs, {"t", "dry"}, standing=parts, pools=pools, horizon=40)
    check(simulate(read, {"t": market, "dry": dry}), market)


NOBODY_COMES = [{"id": "j0", "team": "x", "arrival_hours": 0.0, "hours": 0.1, "hours_upper": 0.125, "nodes": 2}]


@settings(max_examples=settings.default.max_examples * 3 // 20, deadline=None)
@given(jobs(st.sampled_from([None, 1.5, 5])), traces())
@example(NOBODY_COMES, Trace(name="t", gap=timedelta(minutes=5), available=np.array([0])))
def test_asking_the_plan_at_every_tick_changes_nothing(drawn_jobs, market):
    """Between events it is asked only where time alone could change its mind; that must not show."""
    pools = [offer(), offer("spot", 1.0, availability="t")]
    read = workload(drawn_jobs, {"t"}, standing=[standing()], pools=pools)
    few = simulate(read, {"t": market})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driving, "_asks_for_time", lambda action, cluster: True)
        many = simulate(read, {"t": market})
    assert few.attempts == many.attempts
    assert few.plans <= many.plans


@given(jobs(st.sampled_from([None, 5])), traces())
@settings(max_examples=settings.default.max_examples * 3 // 20, deadline=None)
def test_the_same_workload_gives_the_same_run(drawn_jobs, market):
    fleet = {"standing": [standing(2, "spot", 1.0, availability="t")], "pools": [offer()]}
    runs = [simulate(workload(order, {"t"}, **fleet), {"t": market}) for order in (drawn_jobs, drawn_jobs[::-1])]
    assert runs[0].attempts == runs[1].attempts
    assert figures(runs[0]).to_json() == figures(runs[1]).to_json()


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_jains_index(shares):
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9


@pytest.mark.parametrize(
    ("shares", "index"), [([2, 2, 2], 1), ([1, 0, 0, 0], 0.25), ([0, 0], 1), ([], 1), ([1, 3], 0.8)]
)
def test_jains_index_of_shares(shares, index):
    assert jain(shares) == pytest.approx(index)


def test_percentiles_are_of_the_nearest_rank():
    # Ten jobs of an hour and no set-up on one instance wait 0, 1, … 9 h.
    _, totals = drive([{"id": f"j{n}", "hours": 1} for n in range(10)], standing=[standing()], setup_hours=0)
    assert (totals.waiting.mean, totals.waiting.p50, totals.waiting.p95, totals.waiting.max) == (4.5, 4, 9, 9)
    assert totals.waiting_by_priority["normal"] == totals.waiting
