"""The decision to move a job to another cluster: each rule, and properties of every decision."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from everspot_core.federation.decision import (
    DEFAULT,
    Forecast,
    MovableJob,
    Move,
    MoveTerms,
    MoveWhy,
    decide_move,
    describe_move,
    needs_no_move,
)
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DUE = NOW + 10 * HOUR
JOB = MovableJob(job_id="j", deadline_at=DUE)
UNDATED = replace(JOB, deadline_at=None)
RUNNING = replace(JOB, has_instance=True)


def place(name="peer", *, feasible=True, usd=10.0, done=4.0, **more):
    """A forecast; `done`: hours from now, None: nothing bounds it."""
    by = None if done is None else NOW + timedelta(hours=done)
    return Forecast(cluster=name, feasible=feasible, usd=usd, done_by=by, **more)


def home(**more):
    return place("home", **more)


def back(hours):
    """Home, where a job that returns without an instance ends in `hours` at the latest."""
    return home(usd=20, restart_by=NOW + timedelta(hours=hours))


def dry(hours=1.0, **more):
    return home(feasible=False, dry_since=NOW - timedelta(hours=hours), **{"done": None, **more})


def without_spot(hours=1.0, **more):
    """Home has on-demand, at $20 for the rest, and has the job wait for spot."""
    since = NOW - timedelta(hours=hours)
    return home(**{"placed": False, "dry_since": since, "usd": 8.0, "on_demand_usd": 20.0, "done": None, **more})


@pytest.mark.parametrize(
    ("job", "here", "peers", "to", "reason"),
    [
        pytest.param(UNDATED, dry(), [place()], "peer", MoveWhy.NO_CAPACITY, id="nothing here for an hour"),
        pytest.param(UNDATED, dry(0.4), [place()], None, None, id="not for long enough yet"),
        pytest.param(replace(UNDATED, critical=True), dry(0), [place()], "peer", MoveWhy.NO_CAPACITY, id="critical"),
        pytest.param(
            UNDATED, replace(dry(), dry_since=None), [place()], "peer", MoveWhy.NO_CAPACITY, id="it never fits here"
        ),
        pytest.param(UNDATED, dry(), [place(feasible=False)], None, None, id="nothing there either"),
        pytest.param(
            UNDATED, dry(), [place("a", usd=9), place("b", usd=8)], "b", MoveWhy.NO_CAPACITY, id="the cheapest"
        ),
        pytest.param(
            JOB, dry(), [place("a", usd=9), place("b", usd=8, done=11)], "a", MoveWhy.NO_CAPACITY, id="in time first"
        ),
        pytest.param(
            JOB, dry(), [place("a", done=12), place("b", done=11)], "b", MoveWhy.NO_CAPACITY, id="the least late"
        ),
        pytest.param(
            UNDATED,
            dry(usd=None),
            [place("a", usd=None, usd_per_hour=2.0), place("b", usd=None, usd_per_hour=1.0)],
            "b",
            MoveWhy.NO_CAPACITY,
            id="of unknown length: by the price of an hour",
        ),
        pytest.param(JOB, home(done=12), [place(done=9.7)], "peer", MoveWhy.LATE, id="late, the last moment is near"),
        pytest.param(RUNNING, home(done=12), [place(done=9.7)], "peer", MoveWhy.LATE, id="the same while it runs"),
        pytest.param(RUNNING, home(done=12), [place(done=8)], None, None, id="late, but there is time to leave"),
        pytest.param(JOB, dry(0.1), [place(done=9.7)], "peer", MoveWhy.LATE, id="no patience without time for it"),
        pytest.param(JOB, home(done=9.9), [place(done=9.7)], None, None, id="in time here"),
        pytest.param(JOB, home(done=12), [place(done=11)], None, None, id="late there too"),
        pytest.param(RUNNING, home(usd=20), [place(usd=10)], "peer", MoveWhy.CHEAPER, id="half the price"),
        pytest.param(RUNNING, home(usd=20), [place(usd=17.9)], "peer", MoveWhy.CHEAPER, id="more than a tenth"),
        pytest.param(RUNNING, home(usd=20), [place(usd=18.1)], None, None, id="a tenth is the least"),
        pytest.param(RUNNING, home(usd=1.4), [place(usd=0.5)], None, None, id="a dollar is the least"),
        pytest.param(
            RUNNING,
            home(usd=20),
            [place(usd=15, move_usd=4)],
            "peer",
            MoveWhy.CHEAPER,
            id="twice the price of the move",
        ),
        pytest.param(
            RUNNING, home(usd=20), [place(usd=16.1, move_usd=4)], None, None, id="the price of the move is the least"
        ),
        pytest.param(RUNNING, home(usd=20), [place(usd=10, done=9.8)], None, None, id="cheaper, but hardly in time"),
        pytest.param(
            RUNNING,
            back(9.8),
            [place(usd=10, done=9.8)],
            "peer",
            MoveWhy.CHEAPER,
            id="in time, without answer too",
        ),
        pytest.param(RUNNING, back(9.8), [place(usd=10, done=9.9)], None, None, id="no time for an unanswered offer"),
        pytest.param(RUNNING, back(9.9), [place(usd=10, done=9.8)], None, None, id="late at home without answer"),
        pytest.param(
            UNDATED, back(90), [place(usd=10, done=None)], "peer", MoveWhy.CHEAPER, id="no deadline, no spare time"
        ),
        pytest.param(RUNNING, home(usd=None), [place(usd=10)], None, None, id="nobody knows what it costs here"),
    ],
)
def test_a_job_moves_for_capacity_for_its_deadline_or_for_money(job, here, peers, to, reason):
    move = decide_move(job, here, peers, DEFAULT, NOW)
    assert (move and move.cluster, move and move.reason) == (to, reason)


@pytest.mark.parametrize(
    ("job", "here", "peers", "to"),
    [
        pytest.param(UNDATED, without_spot(), [place(usd=20.0)], "peer", id="no dearer than on-demand at home"),
        pytest.param(UNDATED, without_spot(), [place(usd=20.1)], None, id="dearer, with the way"),
        pytest.param(UNDATED, without_spot(usd=0.5, on_demand_usd=1.0), [place(usd=0.9)], "peer", id="a small job"),
        pytest.param(UNDATED, without_spot(0.4), [place()], None, id="spot mostly comes back sooner"),
        pytest.param(UNDATED, without_spot(), [place(placed=False, usd=9.0)], None, id="nobody goes to wait elsewhere"),
        pytest.param(
            UNDATED, without_spot(), [place("a", placed=False), place("b", usd=15.0)], "b", id="where it gets some"
        ),
        pytest.param(
            UNDATED, without_spot(usd=None, on_demand_usd=72.0), [place(usd=None, usd_per_hour=2.9, move_usd=2.0)],
            "peer", id="of unknown length: a day of work has to pay for the way",
        ),
        pytest.param(
            UNDATED, without_spot(usd=None, on_demand_usd=72.0), [place(usd=None, usd_per_hour=2.9, move_usd=3.0)],
            None, id="of unknown length: a day of work does not pay for the way",
        ),
        pytest.param(UNDATED, without_spot(feasible=False), [place(usd=29.9)], "peer", id="no on-demand here either"),
        pytest.param(UNDATED, without_spot(feasible=False), [place(usd=30.1)], None, id="but not at any price"),
        pytest.param(JOB, without_spot(done=9.0), [place()], None, id="with a deadline it waits while there is time"),
        pytest.param(JOB, without_spot(done=9.0), [place(done=9.7)], "peer", id="and leaves when that runs out"),
        pytest.param(JOB, without_spot(done=9.0), [place(done=10.1)], None, id="but not to be late there"),
        pytest.param(JOB, without_spot(done=9.0), [place(done=9.7, usd=20.1)], None, id="nor for more than on-demand"),
        pytest.param(JOB, without_spot(done=9.0), [place(done=9.7, placed=False)], None, id="nor to wait there"),
        pytest.param(
            replace(UNDATED, moved_at=NOW - 0.9 * HOUR), without_spot(), [place()], None, id="it has just moved"
        ),
        pytest.param(replace(UNDATED, moved_at=NOW - HOUR), without_spot(), [place()], "peer", id="it has rested"),
    ],
)  # fmt: skip
def test_a_job_does_not_wait_for_spot_where_a_peer_has_some_at_an_acceptable_price(job, here, peers, to):
    move = decide_move(job, here, peers, DEFAULT, NOW)
    assert (move and (move.cluster, move.reason)) == (to and (to, MoveWhy.NO_CAPACITY))


@pytest.mark.parametrize(("vain", "minutes"), [(0, 15), (1, 15), (2, 30), (4, 120), (40, 720)])
def test_a_cluster_where_the_job_got_no_instance_is_asked_again_ever_later(vain, minutes):
    def is_offered(later):
        job = replace(UNDATED, declined={"peer": NOW}, fruitless_visits={"peer": vain})
        return decide_move(job, dry(), [place()], DEFAULT, NOW + timedelta(minutes=later)) is not None

    assert (is_offered(minutes - 1), is_offered(minutes)) == (False, True)


def test_a_cluster_that_declined_is_asked_again_later_and_another_one_meanwhile():
    peers = [place("a", usd=5), place("b", usd=6)]
    declined = replace(UNDATED, declined={"a": NOW - timedelta(minutes=14)})
    assert decide_move(declined, dry(), peers, DEFAULT, NOW).cluster == "b"
    assert decide_move(declined, dry(), peers, DEFAULT, NOW + timedelta(minutes=1)).cluster == "a"


def test_a_job_that_has_just_moved_stays_for_a_while():
    def moves(minutes, here, peer):
        return decide_move(replace(RUNNING, moved_at=NOW - timedelta(minutes=minutes)), here, [peer], DEFAULT, NOW)

    assert moves(59, home(usd=20), place(usd=10)) is None
    assert moves(60, home(usd=20), place(usd=10)).reason is MoveWhy.CHEAPER
    assert moves(9, home(done=12), place(done=9.7)) is None
    assert moves(10, home(done=12), place(done=9.7)).reason is MoveWhy.LATE


def test_the_reason_is_told_with_its_figures():
    def describe(job, here, *peers):
        return describe_move(decide_move(job, here, peers, DEFAULT, NOW))

    assert describe(UNDATED, dry(reason="4 pools refuse"), place()) == (
        "offer j to peer: home has had no capacity for it since 2026-05-01 11:00 UTC: 4 pools refuse"
    )
    assert describe(JOB, home(done=12), place(done=9.7)) == (
        "offer j to peer: home would finish it by 2026-05-02 00:00 UTC, peer by 2026-05-01 21:42 UTC"
    )
    assert describe(RUNNING, home(usd=20), place(usd=10)) == (
        "offer j to peer: the remaining work costs $20.00 in home and $10.00 in peer, with the move"
    )


moments = st.one_of(st.none(), st.integers(-600, 1200).map(lambda minutes: NOW + timedelta(minutes=minutes)))
past = st.one_of(st.none(), st.integers(0, 180).map(lambda minutes: NOW - timedelta(minutes=minutes)))
dollars = st.one_of(st.none(), st.floats(0, 100))


def forecasts(name: str) -> st.SearchStrategy[Forecast]:
    return st.builds(
        Forecast,
        cluster=st.just(name),
        feasible=st.booleans(),
        usd=dollars,
        done_by=moments,
        usd_per_hour=dollars,
        dry_since=past,
        move_usd=st.floats(0, 10),
        reason=st.just(""),
        placed=st.booleans(),
        on_demand_usd=dollars,
    )


peers_of_three = st.tuples(*map(forecasts, ("a", "b", "c"))).map(list)
travellers = st.builds(
    MovableJob,
    job_id=st.just("j"),
    deadline_at=moments,
    has_instance=st.booleans(),
    critical=st.booleans(),
    moved_at=past,
    declined=st.dictionaries(st.sampled_from("abc"), past.filter(bool)),
    fruitless_visits=st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)),
)
terms = st.builds(
    MoveTerms,
    patience=st.timedeltas(timedelta(0), HOUR),
    reserve=st.timedeltas(timedelta(0), HOUR),
    pause=st.timedeltas(timedelta(0), HOUR),
    min_stay=st.timedeltas(HOUR, 2 * HOUR),
)


def bettered(move: Move) -> bool:
    return move.target.usd is not None and move.here.usd is not None and move.target.usd < move.here.usd


@given(travellers, forecasts("home"), peers_of_three, terms)
def test_whatever_the_prospects_a_move_is_possible_allowed_and_worth_it(job, here, peers, by):
    move = decide_move(job, here, peers, by, NOW)
    assert move == decide_move(job, here, peers[::-1], by, NOW)
    assert move is None or not needs_no_move(job, here, by)
    if move is None:
        return
    assert move.target.feasible and move.target in peers
    assert move.cluster not in job.declined or NOW - job.declined[move.cluster] >= by.again
    assert job.moved_at is None or NOW - job.moved_at >= (by.min_stay if move.reason is MoveWhy.CHEAPER else by.pause)
    match move.reason:
        case MoveWhy.NO_CAPACITY:
            assert not (here.feasible and here.placed) and not job.has_instance
            undated = job.deadline_at is None and not job.critical
            if here.feasible and not undated:
                assert move.target.placed and move.target.done_by <= job.deadline_at
                assert any(p.done_by and p.done_by > job.deadline_at - by.reserve for p in peers)
            if (undated or here.feasible) and here.on_demand_usd is not None and move.target.usd is not None:
                assert move.target.placed and move.target.usd <= by.max_on_demand_ratio * here.on_demand_usd
        case MoveWhy.LATE:
            assert job.deadline_at is not None and move.target.done_by <= job.deadline_at
            assert here.done_by is None or here.done_by > job.deadline_at
        case MoveWhy.CHEAPER:
            assert bettered(move) and here.usd - move.target.usd > by.saving_factor * move.target.move_usd
            assert job.deadline_at is None or move.target.done_by <= job.deadline_at


@given(st.lists(st.tuples(forecasts("home"), forecasts("peer")), min_size=1, max_size=40), terms)
def test_between_two_moves_of_a_job_lies_the_pause_and_before_a_cheaper_one_the_rest(course, by):
    at, job, moved = {"home": 0, "peer": 1}, RUNNING, []
    inside = "home"
    for step, pair in enumerate(course):
        now = NOW + step * timedelta(minutes=7)
        move = decide_move(job, pair[at[inside]], [pair[1 - at[inside]]], by, now)
        if move is not None:
            moved.append((now, move.reason))
            inside, job = move.cluster, replace(job, moved_at=now)
    for (before, _), (after, reason) in pairwise(moved):
        assert after - before >= (by.min_stay if reason is MoveWhy.CHEAPER else by.pause)
