"""Jobs do not move between instances that are paid for anyway, and one idle instance attracts only one job."""

from datetime import timedelta
from typing import Any

import pytest
from elastic_helpers import ElasticCluster
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.jobs.records import Market
from everspot_store import StoreUnavailable, job_transfer
from scheduler_helpers import Agent
from test_scheduler_federation_choosing import POOLS, Two
from test_scheduler_federation_standing import Fleets

SMALL = {"clouds": ["aws"], "resources": {"vcpus": 2}}


def standing(member: ElasticCluster, *names: str) -> None:
    """Give the cluster instances of a standing fleet, beside what it launches."""
    for name in names:
        member.agent(name, Market.ON_DEMAND)
    launched = set[str]()

    def boot() -> None:
        for name, market in sorted(member.living().items()):
            if name not in launched:
                launched.add(name)
                member.agents[name] = Agent(member, name, market, member.zone, kind=member.kind)

    member.boot = boot  # type: ignore[method-assign]


def trips(two: Two, *names: str) -> int:
    """Return the number of finished trips of these jobs."""
    records = (two.home.store.records.get(name) for name in names)
    return sum(len(record.value.trips) for record in records if record is not None)


@pytest.fixture
def two() -> Two:
    return Two()


def test_a_job_does_not_go_back_and_forth_between_standing_fleets_of_clusters_that_also_launch(two: Two) -> None:
    standing(two.home, "i-home")
    standing(two.host, "i-host")
    two.live(timedelta(minutes=6))
    two.home.submit("j", expected_duration="60h", **SMALL)
    two.live(timedelta(hours=3))
    assert (two.home.state("j"), trips(two, "j")) == ("RUNNING", 0)


def test_a_visit_on_a_standing_fleet_is_not_called_back_for_an_idle_instance_at_home(two: Two) -> None:
    two.home.dry()
    standing(two.host, "i-host")
    two.live(timedelta(minutes=6))
    two.home.submit("j", expected_duration="60h", **SMALL)
    two.live(timedelta(hours=1))
    away = two.home.store.records.get("j").value.away
    assert away.instance.standing and away.instance.market is Market.ON_DEMAND
    standing(two.home, "i-home")
    two.live(timedelta(hours=2))
    assert (two.home.state("j"), trips(two, "j")) == ("AWAY", 0)


def test_one_idle_instance_at_home_calls_back_one_job(two: Two) -> None:
    jobs = ("a", "b", "c")
    two.home.dry()
    two.home.declare(elastic=None)
    two.home.schedulers = [two.home.scheduler()]
    for name in jobs:
        two.home.submit(name, expected_duration="60h", **SMALL)
    two.live(timedelta(hours=2))
    assert {two.home.state(name) for name in jobs} == {"AWAY"}
    assert not two.home.store.records.get("a").value.away.instance.standing
    standing(two.home, "i-home")
    two.live(timedelta(hours=2))
    assert sorted(two.home.state(name) for name in jobs) == ["AWAY", "AWAY", "RUNNING"]
    assert trips(two, *jobs) == 1


def test_one_idle_instance_of_a_peer_draws_one_of_the_jobs_that_run_at_home(two: Two) -> None:
    jobs = ("a", "b", "c")
    for name in jobs:
        two.home.submit(name, expected_duration="60h", **SMALL)
    two.live(timedelta(minutes=20))
    assert {two.home.state(name) for name in jobs} == {"RUNNING"}
    standing(two.host, "i-host")
    two.live(timedelta(hours=1))
    assert sorted(two.home.state(name) for name in jobs) == ["AWAY", "RUNNING", "RUNNING"]
    assert sorted(two.home.store.records.get(name).value.epoch for name in jobs) == [1, 1, 2]


def test_a_job_that_lost_its_instance_gets_on_demand_after_a_day_whatever_visits_it_made_in_vain(two: Two) -> None:
    two.home.submit("j", expected_duration="60h", **SMALL)
    two.live(timedelta(minutes=20))
    (name,) = two.home.living()
    two.home.cloud.refuses = {POOLS[0]: LaunchTrouble.CAPACITY}
    two.host.dry()
    two.home.cloud.end_one(name, interrupted=True)
    two.live(timedelta(hours=40), step=timedelta(minutes=4))
    record = two.home.store.records.get("j").value
    assert record.state == "RUNNING" and record.waits_since is None and len(record.trips) >= 3
    assert two.home.living()[record.owner] is Market.ON_DEMAND


@pytest.mark.parametrize("budget", ["dollars", "gpu_hours"])
def test_a_job_with_a_budget_is_not_drawn_to_an_idle_instance_that_would_be_taken_from_it(
    two: Two, budget: str
) -> None:
    two.home.submit("j", expected_duration="60h", budget={budget: 90}, **SMALL)
    two.live(timedelta(minutes=20))
    standing(two.host, "i-host")
    two.live(timedelta(hours=1))
    assert (two.home.state("j"), two.home.store.records.get("j").value.epoch) == ("RUNNING", 1)


def test_a_job_to_which_the_plan_gives_an_instance_does_not_leave_in_the_same_moment() -> None:
    fleets = Fleets()
    for member, name in ((fleets.home, "i-home"), (fleets.host, "i-host")):
        member.agent(name, Market.ON_DEMAND)
        member.length = 10_000
    fleets.live(6)
    fleets.home.submit("j", priority="critical", **SMALL)
    fleets.live(20)
    assert (fleets.home.state("j"), fleets.home.store.records.get("j").value.epoch) == ("RUNNING", 1)


def test_a_job_on_its_way_to_the_only_idle_instance_is_not_called_back_for_its_own_claim(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, until = job_transfer.copy_to_host, two.clock.now() + timedelta(hours=3)

    def slow(*args: Any) -> int:
        if two.clock.now() < until:
            raise StoreUnavailable("so much has to be copied")
        return send(*args)

    monkeypatch.setattr(job_transfer, "copy_to_host", slow)
    peers = [peer.model_copy(update={"patience": timedelta(hours=9)}) for peer in two.home.manifest.federation]
    two.home.declare(federation=tuple(peers))
    two.host.declare(elastic=None)
    two.host.schedulers = [two.host.scheduler()]
    standing(two.host, "i-host")
    two.home.dry()
    two.live(timedelta(minutes=6))
    two.home.submit("j", expected_duration="60h", **SMALL)
    two.live(timedelta(minutes=50))
    assert two.home.store.records.get("j").value.away.reported_state == ""
    two.home.cloud.refuses = {}
    two.live(timedelta(hours=2.5))
    assert (two.home.state("j"), trips(two, "j")) == ("AWAY", 0)
    assert two.host.store.assignments.get("i-host").value.jobs
