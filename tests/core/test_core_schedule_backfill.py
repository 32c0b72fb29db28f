"""Gangs, and backfill: jobs that may start before a gang without delaying it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.jobs.job import JobSpec, Priority, Resources
from everspot_core.jobs.records import Assignment, JobRecord, JobState, Market, Order, Reason
from everspot_core.schedule import Assign, Hold, InstanceView, JobView, Why, describe_action, plan
from gang_helpers import HOUR, NOW, busy, free, job
from view_helpers import cluster_view, instance_view


def decide(jobs: list[JobView], instances: list[InstanceView], *runners: tuple[JobView, InstanceView], **kw) -> dict:
    """Return for each job the instances that it gets, or the reason for its wait."""
    view = cluster_view(jobs=(*jobs, *(j for j, _ in runners)), instances=(*instances, *(i for _, i in runners)), **kw)
    actions = plan(view, NOW)
    assert all("{" not in describe_action(a) for a in actions)
    given_out = [i for a in actions if isinstance(a, Assign) for i in (a.instance_id, *a.gang)]
    assert len(given_out) == len(set(given_out))
    decisions = (a for a in actions if isinstance(a, (Assign, Hold)))
    return {a.job_id: {a.instance_id, *a.gang} if isinstance(a, Assign) else a for a in decisions}


def cause_or_instances(decided: dict) -> dict:
    return {n: a.cause if isinstance(a, Hold) else a for n, a in decided.items()}


def test_a_gang_gets_all_its_instances_in_one_action_or_none():
    gang = job("gang", 3)
    decided = decide([gang], [free("i1"), free("i2"), free("i3"), free("i4")])
    assert decided == {"gang": {"i1", "i2", "i3"}}
    (hold,) = decide([gang], [free("i1"), free("i2")]).values()
    assert hold == Hold(job_id="gang", cause=Why.TOO_FEW_FREE, figures={"nodes": 3, "present": 2})


def test_a_gang_is_of_one_type():
    mixed = [free("i1"), free("i2"), free("i3", "b"), free("i4", "b")]
    assert cause_or_instances(decide([job("gang", 3)], mixed)) == {"gang": Why.TOO_FEW_FREE}
    assert decide([job("gang", 3)], [*mixed, free("i5", "b")]) == {"gang": {"i3", "i4", "i5"}}
    assert decide([job("gang", 2, vcpus=4)], mixed) == {"gang": {"i3", "i4"}}


def test_some_megabytes_more_or_less_do_not_make_another_type():
    alike = [free("i1", memory_gib=7.52), free("i2", memory_gib=7.57)]
    assert decide([job("gang", 2)], alike) == {"gang": {"i1", "i2"}}
    tight = job("tight", 2).submission.spec.model_copy(update={"resources": Resources(memory_gib=7.55)})
    view = replace(job("tight", 2), submission=job("tight").submission.model_copy(update={"spec": tight}))
    assert cause_or_instances(decide([view], alike)) == {"tight": Why.TOO_FEW_FREE}


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ("s1 s1 s2 s2 s2", {0, 1}),  # one zone and market before all
        ("s1 o1 s2 o2 s2", {2, 4}),
        ("s1 o1 s2 o3", {0, 1}),  # rather two markets than two zones
        ("s1 s2 o3 o4", {0, 1}),  # rather two zones of one market, and the preferred one
        ("o1 o2 s3 s4", {2, 3}),
        ("o1 o1 s3 s4", {0, 1}),  # rather one zone than the preferred market
        ("s1! s1 s2 o3", {1, 2}),  # rather apart than on one that is about to go
    ],
)
def test_a_gang_keeps_together(pools, expected):
    markets = {"s": Market.SPOT, "o": Market.ON_DEMAND}
    instances = [
        free(f"i{n}", market=markets[p[0]], zone=p[1], rebalance=p.endswith("!")) for n, p in enumerate(pools.split())
    ]
    assert decide([job("gang", 2)], instances) == {"gang": {f"i{n}" for n in expected}}


@pytest.mark.parametrize(
    ("hours", "expected"),
    [
        (5.0, {"i1"}),  # done when the gang can start
        (5.1, Why.KEPT_FOR_GANG),
        (None, Why.KEPT_FOR_GANG),
    ],
)
def test_what_is_free_is_lent_until_the_gang_ahead_can_start(hours, expected):
    jobs = [job("gang", 2, 3, age=20), job("late", hours=hours)]
    decided = decide(jobs, [free("i1")], busy("i2", 5.0))
    assert cause_or_instances(decided) == {"gang": Why.TOO_FEW_FREE, "late": expected}
    if expected is Why.KEPT_FOR_GANG:
        assert decided["late"].figures == {"ahead": "gang"}
    assert decide([replace(jobs[1], nodes=1)], [free("i1")], busy("i2", 5.0)) == {"late": {"i1"}}


@pytest.mark.parametrize(("minutes", "expected"), [(285, {"i1"}), (286, Why.KEPT_FOR_GANG)])
def test_what_the_author_expects_is_believed_where_nothing_was_measured(minutes, expected):
    """A quarter of an hour is for the changeover."""
    late = job("late", expected_duration=timedelta(minutes=minutes))
    assert (
        cause_or_instances(decide([job("gang", 2, 3, age=20), late], [free("i1")], busy("i2", 5.0)))["late"] == expected
    )


def test_what_the_gang_ahead_has_no_use_for_is_given_away():
    gang, late = job("gang", 2, 3, age=20, vcpus=4), job("late")
    assert cause_or_instances(decide([gang, late], [free("i1"), free("i2", "b")], busy("i3", 1, "b"))) == {
        "gang": Why.TOO_FEW_FREE,
        "late": {"i1"},
    }
    more = [free("i2", "b"), busy("i3", 1, "b"), busy("i4", 1, "b")]
    assert cause_or_instances(decide([gang, replace(late, nodes=1)], more[:1], *more[1:])) == {
        "gang": Why.TOO_FEW_FREE,
        "late": {"i2"},
    }


def test_a_gang_that_could_not_start_if_all_were_free_keeps_nothing():
    assert cause_or_instances(decide([job("gang", 3, 1, age=20), job("late")], [free("i1")], busy("i2", 1)))[
        "late"
    ] == {"i1"}


def test_while_it_is_not_known_when_the_gang_can_start_only_what_ends_is_lent():
    gang = job("gang", 2, 1, age=20)
    for hours, expected in ((500, {"i1"}), (None, Why.KEPT_FOR_GANG)):
        assert (
            cause_or_instances(decide([gang, job("late", hours=hours)], [free("i1")], busy("i2", None)))["late"]
            == expected
        )


def test_an_instance_that_is_about_to_be_rid_of_its_job_counts_as_free_soon():
    gang = job("gang", 2, 1, age=20)
    for runner in (
        busy("i2", None, order=Order.STOP, reason=Reason.CANCEL),
        (job("other"), replace(busy("i2", 9)[1], assignment=Assignment(instance_id="i2", job_id="x", changed_at=NOW))),
    ):
        decided = cause_or_instances(decide([gang, job("late", hours=1)], [free("i1")], runner))
        assert decided["late"] is Why.KEPT_FOR_GANG


def test_a_type_on_which_a_job_is_slow_holds_it_for_longer():
    jobs = [job("gang", 2, 3, age=20), replace(job("late", hours=4), speeds={"a": 0.5})]
    assert cause_or_instances(decide(jobs, [free("i1")], busy("i2", 5.0)))["late"] is Why.KEPT_FOR_GANG
    assert cause_or_instances(decide(jobs, [free("i1")], busy("i2", 7.0)))["late"] == {"i1"}


def test_gangs_that_wait_are_promised_their_time_one_after_the_other():
    """The first can start after 2 h and ends after 6 h; the second then. What ends in between is lent no longer."""
    jobs = [job("first", 3, 4, age=30), job("second", 3, 4, age=20)]
    runners = [busy("i3", 2.0)]
    for hours, expected in ((2, {"i1"}), (3, Why.KEPT_FOR_GANG)):
        decided = cause_or_instances(decide([*jobs, job("late", hours=hours)], [free("i1"), free("i2")], *runners))
        assert decided == {"first": Why.TOO_FEW_FREE, "second": Why.TOO_FEW_FREE, "late": expected}


def test_a_gang_is_not_promised_what_the_job_ahead_of_it_will_have():
    """The first will take one of the two large ones, so the gang can count on the small ones alone, after 9 h."""
    jobs = [job("first", hours=20, age=30, vcpus=4), job("gang", 2, 2, age=20), job("late", hours=15)]
    runners = [busy("b1", 3, "b"), busy("b2", 3, "b"), busy("a2", 9)]
    assert cause_or_instances(decide(jobs, [free("a1")], *runners))["late"] is Why.KEPT_FOR_GANG
    assert cause_or_instances(decide(jobs[1:], [free("a1")], *runners))["late"] == {"a1"}


def test_nor_what_is_promised_to_a_job_ahead_of_it():
    """`next` is in the way of `first` among the small ones, and is promised a large one; so the gang is not."""
    first, second = job("first", 2, 10, age=40), job("next", hours=20, age=30)
    heavy = [
        replace(j, submission=j.submission.model_copy(update={"spec": _with_memory(j, 6)})) for j in (first, second)
    ]
    others = [job("gang", 2, 2, age=20), job("late", hours=15)]
    instances = [free("a1"), free("c1", "c", memory_gib=4)]
    c2 = busy("c2", 9, "c")
    lean = c2[0], replace(c2[1], record=c2[1].record.model_copy(update={"memory_gib": 4}))
    runners = [busy("a2", 2), busy("b1", 3, "b"), busy("b2", 3, "b"), lean]
    decided = decide([*heavy, *others], instances, *runners)
    assert cause_or_instances(decided)["late"] is Why.KEPT_FOR_GANG
    assert cause_or_instances(decide([heavy[0], *others], instances, *runners))["late"] == {"c1"}


def _with_memory(view: JobView, gib: float) -> JobSpec:
    spec = view.submission.spec
    return spec.model_copy(update={"resources": Resources(vcpus=spec.resources.vcpus, memory_gib=gib)})


def test_instances_launched_for_a_job_go_to_that_job_alone():
    own = [replace(free(f"i{n}"), launched_for="gang") for n in (1, 2)]
    jobs = [job("late", hours=1, age=90), job("gang", 2, 1)]
    assert cause_or_instances(decide(jobs, own)) == {"late": Why.NO_FREE_INSTANCE, "gang": {"i1", "i2"}}
    assert cause_or_instances(decide(jobs, own[:1])) == {"late": Why.NO_FREE_INSTANCE, "gang": Why.TOO_FEW_FREE}
    assert cause_or_instances(decide(jobs[:1], own)) == {"late": {"i1"}}
    small = [replace(job("asks", vcpus=4), speeds={})]
    assert decide(small, [replace(free("i1"), launched_for="asks")], types=()) == {"asks": {"i1"}}


def test_of_what_was_launched_for_a_job_it_takes_the_latest_and_never_what_it_was_told_to_leave():
    old, new = (replace(free(n), launched_for="j", launched_at=NOW - h * HOUR) for n, h in (("i1", 2), ("i2", 1)))
    moved = JobRecord(
        job_id="j", state=JobState.PENDING, epoch=1, last_owner="i1", last_reason=Reason.MOVE, changed_at=NOW
    )
    assert decide([job("j", record=moved)], [old, new]) == {"j": {"i2"}}
    assert decide([job("j")], [old, new]) == {"j": {"i2"}}
    assert cause_or_instances(decide([job("j", record=moved)], [old])) == {"j": Why.NO_FREE_INSTANCE}


def test_a_gang_for_which_instances_are_coming_keeps_nothing_of_what_is_there():
    coming = instance_view(instance_id="new", launched_for="gang", launched_at=NOW)
    jobs = [job("gang", 2, 1, age=20), job("late")]
    assert cause_or_instances(decide(jobs, [free("i1"), coming], busy("i2", 1)))["late"] == {"i1"}


def test_a_critical_gang_in_back_off_keeps_all_that_it_needs():
    waiting = JobRecord(job_id="crit", state=JobState.PENDING, not_before=NOW + HOUR, changed_at=NOW)
    jobs = [job("crit", 2, record=waiting, priority=Priority.CRITICAL), job("norm")]
    two = [free("i1", market=Market.ON_DEMAND), free("i2", market=Market.ON_DEMAND)]
    assert cause_or_instances(decide(jobs, two)) == {"crit": Why.BACK_OFF, "norm": Why.KEPT_FOR_CRITICAL}
    assert cause_or_instances(decide(jobs, [*two, free("i3", market=Market.ON_DEMAND)]))["norm"] == {"i3"}
    assert cause_or_instances(decide(jobs, two[:1]))["norm"] == {"i1"}
