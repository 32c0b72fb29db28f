"""Two schedulers at once, crashing at any write: nothing is assigned twice and nothing is lost."""

import random
import threading
import time
from datetime import timedelta
from itertools import count

import pytest
from everspot_core.records import EventKind, Market
from everspot_scheduler.loop import Scheduler
from everspot_store import Bucket, Store, StoreUnavailable
from scheduler_kit import Cluster

TICKS = 100


class Crash(Exception):
    """The scheduler's process ends here."""


class FaultyBucket:
    """A bucket of one scheduler: its writes are slow, and some end the scheduler, before or after they are done."""

    def __init__(self, bucket: Bucket, seed: int, rate: float) -> None:
        self._bucket, self._random, self._rate = bucket, random.Random(seed), rate
        self.crashes = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._bucket, name)

    def _faulty(self, name: str, *args: object) -> object:
        time.sleep(self._random.random() * 0.002)
        chance = self._random.random()
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

    def delete(self, *args: object) -> object:
        return self._faulty("delete", *args)


class Contender:
    """A scheduler that is started again after each crash, without any memory."""

    def __init__(self, cluster: Cluster, name: str, seed: int, rate: float) -> None:
        self._cluster, self._name, self._lives = cluster, name, count()
        self.bucket = FaultyBucket(cluster.store.control, seed, rate)
        self._scheduler = self._start()

    def _start(self) -> Scheduler:
        store = Store(self.bucket, self._cluster.store.data, self._cluster.clock)
        return self._cluster.scheduler(f"{self._name}-{next(self._lives)}", store)

    def tick(self) -> None:
        try:
            self._scheduler.tick()
        except Crash:
            self._scheduler = self._start()
        except StoreUnavailable:
            pass


def together(contenders: list[Contender]) -> None:
    failures: list[BaseException] = []

    def tick(contender: Contender) -> None:
        try:
            contender.tick()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=tick, args=(c,)) for c in contenders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def compete(cluster: Cluster, ticks: int, rate: float, seed: int) -> list[Contender]:
    """Jobs come in, agents work, two schedulers tick at the same time, and after every tick nothing is owned twice."""
    dice = random.Random(seed)
    contenders = [Contender(cluster, name, seed + n, rate) for n, name in enumerate("ab")]
    cluster.length = 6
    for n in range(5):
        cluster.agent(f"i-{n}", Market.ON_DEMAND if n == 0 else Market.SPOT)
    jobs = iter(range(15))
    for _ in range(ticks):
        for n in [next(jobs, None) for _ in range(dice.choice([0, 0, 1]))]:
            if n is not None:
                cluster.submit(f"j{n}", priority=dice.choice(["critical", "normal"]))
        together(contenders)
        cluster.check()
        for agent in cluster.agents.values():
            if dice.random() < 0.8:
                agent.turn()
        cluster.check()
        cluster.clock.advance(timedelta(seconds=1))
    return contenders


@pytest.mark.parametrize("seed", range(4))
def test_two_schedulers_on_a_folder_assign_nothing_twice(cluster: Cluster, seed: int) -> None:
    contenders = compete(cluster, TICKS, 0.0 if seed == 0 else 0.03, seed)
    assert seed == 0 or sum(c.bucket.crashes for c in contenders) >= 5
    finish(cluster)


def test_two_schedulers_on_s3_assign_nothing_twice(s3_cluster: Cluster) -> None:
    contenders = compete(s3_cluster, TICKS, 0.02, 7)
    assert sum(c.bucket.crashes for c in contenders) >= 3
    finish(s3_cluster)


def finish(cluster: Cluster) -> None:
    """One undisturbed scheduler brings everything to its end, from whatever the crashes have left."""
    cluster.schedulers = [cluster.scheduler("last")]
    cluster.run(60)
    names = list(cluster.store.jobs.scan())
    assert len(names) == 15
    assert {cluster.state(n) for n in names} == {"SUCCEEDED"}
    assert all(a.value.job_id is None for a in cluster.store.assignments.scan().values())
    for name in names:
        told = [e.epoch for e in cluster.told(name, EventKind.ASSIGNED)]
        assert len(told) == len(set(told))
        assert set(told) >= {epoch for epoch, _ in cluster.starts[name]}
    assert len(cluster.store.launches.scan()) == 5
