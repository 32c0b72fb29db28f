"""Early ticks: new instances, and the first job after an idle time, do not wait for a whole tick."""

from datetime import timedelta

import pytest
from elastic_helpers import ElasticCluster
from everspot_core.cluster.manifest import QUIET_FACTOR, Monitoring
from everspot_core.jobs.records import JobState, Market, Request
from everspot_scheduler.backoff import IDLE_FACTOR, IDLE_TICKS, QUIET_TICKS
from everspot_scheduler.early_tick import LOOKS
from everspot_store import Bucket, ManualClock, Store, StoreDenied, StoreUnavailable
from everspot_store.testing import MemoryBackend
from scheduler_helpers import LIMITS, Agent

TICK = timedelta(seconds=10)


class Timed:
    """A scheduler's loop, in which something happens while it sleeps. `ticks`: when each began."""

    def __init__(self, clock: ManualClock) -> None:
        buckets = (Bucket(f"memory://{name}", MemoryBackend(), clock) for name in ("control", "data"))
        self.here = ElasticCluster(Store(*buckets, clock=clock), clock)
        self.here.declare(limits=LIMITS.model_copy(update={"tick_every": TICK}))
        self.scheduler = self.here.scheduler()
        self.ticks: list[timedelta] = []
        tick = self.scheduler.tick
        self.scheduler.tick = lambda: (self.ticks.append(clock.monotonic()), tick())

    def run(self, ticks: int, after: timedelta, happens) -> timedelta:
        """Run this many ticks and one more, and return the time from the event to that tick."""
        happened: list[timedelta] = []

        def asleep(_: timedelta) -> None:
            now = self.here.clock.monotonic()
            if not happened and len(self.ticks) == ticks and now - self.ticks[-1] >= after:
                happened.append(now)
                happens()

        self.here.clock.on_sleep = asleep
        self.scheduler.run(lambda: len(self.ticks) == ticks + 1)
        return self.ticks[-1] - happened[0]


@pytest.fixture
def timed(clock: ManualClock) -> Timed:
    return Timed(clock)


def test_an_instance_that_was_launched_is_given_its_job_as_soon_as_it_reports(timed):
    timed.here.submit("j")

    def reports() -> None:
        Agent(timed.here, "e-001", Market.SPOT).turn()

    assert timed.run(1, TICK / 4, reports) <= TICK / LOOKS + timedelta(seconds=0.5)
    record = timed.here.store.records.get("j").value
    assert (record.state, record.owner) == (JobState.ASSIGNED, "e-001")


def test_who_reports_where_nobody_is_awaited_is_seen_by_the_next_tick(timed):
    late = timed.run(1, TICK / 4, lambda: Agent(timed.here, "i-1", Market.SPOT).turn())
    assert late == TICK - TICK / 4


def test_a_job_in_quiet_times_waits_no_longer_than_at_others(timed):
    assert timed.run(QUIET_TICKS + 3, TICK / 2, lambda: timed.here.submit("j")) <= TICK / 2 + timedelta(seconds=0.25)
    assert timed.ticks[-2] - timed.ticks[-3] == QUIET_FACTOR * TICK
    assert len(timed.here.cloud.alive) == 1


def test_a_store_that_does_not_answer_between_ticks_is_the_next_ticks_trouble(timed, monkeypatch):
    def silent(*_: object) -> None:
        raise StoreUnavailable("injected")

    store = timed.here.store
    happens = lambda: monkeypatch.setattr(store.jobs, "etags", silent)  # noqa: E731
    assert timed.run(QUIET_TICKS + 3, TICK / 2, happens) == QUIET_FACTOR * TICK - TICK / 2


def test_what_nobody_can_read_is_told_of_once(timed):
    timed.here.submit("j")
    bad = lambda: timed.here.store.control.put("instances/e-001.json", b"{}")  # noqa: E731
    assert timed.run(1, TICK / 4, bad) < TICK / 2
    assert timed.run(3, TICK / 4, lambda: None) == TICK - TICK / 4


IDLE = IDLE_TICKS + 4
"""The number of a tick after which the next one is far away, if nothing happens."""


def test_an_idle_scheduler_ticks_rarely_and_is_woken_by_a_job(timed):
    assert timed.run(IDLE, TICK / 2, lambda: timed.here.submit("j")) <= TICK / 2 + timedelta(seconds=0.25)
    assert timed.ticks[-2] - timed.ticks[-3] == IDLE_FACTOR * TICK
    assert len(timed.here.cloud.alive) == 1


@pytest.mark.parametrize("ticks", range(IDLE_TICKS, IDLE + 1))
def test_a_job_that_comes_while_the_scheduler_grows_idle_is_not_missed(timed, ticks):
    assert timed.run(ticks, TICK * 0.9, lambda: timed.here.submit("j")) <= TICK
    timed.scheduler.run(lambda: bool(timed.here.cloud.alive))


def test_a_drain_wakes_an_idle_scheduler(timed):
    request = Request(at=timed.here.clock.now(), by="ann")
    assert timed.run(IDLE, TICK / 2, lambda: timed.here.store.request_drain(request)) <= TICK


def test_an_idle_scheduler_is_woken_though_the_store_did_not_answer_for_a_while(timed, monkeypatch):
    real, failures = timed.here.store.wakeup.token, [True] * 3

    def silent() -> bytes:
        if failures and len(timed.ticks) >= IDLE:
            failures.pop()
            raise StoreUnavailable("injected")
        return real()

    monkeypatch.setattr(timed.here.store.wakeup, "token", silent)
    assert timed.run(IDLE, TICK / 2, lambda: timed.here.submit("j")) <= 4 * TICK
    assert failures == []


def test_work_of_which_nobody_tells_is_seen_by_the_next_idle_tick(timed, monkeypatch):
    """A submitter that may not write the wake-up object, or dies before it does, waits for some minutes."""
    real = timed.here.store.control.put

    def denied(key: str, data: bytes) -> object:
        if key == "wakeup":
            raise StoreDenied("injected")
        return real(key, data)

    monkeypatch.setattr(timed.here.store.control, "put", denied)
    late = timed.run(IDLE, TICK / 2, lambda: timed.here.submit("j"))
    assert late == IDLE_FACTOR * TICK - TICK / 2
    assert len(timed.here.cloud.alive) == 1


def test_an_idle_scheduler_goes_on_to_say_that_it_lives(timed):
    gaps, beats = list[timedelta](), timed.here.store.schedulers
    began = timed.here.clock.now()

    def lives() -> None:
        (beat,) = beats.scan().values()
        gaps.append(timed.here.clock.now() - beat.value.updated_at)

    timed.here.clock.on_sleep = lambda _: lives() if timed.ticks[IDLE:] else None
    timed.scheduler.run(lambda: len(timed.ticks) == IDLE + 2)
    assert max(gaps) < timedelta(seconds=60) < timed.ticks[-1] - timed.ticks[-2]
    assert timed.here.clock.now() > began


def test_a_scheduler_whose_alarms_expect_figures_is_never_idle(timed):
    timed.here.declare(monitoring=Monitoring(namespace="Everspot"))
    timed.scheduler = timed.here.scheduler()
    tick, ticks = timed.scheduler.tick, list[timedelta]()
    timed.scheduler.tick = lambda: (ticks.append(timed.here.clock.monotonic()), tick())
    timed.scheduler.run(lambda: len(ticks) == IDLE + 2)
    assert ticks[-1] - ticks[-2] == QUIET_FACTOR * TICK
