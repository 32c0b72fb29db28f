"""Publishing and reporting: a store that cannot be reached, uploads that give way, numbers that are none."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_store import Checkpoints, ManualClock, StoreUnavailable, SystemClock
from everspot_store.testing import FaultScript, MemoryBackend, faulty_store
from everspot_train.rundir import RunContext
from everspot_train.trainer.deadlines import gives_way
from everspot_train.trainer.publisher import Publisher, Snapshot
from everspot_train.trainer.reporter import Reporter
from trainer_post import JOB, Post

pytestmark = pytest.mark.torch


class Flaky(Checkpoints):
    """Out of reach for a while."""

    down = 0

    def publish(self, *arguments: Any, **named: Any) -> Any:
        if self.down > 0:
            self.down -= 1
            raise StoreUnavailable("away")
        return super().publish(*arguments, **named)


@pytest.fixture
def publisher(post: Callable[..., Post], tmp_path: Path) -> Callable[[int], tuple[Publisher, ManualClock]]:
    def make(down: int) -> tuple[Publisher, ManualClock]:
        store, clock = post(1).store, ManualClock()
        flaky = Flaky(store.heads, store.data, clock, JOB, 1, None)
        flaky.down = down
        return Publisher(flaky, 2, clock, lambda published, snapshot: None), clock

    return make


def snapshot(folder: Path, step: int, size: int = 1) -> Snapshot:
    (folder / str(step)).mkdir()
    (folder / str(step) / "a.pt").write_bytes(bytes(size))
    return Snapshot(step, folder / str(step), "notice", timedelta(0))


def test_on_a_stop_an_unreachable_store_is_tried_until_the_deadline(
    publisher: Callable[[int], tuple[Publisher, ManualClock]], tmp_path: Path
) -> None:
    ours, clock = publisher(20)
    ours.publish(snapshot(tmp_path, 3), deadline=timedelta(seconds=30))
    assert ours.durable_step == 3
    assert len(clock.slept) == 20
    ours.close()


def test_at_an_interval_an_unreachable_store_is_a_warning(
    publisher: Callable[[int], tuple[Publisher, ManualClock]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, clock = publisher(1)
    ours.start(snapshot(tmp_path, 3))
    ours.settle()
    assert ours.durable_step is None
    assert "training goes on" in caplog.text
    ours.start(snapshot(tmp_path, 4))
    ours.settle()
    assert ours.durable_step == 4
    assert clock.slept == []
    ours.close()


@pytest.mark.parametrize(("deadline", "slept"), [(timedelta(seconds=10), 9), (None, 5)])
def test_tries_are_bounded(
    publisher: Callable[[int], tuple[Publisher, ManualClock]], tmp_path: Path, deadline: timedelta | None, slept: int
) -> None:
    ours, clock = publisher(1000)
    with pytest.raises(StoreUnavailable):
        ours.publish(snapshot(tmp_path, 3), deadline)
    assert len(clock.slept) == slept
    ours.close()


@pytest.mark.parametrize(
    ("left", "fresh", "rate", "seconds", "cancelled"),
    [
        (900, 1800, 100, 25, True),  # both would take 27 s, the newer one alone 18
        (200, 1800, 100, 25, False),  # both are durable in time
        (900, 1800, 100, 20, False),  # the newer one is not, with something to spare: the older one is what can be had
        (1800, 1800, 100, 1, True),  # nothing has arrived that could be lost
        (None, 1800, None, 1, True),
        (900, 1800, None, 100, False),  # nobody knows how fast it is
    ],
)
def test_an_upload_gives_way_where_only_the_newer_one_alone_meets_the_deadline(
    left: int | None, fresh: int, rate: float | None, seconds: float, cancelled: bool
) -> None:
    assert gives_way(left, fresh, rate, seconds) is cancelled


class Slow(MemoryBackend):
    """Takes a second for each MB of a file, and stands still in the middle of `stuck` until `go`, or its cancelling."""

    def __init__(self, clock: ManualClock, stuck: str) -> None:
        super().__init__()
        self._clock, self._stuck = clock, stuck
        self.half_way, self.go = threading.Event(), threading.Event()

    def upload(self, key: str, path: Path, moved: Any = None) -> Any:
        size = path.stat().st_size
        for half in range(2):
            moved(size // 2)
            self._clock.advance(timedelta(seconds=size / 2e6))
            if self._stuck in key and not half:
                self.half_way.set()
                while not self.go.wait(0.01):
                    moved(0)
        return super().upload(key, path)


@pytest.mark.parametrize(("notice", "durable", "kept"), [(25, 4, [4]), (40, 4, [4, 3]), (20, 4, [4, 3])])
def test_a_notice_does_not_wait_for_an_upload_that_would_cost_the_newest_step(
    tmp_path: Path, notice: int, durable: int, kept: list[int]
) -> None:
    """An upload of 18 s is half done. With 25 s left it is cancelled; with 40 s, or too few for the newer one anyhow,
    it is finished first."""
    clock = ManualClock()
    data = Slow(clock, stuck="000000000003")
    store = faulty_store(MemoryBackend(), data, clock, FaultScript())
    ours = Publisher(store.checkpoints(JOB, 1), 2, clock, lambda published, snapshot: None)
    old, new = snapshot(tmp_path, 3, 18_000_000), snapshot(tmp_path, 4, 18_000_000)
    ours.start(old)
    assert data.half_way.wait(20)
    began = clock.monotonic()
    if kept == [4, 3]:
        data.go.set()
    ours.publish(new, began + timedelta(seconds=notice))
    assert ours.durable_step == durable
    head = store.checkpoints(JOB).head()
    assert head is not None and [checkpoint.step for checkpoint in head.checkpoints] == kept
    assert (clock.monotonic() - began).total_seconds() == pytest.approx(18 if kept == [4] else 27, abs=1)
    assert not old.directory.exists()
    ours.close()


def test_metrics_that_are_no_numbers_break_neither_status_nor_history(post: Callable[..., Post]) -> None:
    first = post(1)
    context = first.rundir.read(RunContext)
    reporter = Reporter(first.rundir, first.store, context, SystemClock())
    reporter.log(7, {"good": 1.5, "bad": float("nan")})
    reporter.update(step=7)
    reporter.close()
    again = Reporter(first.rundir, first.store, context, SystemClock())  # a second process under the same epoch
    again.log(8, {"good": 2.5})
    again.close()
    chunks = [json.loads(line) for chunk in first.store.read_metrics(JOB) for line in chunk.data.splitlines()]
    assert [line["metrics"] for line in chunks] == [{"good": 1.5, "bad": None}, {"good": 2.5}]
