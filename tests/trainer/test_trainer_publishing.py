"""Publishing and reporting: an unreachable store, uploads with lower priority than training, and NaN metrics."""

import json
import queue
import struct
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from everspot_core.jobs.checkpoint import Checkpoint
from everspot_store import Checkpoints, ManualClock, StoreUnavailable, SystemClock, TransferCancelled
from everspot_store.testing import FaultScript, MemoryBackend, faulty_store
from everspot_train.rundir import RunContext, StopReport
from everspot_train.trainer import Run, resumable_loader
from everspot_train.trainer.publisher import Publisher, Snapshot
from everspot_train.trainer.reporter import Reporter
from everspot_train.writer.protocol import (
    AnyAnswer,
    FailedAnswer,
    MakeWayRequest,
    PublishedAnswer,
    PublishRequest,
    StreamFile,
)
from everspot_train.writer.service import WriterService, gives_way
from trainer_loop import Digits
from trainer_post import JOB, Post

pytestmark = pytest.mark.torch


class Flaky(Checkpoints):
    """Out of reach for a while."""

    down = 0

    def publish(self, *arguments: Any, **keywords: Any) -> Any:
        if self.down > 0:
            self.down -= 1
            raise StoreUnavailable("away")
        return super().publish(*arguments, **keywords)


class Writer:
    """A publisher, as its process has it, and its answers."""

    def __init__(self, checkpoints: Checkpoints, clock: ManualClock) -> None:
        self.answers: queue.SimpleQueue[AnyAnswer] = queue.SimpleQueue()
        self.publisher = WriterService(checkpoints, clock, self.answers.put)

    def answer(self) -> AnyAnswer:
        return self.answers.get(timeout=60)


@pytest.fixture
def writer(post: Callable[..., Post]) -> Callable[[int], tuple[Writer, ManualClock]]:
    def make(down: int) -> tuple[Writer, ManualClock]:
        store, clock = post(1).store, ManualClock()
        flaky = Flaky(store.heads, store.data, clock, JOB, 1, None)
        flaky.down = down
        return Writer(flaky, clock), clock

    return make


def request(folder: Path, step: int, size: int = 1, *, copied: int | None = None, **fields: Any) -> PublishRequest:
    """A snapshot of one stream. `copied`: how many of its bytes are complete; None: all."""
    (folder / str(step)).mkdir()
    counter_at = -(-size // 8) * 8
    content = (bytes([step]) * size).ljust(counter_at) + struct.pack("=q", size if copied is None else copied)
    (folder / f"memory-{step}").write_bytes(content)
    values = {"info": {}, "unchanged": {}, "keep": 2, "again": False, "now": True} | fields
    streams = {"stream-00000": StreamFile(path=str(folder / f"memory-{step}"), size=size, counter_at=counter_at)}
    return PublishRequest(step=step, directory=str(folder / str(step)), streams=streams, **values)


def test_on_a_stop_an_unreachable_store_is_tried_until_the_deadline(
    writer: Callable[[int], tuple[Writer, ManualClock]], tmp_path: Path
) -> None:
    own_writer, clock = writer(20)
    own_writer.publisher.publish(request(tmp_path, 3, deadline=timedelta(seconds=30)))
    answer = own_writer.answer()
    assert isinstance(answer, PublishedAnswer) and answer.checkpoint.step == 3
    own_writer.publisher.close()
    assert len(clock.slept) == 20


def test_at_an_interval_an_unreachable_store_is_tried_once(
    writer: Callable[[int], tuple[Writer, ManualClock]], tmp_path: Path
) -> None:
    own_writer, clock = writer(1)
    own_writer.publisher.publish(request(tmp_path, 3, now=False))
    failed = own_writer.answer()
    assert isinstance(failed, FailedAnswer) and isinstance(failed.exception(), StoreUnavailable)
    own_writer.publisher.publish(request(tmp_path, 4, now=False))
    assert isinstance(own_writer.answer(), PublishedAnswer)
    own_writer.publisher.close()
    assert clock.slept == []


def test_a_stream_is_uploaded_while_it_is_copied(
    writer: Callable[[int], tuple[Writer, ManualClock]],
    post: Callable[..., Post],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = (64 << 20) + 8
    own_writer, clock = writer(0)
    waits: list[timedelta] = []

    def copy_the_last_bytes(duration: timedelta) -> None:
        waits.append(duration)
        with (tmp_path / "memory-3").open("r+b") as memory:
            memory.seek(64 << 20)
            memory.write(b"complete" + struct.pack("=q", size))

    monkeypatch.setattr(clock, "sleep", copy_the_last_bytes)
    own_writer.publisher.publish(request(tmp_path, 3, size, copied=64 << 20))
    assert isinstance(own_writer.answer(), PublishedAnswer)
    own_writer.publisher.close()
    assert len(waits) == 1
    assert post(2).store.checkpoints(JOB).restore(tmp_path / "restored") is not None
    assert (tmp_path / "restored" / "stream-00000").read_bytes()[-9:] == b"\3complete"


def test_memory_stays_mapped_for_the_next_checkpoint_and_no_longer(
    writer: Callable[[int], tuple[Writer, ManualClock]], post: Callable[..., Post], tmp_path: Path
) -> None:
    own_writer, _ = writer(0)
    own_writer.publisher.publish(request(tmp_path, 3, 4096))
    assert isinstance(own_writer.answer(), PublishedAnswer)
    assert str(tmp_path / "memory-3") in Path("/proc/self/maps").read_text()
    own_writer.publisher.publish(request(tmp_path, 4, 4096))
    assert isinstance(own_writer.answer(), PublishedAnswer)
    own_writer.publisher.close()
    assert str(tmp_path / "memory-3") not in Path("/proc/self/maps").read_text()
    assert post(2).store.checkpoints(JOB).restore(tmp_path / "restored") is not None
    assert (tmp_path / "restored" / "stream-00000").read_bytes() == b"\4" * 4096


@pytest.mark.parametrize("copied", [-1, 0])
def test_a_stream_that_is_never_complete_is_not_published(
    writer: Callable[[int], tuple[Writer, ManualClock]], post: Callable[..., Post], tmp_path: Path, copied: int
) -> None:
    own_writer, clock = writer(0)
    own_writer.publisher.publish(request(tmp_path, 3, 8, copied=copied))
    failed = own_writer.answer()
    assert isinstance(failed, FailedAnswer) and isinstance(failed.exception(), TransferCancelled)
    own_writer.publisher.close()
    assert clock.monotonic() < timedelta(minutes=3)
    assert post(2).steps_published == []


@pytest.mark.parametrize(("deadline", "slept"), [(timedelta(seconds=10), 9), (None, 5)])
def test_tries_are_bounded(
    writer: Callable[[int], tuple[Writer, ManualClock]], tmp_path: Path, deadline: timedelta | None, slept: int
) -> None:
    own_writer, clock = writer(1000)
    own_writer.publisher.publish(request(tmp_path, 3, deadline=deadline))
    failed = own_writer.answer()
    assert isinstance(failed, FailedAnswer) and isinstance(failed.exception(), StoreUnavailable)
    own_writer.publisher.close()
    assert len(clock.slept) == slept


@pytest.mark.parametrize(
    ("seconds_left", "fresh", "rate", "seconds", "cancelled"),
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
    seconds_left: int | None, fresh: int, rate: float | None, seconds: float, cancelled: bool
) -> None:
    assert gives_way(seconds_left, fresh, rate, seconds) is cancelled


class Slow(MemoryBackend):
    """Takes a second for each MB, and stands still in the middle of `stuck` until `go`, or its cancelling."""

    def __init__(self, clock: ManualClock, stuck: str) -> None:
        super().__init__()
        self._clock, self._stuck = clock, stuck
        self.half_way, self.go = threading.Event(), threading.Event()

    def upload_view(self, key: str, view: memoryview, moved: Any = None) -> None:
        for half in range(2):
            moved(len(view) // 2)
            self._clock.advance(timedelta(seconds=len(view) / 2e6))
            if self._stuck in key and not half:
                self.half_way.set()
                while not self.go.wait(0.01):
                    moved(0)
        super().upload_view(key, view)


@pytest.mark.parametrize(("notice", "kept_steps"), [(25, [4]), (40, [4, 3]), (20, [4, 3])])
def test_a_notice_does_not_wait_for_an_upload_that_would_cost_the_newest_step(
    tmp_path: Path, notice: int, kept_steps: list[int]
) -> None:
    """An upload of 18 s is half done. With 25 s left it is cancelled; with 40 s, or too few for the newer one anyhow,
    it is finished first."""
    clock = ManualClock()
    data = Slow(clock, stuck="000000000003")
    store = faulty_store(MemoryBackend(), data, clock, FaultScript())
    own_writer = Writer(store.checkpoints(JOB, 1), clock)
    own_writer.publisher.publish(request(tmp_path, 3, 18_000_000, now=False))
    assert data.half_way.wait(20)
    began = clock.monotonic()
    if kept_steps == [4, 3]:
        data.go.set()
    deadline = began + timedelta(seconds=notice)
    own_writer.publisher.make_way(MakeWayRequest(size=18_000_000, deadline=deadline))
    first = own_writer.answer()
    assert isinstance(first, FailedAnswer if kept_steps == [4] else PublishedAnswer)
    assert not isinstance(first, FailedAnswer) or isinstance(first.exception(), TransferCancelled)
    own_writer.publisher.publish(request(tmp_path, 4, 18_000_000, deadline=deadline))
    assert isinstance(own_writer.answer(), PublishedAnswer)
    head = store.checkpoints(JOB).head()
    assert head is not None and [checkpoint.step for checkpoint in head.checkpoints] == kept_steps
    assert (clock.monotonic() - began).total_seconds() == pytest.approx(18 if kept_steps == [4] else 27, abs=1)
    own_writer.publisher.close()


class SlowDeletes(MemoryBackend):
    """Stands still in its first deletion until `go`. `operations`: its deletions and uploads, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.deleting, self.go = threading.Event(), threading.Event()
        self.operations: list[str] = []

    def delete(self, key: str) -> None:
        self.operations.append("delete")
        if not self.deleting.is_set():
            self.deleting.set()
            self.go.wait(60)
        super().delete(key)

    def upload_view(self, key: str, view: memoryview, moved: Any = None) -> None:
        self.operations.append("upload")
        super().upload_view(key, view, moved)


def deleting_writer(tmp_path: Path, data: SlowDeletes) -> Writer:
    """Return a writer that deletes the 21 parts of the first of three checkpoints."""
    clock = ManualClock()
    own_writer = Writer(faulty_store(MemoryBackend(), data, clock, FaultScript()).checkpoints(JOB, 1), clock)
    for step in (1, 2, 3):
        snapshot = request(tmp_path, step, now=False)
        for number in range(20):
            (tmp_path / str(step) / f"file-{number}").write_text("settings")
        own_writer.publisher.publish(snapshot)
        assert isinstance(own_writer.answer(), PublishedAnswer)
    assert data.deleting.wait(60)
    return own_writer


def test_a_job_that_publishes_without_a_pause_deletes_its_old_parts(tmp_path: Path) -> None:
    data = SlowDeletes()
    own_writer = deleting_writer(tmp_path, data)
    own_writer.publisher.publish(request(tmp_path, 4, now=False))
    data.go.set()
    assert isinstance(own_writer.answer(), PublishedAnswer)
    own_writer.publisher.close()
    assert data.operations[:25] == ["upload"] * 3 + ["delete"] * 21 + ["upload"]


def test_a_backlog_of_old_parts_delays_a_checkpoint_by_two_deletions_for_each_of_its_parts(tmp_path: Path) -> None:
    data, clock = SlowDeletes(), ManualClock()
    for number in range(500):
        data.put(f"jobs/{JOB}/checkpoints/000001/{0:012d}/part-{number}", b"x")
    own_writer = Writer(faulty_store(MemoryBackend(), data, clock, FaultScript()).checkpoints(JOB, 1), clock)
    own_writer.publisher.publish(request(tmp_path, 1, now=False))  # one part
    assert isinstance(own_writer.answer(), PublishedAnswer)
    assert data.deleting.wait(60)
    own_writer.publisher.publish(request(tmp_path, 2, now=False))
    data.go.set()
    assert isinstance(own_writer.answer(), PublishedAnswer)
    own_writer.publisher.close()
    assert data.operations[:4] == ["upload", "delete", "delete", "upload"]
    assert data.operations.count("delete") == 500


def test_the_checkpoint_of_a_notice_does_not_wait_for_the_deletion_of_old_parts(tmp_path: Path) -> None:
    data = SlowDeletes()
    own_writer = deleting_writer(tmp_path, data)
    own_writer.publisher.make_way(MakeWayRequest(size=1, deadline=timedelta(seconds=30)))
    own_writer.publisher.publish(request(tmp_path, 4, deadline=timedelta(seconds=30)))
    data.go.set()
    assert isinstance(own_writer.answer(), PublishedAnswer)
    own_writer.publisher.close()
    assert data.operations == ["upload", "upload", "upload", "delete", "upload"]


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


def test_the_record_of_a_program_with_too_many_metrics_has_its_loss_its_evaluation_and_what_ends_it(
    post: Callable[..., Post], caplog: pytest.LogCaptureFixture
) -> None:
    spec = {"entrypoint": ["loop.py"], "code": ".", "stop": {"metric": "perplexity", "patience": 2}}
    first = post(1, spec=spec)
    context = first.rundir.read(RunContext)
    reporter = Reporter(first.rundir, first.store, context, SystemClock())
    for step in (1, 2):
        reporter.log(step, {f"grad_norm/layer{n:03d}": 1.0 for n in range(210)} | {"perplexity": 8.0, "loss": 2.0})
    reporter.log(2, {"test_accuracy": 0.75})
    reporter.update(step=2)
    reporter.close()
    recorded = first.status.metrics
    assert {name: value for name, value in recorded.items() if not name.startswith("grad_norm/")} == {
        "perplexity": 8.0, "loss": 2.0, "test_accuracy": 0.75,
    }  # fmt: skip
    assert len(recorded) == 200
    assert [r.getMessage() for r in caplog.records] == [
        "the job's record leaves out the metric grad_norm/layer197, and perhaps further ones"
    ]


def test_an_early_stop_whose_reason_cannot_be_written_ends_like_any_other(
    post: Callable[..., Post], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"entrypoint": ["loop.py"], "code": ".", "stop": {"metric": "loss", "patience": 2}}
    first = post(1, spec=spec)
    first.rundir.file_path(StopReport).mkdir()  # no file can replace a folder
    model = torch.nn.Linear(12, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monkeypatch.setenv("EVERSPOT_RUN_DIR", str(first.root))
    with Run.open(seed=3) as run:
        run.track(model=model, optimizer=optimizer, loader=resumable_loader(Digits(100), 8))
        for x, y in run.batches(40):
            if run.step(torch.nn.functional.cross_entropy(model(x), y)):
                run.log(loss=1.0)
    assert (first.status.phase, first.status.step, first.status.durable_step) == ("finished", 3, 3)


def test_a_checkpoint_that_cannot_be_reported_is_durable(tmp_path: Path) -> None:
    program = """
import json, sys
for line in sys.stdin:
    if json.loads(line)["kind"] != "publish":
        break
    checkpoint = {"step": 5, "epoch": 1, "created_at": "2026-01-01T00:00:00Z", "parts": [], "info": {}}
    print(json.dumps({"kind": "published", "checkpoint": checkpoint}), flush=True)
"""

    def report(checkpoint: Checkpoint, snapshot: Snapshot) -> None:
        (tmp_path / "gone" / "status.json").write_text("")

    sender = Publisher(2, report, (sys.executable, "-S", "-c", program))
    (tmp_path / "snapshot-5").mkdir()
    sender.start(Snapshot(5, tmp_path / "snapshot-5", "interval", timedelta(), {}))
    assert not sender.await_publication()
    assert sender.durable_step == 5
    sender.close()


def test_a_status_that_could_not_be_written_is_written_later(
    post: Callable[..., Post], caplog: pytest.LogCaptureFixture
) -> None:
    first, clock = post(1), ManualClock()
    reporter = Reporter(first.rundir, first.store, first.rundir.read(RunContext), clock)
    away = first.root.rename(first.root.with_name("away"))
    reporter.update(durable_step=4)
    for step in (5, 6):
        clock.advance(timedelta(seconds=1))
        reporter.progress(step, {"loss": 1.0})
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the agent does not hear of step 0, training goes on"
    ]
    away.rename(first.root)
    clock.advance(timedelta(seconds=1))
    reporter.progress(7, {})
    assert (first.status.durable_step, first.status.step) == (4, 7)
    reporter.close()
