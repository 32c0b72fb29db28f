"""The plan with shared instances: one case per rule, for each job separately."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import provision_helpers
import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.instances import InstanceRecord, InstanceState, Resident, Role
from everspot_core.jobs import sharing
from everspot_core.jobs.job import JobSpec, JobSubmission, Resources
from everspot_core.jobs.records import Assignment, JobRecord, JobState, Market, Order, Reason
from everspot_core.schedule import (
    Assign,
    ClearAssignment,
    CompleteAssignment,
    Cordon,
    Drill,
    Expire,
    Hold,
    InstanceView,
    JobView,
    Launch,
    Leave,
    Release,
    RestoreAssignment,
    Stop,
    VoidAssignment,
    Why,
    plan,
    plan_standing,
)
from view_helpers import cluster_view, instance_view, job_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def job(name: str, *, state: JobState = JobState.RUNNING, owner: str = "i", shared: bool = True, **kw) -> JobView:
    spec = JobSpec(name=name, recipe="r", resources=Resources(vcpus=2, memory_gib=4, shared=shared))
    submission = JobSubmission(job_id=name, spec=spec, submitted_at=NOW - timedelta(minutes=10))
    holder = owner if state.owned else None
    record = JobRecord(job_id=name, state=state, epoch=kw.pop("epoch", 1), owner=holder, changed_at=NOW)
    return job_view(submission=submission, record=record, **kw)


def waits(name: str, **kw) -> JobView:
    return job(name, state=JobState.PENDING, **{"epoch": 0, **kw})


def instance(*names: str, iid: str = "i", record: dict | None = None, orders: dict | None = None, **kw) -> InstanceView:
    instance_record = InstanceRecord(
        instance_id=iid, cluster="c", role=Role.AGENT, instance_type="t", zone="z", market=Market.SPOT, vcpus=8,
        memory_gib=32, state=InstanceState.BUSY if names else InstanceState.READY, booted_at=NOW, updated_at=NOW,
        residents=tuple(Resident(job_id=n, epoch=1) for n in names), **(record or {}),
    )  # fmt: skip
    assignment = Assignment(instance_id=iid, changed_at=NOW)
    for name in names:
        assignment = sharing.seat(
            assignment, instance_record, name, 1, Resources(vcpus=2, memory_gib=4, shared=True), NOW
        )
    assignment = assignment.model_copy(update=orders or {})
    return instance_view(instance_id=iid, record=instance_record, assignment=assignment, residents=names, **kw)


def decide(jobs: list[JobView], *instances: InstanceView, **kw) -> list:
    return plan_standing(cluster_view(jobs=tuple(jobs), instances=instances, shared=True, **kw), NOW)


def by_job(actions: list) -> dict[str, str]:
    return {a.job_id: type(a).__name__ for a in actions if not isinstance(a, Cordon)}


def test_small_jobs_are_put_beside_each_other_by_the_room_that_is_left():
    actions = decide([job("a"), *(waits(n) for n in "bcde")], instance("a"))
    placed = [a for a in actions if isinstance(a, Assign)]
    assert {(a.job_id, a.instance_id, a.shares) for a in placed} == {(n, "i", True) for n in "bcd"}
    assert [a.job_id for a in actions if isinstance(a, Hold)] == ["e"]


def test_who_does_not_ask_to_share_has_an_instance_alone():
    alone = waits("x", shared=False)
    assert [type(a) for a in decide([job("a"), alone], instance("a"))] == [Hold]
    (placed,) = decide([job("a"), alone], instance("a"), instance(iid="k"))
    assert (placed.instance_id, placed.shares) == ("k", False)
    assignment = instance(iid="k").assignment.model_copy(update={"job_id": "x", "epoch": 1})
    holder = job("x", owner="k", shared=False)
    busy_instance = instance_view(instance_id="k", record=instance(iid="k").record, assignment=assignment)
    assert by_job(decide([holder, waits("b")], busy_instance)) == {"b": "Hold"}


def test_where_a_cluster_does_not_allow_it_nothing_is_shared():
    view = cluster_view(jobs=(waits("a"), waits("b")), instances=(instance(),), shared=False)
    placed = plan_standing(view, NOW)
    assert [(type(a), getattr(a, "shares", False)) for a in placed] == [(Assign, False), (Hold, False)]
    view = cluster_view(jobs=(job("a"), waits("b")), instances=(instance("a"),), shared=False)
    assert [type(a) for a in plan_standing(view, NOW)] == [Hold], "those that are there end first"


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.ASSIGNED])
def test_each_resident_is_expired_cleared_or_completed_by_itself(state):
    jobs = [job("a"), job("b", state=state, stale=True), job("c", state=JobState.SUCCEEDED), waits("d", epoch=0)]
    assert by_job(decide(jobs, instance("a", "b", "c", "d"))) == {
        "b": "Expire",
        "c": "ClearAssignment",
        "d": "CompleteAssignment",
    }


def test_of_an_instance_that_is_gone_all_leases_are_taken_at_once():
    actions = decide([job(n) for n in "abc"], instance("a", "b", "c", is_gone=True))
    assert [(type(a), a.job_id) for a in actions] == [(Expire, n) for n in "abc"]


def test_a_notice_reaches_all_residents_in_one_action_whatever_else_is_decided():
    jobs = [job("a"), job("b", state=JobState.SUCCEEDED), job("c", cancel=True)]
    actions = decide(jobs, instance("a", "b", "c", ending=True, deadline=NOW + timedelta(minutes=2)))
    assert [type(a) for a in actions] == [ClearAssignment, Cordon]
    noticed_instance = instance("a", "b", "c", ending=True, deadline=NOW + timedelta(minutes=2))
    done = sharing.cordon(noticed_instance.assignment, "i", noticed_instance.deadline, NOW)
    cordoned_instance = instance_view(
        instance_id="i",
        record=noticed_instance.record,
        assignment=done,
        residents=("a", "b", "c"),
        ending=True,
        deadline=noticed_instance.deadline,
    )
    assert not [a for a in decide([job(n) for n in "abc"], cordoned_instance) if isinstance(a, Cordon)]


@pytest.mark.parametrize(
    ("wish", "reason"),
    [({"cancel": True}, Reason.CANCEL), ({"drills": (Drill(drill_id="d", at=NOW),)}, Reason.DRILL)],
)
def test_one_resident_is_stopped_and_the_others_are_not(wish, reason):
    (stop,) = decide([job("a"), job("b", **wish), job("c")], instance("a", "b", "c"))
    assert isinstance(stop, Stop) and (stop.job_id, stop.instance_id, stop.reason) == ("b", "i", reason)
    shared_instance = instance("a", "b", "c")
    stop_assignment = sharing.stop(shared_instance.assignment, "b", 1, reason, None, NOW)
    again = instance_view(
        instance_id="i", record=shared_instance.record, assignment=stop_assignment, residents=("a", "b", "c")
    )
    assert not [a for a in decide([job("a"), job("b", **wish), job("c")], again) if isinstance(a, Stop)]


def test_a_drain_stops_all_of_them():
    actions = decide([job(n) for n in "abc"], instance("a", "b", "c"), draining=True)
    assert [(type(a), a.job_id) for a in actions] == [(Stop, n) for n in "abc"]


def test_what_was_put_there_and_is_not_wanted_any_more_is_given_up_by_itself():
    actions = decide([job("a"), waits("b", cancel=True)], instance("a", "b"))
    assert [(type(a), a.job_id, a.epoch) for a in actions] == [(VoidAssignment, "b", 1)]


def test_a_resident_that_took_its_lease_back_is_named_again_beside_the_others():
    (restore,) = decide([job("a"), job("b")], instance("a"))
    assert isinstance(restore, RestoreAssignment) and (restore.job_id, restore.shares) == ("b", True)
    assert not decide([job("a"), job("b", shared=False)], instance("a"))


def test_an_instance_that_is_unfit_leaves_with_all_of_them_and_not_before_what_was_decided_of_one():
    sick = {"state": InstanceState.CORDONED, "detail": "disk"}
    shared_instance = instance("a", "b")
    unfit = instance_view(
        instance_id="i",
        record=shared_instance.record.model_copy(update=sick),
        assignment=shared_instance.assignment,
        residents=("a", "b"),
    )
    (leave,) = decide([job("a"), job("b")], unfit)
    assert isinstance(leave, Leave) and leave.reason is Reason.CORDON
    assert by_job(decide([job("a"), job("b", cancel=True)], unfit)) == {"b": "Stop"}
    assert by_job(decide([job("a"), waits("x")], unfit)).get("x") == "Hold"


def test_room_that_a_lost_owner_may_still_use_is_not_given_away():
    """The agent said that it runs b, c and d, and their leases were taken from it: it may not know yet."""
    host = instance("a", record={})
    full_record = host.record.model_copy(update={"residents": tuple(Resident(job_id=n, epoch=1) for n in "abcd")})
    lost = [
        job_view(submission=j.submission, record=j.record.model_copy(update={"last_reason": Reason.LOST, "epoch": 1}))
        for j in (waits(n, epoch=1) for n in "bcd")
    ]
    beats = instance_view(instance_id="i", record=full_record, assignment=host.assignment, residents=("a",))
    assert by_job(decide([job("a"), *lost], beats)) == dict.fromkeys("bcd", "Hold")
    heard = instance_view(instance_id="i", record=host.record, assignment=host.assignment, residents=("a",))
    assert by_job(decide([job("a"), *lost], heard)) == dict.fromkeys("bcd", "Assign")


def test_an_order_to_the_instance_is_an_order_to_each():
    leaving = instance("a", "b", orders={"order": Order.LEAVE, "reason": Reason.ROLL})
    assert not [a for a in decide([job("a"), job("b", cancel=True)], leaving) if isinstance(a, Stop)]
    halves = instance("a", orders={"order": Order.LEAVE, "reason": Reason.ROLL})
    assert [type(a) for a in decide([waits("a")], halves) if not isinstance(a, CompleteAssignment)] == [VoidAssignment]


# Where instances are launched: small jobs that may share need not have one each.

ROOMY = InstanceType(name="roomy", vcpus=8, memory_gib=32)


def small(name: str, **kw) -> JobView:
    return provision_helpers.job(name, resources=Resources(vcpus=2, memory_gib=8, shared=True), **kw)


def launched(jobs: list[JobView], *instances: InstanceView) -> list:
    pools = (provision_helpers.pool(kind=ROOMY), provision_helpers.pool(Market.ON_DEMAND, kind=ROOMY))
    return plan(
        cluster_view(jobs=tuple(jobs), instances=instances, pools=pools, types=(ROOMY,), shared=True,
                     idle_limit=timedelta(minutes=5)),
        provision_helpers.NOW,
    )  # fmt: skip


def test_a_launch_serves_as_many_as_have_room_beside_each_other():
    jobs = [small(n, ago=1 - i / 100) for i, n in enumerate("abcdefgh")]
    actions = launched(jobs)
    assert [a.job_id for a in actions if isinstance(a, Launch)] == ["a", "e"]
    causes = {a.job_id: a.cause for a in actions if isinstance(a, Hold)}
    assert causes == dict.fromkeys("bcdfgh", Why.ON_ITS_WAY)
    coming = [
        provision_helpers.instance(f"i-{n}", kind=ROOMY, launched_for=n, ready=False, ago=0.01) for n in ("a", "e")
    ]
    assert not [a for a in launched(jobs, *coming) if not isinstance(a, Hold)], "once is enough"


def test_what_was_launched_for_one_takes_the_others_as_soon_as_it_is_there():
    jobs = [small(n, ago=1 - i / 100) for i, n in enumerate("abcde")]
    (here,) = (provision_helpers.instance("i-a", kind=ROOMY, launched_for="a"),)
    first = launched(jobs, here)
    assert [(a.job_id, a.instance_id, a.shares) for a in first if isinstance(a, Assign)] == [("a", "i-a", True)]
    assert [a.job_id for a in first if isinstance(a, Launch)] == ["e"], "b, c and d wait for their place beside a"
    record = JobRecord(job_id="a", state=JobState.RUNNING, epoch=1, owner="i-a", changed_at=provision_helpers.NOW)
    assignment = sharing.seat(None, here.record, "a", 1, jobs[0].submission.spec.resources, provision_helpers.NOW)
    shared = replace(here, assignment=assignment, residents=("a",))
    coming = provision_helpers.instance("i-e", kind=ROOMY, launched_for="e", ready=False, ago=0.01)
    next_actions = launched([replace(jobs[0], record=record), *jobs[1:]], shared, coming)
    assert [(a.job_id, a.instance_id) for a in next_actions if isinstance(a, Assign)] == [(n, "i-a") for n in "bcd"]
    assert not [a for a in next_actions if isinstance(a, Launch | Release)]


def test_an_instance_is_not_released_while_anybody_is_there():
    record = JobRecord(job_id="b", state=JobState.RUNNING, epoch=1, owner="i-a", changed_at=provision_helpers.NOW)
    over = JobRecord(job_id="a", state=JobState.SUCCEEDED, epoch=1, changed_at=provision_helpers.NOW)
    here = provision_helpers.instance("i-a", kind=ROOMY, launched_for="a", ago=1)
    b = small("b")
    assignment = sharing.seat(None, here.record, "b", 1, b.submission.spec.resources, provision_helpers.NOW)
    shared = replace(here, assignment=assignment, residents=("b",))
    actions = launched([small("a", record=over), replace(b, record=record)], shared)
    assert not [a for a in actions if isinstance(a, Release)]


@pytest.mark.parametrize("how", [{"critical": True}, {"due": 3.3, "work": provision_helpers.outlook(remaining=3.0)}])
def test_who_cannot_bear_a_smaller_type_is_not_counted_on_anothers_launch(how):
    actions = launched([small("a", ago=2), small("b", ago=1, **how)])
    assert sorted(a.job_id for a in actions if isinstance(a, Launch)) == ["a", "b"]
