"""A scheduler's record of its peers."""

from datetime import timedelta

import pytest
from everspot_core.capacity.market import Market
from everspot_store import FleetState, ManualClock, PeerSight, PoolState, SchedulerBeat
from federation_helpers import Pair


@pytest.fixture
def pair() -> Pair:
    return Pair(None, ManualClock())


def sight(pair: Pair) -> PeerSight:
    (beat,) = pair.home.store.schedulers.scan().values()
    (peer,) = beat.value.peers
    assert pair.clock.now() - peer.seen_at < timedelta(seconds=41), "looked at, and told, every 20 s"
    return peer


def test_a_peer_that_is_well_is_seen_with_its_heartbeat(pair: Pair) -> None:
    pair.run(42)
    peer = sight(pair)
    assert (peer.name, peer.problem, peer.alive, peer.clock_apart_seconds) == ("host", "", True, None)
    assert peer.heard_at == peer.seen_at and peer.beat_at is not None


def test_a_peer_that_cannot_be_reached_is_told_of_with_the_refusal(pair: Pair) -> None:
    pair.home.cut = True
    pair.run(42)
    peer = sight(pair)
    assert "no route to it" in peer.problem and peer.heard_at is None and not peer.alive and peer.down
    pair.home.cut = False
    pair.run(42)
    assert sight(pair).problem == ""


def test_a_peer_that_is_read_no_more_keeps_what_was_known_of_it(pair: Pair) -> None:
    pair.run(42)
    pair.host.store.control.put("pools.json", b"{}")
    pair.run(42)
    peer = sight(pair)
    assert "pools.json" in peer.problem and not peer.down and peer.heard_at is not None and peer.beat_at is not None
    assert peer.heard_at < peer.seen_at


def test_a_peer_that_does_not_name_home_or_has_another_name_is_reported(pair: Pair) -> None:
    pair.host.declare(federation=())
    pair.run(42)
    assert "does not name home as its peer" in sight(pair).problem and not sight(pair).down
    pair.host.declare(cluster="other")
    pair.run(42)
    assert sight(pair).problem == "it calls itself other"


def test_a_silent_peer_is_told_of_with_the_moment_of_its_last_word(pair: Pair) -> None:
    pair.run(42)
    pair.host.schedulers.clear()
    last = pair.clock.now()
    pair.run(360)
    peer = sight(pair)
    problems = [
        f"its scheduler has been silent since {last + n * pair.second:%Y-%m-%d %H:%M:%S} UTC" for n in range(21)
    ]
    assert not peer.alive and peer.down and peer.problem in problems, "the last word was heard at the look after it"


def test_a_clock_hours_apart_is_told_of_and_no_job_goes_there(pair: Pair) -> None:
    pair.host.schedulers.clear()
    for _ in range(3):
        ahead = pair.clock.now() + timedelta(hours=3)
        pair.host.store.schedulers.put("s1", SchedulerBeat(scheduler_id="s1", started_at=ahead, updated_at=ahead))
        pair.run(21)
    peer = sight(pair)
    assert peer.alive and peer.clock_apart_seconds == pytest.approx(3 * 3600, abs=41)
    assert "ahead of this cluster's" in peer.problem


def test_what_a_peer_publishes_of_its_pools_is_noted_every_five_minutes_at_most(pair: Pair) -> None:
    def published(usd: float) -> None:
        pool = PoolState(instance_type="c6i.large", zone="a", market=Market.SPOT, usd_per_hour=usd)
        state = FleetState(scheduler_id="s9", updated_at=pair.clock.now(), pools=[pool])
        pair.host.store.notes.fleet.write(state)

    def noted() -> float:
        return pair.home.store.notes.peers.scan()["host"].value.fleet.pools[0].usd_per_hour

    pair.host.schedulers.clear()
    published(0.1)
    pair.run(1)
    assert noted() == 0.1
    published(0.2)
    pair.run(60)
    assert noted() == 0.1
    pair.run(270)
    assert noted() == 0.2
