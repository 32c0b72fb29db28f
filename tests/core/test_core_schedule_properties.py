"""Properties of every plan, for any cluster."""

from datetime import UTC, datetime, timedelta

from everspot_core.jobs.job import Budget, JobSpec, JobSubmission, Priority, Resources
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Order,
    Reason,
    Role,
)
from everspot_core.schedule import (
    Assign,
    ClearAssignment,
    ClusterView,
    CompleteAssignment,
    Drill,
    DropDrills,
    Hold,
    InstanceView,
    JobView,
    describe_action,
    plan,
)
from everspot_core.schedule.placement.place import queue_order
from hypothesis import given, settings
from hypothesis import strategies as st
from view_helpers import cluster_view, instance_view, job_view, spent

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
JOBS = [f"j{n}" for n in range(6)]
INSTANCES = [f"i{n}" for n in range(6)]


@st.composite
def job_views(draw: st.DrawFn, name: str) -> JobView:
    spec = JobSpec(
        name=name,
        recipe="r",
        priority=draw(st.sampled_from(Priority)),
        resources=Resources(vcpus=draw(st.sampled_from([1, 2, 4])), gpus=draw(st.sampled_from([0, 0, 1]))),
        budget=Budget(dollars=draw(st.sampled_from([None, 1]))),
    )
    submission = JobSubmission(
        job_id=name,
        spec=spec,
        submitted_at=NOW - timedelta(minutes=draw(st.integers(0, 3))),
        deadline_at=draw(st.sampled_from([None, NOW + timedelta(hours=1), NOW + timedelta(hours=2)])),
    )
    state = draw(st.sampled_from([None, *JobState]))
    record = None
    if state is not None:
        record = JobRecord(
            job_id=name,
            state=state,
            epoch=draw(st.integers(0, 2)) if not state.owned else draw(st.integers(1, 2)),
            owner=draw(st.sampled_from(INSTANCES)) if state.owned else None,
            last_owner=draw(st.sampled_from([None, *INSTANCES])),
            last_reason=draw(st.sampled_from([None, *Reason])),
            errors=draw(st.integers(0, 3)),
            not_before=draw(st.sampled_from([None, NOW - timedelta(seconds=1), NOW + timedelta(seconds=9)])),
            changed_at=NOW,
        )
    return job_view(
        submission=submission,
        record=record,
        stale=draw(st.booleans()),
        cancel=draw(st.integers(0, 5)) == 0,
        drills=draw(st.sampled_from([(), (Drill(drill_id="d", at=NOW),)])),
        spent=spent(dollars=draw(st.sampled_from([0.0, 2.0]))),
    )


@st.composite
def instance_views(draw: st.DrawFn, iid: str) -> InstanceView:
    record = None
    if draw(st.integers(0, 9)):
        record = InstanceRecord(
            instance_id=iid,
            cluster="c",
            role=draw(st.sampled_from([Role.AGENT] * 4 + [Role.SCHEDULER])),
            instance_type="t",
            zone="z",
            market=draw(st.sampled_from(Market)),
            vcpus=draw(st.sampled_from([2, 4])),
            memory_gib=8,
            gpus=draw(st.sampled_from([0, 1])),
            state=draw(st.sampled_from([InstanceState.READY] * 3 + list(InstanceState))),
            job_id=draw(st.sampled_from([None, *JOBS])),
            epoch=draw(st.sampled_from([None, 1, 2])),
            booted_at=NOW,
            updated_at=NOW,
        )
    assignment = None
    if draw(st.booleans()):
        assignment = Assignment(
            instance_id=iid,
            job_id=draw(st.sampled_from([None, *JOBS])),
            epoch=draw(st.integers(1, 3)),
            order=draw(st.sampled_from([Order.RUN, Order.RUN, Order.STOP])),
            cordoned=draw(st.integers(0, 5)) == 0,
            changed_at=NOW,
        )
    flag = st.integers(0, 6).map(lambda n: n == 0)
    return instance_view(
        instance_id=iid,
        record=record,
        assignment=assignment,
        stale=draw(flag),
        is_gone=draw(flag),
        ending=draw(flag),
        rebalance=draw(flag),
    )


@st.composite
def clusters(draw: st.DrawFn) -> ClusterView:
    jobs = tuple(draw(job_views(n)) for n in JOBS[: draw(st.integers(0, 6))])
    instances = tuple(draw(instance_views(n)) for n in INSTANCES[: draw(st.integers(0, 6))])
    return cluster_view(jobs=jobs, instances=instances, draining=draw(st.integers(0, 4)) == 0)


@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
@given(clusters(), st.randoms(use_true_random=False))
def test_a_plan_touches_each_job_and_each_instance_at_most_once_and_is_the_same_from_every_side(view, random):
    actions = plan(view, NOW)
    changing = [a for a in actions if not isinstance(a, (Hold, DropDrills))]
    jobs = [a.job_id for a in changing if not isinstance(a, ClearAssignment) and getattr(a, "job_id", None)]
    instances = [i for a in changing if (i := getattr(a, "instance_id", None))]
    assert len(jobs) == len(set(jobs))
    assert len(instances) == len(set(instances))
    assert all("{" not in describe_action(a) for a in actions)
    shuffled_jobs, shuffled_instances = list(view.jobs), list(view.instances)
    random.shuffle(shuffled_jobs)
    random.shuffle(shuffled_instances)
    again = cluster_view(jobs=tuple(shuffled_jobs), instances=tuple(shuffled_instances), draining=view.draining)
    assert plan(again, NOW) == actions


@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
@given(clusters())
def test_only_waiting_jobs_are_assigned_and_only_to_free_healthy_instances_that_fit(view):
    jobs = {j.job_id: j for j in view.jobs}
    instances = {i.instance_id: i for i in view.instances}
    for action in plan(view, NOW):
        if not isinstance(action, (Assign, CompleteAssignment)):
            continue
        job, instance = jobs[action.job_id], instances[action.instance_id]
        assert not view.draining
        assert job.state is JobState.PENDING
        assert not job.cancel
        assert action.epoch == job.epoch + 1
        assert instance.healthy
        if isinstance(action, Assign):
            assert instance.idle
            assert job.submission.spec.resources.vcpus <= instance.record.vcpus
            assert job.submission.spec.resources.gpus <= instance.record.gpus


@settings(max_examples=settings.default.max_examples * 3 // 2, deadline=None)
@given(clusters())
def test_nobody_gets_an_instance_that_a_job_ahead_of_it_in_the_queue_could_have_used(view):
    actions = plan(view, NOW)
    jobs = {j.job_id: j for j in view.jobs}
    instances = {i.instance_id: i for i in view.instances}
    waiting = [jobs[a.job_id] for a in actions if isinstance(a, Hold) and a.cause == "no-free-instance"]
    for action in (a for a in actions if isinstance(a, Assign)):
        winner_record, winner = instances[action.instance_id].record, jobs[action.job_id]
        for loser in waiting:
            need = loser.submission.spec.resources
            if need.vcpus <= winner_record.vcpus and need.gpus <= winner_record.gpus:
                assert queue_order(winner) < queue_order(loser)
                critical = loser.submission.spec.priority is Priority.CRITICAL
                assert not (critical and winner.submission.spec.priority is Priority.NORMAL)


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(clusters())
def test_an_unhealthy_cluster_comes_to_rest_when_its_repairs_are_carried_out(view):
    """Clearing what the plan wants cleared leaves nothing to clear: repairs do not chase each other."""
    cleared = {a.instance_id for a in plan(view, NOW) if isinstance(a, ClearAssignment)}
    instances = tuple(
        instance_view(instance_id=i.instance_id, record=i.record, stale=i.stale, is_gone=i.is_gone, ending=i.ending)
        if i.instance_id in cleared
        else i
        for i in view.instances
    )
    again = cluster_view(jobs=view.jobs, instances=instances, draining=view.draining)
    assert not {a.instance_id for a in plan(again, NOW) if isinstance(a, ClearAssignment)} & cleared
