"""A scheduler's memory of refusals by pools: when it requests them again, and the pools' history."""

import logging
from datetime import timedelta

import pytest
from elastic_helpers import SPOT, TYPE, ElasticCluster, count_launches, elastic, words
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.jobs.records import Market, Notice, NoticeKind, Request
from everspot_core.schedule import Behaviour, PoolKey
from everspot_scheduler.elastic.refusals import REST, REST_MOST
from everspot_scheduler.pools import PRESUMED
from everspot_store import ManualClock
from scheduler_helpers import folder_store

SECOND = timedelta(seconds=1)


def test_a_dry_pool_rests_longer_each_time_and_is_found_again(spot_only):
    here = spot_only
    here.cloud.refuses[SPOT] = LaunchTrouble.CAPACITY
    here.submit("j", deadline="8h", expected_duration="10m")
    here.run(1)
    began, times = here.clock.now(), []
    for _ in range(200):
        before = count_launches(here)
        here.later(seconds=9)
        here.run(1)
        if count_launches(here) > before:
            times.append((here.clock.now() - began) / SECOND)
    gaps = [b - a for a, b in zip([0, *times], times, strict=False)]
    assert gaps[0] < REST.total_seconds() + 30
    assert gaps == sorted(gaps) and gaps[-1] < REST_MOST.total_seconds() + 30
    assert "there is no spot" in words(here, "j")
    assert "InsufficientInstanceCapacity" in words(here, "j")
    del here.cloud.refuses[SPOT]
    here.later(minutes=9)
    here.run(20)
    assert here.state("j") == "SUCCEEDED"


def test_the_next_scheduler_knows_what_was_refused(spot_only):
    here = spot_only
    here.cloud.refuses[SPOT] = LaunchTrouble.CAPACITY
    here.submit("j", deadline="8h", expected_duration="10m")
    here.run(2)
    assert count_launches(here) == 1
    here.schedulers = [here.scheduler("s2")]
    here.run(10)
    assert count_launches(here) == 1


def test_a_quota_closes_its_family_for_a_while_or_until_an_instance_of_it_has_ended(spot_only):
    here = spot_only
    here.length = 10_000
    here.submit("a")
    here.run(3)
    here.cloud.refuses[SPOT] = LaunchTrouble.QUOTA
    here.submit("b")
    here.run(2)
    assert count_launches(here) == 2
    here.later(minutes=4)
    here.run(3)
    assert count_launches(here) == 2
    here.cloud.end_one("e-001", interrupted=True)
    here.later(seconds=20)
    here.run(8)
    assert count_launches(here) == 3, "an instance of the family has ended"


def test_a_quota_that_was_raised_is_found_out_in_minutes_at_first_and_in_an_hour_at_the_most(spot_only):
    here = spot_only
    here.length = 10_000
    here.cloud.refuses[SPOT] = LaunchTrouble.QUOTA
    here.submit("j")
    here.run(1)
    for times, minutes in enumerate((5, 10, 20, 40, 60, 60), start=1):
        here.later(minutes=minutes - 1)
        here.run(2)
        assert count_launches(here) == times, "one request for each rest, however long it waits"
        here.later(minutes=1)
        here.run(2)
        assert count_launches(here) == times + 1
    del here.cloud.refuses[SPOT]
    here.later(hours=1)
    here.run(3)
    assert here.cloud.alive == {"e-001"}
    here.cloud.refuses[SPOT] = LaunchTrouble.QUOTA
    here.submit("k")
    here.run(2)
    before = count_launches(here)
    here.later(minutes=5)
    here.run(2)
    assert count_launches(here) == before + 1, "what was granted ends the row"


def test_a_wrong_request_is_never_repeated_before_the_template_has_changed(spot_only, caplog):
    here = spot_only
    here.cloud.refuses[SPOT] = LaunchTrouble.REQUEST
    here.submit("j")
    here.run(1)
    assert [r.levelno for r in caplog.records if "InvalidParameterValue" in r.message] == [logging.ERROR]
    for _ in range(5):
        here.later(hours=9)
        here.schedulers = [here.scheduler("s2")]
        here.run(2)
    assert count_launches(here) == 1
    assert "InvalidParameterValue as the test wills" in words(here, "j")
    here.declare(elastic=elastic(markets=[Market.SPOT], template_version="2"))
    del here.cloud.refuses[SPOT]
    here.run(24)
    assert (count_launches(here), here.state("j")) == (2, "SUCCEEDED")


def test_a_family_of_pools_has_behaved_as_one(tmp_path):
    clock = ManualClock()
    here = ElasticCluster(folder_store(tmp_path, clock), clock, places={"us-east-1a": "a", "us-east-1b": "b"})
    other = PoolKey(TYPE, "us-east-1b", Market.SPOT)
    here.cloud.refuses |= dict.fromkeys((SPOT, other), LaunchTrouble.CAPACITY)
    here.submit("j", deadline="20h", expected_duration="1h")
    here.run(2)
    pools, began = frozenset({SPOT, other}), here.clock.now()
    assert not joint_behaviour(here, pools).up
    del here.cloud.refuses[other]
    here.length = 10_000
    here.later(minutes=2)
    here.run(12)
    now = joint_behaviour(here, pools)
    assert now.up and now.downs == (pytest.approx(2 / 60, abs=0.02),)
    assert not joint_behaviour(here, frozenset({SPOT})).up
    assert now.since > began


def joint_behaviour(here: ElasticCluster, choice: frozenset[PoolKey]) -> Behaviour:
    """Return the joint behaviour of these pools in the plan's view."""
    scheduler = here.schedulers[0]
    services, pools = scheduler.services, scheduler.observe.pools
    views = pools.look(services.facts, services.ledger, services.elastic, here.clock.now())
    return pools.unions([choice], views)[choice]


def test_a_pool_that_nobody_asks_is_presumed_to_be_up_after_a_while_and_was_down_if_it_refuses_again(spot_only):
    here, alone = spot_only, frozenset({SPOT})
    here.run(1)
    assert joint_behaviour(here, alone).since == here.clock.now() - SECOND, (
        "nothing is known of it, and it may be tried"
    )
    here.cloud.refuses[SPOT] = LaunchTrouble.CAPACITY
    here.submit("j")
    here.run(1)
    at = here.intents()[0].outcome.settled_at
    assert (joint_behaviour(here, alone).up, joint_behaviour(here, alone).since) == (False, at)
    here.store.cancels.create("j", Request(at=at))
    here.run(2)
    here.later(minutes=7)
    assert not joint_behaviour(here, alone).up
    here.later(minutes=3)
    assert (joint_behaviour(here, alone).up, joint_behaviour(here, alone).since) == (True, at + PRESUMED)
    here.submit("k")
    here.run(1)
    assert count_launches(here) == 2
    assert (joint_behaviour(here, alone).up, joint_behaviour(here, alone).since, joint_behaviour(here, alone).ups) == (
        False,
        at,
        (),
    )


def test_a_pool_whose_instance_says_that_it_is_taken_gave_notice_whoever_ends_the_instance_and_whatever_the_queue_says(
    spot_only,
):
    here, alone = spot_only, frozenset({SPOT})
    here.length = 10_000
    here.submit("j")
    here.run(4)
    (name,) = here.living()
    assert joint_behaviour(here, alone).up
    at = here.clock.now()
    notice = Notice(kind=NoticeKind.INTERRUPTION, source="metadata", seen_at=at)
    here.agents[name].record = here.agents[name].record.model_copy(update={"notice": notice})
    here.cloud.capacity[SPOT] = 0
    here.run(2)
    assert (joint_behaviour(here, alone).up, joint_behaviour(here, alone).since) == (False, at)
    here.cloud.terminate([name])
    here.later(minutes=3)
    here.run(3)
    assert not here.store.ends.get(name).value.interrupted, "it was ended by us"
    assert (joint_behaviour(here, alone).up, joint_behaviour(here, alone).since) == (False, at)


def test_a_job_that_comes_later_is_told_why_no_launch_can_succeed(spot_only):
    """The image was deregistered (EC2's code), so every pool refuses this version of the template permanently."""
    here = spot_only
    here.cloud.refuses[SPOT] = LaunchTrouble.REQUEST
    here.submit("first")
    here.run(3)
    here.submit("later")
    here.run(20)  # notes are written every few seconds
    for job in ("first", "later"):
        assert "every launch is refused until the stack is corrected: " in words(here, job)
    launches = count_launches(here)
    here.later(hours=1)
    here.run(10)
    assert count_launches(here) == launches, "nothing is asked for again with this template"
    del here.cloud.refuses[SPOT]
    here.declare(elastic=elastic(markets=[Market.SPOT], template_version="2"))
    here.run(20)
    assert {here.state(job) for job in ("first", "later")} == {"SUCCEEDED"}
