"""Two concurrent schedulers crash at any write: nothing is assigned twice, and nothing is lost."""

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest
from everspot_core.jobs.records import EventKind, Market, Request
from everspot_scheduler.loop import Scheduler
from everspot_store import Bucket, Store
from restarting import Restarting
from scheduler_helpers import Cluster

TICKS = 100
JOBS = 15


class Crash(Exception):
    """The scheduler's process ends here."""


class FaultyBucket:
    """A bucket of one scheduler: before some writes the others get their turn, and some end the scheduler."""

    def __init__(self, bucket: Bucket, meanwhile: Callable[[], None], dice: random.Random, rate: float) -> None:
        self._often = 0.25
        self._bucket, self._meanwhile, self._dice, self._rate = bucket, meanwhile, dice, rate
        self.crashes = self.pauses = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._bucket, name)

    def _faulty(self, name: str, *args: object) -> object:
        if self._dice.random() < self._often:
            self.pauses += 1
            self._meanwhile()
        chance = self._dice.random()
        if chance < self._rate:
            self.crashes += 1
            raise Crash(f"before {name} {args[0]}")
        result = getattr(self._bucket, name)(*args)
        if chance < 2 * self._rate:
            self.crashes += 1
            raise Crash(f"after {name} {args[0]}")
        return result

    def create(self, *args: object) -> object:
        return self._faulty("create", *args)

    def replace(self, *args: object) -> object:
        return self._faulty("replace", *args)

    def put(self, *args: object) -> object:
        return self._faulty("put", *args)

    def delete(self, *args: object) -> object:
        return self._faulty("delete", *args)


class Contender(Restarting):
    """A scheduler that is started again after each crash, without any memory."""

    crash = Crash

    def __init__(self, cluster: Cluster, name: str, users: Callable[[], None], seed: int, rate: float) -> None:
        self._cluster, self._name, self._users, self._lives = cluster, name, users, count()
        self.rival: Contender | None = None
        self._dice = random.Random(seed)
        self.bucket = FaultyBucket(cluster.store.control, self._meanwhile, self._dice, rate)
        self._scheduler = self._start()

    def _start(self) -> Scheduler:
        store = Store(self.bucket, self._cluster.store.data, self._cluster.clock)
        return self._cluster.scheduler(f"{self._name}-{next(self._lives)}", store)

    def _meanwhile(self) -> None:
        """Between two calls of ours: new requests, a whole tick of the rival, agents at work, or some of these."""
        self._users()
        if self.rival is not None and self._dice.random() < 0.7:
            self.rival.tick()
        work(self._cluster, self._dice, self._dice.choice([0, 0.5, 1]))


def work(cluster: Cluster, dice: random.Random, share: float) -> None:
    for agent in cluster.agents.values():
        if dice.random() < share:
            agent.turn()
    cluster.check()


def compete(cluster: Cluster, rate: float, seed: int, ticks: int = TICKS) -> list[Contender]:
    """Jobs come in, agents work, two schedulers get in each other's way, and at no time is anything owned twice."""
    dice, jobs = random.Random(seed), iter(range(JOBS))

    def users() -> None:
        n = next(jobs, None) if dice.random() < 0.2 else None
        if n is not None:
            cluster.submit(f"j{n}", priority=dice.choice(["critical", "normal"]))
        disturb(cluster, dice)

    contenders = [Contender(cluster, name, users, seed + n, rate) for n, name in enumerate("ab")]
    contenders[0].rival, contenders[1].rival = contenders[1], contenders[0]
    cluster.length = 6
    for n in range(4):
        cluster.agent(f"i-{n}", Market.ON_DEMAND if n == 0 else Market.SPOT)
    for _ in range(ticks):
        users()
        for contender in dice.sample(contenders, 2):
            contender.tick()
            cluster.check()
        work(cluster, dice, 0.8)
        cluster.clock.advance(timedelta(seconds=1))
    assert min(c.bucket.pauses for c in contenders) >= 10
    return contenders


def disturb(cluster: Cluster, dice: random.Random) -> None:
    """Drills and drains come and go, so that assignments are given up half-way too."""
    now, chance = cluster.clock.now(), dice.random()
    running = sorted(n for n, r in cluster.store.records.scan().items() if r.value.state.owned)
    if chance < 0.05 and running:
        cluster.store.drills.create(f"{dice.choice(running)}/{now:%H%M%S}-{chance}", Request(at=now))
    elif chance < 0.08:
        cluster.store.request_drain(Request(at=now))
    elif chance < 0.5:
        cluster.store.clear_drain()


@pytest.mark.parametrize("seed", range(2))
def test_two_schedulers_on_a_folder_assign_nothing_twice(cluster: Cluster, seed: int) -> None:
    contenders = compete(cluster, 0.0 if seed == 0 else 0.03, seed)
    assert seed == 0 or sum(c.bucket.crashes for c in contenders) >= 5
    finish(cluster)


def test_two_schedulers_on_s3_assign_nothing_twice(s3_cluster: Cluster) -> None:
    contenders = compete(s3_cluster, 0.02, 7, TICKS // 2)  # a call to S3 takes as long as twenty to a folder
    assert sum(c.bucket.crashes for c in contenders) >= 3
    finish(s3_cluster)


def over(cluster: Cluster) -> bool:
    done = all(cluster.state(name) == "SUCCEEDED" for name in cluster.store.jobs.names())
    return done and all(a.value.job_id is None for a in cluster.store.assignments.scan().values())


def finish(cluster: Cluster) -> None:
    """Run one scheduler without faults until all jobs end, from the state that the crashes left."""
    cluster.store.clear_drain()
    cluster.schedulers = [cluster.scheduler("last")]
    for _ in range(45):
        cluster.run(1)
        if over(cluster):
            break
    cluster.run(3)  # and so it stays
    names = list(cluster.store.jobs.scan())
    assert len(names) >= JOBS / 2
    assert {cluster.state(n) for n in names} == {"SUCCEEDED"}
    assert all(a.value.job_id is None for a in cluster.store.assignments.scan().values())
    for name in names:
        epochs = [e.epoch for e in cluster.events_of_kind(name, EventKind.ASSIGNED)]
        assert len(epochs) == len(set(epochs))
        assert set(epochs) >= {epoch for epoch, _ in cluster.starts[name]}
    assert len(cluster.store.launches.scan()) == 4


class PausingBucket(FaultyBucket):
    """A bucket of a scheduler that falls asleep before one write; `meanwhile` is what happens until it wakes."""

    def __init__(self, bucket: Bucket, key: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(bucket, meanwhile, random.Random(0), 0.0)
        self._key, self.slept = key, False

    def _faulty(self, name: str, *args: object) -> object:
        if args[0] == self._key and not self.slept:
            self.slept = True
            self._meanwhile()
        return getattr(self._bucket, name)(*args)


def sleeper(cluster: Cluster, key: str, meanwhile: Callable[[], None]) -> tuple[Scheduler, PausingBucket]:
    bucket = PausingBucket(cluster.store.control, key, meanwhile)
    return cluster.scheduler("sleeper", Store(bucket, cluster.store.data, cluster.clock)), bucket


def test_a_scheduler_that_sleeps_between_its_two_writes_cannot_finish_what_was_given_up(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.submit("a")
    other = cluster.scheduler("other")

    def meanwhile() -> None:
        cluster.store.request_drain(Request(at=cluster.clock.now()))
        other.tick()
        cluster.store.clear_drain()
        cluster.submit("b", priority="critical")
        other.tick()
        assert cluster.store.records.get("b").value.owner == "i-1"

    scheduler, bucket = sleeper(cluster, "records/a.json", meanwhile)
    scheduler.tick()
    assert bucket.slept
    cluster.check()
    cluster.run(30)
    assert [cluster.state(n) for n in "ab"] == ["SUCCEEDED"] * 2


def test_a_scheduler_that_sleeps_before_its_first_write_takes_nothing_from_others(cluster: Cluster) -> None:
    cluster.agent("i-1")
    cluster.submit("a")
    other = cluster.scheduler("other")

    def meanwhile() -> None:
        cluster.submit("b", priority="critical")
        other.tick()
        cluster.agents["i-1"].turn()

    scheduler, bucket = sleeper(cluster, "assignments/i-1.json", meanwhile)
    scheduler.tick()
    assert bucket.slept
    assert cluster.store.assignments.get("i-1").value.job_id == "b"
    assert cluster.state("a") == "PENDING"
    cluster.run(30)
    assert [cluster.state(n) for n in "ab"] == ["SUCCEEDED"] * 2


def test_a_slow_scheduler_cannot_expire_an_owner_that_has_renewed(cluster: Cluster) -> None:
    cluster.length = 100
    agent = cluster.agent("i-1")
    cluster.submit("a")
    scheduler, bucket = sleeper(cluster, "records/a.json", agent.turn)
    bucket.slept = True
    for _ in range(4):
        scheduler.tick()
        agent.turn()
    for _ in range(2):
        cluster.clock.advance(timedelta(seconds=7.5))
        scheduler.tick()  # has not seen the last renewal for long yet
    cluster.clock.advance(timedelta(seconds=7.5))
    bucket.slept = False
    scheduler.tick()
    assert bucket.slept
    assert (cluster.state("a"), cluster.store.records.get("a").value.owner) == ("RUNNING", "i-1")
    assert cluster.events_of_kind("a", EventKind.LOST) == []
