"""`everspot tensorboard`: the metrics of jobs in TensorBoard, each step once, read by TensorBoard itself."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import pytest
from everspot_core.experiments.sweep import SweepRecord, SweepSpec
from everspot_core.jobs.records import JobState, Progress
from sweep_helpers import SWEEP
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.cli.conftest import PLAIN, T0, World

Curve = list[tuple[int, float]]


def line(step: int, **metrics: float | None) -> bytes:
    return json.dumps({"step": step, "at": T0.isoformat(), "metrics": metrics}).encode() + b"\n"


def losses(first: int, last: int, attempt: int) -> bytes:
    return b"".join(line(step, loss=attempt + step / 100) for step in range(first, last + 1))


def expected(*attempts: tuple[int, int, int]) -> Curve:
    return [(step, attempt + step / 100) for first, last, attempt in attempts for step in range(first, last + 1)]


def read_curve(folder: Path, tag: str = "loss") -> Curve:
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0}).Reload()
    return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars(tag)]


def run_job(world: World, job: str = "train") -> None:
    world.launch("i-spot1", 0)
    world.submit(job, 0)
    world.assign(job, "i-spot1", 10)
    world.start(job, 20)


def test_a_job_that_was_interrupted_is_one_curve_with_each_step_once(world: World, tmp_path: Path) -> None:
    run_job(world)
    for epoch, seq, data in (
        (1, 0, losses(1, 60, 1)),
        (1, 1, losses(61, 90, 1) + line(90, accuracy=0.5)),
        (2, 0, losses(41, 70, 2) + b'{"torn'),  # it was killed, and its checkpoint was of step 40
        (3, 0, losses(31, 50, 3) + line(51, loss=None)),  # which could not be read: it went on from the one before
    ):
        world.store.metrics.append("train", epoch, seq, data)
    answer = world.run("tensorboard", "tra", "--logdir", str(tmp_path / "runs"), "--json")
    assert answer.code == 0, answer.err
    (run,) = answer.json["runs"]
    assert (run["job_id"], run["state"], run["last_step"]) == ("train", "RUNNING", 51)
    assert answer.json["tensorboard"] is True
    curve = read_curve(Path(run["folder"]))
    assert curve[:-1] == expected((1, 30, 1), (31, 50, 3))
    assert len(curve) == 51 and curve[-1][0] == 51 and str(curve[-1][1]).startswith("nan")
    with pytest.raises(KeyError):
        read_curve(Path(run["folder"]), "accuracy")  # of a step that nobody did again: it never was in the result
    world.store.metrics.append("train", 4, 0, losses(51, 60, 4))
    assert world.run("tensorboard", "train", "--logdir", str(tmp_path / "runs"), "--json").code == 0
    assert read_curve(Path(run["folder"])) == expected((1, 30, 1), (31, 50, 3), (51, 60, 4))
    assert len(list((tmp_path / "runs").rglob("*"))) == 2


def test_a_sweep_has_a_run_for_each_trial(world: World, tmp_path: Path) -> None:
    world.store.studies.begin(SweepRecord(spec=SweepSpec.model_validate(SWEEP), made_at=T0))
    world.launch("i-spot1", 0)
    for number in range(2):
        world.submit(f"rates-t{number:04d}", number, tags={"Sweep": "rates"})
        world.store.metrics.append(f"rates-t{number:04d}", 1, 0, losses(1, 5, number))
    world.submit("other", 3)
    answer = world.run("tensorboard", "rates", "other", "--json")
    assert answer.code == 0, answer.err
    assert [run["job_id"] for run in answer.json["runs"]] == ["other", "rates-t0000", "rates-t0001"]
    assert [run["points"] for run in answer.json["runs"]] == [0, 5, 5]
    assert Path(answer.json["logdir"]).is_relative_to(os.environ["XDG_CACHE_HOME"])


def test_what_is_no_job_and_no_sweep_is_refused(world: World, tmp_path: Path) -> None:
    answer = world.run("tensorboard", "none", "--logdir", str(tmp_path / "runs"))
    assert (answer.code, "there is no job 'none'" in answer.err) == (3, True)
    assert not (tmp_path / "runs").exists()


def test_without_tensorboard_one_sentence_says_where_the_files_are(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run_job(world)
    world.store.metrics.append("train", 1, 0, losses(1, 5, 1))
    world.finish("train", 100, 5, 0.9)
    logdir = tmp_path / "runs"
    answer = world.run("tensorboard", "train", "--logdir", str(logdir), env={"PATH": "/nonexistent"})
    assert (answer.code, answer.out) == (0, f"1 run in {logdir}\n")
    words = f"TensorBoard is not installed: `pip install tensorboard`, then `tensorboard --logdir {logdir}`\n"
    assert answer.err == words
    assert read_curve(logdir / "train") == expected((1, 5, 1))


class Board:
    """A TensorBoard that `everspot tensorboard` has started, asked as its web page asks."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._open = build_opener(ProxyHandler({}))
        self.process = process
        assert process.stderr is not None
        for text in process.stderr:
            address = re.search(r"http://(\S+):(\d+)/", text)
            if address is not None:
                self.host, self.port = address[1], int(address[2])
                return
        raise AssertionError("TensorBoard has not started")

    def curve(self, run: str) -> Curve:
        query = urlencode({"run": run, "tag": "loss"})
        url = f"http://127.0.0.1:{self.port}/data/plugin/scalars/scalars?{query}"
        try:
            with self._open.open(url, timeout=30) as answer:
                return [(step, pytest.approx(value, rel=1e-6)) for _, step, value in json.load(answer)]
        except OSError:  # it has not read the run yet
            return []

    def until(self, run: str, is_right: Callable[[Curve], bool]) -> Curve:
        end = time.monotonic() + 120
        while not is_right(curve := self.curve(run)):
            assert time.monotonic() < end, curve
            assert self.process.poll() is None
            time.sleep(0.2)
        return curve


@contextmanager
def board(world: World, *arguments: str) -> Iterator[Board]:
    command = [sys.executable, "-m", "everspot_cli.main", "--store", world.url, "tensorboard", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | PLAIN)
    try:
        yield Board(process)
    finally:
        process.terminate()  # it ends TensorBoard, which has the pipe too
        process.communicate(timeout=60)


def test_tensorboard_follows_a_running_job_through_an_interruption(world: World, tmp_path: Path) -> None:
    run_job(world)
    world.store.metrics.append("train", 1, 0, losses(1, 30, 1))
    record = world.record("train")
    assert record is not None
    world.save(record.model_copy(update={"progress": Progress(step=48, metrics={"loss": 1.48})}))
    with board(world, "train", "--logdir", str(tmp_path / "runs")) as tensorboard:
        assert tensorboard.host in ("localhost", "127.0.0.1")
        tensorboard.until("train", lambda curve: curve == expected((1, 30, 1), (48, 48, 1)))
        world.store.metrics.append("train", 1, 1, losses(31, 50, 1))
        tensorboard.until("train", lambda curve: curve == expected((1, 50, 1)))
        world.lose("train", 300, 50)
        world.assign("train", "i-spot1", 310)
        world.start("train", 320, 40)
        world.store.metrics.append("train", 2, 0, losses(41, 60, 2))
        tensorboard.until("train", lambda curve: curve == expected((1, 40, 1), (41, 60, 2)))
        assert read_curve(tmp_path / "runs" / "train") == expected((1, 40, 1), (41, 60, 2))  # by another reader
        world.finish("train", 400, 60, 0.9)
        assert world.record("train").state is JobState.SUCCEEDED
        children = subprocess.run(
            ["pgrep", "-P", str(tensorboard.process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        assert children
        tensorboard.process.send_signal(signal.SIGTERM)
        assert tensorboard.process.wait(60) == 128 + signal.SIGTERM
        assert not any(Path("/proc", child).exists() for child in children)
