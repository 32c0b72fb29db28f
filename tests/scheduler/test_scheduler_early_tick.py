"""Nobody waits for a whole tick who costs money or is the first in a long while."""

from datetime import timedelta

import pytest
from elastic_helpers import ElasticCluster
from everspot_core.jobs.records import JobState, Market
from everspot_scheduler.backoff import QUIET_FACTOR, QUIET_TICKS
from everspot_scheduler.early_tick import LOOKS
from everspot_store import Bucket, ManualClock, Store, StoreUnavailable
from everspot_store.testing import MemoryBackend
from scheduler_helpers import LIMITS, Agent

TICK = timedelta(seconds=10)


class Timed:
    """A scheduler's loop, in which something happens while it sleeps. `ticks`: when each began."""

    def __init__(self, clock: ManualClock) -> None:
        buckets = (Bucket(f"memory://{name}", MemoryBackend(), clock) for name in ("control", "data"))
        self.here = ElasticCluster(Store(*buckets, clock), clock)
        self.here.declare(limits=LIMITS.model_copy(update={"tick_every": TICK}))
        self.scheduler = self.here.scheduler()
        self.ticks: list[timedelta] = []
        tick = self.scheduler.tick
        self.scheduler.tick = lambda: (self.ticks.append(clock.monotonic()), tick())

    def run(self, ticks: int, after: timedelta, happens) -> timedelta:
        """Let it have so many ticks, and one more; how long after what happened that one was."""
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
