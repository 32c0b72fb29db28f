"""Jobs that wait for other jobs, a start time or their hours, in both plans."""

from dataclasses import replace
from datetime import timedelta

import pytest
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.lease import pending
from everspot_core.jobs.records import Assignment, JobState, Market, Order, Reason
from everspot_core.jobs.timing import Window
from everspot_core.schedule import (
    Assign,
    Cap,
    Finish,
    Hold,
    Launch,
    Refuse,
    Release,
    Stop,
    VoidAssignment,
    Why,
    describe_action,
    plan,
    plan_standing,
)
from everspot_core.schedule.conditions import shorten_deadlines_by_windows, waited_for_instance
from everspot_core.schedule.jobs import waiting_since
from everspot_core.schedule.provisioning.feasibility import feasibility
from provision_helpers import HOUR, NEED, NOW, TYPE, decide, holding, instance, job, outlook, pool
from view_helpers import cluster_view, job_view

DAY, NIGHT = "09:00-17:00", "22:00-06:00"  # it is noon


def hours(view, window: str):
    spec = view.submission.spec.model_copy(update={"window": JobSpec(name="x", recipe="r", window=window).window})
    return replace(view, submission=view.submission.model_copy(update={"spec": spec}))


def starting(view, in_hours: float):
    return replace(view, submission=view.submission.model_copy(update={"start_at": NOW + in_hours * HOUR}))


def standing(jobs, instances=(), **more) -> list:
    actions = plan_standing(cluster_view(jobs=tuple(jobs), instances=tuple(instances), **more), NOW)
    for action in actions:
        assert "{" not in describe_action(action)
    return actions


FREE = instance("i-0", launched_for=None)
HELD = [
    (replace(job(), after=(("prepare", JobState.RUNNING), ("fetch", JobState.SUCCEEDED))), Why.AFTER, "prepare"),
    (starting(job(), 2), Why.NOT_YET, "2026-05-01 14:00 UTC"),
    (hours(job(), NIGHT), Why.OUTSIDE_WINDOW, "at 2026-05-01 22:00 UTC"),
    (hours(job(), f"{NIGHT} Asia/Tokyo"), Why.OUTSIDE_WINDOW, "at 2026-05-01 13:00 UTC"),
]


@pytest.mark.parametrize(("view", "cause", "message"), HELD)
def test_what_waits_is_given_nothing_and_says_why(view, cause, message) -> None:
    (hold,) = standing([view], [FREE])
    assert isinstance(hold, Hold)
    assert hold.cause is cause
    assert message in describe_action(hold)


@pytest.mark.parametrize(("view", "cause", "message"), HELD)
def test_nothing_is_launched_or_kept_for_what_waits(view, cause, message) -> None:
    actions = decide([view], [instance("i-1")], [pool()])
    assert [(type(a), a.cause) for a in actions] == [(Hold, cause), (Release, Why.NEEDED_NO_MORE)]


@pytest.mark.parametrize(
    "view",
    [
        replace(job(), after=(("prepare", JobState.SUCCEEDED),)),
        starting(job(), 0),
        hours(job(), DAY),
        hours(job(), f"{NIGHT} Pacific/Auckland"),  # midnight there
    ],
)
def test_what_has_not_to_wait_begins(view) -> None:
    (assign,) = standing([view], [FREE])
    assert isinstance(assign, Assign)


@pytest.mark.parametrize(
    ("state", "message"),
    [(JobState.FAILED, "failed"), (JobState.CANCELLED, "was cancelled"), (None, "is not known")],
)
def test_a_job_whose_forerunner_has_not_succeeded_fails_with_its_name(state, message) -> None:
    (finish,) = standing([replace(job(), after=(("prepare", state), ("other", JobState.RUNNING)))], [FREE])
    assert isinstance(finish, Finish)
    assert (finish.state, finish.reason) == (JobState.FAILED, Reason.AFTER)
    assert f"it was to come after prepare, which {message}" in describe_action(finish)


def test_at_the_end_of_its_hours_a_job_checkpoints_and_waits() -> None:
    runs, instances = holding(job(), FREE)
    assert not [a for a in standing([hours(runs, DAY)], instances) if isinstance(a, Stop)]
    (stop,) = standing([hours(runs, NIGHT)], instances)
    assert isinstance(stop, Stop)
    assert (stop.reason, stop.cause) == (Reason.WINDOW, Why.OUTSIDE_WINDOW)
    assert not Reason.WINDOW.preemption


def test_a_half_done_assignment_is_given_up_outside_the_hours() -> None:
    assignment = Assignment(instance_id="i-0", job_id="j", epoch=1, order=Order.RUN, changed_at=NOW)
    (action,) = standing([hours(job(), NIGHT)], [replace(FREE, assignment=assignment)])
    assert isinstance(action, VoidAssignment)


def test_a_zone_that_is_not_known_here_holds_its_job_and_no_other() -> None:
    spec = JobSpec(name="j", recipe="r", window=NIGHT)
    window = replace(spec.window, zone="Mars/Base")
    lost = replace(
        job("lost", due=3, work=outlook(1)),
        submission=job("lost").submission.model_copy(update={"spec": spec.model_copy(update={"window": window})}),
    )
    actions = standing([lost, job("fine")], [FREE])
    assert {a.job_id: type(a) for a in actions} == {"lost": Hold, "fine": Assign}
    assert "the time zone Mars/Base is not known to the scheduler" in describe_action(
        next(a for a in actions if a.job_id == "lost")
    )


def test_a_deadline_counts_the_hours_in_which_the_job_may_run() -> None:
    """Not twelve hours and a half until tomorrow evening: time for spot by the clock, and none by an office's hours."""
    pools = (pool(Market.SPOT), pool(Market.ON_DEMAND))
    relaxed = job(due=33, work=outlook(12.4))
    (on_spot,) = decide([relaxed], pools=pools)
    (at_once,) = decide([hours(relaxed, DAY)], pools=pools)
    assert (on_spot.market, at_once.market) == (Market.SPOT, Market.ON_DEMAND)
    assert at_once.cause is Why.LAST_SAFE_MOMENT


def test_waiting_counts_from_the_moment_at_which_a_job_was_to_begin() -> None:
    assert waiting_since(starting(job(ago=48), -1)) == NOW - HOUR
    assert waiting_since(job(ago=48)) == NOW - 48 * HOUR


@pytest.mark.parametrize(
    ("fields", "start", "feasible", "earliest"),
    [
        ({}, None, True, 2.25),
        ({}, 3.0, False, 5.25),
        ({"window": "22:00-06:00"}, None, False, 12.25),
        ({"window": "09:00-17:00"}, None, True, 2.25),
        ({"window": "13:00-13:10"}, None, False, None),
    ],
)
def test_a_deadline_that_the_job_s_own_times_rule_out_cannot_be_kept(fields, start, feasible, earliest) -> None:
    spec = JobSpec(name="j", recipe="r", expected_duration="2h", **fields)
    begin = NOW + timedelta(hours=start) if start is not None else None
    submission = JobSubmission(job_id="j", spec=spec, submitted_at=NOW, deadline_at=NOW + 5 * HOUR, start_at=begin)
    verdict = feasibility(submission, [])
    assert verdict.feasible is feasible
    assert verdict.earliest == (None if earliest is None else NOW + earliest * HOUR)
    assert verdict.bounds == tuple(
        n for n in ("start_after", "window") if (n == "start_after" and start) or n in fields
    )


@pytest.mark.parametrize("later_bound", [timedelta(minutes=5), timedelta(minutes=45)])
def test_a_deadline_that_was_accepted_within_hours_is_not_refused_later(later_bound) -> None:
    """Three nights of work, accepted with five minutes for a changeover in each of them."""
    accepted, submitted_at = timedelta(minutes=5), NOW + 10 * HOUR
    spec = JobSpec(name="j", recipe="r", window=NIGHT, expected_duration="20h", deadline="52h20m", resources=NEED)
    submission = JobSubmission(
        job_id="j", spec=spec, submitted_at=submitted_at, deadline_at=submitted_at + spec.deadline,
        changeover_bound=accepted,
    )  # fmt: skip
    assert feasibility(submission, [], accepted).feasible
    view = job_view(submission=submission, changeover=Changeover(later_bound, later_bound))
    more = {"cap": Cap(instances=5, usd_per_hour=None), "lasting_changeover": accepted}
    cluster = cluster_view(jobs=(view,), pools=(pool(), pool(Market.ON_DEMAND)), types=(TYPE,), **more)
    for seconds in (5, 60, 600):
        (action,) = plan(cluster, submitted_at + timedelta(seconds=seconds))
        assert isinstance(action, Launch)


@pytest.mark.parametrize(
    ("work", "action"),
    [("7h30m", Launch), ("7h50m", Refuse)],
)
def test_a_deadline_that_was_accepted_in_the_last_minutes_of_the_hours_is_not_refused(work, action) -> None:
    """Six minutes before the end of a night no changeover fits. In the next night 7:35 h of work do."""
    submitted_at, bound = NOW + 18 * HOUR - timedelta(minutes=6), timedelta(minutes=15)
    deadline = NOW + 42 * HOUR - timedelta(minutes=10)
    spec = JobSpec(name="j", recipe="r", window=NIGHT, expected_duration=work, resources=NEED)
    submission = JobSubmission(
        job_id="j", spec=spec, submitted_at=submitted_at, deadline_at=deadline, changeover_bound=bound
    )
    assert feasibility(submission, [], bound).feasible is (action is Launch)
    view = job_view(submission=submission, changeover=Changeover(bound, bound))
    more = {"cap": Cap(instances=5, usd_per_hour=None), "lasting_changeover": bound}
    cluster = cluster_view(jobs=(view,), pools=(pool(), pool(Market.ON_DEMAND)), types=(TYPE,), **more)
    for seconds in (2, 60, 300):
        (planned,) = plan(cluster, submitted_at + timedelta(seconds=seconds))
        assert isinstance(planned, action)
        if isinstance(planned, Refuse):
            assert planned.earliest > deadline and Window.parse(NIGHT).is_open(planned.earliest)


@pytest.mark.parametrize(
    ("fields", "record", "minutes"),
    [
        ({}, {}, 600),
        ({"start_at": NOW + 9 * HOUR}, {}, 60),
        ({"start_at": NOW + 11 * HOUR}, {}, 0),
        ({}, {"changed_at": NOW + 8 * HOUR}, 120),
        ({}, {"changed_at": NOW + 8 * HOUR, "not_before": NOW + 9.5 * HOUR}, 30),
        ({"window": "21:30-21:40"}, {}, 10),
        ({"window": DAY}, {"changed_at": NOW + 4.5 * HOUR}, 30),
    ],
)
def test_only_time_in_which_a_job_may_run_counts_as_waiting_for_an_instance(fields, record, minutes) -> None:
    spec = JobSpec(name="j", recipe="r", window=fields.get("window"))
    submission = JobSubmission(job_id="j", spec=spec, submitted_at=NOW, start_at=fields.get("start_at"))
    whole = pending("j", NOW).model_copy(update=record) if record else None
    assert waited_for_instance(submission, whole, NOW, NOW + 10 * HOUR) == timedelta(minutes=minutes)


def test_the_last_safe_moment_within_hours_counts_the_job_s_own_changeovers() -> None:
    """Its changeovers take 45 minutes, in each of four nights."""
    view = replace(hours(job(due=10 + 4 * 24 + 8, work=None), NIGHT), changeover=Changeover(HOUR, 0.75 * HOUR))
    cluster = cluster_view(jobs=(view,), pools=(pool(),), types=(TYPE,))
    (shortened,) = shorten_deadlines_by_windows(cluster, NOW + 10 * HOUR).jobs
    assert shortened.submission.deadline_at - (NOW + 10 * HOUR) == (5 * 8 - 4 * 0.75) * HOUR
