"""The document on waiting jobs: the reason, its start, the pool, and the time of an on-demand launch."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from elastic_helpers import TYPE, ZONE, ElasticCluster
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.costs.team_budgets import Allowance, Caps
from everspot_core.jobs.records import Market, Reason
from everspot_core.schedule import Hold, PoolKey, Why
from everspot_scheduler.budget_spending import READ_EVERY
from everspot_scheduler.waiting import WRITE_EVERY, Waits
from everspot_store import ManualClock, Wait, WaitPool
from scheduler_helpers import Cluster, folder_store

POOL = PoolKey("g5.xlarge", "us-east-1a", Market.SPOT)
HOUR = timedelta(hours=1)
FIGURES = {"jobs": "b", "job": "b", "window": "22:00-06:00", "opens": "later"}
FIGURES |= {"team": "t", "unit": "dollars", "period": "month", "until": "later"}
FIGURES |= dict.fromkeys(("spent", "committed", "asked", "cap"), 1.0)


@pytest.fixture
def waits(cluster: Cluster) -> Waits:
    waits = Waits(cluster.store, "s1")
    waits.load()
    return waits


def written(cluster: Cluster) -> Wait:
    note = cluster.store.notes.waiting.read()
    assert note is not None
    return note.jobs["a"]


def test_the_pool_and_the_moment_of_on_demand_are_written_with_the_reason(cluster: Cluster, waits: Waits) -> None:
    at = cluster.clock.now() + 2 * HOUR
    waits.update(
        [Hold(job_id="a", cause=Why.WAIT_FOR_SPOT, figures={"slack_hours": 2.0}, waits_for=POOL, on_demand_at=at)]
    )
    wait = written(cluster)
    assert wait.words == "there is no spot, and the job can wait 2.00 h for it"
    assert wait.waits_for == WaitPool(instance_type="g5.xlarge", zone="us-east-1a", market=Market.SPOT)
    assert wait.on_demand_at == at
    waits.update([Hold(job_id="a", cause=Why.DRAIN)])
    cluster.clock.advance(WRITE_EVERY)
    waits.update([Hold(job_id="a", cause=Why.DRAIN)])
    assert (written(cluster).waits_for, written(cluster).on_demand_at) == (None, None)


@pytest.mark.parametrize(
    ("causes", "hours"),
    [
        ((Why.AFTER, Why.NOTHING_SEEN), 1),
        ((Why.AFTER, Why.TEAM_BUDGET, Why.ENVIRONMENT_BUDGET, Why.DRAIN, Why.SAME_STAGE), 5),
        ((Why.NOTHING_SEEN, Why.TEAM_BUDGET, Why.NOTHING_SEEN, Why.TEAM_BUDGET), 2),
        ((Why.OUTSIDE_WINDOW, Why.NOTHING_SEEN), 0),
    ],
)
def test_time_in_which_a_job_might_not_run_is_added_up_over_a_restart(
    cluster: Cluster, waits: Waits, causes: tuple[Why, ...], hours: int
) -> None:
    begin = cluster.clock.now()
    for cause in causes:
        for _ in range(2):  # of the two the second finds the reason again
            waits.update([Hold(job_id="a", cause=cause, figures=FIGURES)])
            cluster.clock.advance(HOUR / 2)
        following = Waits(cluster.store, "s2")
        following.load()
        assert following.withheld("a", begin) == waits.withheld("a", begin)
        waits = following
    assert waits.withheld("a", begin) == hours * HOUR
    waits.update([])
    assert waits.withheld("a", begin) == timedelta(0), "the wait is over"


@pytest.mark.parametrize("cause", [Why.TEAM_BUDGET, Why.WAIT_FOR_SPOT])
def test_time_of_an_earlier_wait_is_not_taken_off_a_later_one_after_a_restart(
    cluster: Cluster, waits: Waits, cause: Why
) -> None:
    hold = Hold(job_id="a", cause=cause, figures=FIGURES | {"slack_hours": 1.0})
    begin = cluster.clock.now()
    waits.update([Hold(job_id="a", cause=Why.TEAM_BUDGET, figures=FIGURES)])
    cluster.clock.advance(10 * timedelta(days=1))
    waits.update([hold])
    assert waits.withheld("a", begin) == timedelta(days=10)
    waits.update([])  # it runs, and the document is not written for that
    cluster.clock.advance(HOUR)
    preempted_at, following = cluster.clock.now(), Waits(cluster.store, "s2")
    following.load()
    for hours in range(3):
        assert following.withheld("a", preempted_at) == (hours * HOUR if cause is Why.TEAM_BUDGET else timedelta(0))
        following.update([hold])
        cluster.clock.advance(HOUR)


def test_a_job_that_a_cap_held_for_days_waits_its_turn_behind_a_critical_one(cluster: Cluster) -> None:
    cluster.length = 10_000
    cluster.agent("i-1", Market.ON_DEMAND)
    caps = [Caps(month=Allowance(dollars=dollars)) for dollars in (0.0, 50.0)]
    cluster.store.change_budgets(lambda b: b.changed("held", caps[0], cluster.clock.now(), "ann"))
    cluster.clock.advance(READ_EVERY)
    cluster.submit("other")
    cluster.run(5)
    cluster.submit("held", tags={"Team": "held"})
    cluster.run(15)
    cluster.clock.advance(timedelta(days=9))
    cluster.submit("critical", priority="critical")
    cluster.store.change_budgets(lambda b: b.changed("held", caps[1], cluster.clock.now(), "ann"))
    cluster.run(5)
    lease = cluster.agents["i-1"].lease
    assert lease is not None
    lease.release(Reason.FINISHED)
    cluster.agents["i-1"].lease = None
    cluster.run(15)
    assert (cluster.state("critical"), cluster.state("held")) == ("RUNNING", "PENDING")


def test_figures_that_move_are_no_other_reason(
    cluster: Cluster, waits: Waits, caplog: pytest.LogCaptureFixture
) -> None:
    began = cluster.clock.now()
    with caplog.at_level(logging.INFO):
        for slack in (2.0, 1.5, 1.0):
            waits.update([Hold(job_id="a", cause=Why.WAIT_FOR_SPOT, figures={"slack_hours": slack})])
            cluster.clock.advance(WRITE_EVERY)
    assert (written(cluster).since, written(cluster).words) == (
        began, "there is no spot, and the job can wait 1.00 h for it",
    )  # fmt: skip
    assert caplog.text.count("hold a") == 1


def test_a_cluster_that_launches_tells_what_a_job_waits_for(tmp_path: Path, clock: ManualClock) -> None:
    """From the plan of a real scheduler: spot is refused, and on-demand is not begun before it must be."""
    here = ElasticCluster(folder_store(tmp_path, clock), clock)
    spot = PoolKey(TYPE, ZONE, Market.SPOT)
    here.cloud.capacity[spot] = 0
    here.cloud.refuses[spot] = LaunchTrouble.CAPACITY
    job = here.submit("a", expected_duration="1h")
    due = clock.now() + 40 * HOUR
    here.store.jobs.put("a", job.model_copy(update={"deadline_at": due}))
    here.run(3)
    clock.advance(WRITE_EVERY)
    here.run(1)
    wait = written(here)
    assert wait.why == Why.WAIT_FOR_SPOT.value
    assert "InsufficientInstanceCapacity" in wait.words
    assert wait.waits_for == WaitPool(instance_type=TYPE, zone=ZONE, market=Market.SPOT)
    assert wait.on_demand_at is not None
    assert due - 2 * HOUR < wait.on_demand_at < due - HOUR
    assert here.cloud.alive == set()


def test_the_note_of_the_fleet_has_refusals_and_what_is_launched(tmp_path: Path, clock: ManualClock) -> None:
    here = ElasticCluster(folder_store(tmp_path, clock), clock, max_usd_per_hour=3.5)
    here.length = 10_000
    here.submit("a")
    here.run(6)
    here.cloud.capacity[PoolKey(TYPE, ZONE, Market.SPOT)] = 0
    here.submit("b")
    clock.advance(WRITE_EVERY)
    here.run(3)
    clock.advance(WRITE_EVERY)
    here.run(1)
    state = here.store.notes.fleet.read()
    assert state is not None
    assert state.elastic is not None
    assert (state.elastic.instances, state.elastic.max_instances, state.elastic.max_usd_per_hour) == (1, 8, 3.5)
    by_market = {pool.market: pool for pool in state.pools}
    assert state.elastic.usd_per_hour == pytest.approx(by_market[Market.SPOT].usd_per_hour, abs=1e-6)
    assert len(by_market[Market.SPOT].refused_at) == 1
    assert by_market[Market.ON_DEMAND].refused_at == []
