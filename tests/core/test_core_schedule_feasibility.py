from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.catalogue import InstanceType, Price
from everspot_core.documents import format_duration
from everspot_core.jobs.candidates import Candidate
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.job import JobSpec, JobSubmission, Resources
from everspot_core.schedule import Launch, Refuse
from everspot_core.schedule.jobs import CHANGEOVER_UPPER
from everspot_core.schedule.provisioning.feasibility import feasibility
from hypothesis import given
from hypothesis import strategies as st
from provision_helpers import NEED, NOW, ON_DEMAND, TICK, decide, job, pool

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def candidate(name="a", usd=4.0, region="here", **has) -> Candidate:
    """`usd`: on-demand, an hour; None: it has a spot price alone."""
    kind = InstanceType(name=name, **{"vcpus": 8, "memory_gib": 32, **has})
    price = None if usd is None else Price(usd_per_hour=usd, as_of=None, source="test")
    cheap = Price(usd_per_hour=0.01, as_of=None, source="test")
    return Candidate(
        instance_type=kind, region=region, zones=(), spot=(cheap, cheap), on_demand=price,
        spot_cost=None, on_demand_cost=None,
    )  # fmt: skip


def submission(work=None, due=None, need=None) -> JobSubmission:
    """Hours, or spans."""
    work, due = (h * HOUR if isinstance(h, int | float) else h for h in (work, due))
    spec = JobSpec(name="j", recipe="r", expected_duration=work, resources=need or Resources())
    return JobSubmission(job_id="j", spec=spec, submitted_at=T0, deadline_at=None if due is None else T0 + due)


@pytest.mark.parametrize(
    ("work", "due", "feasible", "slack", "begin_by"),
    [
        (2.0, 6.0, True, 3.75, 3.75),  # 6 h less 2 h of work and 15 min of changeover
        (2.0, 2.25, True, 0.0, 0.0),  # exactly in time with an immediate on-demand launch
        (2.0, 2.0, False, -0.25, None),  # the work alone would be in time, the changeover is not
        (48.0, 60.0, True, 11.75, 11.75),
        (48.0, 40.0, False, -8.25, None),
        (0.25, 0.5, True, 0.0, 0.0),
        (0.25, 0.45, False, -0.05, None),
    ],
)
def test_a_deadline_can_be_kept_if_on_demand_would_keep_it_at_worst(work, due, feasible, slack, begin_by):
    verdict = feasibility(submission(work, due), [candidate()])
    assert (verdict.feasible, verdict.past, verdict.slack) == (feasible, False, slack * HOUR)
    assert verdict.least == (work + 0.25) * HOUR
    assert verdict.earliest == T0 + (work + 0.25) * HOUR
    assert verdict.begin_by == (None if begin_by is None else T0 + begin_by * HOUR)


def test_a_microsecond_decides():
    due = 2 * HOUR + CHANGEOVER_UPPER
    assert feasibility(submission(2, due), []).feasible is True
    assert feasibility(submission(2, due - timedelta.resolution), []).feasible is False


@pytest.mark.parametrize(
    ("offers", "cheapest", "usd"),
    [
        ([candidate("a", 4.0), candidate("b", 1.4)], "b", 3.15),  # 1.40 x 2.25 h
        ([candidate("a", 4.0), candidate("small", 1.0, vcpus=4)], "a", 9.0),  # without types that are too small
        ([candidate("a", 4.0), candidate("spot-only", None)], "a", 9.0),  # without types that have no price
        ([candidate("b", 2.0), candidate("a", 2.0)], "a", 4.5),  # of equals the first by name
        ([candidate("spot-only", None)], None, None),
        ([], None, None),
    ],
)
def test_the_earliest_deadline_costs_what_the_cheapest_candidate_that_holds_the_job_does(offers, cheapest, usd):
    verdict = feasibility(submission(2, 1, Resources(vcpus=8)), offers)
    assert (verdict.feasible, verdict.earliest) == (False, T0 + 135 * MINUTE)
    assert (verdict.cheapest and verdict.cheapest.instance_type.name, verdict.usd) == (
        cheapest,
        usd and pytest.approx(usd),
    )


def test_without_an_expected_duration_it_is_not_known():
    verdict = feasibility(submission(None, 6), [candidate()])
    assert (verdict.feasible, verdict.past) == (None, False)
    assert (verdict.least, verdict.earliest, verdict.slack, verdict.begin_by, verdict.usd) == (None,) * 5


@pytest.mark.parametrize("due", [timedelta(0), -1.0])
def test_a_deadline_that_is_not_after_the_submission_is_past_whatever_is_known(due):
    unknown_length, known_length = (
        feasibility(submission(None, due), []),
        feasibility(submission(2, due), [candidate()]),
    )
    assert (unknown_length.feasible, unknown_length.past, unknown_length.earliest) == (False, True, None)
    assert (known_length.feasible, known_length.past, known_length.earliest, known_length.usd) == (
        False,
        True,
        T0 + 135 * MINUTE,
        9.0,
    )
    assert feasibility(submission(-9, due), []).feasible is False


def test_there_is_nothing_to_say_without_a_deadline():
    assert feasibility(submission(2), [candidate()]) is None


@pytest.mark.parametrize("days", [3_000_000, timedelta.max.days])
def test_work_that_ends_on_no_date_is_in_time_for_none(days):
    verdict = feasibility(submission(timedelta(days=days), 6), [candidate()])
    assert (verdict.feasible, verdict.earliest, verdict.usd) == (False, None, None)


seconds = st.integers(0, 200_000).map(lambda s: timedelta(seconds=s))
work_seconds = st.integers(1, 200_000).map(lambda s: timedelta(seconds=s))  # no job says that it takes no time


@given(work=work_seconds, due=seconds, later=seconds)
def test_more_time_never_makes_a_deadline_infeasible_and_the_earliest_is_one_that_can_be_kept(work, due, later):
    verdict, more = feasibility(submission(work, due), []), feasibility(submission(work, due + later), [])
    assert more.feasible or not verdict.feasible
    assert (more.earliest, more.slack) == (verdict.earliest, verdict.slack + later)
    assert feasibility(submission(work, verdict.least), []).feasible
    if verdict.feasible:
        assert verdict.begin_by + verdict.least == T0 + due


@given(
    work=work_seconds,
    offset=st.integers(-3600, 3600).map(lambda s: timedelta(seconds=s)),
    usd=st.floats(0.01, 50),
)
def test_submission_and_plan_agree_on_feasibility(work, offset, usd):
    bound = CHANGEOVER_UPPER + TICK
    due = (work + bound + offset) / HOUR
    view = job(due=due, expected_duration=work)
    refused = [a for a in decide(view, pools=[pool(ON_DEMAND, usd=usd)]) if isinstance(a, Refuse)]
    types = [candidate(usd=usd, gpus=NEED.gpus, gpu_memory_gib=NEED.gpu_memory_gib)]
    verdict = feasibility(view.submission, types, bound)
    if due > 0:
        assert bool(refused) is (not verdict.feasible)
    for action in refused:
        assert action.earliest == verdict.earliest
        assert action.usd == round(verdict.usd, 2)
    assert view.submission.submitted_at == NOW


@pytest.mark.parametrize(
    ("lasting", "accepted_by", "refused"),
    [
        (None, None, True),  # a slow start has raised the upper bound to an hour
        (0.25, None, False),
        (0.75, None, True),  # starts stay slow from now on
        (0.75, 0.25, False),  # and the job was accepted before: it runs, at risk
        (None, 0.75, True),
    ],
)
def test_a_deadline_is_refused_by_the_lasting_bound_and_never_by_a_longer_one_than_it_was_accepted_by(
    lasting, accepted_by, refused
):
    view = job(due=2.5, expected_duration=2 * HOUR, changeover=Changeover(0.1 * HOUR, HOUR))
    accepted_submission = view.submission.model_copy(update={"changeover_bound": accepted_by and accepted_by * HOUR})
    actions = decide(
        replace(view, submission=accepted_submission),
        pools=[pool(ON_DEMAND)],
        lasting_changeover=lasting and lasting * HOUR,
    )
    assert any(isinstance(a, Refuse) for a in actions) is refused
    if not refused:
        assert [a.market for a in actions if isinstance(a, Launch)] == [ON_DEMAND], "it cannot wait"


def test_the_job_files_reference_names_the_changeover_that_is_reckoned_with():
    assert f" counts as {format_duration(CHANGEOVER_UPPER)} until " in JobSpec.model_fields["deadline"].description
