"""Two schedulers at each of two clusters crash at any write: no job has two owners, and none is lost."""

import random
from collections.abc import Callable
from itertools import count

import pytest
from everspot_core.cluster.peers import Peer
from everspot_core.jobs.records import JobState, Request
from everspot_scheduler.federation.manager import PeerAccess
from everspot_scheduler.loop import Scheduler
from everspot_store import Bucket, ManualClock, Store
from federation_helpers import Member, Pair
from restarting import Restarting

JOBS = 4
TICKS = 45


class Crash(BaseException):
    """The scheduler's process ends here; nothing may recover from it."""


class FaultyBucket:
    """A bucket of one scheduler: before some writes others get their turn, and some end the scheduler."""

    def __init__(self, bucket: Bucket, life: "Life") -> None:
        self._bucket, self._life = bucket, life

    def __getattr__(self, name: str) -> object:
        call = getattr(self._bucket, name)
        if name not in ("create", "replace", "put", "delete", "upload"):
            return call
        return lambda *args: self._life.write(lambda: call(*args))


class Life(Restarting):
    """A scheduler of one cluster, started again without any memory after each crash."""

    crash = Crash

    def __init__(self, pair: Pair, member: Member, name: str, others: Callable[[], None], seed: int) -> None:
        self.member, self._name, self._lives, self._others = member, name, count(), others
        self.dice, self.rate, self.pauses = random.Random(seed), 0.02, 0
        self._stores = {n: Store(*self._faulty(s), pair.clock) for n, s in pair.stores.items()}
        self._scheduler = self._start()

    def _faulty(self, store: Store) -> tuple[FaultyBucket, FaultyBucket]:
        return FaultyBucket(store.control, self), FaultyBucket(store.data, self)

    def _start(self) -> Scheduler:
        def opener(peer: Peer) -> Store:
            return self._stores[peer.name]

        peer_access = PeerAccess(opener=opener, chooser=self.member.choose, threads=0)
        own, name = self._stores[self.member.name], f"{self._name}-{next(self._lives)}"
        return Scheduler(own, self.member.manifest, self.member.cloud, name, peer_access=peer_access)

    def write(self, call: Callable[[], object]) -> object:
        if self.dice.random() < 0.2:
            self.pauses += 1
            self._others()
        chance = self.dice.random()
        if chance < self.rate:
            raise Crash
        result = call()
        if chance < 2 * self.rate:
            raise Crash
        return result


class Crowd:
    """Both clusters with two schedulers each."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair, self.dice, self.calm = pair, random.Random(seed), False
        members = [pair.home, pair.home, pair.host, pair.host]
        self.lives = [Life(pair, m, f"s{n}", self.others, seed * 10 + n) for n, m in enumerate(members)]

    def others(self) -> None:
        """Between two calls of one scheduler: ticks of others, agents at work, or nothing."""
        if self.dice.random() < 0.5:
            self.dice.choice(self.lives).tick()
        for member in self.pair.members:
            for agent in member.agents.values():
                if self.dice.random() < 0.3:
                    agent.turn()
        self.pair.check()

    def wish(self) -> None:
        """Somebody changes his mind, unless all are calm."""
        if self.calm:
            return
        job, chance = f"j{self.dice.randrange(JOBS)}", self.dice.random()
        if chance < 0.25:
            self.pair.home.wishes[job] = self.dice.choice(["home", "host"])
        elif chance < 0.28:
            self.pair.host.store.request_drain(Request(at=self.pair.clock.now()))
        elif chance < 0.5:
            self.pair.host.store.clear_drain()

    def live(self, ticks: int) -> None:
        for _ in range(ticks):
            self.wish()
            for life in self.dice.sample(self.lives, 4):
                life.tick()
                self.pair.check()
            self.others()
            self.pair.clock.advance(self.pair.second)


@pytest.mark.parametrize("seed", range(3))
def test_no_job_has_two_owners_and_none_is_lost(seed: int) -> None:
    pair = Pair(None, ManualClock(), length=25)
    for n in range(JOBS):
        pair.home.submit(f"j{n}", clouds=["aws"])
        pair.home.wishes[f"j{n}"] = "host"
    for member in pair.members:
        member.schedulers = []
        for n in range(2):
            member.agent(f"{member.name}-{n}")
    crowd = Crowd(pair, seed)
    crowd.live(TICKS)
    assert sum(life.crashes for life in crowd.lives) >= 5 and sum(life.pauses for life in crowd.lives) >= 20
    crowd.calm = True
    pair.home.wishes.clear()
    pair.host.store.clear_drain()
    for life in crowd.lives:
        life.rate = 0.0
    for _ in range(8):
        crowd.live(20)
        records = [document.value for document in pair.home.store.records.scan().values()]
        if len(records) == JOBS and all(record.state.final for record in records):
            break
    assert [r.state for r in records] == [JobState.SUCCEEDED] * JOBS, [(r.job_id, r.state, r.away) for r in records]
    assert any(r.trips for r in records)
    for record in records:
        numbers = [trip.number for trip in record.trips]
        assert numbers == sorted(set(numbers)) and record.epoch >= len(numbers)
