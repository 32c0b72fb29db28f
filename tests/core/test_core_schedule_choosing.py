"""The assignment of instances to jobs: one table or case per rule of the plan."""

from datetime import timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import Priority, Resources
from everspot_core.jobs.records import (
    InstanceState,
    JobState,
    Market,
    Notice,
    NoticeKind,
    Reason,
    Role,
)
from everspot_core.schedule import (
    Assign,
    Why,
)
from plan_helpers import NOW, assigned, assigned_to, decide, instance, job, record


def test_jobs_choose_by_priority_then_deadline_then_age():
    soon, late = NOW + timedelta(hours=1), NOW + timedelta(hours=9)
    jobs = [
        job("old", age_minutes=90),
        job("young", age_minutes=1),
        job("soon", deadline_at=soon, age_minutes=2),
        job("late", deadline_at=late, age_minutes=80),
        job("critical", priority=Priority.CRITICAL, age_minutes=0),
    ]
    expected = ["critical", "soon", "late", "old", "young"]
    for count in range(1, 6):
        one_market = [instance(f"i-{n}") for n in range(count)]
        assert set(assigned(decide(jobs, one_market))) == set(expected[:count])


@pytest.mark.parametrize(
    ("priority", "markets", "expected", "cause"),
    [
        (Priority.CRITICAL, [Market.SPOT, Market.ON_DEMAND], 1, Why.PREFERRED_MARKET),
        (Priority.CRITICAL, [Market.SPOT], 0, Why.OTHER_MARKET),
        (Priority.NORMAL, [Market.ON_DEMAND, Market.SPOT], 1, Why.PREFERRED_MARKET),
        (Priority.NORMAL, [Market.ON_DEMAND], 0, Why.OTHER_MARKET),
    ],
)
def test_each_priority_has_its_market_and_rather_takes_the_other_than_wait(priority, markets, expected, cause):
    instances = [instance(f"i-{n}", market) for n, market in enumerate(markets)]
    (action,) = decide([job("j", priority=priority)], instances)
    assert isinstance(action, Assign)
    assert (action.instance_id, action.cause, action.epoch) == (f"i-{expected}", cause, 1)


def test_the_last_on_demand_instance_is_kept_for_a_critical_job_in_back_off():
    waiting = record("crit", JobState.PENDING, 1, errors=1, not_before=NOW + timedelta(seconds=5))
    jobs = [job("crit", record=waiting, priority=Priority.CRITICAL), job("norm")]
    actions = decide(jobs, [instance("i-od", Market.ON_DEMAND)])
    assert {(a.job_id, a.cause) for a in actions} == {("crit", Why.BACK_OFF), ("norm", Why.KEPT_FOR_CRITICAL)}
    two = [instance("i-od", Market.ON_DEMAND), instance("i-od2", Market.ON_DEMAND)]
    assert list(assigned(decide(jobs, two))) == ["norm"]


def test_an_on_demand_instance_that_the_waiting_critical_job_could_not_use_is_not_kept():
    big = job("crit", priority=Priority.CRITICAL, resources=Resources(gpus=8))
    types = (InstanceType(name="p", vcpus=96, memory_gib=768, gpus=8),)
    actions = decide([big, job("norm")], [instance("i-od", Market.ON_DEMAND)], types=types)
    assert assigned(actions) == {"norm": "i-od"}


def test_the_smallest_instance_that_is_large_enough_is_taken():
    instances = [instance("a", shape=(8, 32, 1)), instance("b", shape=(8, 16, 0)), instance("c", shape=(2, 4, 0))]
    assert assigned(decide([job("small")], instances)) == {"small": "c"}
    assert assigned(decide([job("four", resources=Resources(vcpus=4))], instances)) == {"four": "b"}
    assert assigned(decide([job("gpu", resources=Resources(gpus=1))], instances)) == {"gpu": "a"}


@pytest.mark.parametrize(
    "flaw",
    [
        {"stale": True},
        {"is_gone": True},
        {"ending": True},
        {"state": InstanceState.DRAINING},
        {"state": InstanceState.GONE},
        {"role": Role.SCHEDULER},
        {"assignment": assigned_to("i", None, cordoned=True)},
        {"notice": Notice(kind=NoticeKind.INTERRUPTION, source="imds", seen_at=NOW, action_at=NOW)},
        {"state": InstanceState.BUSY},
    ],
)
def test_nothing_is_put_on_an_instance_that_is_not_fit_for_it(flaw):
    assert assigned(decide([job("j")], [instance("i", **flaw)])) == {}


def test_an_instance_that_the_cloud_recommends_to_leave_comes_last():
    away = Notice(kind=NoticeKind.REBALANCE, source="imds", seen_at=NOW)
    instances = [instance("a", notice=away), instance("b", rebalance=True), instance("c", Market.ON_DEMAND)]
    assert assigned(decide([job("j")], instances)) == {"j": "c"}
    assert assigned(decide([job("j")], instances[:1])) == {"j": "a"}


@pytest.mark.parametrize(
    ("priority", "reason", "expected"),
    [
        (Priority.NORMAL, Reason.DRILL, "od"),  # moves on
        (Priority.NORMAL, Reason.LOST, "od"),
        (Priority.NORMAL, Reason.ERROR, "spot"),  # an error is no fault of the instance
        (Priority.CRITICAL, Reason.DRILL, "od"),
    ],
)
def test_after_a_preemption_another_instance_is_preferred(priority, reason, expected):
    last = record("j", JobState.PENDING, 3, last_owner="spot", last_reason=reason)
    instances = [instance("spot"), instance("od", Market.ON_DEMAND)]
    actions = decide([job("j", record=last, priority=priority)], instances)
    assert assigned(actions) == {"j": expected}
    assert assigned(decide([job("j", record=last, priority=priority)], instances[:1])) == {"j": "spot"}


@pytest.mark.parametrize("reason", [Reason.LOST, Reason.NOTICE, Reason.SHUTDOWN])
def test_a_busy_instance_counts_as_free_once_its_lease_was_given_back_but_not_if_it_is_in_trouble(reason):
    busy = instance("i", state=InstanceState.BUSY, job_id="old", epoch=2)
    done = job("old", record=record("old", JobState.SUCCEEDED, 2, last_owner="i", last_reason=Reason.FINISHED))
    assert assigned(decide([done, job("new")], [busy])) == {"new": "i"}
    returned_job = job("old", record=record("old", JobState.PENDING, 2, last_owner="i", last_reason=reason))
    assert assigned(decide([returned_job, job("new")], [busy])) == {}
