"""Standing fleets in a federation: an idle instance takes a job of a peer, and a job without an instance moves away."""

from datetime import timedelta

import pytest
from everspot_core.jobs.records import Market
from everspot_scheduler.federation.choosing import MoveChooser
from everspot_scheduler.federation.manager import PeerAccess
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock
from federation_helpers import Pair


class Fleets(Pair):
    """Two clusters that launch nothing, and decide by the decision that schedulers come with."""

    def __init__(self) -> None:
        super().__init__(None, ManualClock(), length=6)
        for member in self.members:
            peer_access = PeerAccess(opener=member.open, chooser=MoveChooser(member.store), threads=0)
            member.schedulers = [Scheduler(member.store, member.manifest, member.cloud, "s1", peer_access=peer_access)]

    def live(self, minutes: int) -> None:
        """Advance the time in steps of two minutes."""
        for _ in range(minutes // 2):
            for member in self.members:
                member.schedulers[0].tick()
                for agent in member.agents.values():
                    agent.turn()
            self.check()
            self.clock.advance(timedelta(minutes=2))

    def away(self) -> list[str]:
        """The jobs that are at the host."""
        return sorted(name for name in self.home.store.jobs.scan() if self.home.state(name) == "AWAY")


@pytest.fixture
def fleets() -> Fleets:
    return Fleets()


def test_as_many_jobs_go_to_a_standing_fleet_as_it_has_idle_instances(fleets: Fleets) -> None:
    fleets.host.agent("i-idle", Market.ON_DEMAND)
    fleets.live(4)
    for name in ("a", "b", "c"):
        fleets.home.submit(name, clouds=["aws"], resources={"vcpus": 2})
    fleets.live(20)
    assert fleets.away() == []  # home may have an instance free soon
    fleets.live(16)
    assert len(fleets.away()) == 1
    fleets.live(60)
    assert sorted(fleets.home.state(name) for name in ("a", "b", "c")).count("SUCCEEDED") >= 2
    assert len(fleets.host.store.visits.scan()) <= 3  # every offer was used


def test_a_host_whose_instances_are_busy_or_waited_for_is_offered_nothing(fleets: Fleets) -> None:
    fleets.host.agent("i-1", Market.ON_DEMAND)
    fleets.host.agents["i-1"].speed = 0
    fleets.host.submit("own", resources={"vcpus": 2})
    fleets.live(6)
    assert fleets.host.state("own") == "RUNNING" and fleets.host.store.notes.fleet.read().idle == []
    fleets.home.submit("j", clouds=["aws"], resources={"vcpus": 2})
    fleets.live(60)
    assert fleets.away() == [] and not fleets.host.store.visits.scan()


def test_a_job_that_no_type_of_its_fleet_holds_leaves_at_once(fleets: Fleets) -> None:
    fleets.home.agent("i-small", Market.ON_DEMAND)
    fleets.host.agent("i-large", Market.ON_DEMAND, vcpus=8, kind="c6i.2xlarge")
    fleets.live(4)
    fleets.home.submit("large", clouds=["aws"], resources={"vcpus": 8})
    fleets.live(8)
    record = fleets.home.store.records.get("large").value
    assert record.away is not None and record.away.why.endswith("none of its instance types can hold it")
