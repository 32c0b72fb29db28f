"""What a program reports by lines of output and by TensorBoard's event files, however much of it is wrong."""

import json
import os
import struct
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.records import Progress
from everspot_core.jobs.step_lines import StepReport
from everspot_store import ManualClock, Store
from everspot_store.testing import FaultScript, MemoryBackend, faulty_store
from everspot_train.agent.actions import JobKey
from everspot_train.agent.steps.event_files import LOOK_EVERY, MOST_FILES, MOST_PER_LOOK, EventFiles
from everspot_train.agent.steps.recorder import StepRecorder

JOB = JobKey("job-1", 1)
NOW = 1.8e9
"""Seconds since 1970."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return faulty_store(MemoryBackend(), MemoryBackend(), clock, FaultScript())


def encode_record(step: int, wall_time: float = NOW, **scalars: float) -> bytes:
    """A record as TensorBoard's writers make it."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
    content = Event(step=step, wall_time=wall_time, summary=Summary(value=values)).SerializeToString()
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc32c(length)) + content + struct.pack("<I", masked_crc32c(content))


def write_events(folder: Path, name: str, *records: bytes) -> Path:
    path = folder / f"events.out.tfevents.{name}"
    with path.open("ab") as file:
        file.write(b"".join(records))
    return path


def read(files: EventFiles) -> list[StepReport]:
    return [report for _, report in files.read(now=True)]


def test_a_damaged_record_has_no_scalars_and_those_behind_it_have(tmp_path: Path, clock: ManualClock) -> None:
    files = EventFiles(tmp_path, clock)
    whole = [encode_record(step, loss=step / 4) for step in (1, 2, 3)]
    damaged = whole[1].replace(struct.pack("<f", 0.5), struct.pack("<f", 1e30))
    assert damaged != whole[1]
    write_events(tmp_path, "1", whole[0], damaged, whole[2])
    assert read(files) == [StepReport(1, metrics={"loss": 0.25}), StepReport(3, metrics={"loss": 0.75})]


def test_a_file_is_not_read_beyond_a_damaged_length(tmp_path: Path, clock: ManualClock) -> None:
    files = EventFiles(tmp_path, clock)
    lengthened = bytearray(encode_record(2, loss=0.5))
    lengthened[0] += 1
    write_events(tmp_path, "1", encode_record(1, loss=0.25), bytes(lengthened), encode_record(3, loss=0.75))
    assert read(files) == [StepReport(1, metrics={"loss": 0.25})]
    write_events(tmp_path, "1", encode_record(4, loss=1.0))
    assert read(files) == []


def test_large_files_leave_time_for_the_others(tmp_path: Path, clock: ManualClock) -> None:
    files = EventFiles(tmp_path, clock)
    small = write_events(tmp_path, "small", encode_record(7, loss=0.5))
    os.utime(small, (NOW - 100, NOW - 100))  # the newest files are looked at first
    with write_events(tmp_path, "sparse", encode_record(1, other=1.0)).open("ab") as file:
        file.truncate(1 << 40)
    record = encode_record(2, **{f"metric_{number}": 1.0 for number in range(1000)})
    for name in ("a", "b", "c"):
        write_events(tmp_path, name, record * (4 * MOST_PER_LOOK // len(record)))
    looks = [read(files) for _ in range(3)]
    assert StepReport(7, metrics={"loss": 0.5}) in [report for reports in looks for report in reports]


def test_old_scalars_do_not_count_when_newer_files_are_removed(tmp_path: Path, clock: ManualClock) -> None:
    paths = [write_events(tmp_path, str(number), encode_record(number, loss=0.5)) for number in range(MOST_FILES + 1)]
    for number, path in enumerate(paths):
        os.utime(path, (NOW + number, NOW + number))
    files = EventFiles(tmp_path, clock)
    paths[-1].unlink()
    assert read(files) == []
    write_events(tmp_path, "0", encode_record(100, loss=0.25))
    assert read(files) == [StepReport(100, metrics={"loss": 0.25})]


def test_lightning_s_placeholder_is_no_metric(tmp_path: Path, clock: ManualClock) -> None:
    files = EventFiles(tmp_path, clock)
    write_events(tmp_path, "1", encode_record(0, hp_metric=-1.0), encode_record(5, hp_metric=0.5, loss=0.25))
    assert read(files) == [StepReport(5, metrics={"hp_metric": 0.5, "loss": 0.25})]


@pytest.mark.parametrize(("first", "second", "name"), [
    ("logs/train", "logs/validation", "validation/loss"),  # Keras
    ("runs/a/loss_train", "runs/a/loss_val", "loss_val/loss"),  # SummaryWriter.add_scalars
    ("runs", "runs/eval", "eval/loss"),
])  # fmt: skip
def test_a_tag_of_several_folders_is_a_metric_of_each(
    tmp_path: Path, clock: ManualClock, first: str, second: str, name: str
) -> None:
    files = EventFiles(tmp_path, clock)
    for step in (1, 2):
        for folder, value in ((second, 0.5), (first, 0.25)):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            write_events(tmp_path / folder, "1", encode_record(step, loss=value))
        assert read(files) == [StepReport(step, metrics={"loss": 0.25, name: 0.5})]


def test_a_metric_by_epoch_does_not_change_the_step_of_a_job(tmp_path: Path, clock: ManualClock, store: Store) -> None:
    recorder = StepRecorder(store, JOB, tmp_path / "output.log", clock)
    recorder.watch(tmp_path)
    losses = [encode_record(step, loss=0.5) for step in (5000, 5040)]
    write_events(tmp_path, "1", encode_record(126, accuracy=0.5), *losses)
    recorder.look(last=True)
    assert (recorder.first_step, recorder.step) == (5000, 5040)
    write_events(tmp_path, "1", encode_record(127, accuracy=0.75))
    recorder.look(last=True)
    assert (recorder.first_step, recorder.step, recorder.metrics["accuracy"]) == (5000, 5040, 0.75)


@pytest.mark.parametrize("wall_time", [NOW * 1000, 1e11, 1e300, float("inf"), float("nan"), -1.0, 0.0])
def test_a_time_that_cannot_be_true_hides_no_curve(
    tmp_path: Path, clock: ManualClock, store: Store, wall_time: float
) -> None:
    recorder = StepRecorder(store, JOB, tmp_path / "output.log", clock)
    recorder.watch(tmp_path)
    write_events(tmp_path, "1", encode_record(1, wall_time, loss=1.0))
    write_events(tmp_path, "1", *(encode_record(step, NOW + step, loss=1 / step) for step in range(2, 6)))
    recorder.look()
    clock.sleep(LOOK_EVERY)
    write_events(tmp_path, "1", encode_record(6, wall_time, loss=1 / 6))
    recorder.look(last=True)
    recorder.write(last=True)
    assert recorded_steps(store) == [1, 2, 3, 4, 5, 6]


def recorded_steps(store: Store) -> list[int]:
    return [json.loads(line)["step"] for chunk in store.read_metrics("job-1") for line in chunk.data.splitlines()]


def many(count: int, name: Callable[[int], str] = "m{}".format) -> str:
    return " ".join(f"{name(number)}=1" for number in range(count))


@pytest.mark.parametrize(
    ("lines", "warnings"),
    [
        ([f"EVERSPOT step=1 {many(100)}"], []),
        (
            [f"EVERSPOT step={step} {many(101)}" for step in (1, 2)],
            ["a step line has more than 100 metrics: those behind them are left out"],
        ),
        (
            [f"EVERSPOT step={n} {many(100, lambda k, n=n: f'm{100 * n + k}')}" for n in range(3)],
            ["the metric m200 and further ones are left out: a program may have 200"],
        ),
        ([f"EVERSPOT step=1 loss={'0' * 5000}"], ["a step line of more than 4096 bytes is left out"]),
        (["x" * 5000], []),
    ],
)
def test_what_is_left_out_of_step_lines_is_told_once(
    tmp_path: Path, clock: ManualClock, store: Store, lines: list[str], warnings: list[str]
) -> None:
    recorder = StepRecorder(store, JOB, tmp_path / "output.log", clock)
    output, warnings_read = tmp_path / "output.log", []
    for line in lines:
        with output.open("a") as file:
            file.write(f"{line}\n")
        recorder.look()
        warnings_read += recorder.take_warnings()
    assert warnings_read == warnings
    assert len(recorder.add_to(Progress()).metrics) <= 200


def test_a_store_out_of_reach_costs_bounded_memory(tmp_path: Path, clock: ManualClock, store: Store) -> None:
    recorder = StepRecorder(store, JOB, tmp_path / "output.log", clock)
    for hour in range(30):
        with (tmp_path / "output.log").open("a") as file:
            file.write("".join(f"EVERSPOT step={hour * 1000 + n} m{n % 50}=1\n" for n in range(1000)))
        clock.sleep(timedelta(hours=1))
        recorder.look()
    for minute in range(12_000):
        with (tmp_path / "output.log").open("a") as file:
            file.write(f"EVERSPOT step={30_000 + minute} loss=1\n")
        clock.sleep(timedelta(minutes=1))
        recorder.look()
    recorder.write(last=True)
    assert recorded_steps(store) == list(range(32_000, 42_000))


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity"])
def test_a_metric_that_ends_as_no_finite_number_has_no_last_value(tmp_path: Path, store: Store, value: str) -> None:
    """A stage behind it must not be let through by what the model was before it diverged."""
    output = tmp_path / "output.log"
    output.write_text(f"EVERSPOT step=1 accuracy=0.9 loss=0.5\nEVERSPOT step=2 accuracy={value} loss=0.4\n")
    recorder = StepRecorder(store, JOB, output, store.clock)
    recorder.look(last=True)
    assert recorder.metrics == recorder.add_to(Progress()).metrics == {"loss": 0.4}
    with output.open("a") as file:
        file.write("EVERSPOT step=3 accuracy=0.8\n")
    recorder.look(last=True)
    assert recorder.metrics == {"loss": 0.4, "accuracy": 0.8}
