"""Small workloads computed by hand. Launch takes 0.25 h, set-up 0.25 h; a tick is five minutes."""

import pytest
from everspot_core.jobs.records import Reason
from workload_helpers import drive, offer, standing, trace

HOUR = 12  # ticks


def hours(run, moment):
    return (moment - run.began_at).total_seconds() / 3600


def attempts(run):
    return [(a.job_id, hours(run, a.began_at), hours(run, a.ended_at), a.reason) for a in run.attempts]


def test_two_jobs_take_turns_on_one_instance():
    # a: set up until 0.25, works until 2.25. b arrives at 1, follows at 2.25, works from 2.5 to 3.5.
    # The instance is paid for 3.5 h at $3, and is never idle.
    run, totals = drive([{"id": "a", "hours": 2}, {"id": "b", "hours": 1, "arrival_hours": 1}], standing=[standing()])
    assert attempts(run) == [("a", 0, 2.25, Reason.FINISHED), ("b", 2.25, 3.5, Reason.FINISHED)]
    assert (totals.cost.total, totals.cost.on_demand, totals.cost.spot, totals.cost.idle) == (10.5, 10.5, 0, 0)
    assert (totals.waiting.mean, totals.waiting.p50, totals.waiting.max) == (0.625, 0, 1.25)
    assert (totals.jobs, totals.finished, totals.changeovers, totals.preemptions) == (2, 2, 2, 0)
    assert (totals.paid_hours, totals.busy_hours, totals.utilization) == (3.5, 3.5, 1)


def test_what_stands_is_paid_while_it_is_idle():
    # Two instances for 1.25 h, the job being over then; the second one never has anything to do.
    _, totals = drive([{"id": "a", "hours": 1}], standing=[standing(2)])
    assert (totals.cost.total, totals.cost.idle, totals.utilization) == (7.5, 3.75, 0.5)


def test_a_preempted_job_keeps_its_progress_and_the_fleet_heals():
    # Spot is there for an hour, away for half an hour, and there again. The job works from 0.25 to 1, is preempted with
    # 0.25 h to do, gets an instance that is launched at 1.5 and ready at 1.75, is set up until 2, and ends at 2.25.
    # Paid: 1 h and 0.75 h at $1, including 0.25 h of idle boot time.
    market = trace((HOUR, 1), (6, 0), (20 * HOUR, 1))
    job = {"id": "a", "hours": 1}
    run, totals = drive([job], {"t": market}, standing=[standing(market="spot", usd=1, availability="t")])
    assert attempts(run) == [("a", 0, 1, Reason.NOTICE), ("a", 1.75, 2.25, Reason.FINISHED)]
    assert (totals.cost.total, totals.cost.spot, totals.cost.idle) == (1.75, 1.75, 0.25)
    assert (totals.preemptions, totals.changeovers, totals.launched) == (1, 2, 0)
    assert run.tasks["a"].record.preemptions == 1


def test_the_youngest_instances_go_first():
    # Two stand; one more is launched for b. When only two are left it is b's that goes.
    market = trace((6, 3), (30, 2), (300, 3))
    spot = {"market": "spot", "usd": 1, "availability": "t"}
    jobs = [
        {"id": "a", "hours": 4},
        {"id": "c", "hours": 4},
        {"id": "b", "hours": 4, "deadline_hours": 40, "arrival_hours": 0.1},
    ]
    run, _ = drive(jobs, {"t": market}, standing=[standing(2, **spot)], pools=[offer(**spot), offer(usd=9)])
    lost = [(a.job_id, a.instances) for a in run.attempts if a.reason is Reason.NOTICE]
    assert lost == [("b", ("i-000003",))]


def test_a_critical_job_has_an_instance_launched_at_once():
    run, totals = drive([{"id": "a", "hours": 1, "priority": "critical"}], pools=[offer(usd=4)])
    # Launched immediately: boots until 0.25, is set up until 0.5, works until 1.5, and is released.
    assert attempts(run) == [("a", 0.25, 1.5, Reason.FINISHED)]
    assert (totals.cost.total, totals.cost.idle, totals.launched) == (6, 1, 1)


def test_an_instance_that_was_launched_is_released_when_its_job_is_over():
    # b keeps the simulation going until 5.25 h. What was launched for a is paid for 1.5 h only.
    jobs = [{"id": "b", "hours": 5}, {"id": "a", "hours": 1, "priority": "critical", "arrival_hours": 0.5}]
    _, totals = drive(jobs, pools=[offer(usd=3)], standing=[standing(usd=3)])
    assert totals.hours == 5.25
    assert totals.cost.total == pytest.approx((5.25 + 1.5) * 3)


def test_a_gang_holds_all_its_instances_at_once():
    # a has one of the two instances until 1.25, so the gang of two begins then, and works from 1.5 to 2.5.
    # b, which would take 2.25 h, must not slip in before the gang on the instance that is free.
    jobs = [
        {"id": "a", "hours": 1},
        {"id": "g", "hours": 1, "nodes": 2, "arrival_hours": 0.1},
        {"id": "b", "hours": 2, "arrival_hours": 0.2},
    ]
    run, totals = drive(jobs, standing=[standing(2)])
    attempt_by_job = {a.job_id: (a.instances, hours(run, a.began_at), hours(run, a.ended_at)) for a in run.attempts}
    assert (set(attempt_by_job["g"][0]), *attempt_by_job["g"][1:]) == ({"i-000001", "i-000002"}, 1.25, 2.5)
    assert attempt_by_job["b"][1:] == (2.5, 4.75)
    # Until 4.75 h two instances: a 1.25, the gang 2 x 1.25, b 2.25 h busy.
    assert (totals.paid_hours, totals.busy_hours) == (9.5, 6)


def test_small_jobs_share_an_instance():
    # Four jobs of one GPU each run at the same time on an instance with four: 1.25 h. The fifth waits for them.
    small = {"hours": 1, "resources": {"gpus": 1, "vcpus": 1, "memory_gib": 4}}
    jobs = [{"id": f"j{n}", **small} for n in range(5)]
    run, totals = drive(jobs, standing=[standing()], shared=True)
    assert [hours(run, a.began_at) for a in run.attempts] == [0, 0, 0, 0, 1.25]
    assert (totals.cost.total, totals.utilization) == (7.5, 1)
    _, alone = drive(jobs, standing=[standing()], shared=False)
    assert alone.cost.total == 5 * 1.25 * 3


def test_a_faster_type_is_done_sooner():
    # Twice as fast: 2 h of work in 1 h, after the set-up.
    run, _ = drive([{"id": "a", "hours": 2, "speeds": {"four": 2}}], standing=[standing()])
    assert attempts(run) == [("a", 0, 1.25, Reason.FINISHED)]


@pytest.mark.parametrize(
    ("deadline", "misses", "latest"),
    [
        (2.25, 0, 0.0),  # done at that very moment
        (2.0, 1, 0.25),
        (9, 0, 0.0),
    ],
)
def test_misses(deadline, misses, latest):
    _, totals = drive([{"id": "a", "hours": 2, "deadline_hours": deadline}], standing=[standing()])
    assert (totals.with_deadline, totals.misses, totals.latest_hours) == (1, misses, latest)


def test_what_has_not_ended_at_the_horizon_is_paid_until_then_and_counted():
    # The gang of two never finds two instances; its deadline passes. a ends at 1.25, and the base stands for 10 h.
    jobs = [{"id": "a", "hours": 1}, {"id": "g", "hours": 1, "nodes": 2, "deadline_hours": 3}]
    _, totals = drive(jobs, standing=[standing()], horizon=10)
    assert (totals.finished, totals.unfinished, totals.misses, totals.latest_hours) == (1, 1, 1, 7)
    assert (totals.hours, totals.cost.total, totals.waiting.max) == (10, 30, 10)


def test_an_infeasible_deadline_is_refused_and_no_miss():
    _, totals = drive([{"id": "a", "hours": 5, "deadline_hours": 3}], pools=[offer()])
    assert (totals.refused, totals.misses, totals.with_deadline, totals.cost.total) == (1, 0, 1, 0)


def test_teams_that_wait_are_compared_by_what_they_hold_for_their_weight():
    # One instance at $3. While x holds it, y waits from 0 to 2.25 and holds nothing; then y holds it and x waits, until
    # 4.5, for the second of its jobs, which ends at 6.75. x waits from 0 too: 4.5 h, in which it held $3 x 2.25 h.
    # x: 6.75 / 4.5 / weight 2 = 0.75; y: 0. Jain: 0.75^2 / (2 x 0.75^2) = 0.5.
    jobs = [
        {"id": "x1", "team": "x", "hours": 2},
        {"id": "x2", "team": "x", "hours": 2},
        {"id": "y1", "team": "y", "hours": 2},
    ]
    run, totals = drive(jobs, standing=[standing()], teams={"x": 2})
    assert [a.job_id for a in run.attempts] == ["x1", "y1", "x2"]
    assert totals.fairness.teams == {"x": 0.75, "y": 0.0}
    assert totals.fairness.jain == 0.5
    assert totals.fairness.max_wait_hours == 4.5


def test_a_pool_that_boots_slowly_is_paid_for_it_and_is_passed_over_where_that_costs_more():
    """One pool is a tenth more expensive and boots in a quarter of an hour, the other boots in an hour and a half."""
    slow, quick = offer(usd=3.0, zone="slow", launch_hours=1.5), offer(usd=3.3, zone="quick")
    job = {"id": "a", "hours": 4, "deadline_hours": 12, "priority": "critical"}
    chosen = {}
    for name, pools in {"slow": [slow], "quick": [quick], "both": [slow, quick]}.items():
        run, totals = drive([job], pools=pools, horizon=60)
        chosen[name] = run.machines[0].pool.zone, round(totals.cost.total, 6)
    assert chosen == {"slow": ("slow", 17.25), "quick": ("quick", 14.85), "both": ("quick", 14.85)}
    run, _ = drive([job | {"hours": 40, "deadline_hours": 99}], pools=[slow, quick], horizon=120)
    assert run.machines[0].pool.zone == "slow"
