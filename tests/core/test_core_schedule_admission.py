"""Admission by the budgets of teams and of the environment, in the plans of both drivers."""

from dataclasses import replace

import pytest
from everspot_core.costs.team_budgets import ENVIRONMENT, CapUse, Period, Unit
from everspot_core.jobs import sharing
from everspot_core.jobs.job import Resources
from everspot_core.jobs.records import Assignment, JobRecord, JobState, Order, Reason
from everspot_core.schedule import (
    Assign,
    Hold,
    Launch,
    Release,
    StageRun,
    Stop,
    VoidAssignment,
    Why,
    describe_action,
    plan_standing,
)
from provision_helpers import HOUR, NOW, decide, holding, instance, job, outlook, pool
from view_helpers import cluster_view

TEAM = {"tags": {"Team": "vision"}}
TONIGHT = NOW + 12 * HOUR


def cap_use(cap: float, spent: float = 0.0, *, team: str = "vision", unit: Unit = Unit.DOLLARS) -> CapUse:
    return CapUse(team=team, period=Period.DAY, unit=unit, cap=cap, spent=spent, until=TONIGHT)


def standing(jobs, instances, **more) -> list:
    actions = plan_standing(cluster_view(jobs=tuple(jobs), instances=tuple(instances), **more), NOW)
    for action in actions:
        assert "{" not in describe_action(action)
    return actions


def test_a_job_that_fits_below_the_cap_begins_and_the_next_one_that_does_not_is_held() -> None:
    free = [instance(f"i-{n}", launched_for=None) for n in range(3)]  # $1 an hour
    jobs = [job(n, work=outlook(4), **TEAM) for n in ("a", "b", "c")]
    actions = decide(jobs, free, [pool()], cap_uses=(cap_use(9.0),))
    assert {a.job_id for a in actions if isinstance(a, Assign)} == {"a", "b"}
    (hold,) = (a for a in actions if isinstance(a, Hold))
    assert (hold.job_id, hold.cause) == ("c", Why.TEAM_BUDGET)
    assert hold.figures == {
        "team": "vision", "spent": 0.0, "committed": 8.0, "asked": 4.0, "cap": 9.0, "unit": "dollars",
        "period": "day", "until": "2026-05-02 00:00 UTC",
    }  # fmt: skip
    assert describe_action(hold) == (
        "hold c: team vision has spent $0.00 of its $9.00 a day, and $8.00 more is committed to running jobs; "
        "this job asks for $4.00; until 2026-05-02 00:00 UTC"
    )
    assert not [a for a in actions if isinstance(a, Launch)]


def cached(job_id: str, *ahead: str, **fields):
    """A job of a cached stage, behind others of the same stage that wait."""
    runs = (StageRun(job_id=name, state=JobState.PENDING, producer=name, may_begin=True) for name in ahead)
    return replace(job(job_id, work=outlook(4), **fields), same_stage=tuple(runs))


def waiting(job_id: str, **fields) -> JobRecord:
    return JobRecord(job_id=job_id, state=JobState.PENDING, changed_at=NOW - HOUR, **fields)


@pytest.mark.parametrize(
    ("ahead", "is_awaited"),
    [
        ({}, True),
        ({"record": waiting("a", not_before=NOW + HOUR, last_reason=Reason.ERROR)}, False),
        ({"record": waiting("a", not_before=NOW - HOUR, last_reason=Reason.ERROR)}, True),
        ({"after": (("fetch", JobState.RUNNING),)}, False),
        ({"after": (("fetch", JobState.SUCCEEDED),)}, True),
    ],
)
def test_a_cached_stage_awaits_an_identical_one_only_if_that_may_begin(ahead, is_awaited) -> None:
    jobs = [replace(cached("a"), **ahead), cached("b", "a")]
    for actions in (
        decide(jobs, (), [pool()]),
        standing(jobs, [instance(f"i-{n}", launched_for=None) for n in range(2)]),
    ):
        causes = {a.job_id: a.cause for a in actions if isinstance(a, Hold)}
        begun = {a.job_id for a in actions if isinstance(a, Assign | Launch)}
        assert ("b" in begun, causes.get("b") is Why.SAME_STAGE) == (not is_awaited, is_awaited)


def test_a_cached_stage_awaits_no_identical_one_of_a_team_whose_budget_is_used_up() -> None:
    jobs = [cached("a", **TEAM), cached("b", "a", tags={"Team": "speech"}), cached("c", "a", "b")]
    actions = decide(jobs, (), [pool()], cap_uses=(cap_use(9.0, spent=9.0),))
    assert [a.job_id for a in actions if isinstance(a, Launch)] == ["b"]
    reasons = {a.job_id: (a.cause, a.figures.get("job")) for a in actions if isinstance(a, Hold)}
    assert reasons["a"][0] is Why.TEAM_BUDGET
    assert reasons["c"] == (Why.SAME_STAGE, "b")
    paid = decide(jobs, (), [pool()], cap_uses=(cap_use(9.0),))
    assert [a.job_id for a in paid if isinstance(a, Launch)] == ["a"]


def test_what_is_launched_in_one_plan_counts_for_the_next_job_in_it() -> None:
    jobs = [job(n, work=outlook(4), **TEAM) for n in ("a", "b", "c")]
    actions = decide(jobs, (), [pool()], cap_uses=(cap_use(9.0),))
    assert [a.job_id for a in actions if isinstance(a, Launch)] == ["a", "b"]
    assert [(a.job_id, a.cause) for a in actions if isinstance(a, Hold)] == [("c", Why.TEAM_BUDGET)]


def test_a_job_that_gets_a_free_instance_counts_once_for_the_launch_of_the_next_one() -> None:
    jobs = [job(n, work=outlook(4), **TEAM) for n in ("a", "b", "c")]
    actions = decide(jobs, [instance("i-0", launched_for=None)], [pool()], cap_uses=(cap_use(9.0),))
    assert [a.job_id for a in actions if isinstance(a, Assign)] == ["a"]
    assert [a.job_id for a in actions if isinstance(a, Launch)] == ["b"]
    (hold,) = (a for a in actions if isinstance(a, Hold))
    assert (hold.job_id, hold.cause, hold.figures["committed"]) == ("c", Why.TEAM_BUDGET, 8.0)


def test_what_runs_and_what_is_on_its_way_is_committed() -> None:
    runs, instances = holding(job("a", work=outlook(4), **TEAM), instance("i-0", launched_for="a"))
    coming = job("b", work=outlook(4), **TEAM)
    waits = job("c", work=outlook(4), **TEAM)
    boots = instance("i-1", launched_for="b", ready=False)
    actions = decide([runs, coming, waits], [*instances, boots], [pool()], cap_uses=(cap_use(11.0),))
    causes = {a.job_id: a.cause for a in actions if isinstance(a, Hold)}
    assert causes == {"b": Why.ON_ITS_WAY, "c": Why.TEAM_BUDGET}


@pytest.mark.parametrize(
    ("caps", "cause"),
    [
        ((cap_use(100, team="speech"),), None),
        ((cap_use(100), cap_use(3, team=ENVIRONMENT)), Why.ENVIRONMENT_BUDGET),
        ((cap_use(3.9, unit=Unit.GPU_HOURS),), Why.TEAM_BUDGET),
        ((cap_use(4, unit=Unit.GPU_HOURS),), None),
        ((cap_use(4, spent=0.1),), Why.TEAM_BUDGET),
        ((cap_use(0),), Why.TEAM_BUDGET),
    ],
)
def test_whose_budget_it_is_and_of_what_decides(caps, cause) -> None:
    actions = standing(
        [job("a", work=outlook(4), **TEAM)], [instance("i-0", launched_for=None)], pools=(pool(),), cap_uses=caps
    )
    assert [a.cause for a in actions if isinstance(a, Hold)] == ([] if cause is None else [cause])


def test_only_what_is_left_of_the_period_is_asked_for_and_an_hour_of_unknown_length() -> None:
    free = [instance("i-0", launched_for=None)]
    long, unknown = job("a", work=outlook(100), **TEAM), job("a", **TEAM)
    for cap, kind, begins in ((12.0, long, True), (11.9, long, False), (1.0, unknown, True), (0.9, unknown, False)):
        actions = standing([kind], free, pools=(pool(),), cap_uses=(cap_use(cap),))
        assert any(isinstance(a, Assign) for a in actions) is begins, (cap, kind.job_id)


def test_what_runs_goes_on_below_the_cap_and_is_asked_back_at_it() -> None:
    runs, instances = holding(job("a", work=outlook(50), **TEAM), instance("i-0", launched_for=None))
    assert not [a for a in standing([runs], instances, cap_uses=(cap_use(9, spent=8.99),)) if isinstance(a, Stop)]
    (stop,) = standing([runs], instances, cap_uses=(cap_use(9, spent=9),))
    assert isinstance(stop, Stop)
    assert (stop.reason, stop.cause) == (Reason.CAP, Why.TEAM_BUDGET)


def test_of_what_another_team_has_spent_nobody_is_stopped() -> None:
    runs, instances = holding(job("a", **TEAM), instance("i-0", launched_for=None))
    assert not standing([runs], instances, cap_uses=(cap_use(9, spent=10, team="speech"),))


def test_nothing_is_kept_for_a_job_whose_budget_is_used_up() -> None:
    actions = decide([job(**TEAM)], [instance("i-0")], [pool()], cap_uses=(cap_use(9, spent=9),))
    assert [(type(a), a.cause) for a in actions] == [(Hold, Why.TEAM_BUDGET), (Release, Why.NEEDED_NO_MORE)]


def test_a_half_done_assignment_is_not_completed_once_the_budget_is_used_up() -> None:
    assignment = Assignment(instance_id="i-0", job_id="j", epoch=1, order=Order.RUN, changed_at=NOW)
    half = instance("i-0", launched_for=None, assignment=assignment)
    (action,) = standing([job(**TEAM)], [half], cap_uses=(cap_use(9, spent=9),))
    assert isinstance(action, VoidAssignment)


def test_a_job_that_was_put_off_has_not_been_interrupted_and_may_go_where_it_was() -> None:
    record = JobRecord(
        job_id="j", state=JobState.PENDING, epoch=1, last_owner="i-0", last_reason=Reason.CAP, changed_at=NOW
    )
    (assign,) = standing([job(record=record, **TEAM)], [instance("i-0", launched_for=None)], cap_uses=(cap_use(9),))
    assert isinstance(assign, Assign)
    assert assign.instance_id == "i-0"
    assert not Reason.CAP.preemption


def test_a_jobs_own_budget_bounds_what_it_is_taken_to_spend() -> None:
    view = job("a", work=outlook(10), **TEAM)
    spec = view.submission.spec.model_copy(
        update={"budget": view.submission.spec.budget.model_copy(update={"dollars": 2})}
    )
    poor = replace(view, submission=view.submission.model_copy(update={"spec": spec}))
    actions = standing([poor], [instance("i-0", launched_for=None)], pools=(pool(),), cap_uses=(cap_use(2.5),))
    assert [a.job_id for a in actions if isinstance(a, Assign)] == ["a"]


def test_jobs_that_share_an_instance_ask_for_their_share_and_are_committed_to_it() -> None:
    """Quarters of an instance for $1 an hour, four hours each: a dollar each."""
    small = Resources(vcpus=2, memory_gib=8, shared=True)
    runs = job("a", work=outlook(4), resources=small, **TEAM)
    shared_instance = instance("i-0", launched_for=None)
    assignment = sharing.seat(None, shared_instance.record, "a", 1, small, NOW)
    record = JobRecord(job_id="a", state=JobState.RUNNING, epoch=1, owner="i-0", changed_at=NOW)
    shared_instance = replace(shared_instance, assignment=assignment, residents=("a",))
    jobs = [job(f"b{n}", work=outlook(4), resources=small, **TEAM) for n in range(6)]
    free = [instance(f"i-{n}", launched_for=None) for n in (1, 2)]
    fleet_fields = {"shared": True, "pools": (pool(),), "cap_uses": (cap_use(5.0),)}
    actions = standing([replace(runs, record=record), *jobs], [shared_instance, *free], **fleet_fields)
    assert [a.shares for a in actions if isinstance(a, Assign)] == [True] * 4
    (hold, _) = (a for a in actions if isinstance(a, Hold))
    assert (hold.figures["committed"], hold.figures["asked"]) == (5.0, 1.0)


def test_a_job_that_gets_a_share_counts_for_its_share_when_the_next_one_is_launched_for() -> None:
    """A quarter of an instance for $1 an hour, four hours: a dollar; and four dollars for the launch."""
    small = Resources(vcpus=2, memory_gib=8, shared=True)
    jobs = [job("a", work=outlook(4), resources=small, **TEAM), job("b", work=outlook(4), **TEAM)]
    free = instance("i-0", launched_for=None)
    actions = decide(jobs, [free], [pool()], shared=True, cap_uses=(cap_use(5.0),))
    assert [a.job_id for a in actions if isinstance(a, Assign) and a.shares] == ["a"]
    assert [a.job_id for a in actions if isinstance(a, Launch)] == ["b"]
    assert not any(isinstance(a, Launch) for a in decide(jobs, [free], [pool()], shared=True, cap_uses=(cap_use(4.9),)))
