"""The order of waiting jobs: tiers, fair shares, ageing."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.job import JobSpec, JobSubmission, Priority
from everspot_core.jobs.records import (
    Assignment,
    InstanceRecord,
    InstanceState,
    JobRecord,
    JobState,
    Market,
    Reason,
    Role,
)
from everspot_core.schedule import Assign, InstanceView, JobView, plan
from everspot_core.schedule.jobs import STARVATION_LIMIT, waiting_since
from everspot_core.schedule.placement.queue import STARVED, URGENT, Queue, Rates, queue_order
from hypothesis import given, settings
from hypothesis import strategies as st
from view_helpers import cluster_view, instance_view, job_view, outlook_view

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def job(
    name: str, team: str = "", *, waited: float = 0.1, due: float | None = None, remaining: float | None = None, **kw
):
    """`waited`, `due` and `remaining` in hours; the upper bound of what is left is twice that."""
    view = {k: kw.pop(k) for k in ("record",) if k in kw}
    spec = JobSpec(name=name, recipe="r", tags={"Team": team} if team else {}, **kw)
    submission = JobSubmission(
        job_id=name,
        spec=spec,
        submitted_at=NOW - waited * HOUR,
        deadline_at=None if due is None else NOW + due * HOUR,
    )
    outlook = None
    if remaining is not None:
        outlook = outlook_view(
            remaining=remaining * HOUR, remaining_upper=2 * remaining * HOUR, changeover=0 * HOUR, changeover_upper=HOUR
        )
    return job_view(submission=submission, outlook=outlook, **view)


def instance(iid: str, market: Market = Market.ON_DEMAND, *, job_id: str | None = None) -> InstanceView:
    record = InstanceRecord(
        instance_id=iid,
        cluster="c",
        role=Role.AGENT,
        instance_type="t",
        zone="z",
        market=market,
        vcpus=4,
        memory_gib=8,
        state=InstanceState.BUSY if job_id else InstanceState.READY,
        booted_at=NOW,
        updated_at=NOW,
    )
    given_to = Assignment(instance_id=iid, job_id=job_id, epoch=1, changed_at=NOW) if job_id else None
    return instance_view(instance_id=iid, record=record, assignment=given_to)


def order(*jobs: JobView, now: datetime = NOW, **view) -> list[str]:
    cluster = cluster_view(jobs=jobs, **view)
    return [j.job_id for j in Queue(jobs, cluster, now, Rates(cluster.pools, cluster.types))]


def test_the_tiers_come_one_after_the_other():
    jobs = [
        job("fair"),
        job("fair-due", due=20),
        job("aged", waited=25),
        job("older", waited=26),
        job("urgent", due=9.5, remaining=4),  # 0.5 h to spare
        job("tighter", due=9.2, remaining=4),
        job("critical", priority=Priority.CRITICAL),
        job("starved", waited=7 * 24 + 1),
        job("starving", waited=7 * 24 + 2, priority=Priority.CRITICAL),
    ]
    expected = ["starving", "starved", "critical", "tighter", "urgent", "older", "aged", "fair-due", "fair"]
    assert order(*jobs) == expected
    assert order(*reversed(jobs)) == expected


@pytest.mark.parametrize(
    ("due", "remaining", "first"),
    [
        (10.0, 4, "early"),  # 1 h to spare: as much as the margin
        (9.9, 4, "tight"),
        (3.9, 4, "early"),  # past saving
        (4.1, 4, "tight"),  # in time if all goes as expected
        (9.9, None, "early"),  # its record is unknown
    ],
)
def test_a_short_slack_goes_first_unless_all_is_lost(due, remaining, first):
    assert URGENT == HOUR
    assert order(job("early", due=1), job("tight", due=due, remaining=remaining))[0] == first


def test_what_the_author_expects_counts_where_nothing_was_measured():
    tight = job("tight", due=4, expected_duration=timedelta(hours=3))
    assert order(job("early", due=1), tight)[0] == "tight"
    assert order(job("early", due=1), job("easy", due=9, expected_duration=timedelta(hours=3)))[0] == "early"


def test_without_teams_it_is_deadline_then_age_then_id():
    jobs = [job("b"), job("a"), job("old", waited=3), job("late", due=9), job("soon", due=5)]
    assert order(*jobs) == ["soon", "late", "old", "a", "b"] == [j.job_id for j in sorted(jobs, key=queue_order)]


def test_the_team_that_has_used_least_for_its_weight_chooses_first():
    jobs = (job("a", "ants"), job("b", "bees"), job("c", "cats"))
    assert order(*jobs, usage={"ants": 9, "bees": 3, "cats": 6}) == ["b", "c", "a"]
    assert order(*jobs, usage={"ants": 9, "bees": 3, "cats": 6}, shares={"ants": 9.5, "cats": 3}) == ["a", "c", "b"]
    assert order(*jobs, usage={"ants": 9, "bees": 3}, shares={"cats": 0}) == ["b", "a", "c"]


def test_a_backlog_that_has_waited_for_days_goes_by_the_weights_of_the_teams():
    jobs = [job(f"flood-{n}", "flood", waited=40 - n) for n in range(3)]
    jobs += [job("small-1", "small", waited=25), job("small-2", "small", waited=26), job("fresh", "small")]
    expected = ["small-2", "small-1", "fresh", "flood-0", "flood-1", "flood-2"]
    assert order(*jobs, usage={"flood": 5.0, "small": 4.0}) == expected
    expected = ["flood-0", "flood-1", "flood-2", "small-2", "small-1", "fresh"]
    assert order(*jobs, usage={"flood": 5.0, "small": 4.0}, shares={"flood": 2.0}) == expected


def test_time_in_which_a_job_might_not_run_is_no_wait():
    withheld_jobs = [replace(job(f"held-{days}", waited=9 * 24), withheld=days * 24 * HOUR) for days in (1, 7, 9)]
    expected = ["held-1", "critical", "held-7", "held-9", "fair"]
    assert order(*withheld_jobs, job("critical", priority=Priority.CRITICAL), job("fair", waited=10)) == expected


def test_one_team_does_not_take_everything_in_one_tick():
    jobs = [job(f"a{n}", "ants", waited=9) for n in range(9)] + [job(f"b{n}", "bees", waited=1) for n in range(9)]
    instances = tuple(instance(f"i{n}") for n in range(8))
    actions = plan(cluster_view(jobs=tuple(jobs), instances=instances, shares={"ants": 3}), NOW)
    teams = Counter(a.job_id[0] for a in actions if isinstance(a, Assign))
    assert teams == {"a": 6, "b": 2}


def test_what_a_team_holds_already_counts_against_it():
    running_jobs = [
        job(
            f"h{n}",
            "ants",
            record=JobRecord(job_id=f"h{n}", state=JobState.RUNNING, epoch=1, owner=f"x{n}", changed_at=NOW),
        )
        for n in range(3)
    ]
    jobs = [job(f"a{n}", "ants", waited=9) for n in range(5)] + [job(f"b{n}", "bees", waited=1) for n in range(5)]
    instances = [instance(f"x{n}", job_id=f"h{n}") for n in range(3)] + [instance(f"i{n}") for n in range(3)]
    actions = plan(cluster_view(jobs=(*running_jobs, *jobs), instances=tuple(instances)), NOW)
    assert {a.job_id[0] for a in actions if isinstance(a, Assign)} == {"b"}


def test_a_dear_instance_counts_for_more_than_a_cheap_one():
    types = (InstanceType(name="t", vcpus=4, memory_gib=8, on_demand_usd_per_hour=3.0),)
    cluster = cluster_view(
        types=types, instances=(instance("od", job_id="a"), instance("spot", Market.SPOT, job_id="b"))
    )
    running = [
        job(n, t, record=JobRecord(job_id=n, state=JobState.RUNNING, epoch=1, owner=o, changed_at=NOW))
        for n, t, o in (("a", "ants", "od"), ("b", "bees", "spot"))
    ]
    waiting = (job("a2", "ants", waited=9), job("b2", "bees"))
    assert order(*waiting, types=types, instances=cluster.instances, usage={"bees": 1.9}) == ["b2", "a2"][::-1]
    view = cluster_view(jobs=(*running, *waiting), types=types, instances=cluster.instances, usage={"bees": 1.9})
    assert [j.job_id for j in Queue(waiting, view, NOW, Rates(view.pools, view.types))] == ["b2", "a2"]


def test_the_wait_begins_anew_when_a_job_has_run():
    returned_record = JobRecord(
        job_id="j", state=JobState.PENDING, epoch=3, last_owner="i", last_reason=Reason.NOTICE, changed_at=NOW
    )
    assert waiting_since(job("j", waited=500, record=returned_record)) == NOW
    assert waiting_since(job("j", waited=500)) == NOW - 500 * HOUR
    assert order(job("ran", waited=500, record=returned_record), job("aged", waited=30)) == ["aged", "ran"]


@settings(max_examples=settings.default.max_examples * 2, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(Priority),
            st.sampled_from(["", "a", "b"]),
            st.floats(0, 400),
            st.one_of(st.none(), st.floats(-5, 50)),
            st.one_of(st.none(), st.floats(0, 20)),
        ),
        max_size=12,
    ),
    st.floats(0, 1e6),
)
def test_starved_job_is_never_overtaken(others, used):
    """The bound: after STARVED a job is overtaken by nobody, whatever others submit, of whatever priority."""
    starved = job("starved", "unloved", waited=STARVED / HOUR)
    jobs = [
        job(f"j{n}", team, priority=priority, waited=waited, due=due, remaining=remaining)
        for n, (priority, team, waited, due, remaining) in enumerate(others)
    ]
    ranks = order(*jobs, starved, usage={"unloved": used}, shares={"unloved": 0.001})
    assert sorted(ranks) == sorted(j.job_id for j in (*jobs, starved))
    ahead = set(ranks[: ranks.index("starved")])
    assert {j.job_id for j in jobs if waiting_since(j) > waiting_since(starved)}.isdisjoint(ahead)
    aged = job("aged", "unloved", waited=STARVATION_LIMIT / HOUR + 1)
    ranks = order(*jobs, aged, usage={"unloved": used}, shares={"unloved": 0.001})
    for overtaker in ranks[: ranks.index("aged")]:
        view = next(j for j in jobs if j.job_id == overtaker)
        longer = waiting_since(view) <= waiting_since(aged)
        by_share = view.team != aged.team
        assert (
            longer
            or by_share
            or view.submission.spec.priority is Priority.CRITICAL
            or view.submission.deadline_at is not None
        )


def test_a_job_starts_after_a_week_although_critical_jobs_keep_coming():
    """One instance, and each hour a critical job of an hour: without ageing the instance would never be free."""
    poor, begun = job("poor", waited=0), None
    for hour in range(24 * 8):
        now = NOW + hour * HOUR
        spec = JobSpec(name="x", recipe="r", priority=Priority.CRITICAL)
        rival = job_view(submission=JobSubmission(job_id=f"x{hour}", spec=spec, submitted_at=now))
        actions = plan(cluster_view(jobs=(poor, rival), instances=(instance("i"),)), now)
        if any(isinstance(a, Assign) and a.job_id == "poor" for a in actions):
            begun = now
            break
    assert begun == NOW + STARVED
