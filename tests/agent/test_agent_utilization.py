"""What jobs use of their machine is measured, reported with the lease, and kept. GPUs answer by a library of NVIDIA's
name that is built here (programs/libnvidia-ml.c)."""

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from agent_helpers import Cluster, eventually
from everspot_core.jobs.records import EventKind, InstanceState, JobRecord, JobState, Reason
from everspot_core.jobs.utilization import WINDOWS_PER_CHUNK, Utilization, UtilizationWindow, combine
from everspot_store import ManualClock, Store, StoreUnavailable
from everspot_train.agent.actions import JobKey
from everspot_train.agent.process import JobLaunch, LocalLauncher
from everspot_train.agent.utilization import counters as counter_files
from everspot_train.agent.utilization.counters import JobCounters, read_job, read_network
from everspot_train.agent.utilization.sampler import SAMPLE_EVERY, UtilizationSampler
from everspot_train.rundir import Status, TrainingPhase

LONG = 120.0
LIBRARY = Path(__file__).parent / "programs" / "libnvidia-ml.c"
BUSY = """
import os, time
block = os.urandom(1 << 20)
while not os.path.exists({end!r}):
    with open("block", "wb") as file:
        file.write(block)
        os.fsync(file.fileno())
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    time.sleep(0.1)
"""
IDLE = """
import os, time
while not os.path.exists({end!r}):
    time.sleep(0.05)
"""


@pytest.fixture
def driver(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with two GPUs. `TOY_NVML`: the file with their figures."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path / "driver"
    folder.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", folder / "libnvidia-ml.so.1", LIBRARY], check=True)
    (folder / "nvidia-smi").write_text("#!/bin/sh\n" + 'echo "NVIDIA A10G, 23028"\n' * 2)
    (folder / "nvidia-smi").chmod(0o755)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", LIBRARY.parent / "libcuda.c"], check=True)
    (folder / "cuda").write_text("0 2\n")
    (folder / "gpus").write_text("0 30 6 150 61 0\n1 50 8 170 64 0\n")
    return {
        "PATH": f"{folder}:/usr/bin:/bin",
        "LD_LIBRARY_PATH": str(folder),
        "TOY_CUDA": str(folder / "cuda"),
        "TOY_NVML": str(folder / "gpus"),
    }


def start(cluster: Cluster, program: str, **spec: object) -> Path:
    """Submit a job that runs until the file is there that is returned."""
    end, code = cluster.root / "end", cluster.root / "code"
    code.mkdir()
    (code / "main.py").write_text(program.format(end=str(end)))
    cluster.submit("job-1", code, name="job", entrypoint=["main.py"], **spec)
    cluster.assign("job-1", "i-1")
    return end


def wait_for_use(cluster: Cluster) -> Utilization:
    def look() -> Utilization | None:
        record = cluster.record("job-1")
        return record.progress.recent_use if record is not None else None

    use = eventually("the record shows what the job uses", look)
    assert isinstance(use, Utilization)
    return use


def test_a_job_reports_what_it_uses_of_its_machine(cluster: Cluster) -> None:
    """Given a program without the trainer library on a machine without GPUs, when it runs and ends, then its record,
    its last event and the stored windows say what it used."""
    end = start(cluster, BUSY)
    cluster.start_agent("i-1")
    use = wait_for_use(cluster)
    assert use.seconds >= SAMPLE_EVERY.total_seconds()
    assert use.busy_vcpus is not None and use.busy_vcpus > 0
    assert use.cpu_share is not None and 0 < use.cpu_share <= 1
    assert use.memory_gib is not None and use.memory_gib > 0
    assert (use.gpu_share, use.data_wait_share, use.xids) == (None, None, ())

    end.touch()
    record = cluster.wait_state("job-1", JobState.SUCCEEDED)
    (finished,) = cluster.events("job-1", EventKind.FINISHED)
    reported = Utilization.model_validate(finished.data["utilization"])
    assert reported == record.progress.attempt_use
    windows = eventually("the windows are stored", lambda: cluster.store.read_utilization("job-1"))
    assert combine(window.utilization for window in windows).seconds == pytest.approx(reported.seconds)


def test_a_job_reports_what_its_gpus_did(cluster: Cluster, driver: dict[str, str]) -> None:
    end = start(cluster, IDLE, resources={"gpus": 2})
    cluster.start_agent("i-1", **driver)
    use = wait_for_use(cluster)
    assert use.gpu_share == pytest.approx(0.4)
    assert use.gpu_watts == pytest.approx(160)
    assert (use.gpu_memory_gib, use.gpu_memory_total_gib, use.gpu_celsius) == (8, 24, 64)
    assert (use.ecc_errors, use.xids) == (0, ())

    Path(f"{driver['TOY_NVML']}.xids").write_text("79\n48\n")
    Path(driver["TOY_NVML"]).write_text("0 30 6 150 61 2\n1 -1 -1 -1 -1 1\n")

    def failed() -> JobRecord | None:
        record = cluster.record("job-1")
        use = record.progress.attempt_use if record is not None else None
        return record if use is not None and use.xids and use.ecc_errors else None

    record = eventually("the record shows the errors", failed)
    assert (record.progress.attempt_use.xids, record.progress.attempt_use.ecc_errors) == ((48, 79), 3)
    end.touch()
    cluster.wait_state("job-1", JobState.SUCCEEDED)


@pytest.mark.parametrize(
    ("figures", "xids", "state"),
    [
        ("0 30 6 150 61 0\n1 50 8 170 64 0\n", "31\n43\n", InstanceState.READY),  # which programs cause on sound GPUs
        ("0 30 6 150 61 0\n1 50 8 170 64 0\n", "79\n", InstanceState.CORDONED),
        ("0 30 6 150 61 0\n1 50 8 170 64 1\n", "", InstanceState.CORDONED),
    ],
)
def test_a_fault_that_a_program_prints_cordons_its_machine_only_if_the_driver_confirms_it(
    cluster: Cluster, driver: dict[str, str], figures: str, xids: str, state: InstanceState
) -> None:
    """Given a program that prints the driver's words for a broken GPU and fails, when its job ends, then the job moves
    on, and the machine takes no further jobs only if the driver reports a fault."""
    words = "raise SystemExit('NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.')\n"
    end = start(cluster, IDLE + words, resources={"gpus": 2}, retries={"errors": 0})
    cluster.start_agent("i-1", **driver)
    wait_for_use(cluster)
    Path(driver["TOY_NVML"]).write_text(figures)
    Path(f"{driver['TOY_NVML']}.xids").write_text(xids)
    end.touch()
    record = cluster.wait_state("job-1", JobState.PENDING)
    assert (record.last_reason, record.unstarted) == (Reason.MACHINE, ["i-1"])
    assert ("does not confirm" in record.detail) is (state is InstanceState.READY)
    instance = cluster.wait_instance("i-1", lambda record: record.state is not InstanceState.BUSY)
    assert instance.state is state


def test_a_job_whose_gpus_compute_less_than_its_limit_says_so(cluster: Cluster, driver: dict[str, str]) -> None:
    """Given a limit of 60 % over a minute of market time, which is four real seconds, and GPUs that compute for 40 %,
    then record, event and log say so until they compute more."""
    limits = {"gpu_utilization_below": "60%", "for": "1m", "then": "end"}
    end = start(cluster, IDLE, resources={"gpus": 2}, limits=limits)
    cluster.start_agent("i-1", EVERSPOT_CLOCK=f"15@{time.time():.0f}", **driver)

    def share(*, low: bool) -> JobRecord | None:
        record = cluster.record("job-1")
        measured = record is not None and record.progress.attempt_use is not None
        return (
            record if record is not None and measured and (record.progress.low_gpu_share is not None) is low else None
        )

    record = eventually("the record shows the low use", lambda: share(low=True))
    assert record.progress.low_gpu_share == pytest.approx(0.4)
    (event, *_) = eventually("the event is written", lambda: cluster.events("job-1", EventKind.UNDERUSED))
    assert event.data == {"share": 0.4, "limit": 60, "span_seconds": 60, "then": "end"}
    Path(driver["TOY_NVML"]).write_text("0 90 6 150 61 0\n1 90 8 170 64 0\n")
    eventually("the record shows that they compute", lambda: share(low=False))
    end.touch()
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    log = b"".join(chunk.data for chunk in cluster.store.read_logs("job-1"))
    assert b"warning: its GPUs computed for 40% of the last 1m, and its limit is 60 %" in log


def test_a_limit_does_not_count_the_preparation(cluster: Cluster, driver: dict[str, str]) -> None:
    """Given a job whose set-up lasts longer than the span of its limit, on GPUs that compute for 40 %, then its use is
    too low only once its program runs."""
    limits = {"gpu_utilization_below": "60%", "for": "1m", "then": "end"}
    is_prepared = cluster.root / "prepared"
    setup = f"until [ -e {is_prepared} ]; do sleep 0.1; done"
    end = start(cluster, IDLE, resources={"gpus": 2}, limits=limits, setup=[setup])
    cluster.start_agent("i-1", EVERSPOT_CLOCK=f"15@{time.time():.0f}", **driver)

    def measured() -> JobRecord | None:
        record = cluster.record("job-1")
        use = record.progress.attempt_use if record is not None else None
        return record if use is not None and use.seconds >= 2 * SAMPLE_EVERY.total_seconds() else None

    record = eventually("more than the span is measured", measured, LONG)
    assert (record.progress.preparing, record.progress.low_gpu_share) == (True, None)
    is_prepared.touch()
    eventually("the use is too low", lambda: cluster.record("job-1").progress.low_gpu_share is not None, LONG)
    end.touch()
    cluster.wait_state("job-1", JobState.SUCCEEDED)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("0 100 6 150 61 0\n", [1.0, 6.0, 24.0, 150.0, 61.0, 0]),
        ("0 -1 -1 -1 -1 -1\n", [None] * 6),
        ("", None),
    ],
)
def test_a_figure_that_a_gpu_does_not_have_is_unknown(
    driver: dict[str, str], lines: str, expected: list[float | None] | None
) -> None:
    Path(driver["TOY_NVML"]).write_text(lines)
    program = (
        "import json; from dataclasses import astuple; from everspot_train.agent.utilization.gpus import open_gpus;"
        "gpus = open_gpus((0,)); print(json.dumps(astuple(gpus.read()[0]) if gpus else None))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **driver}, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == expected


def test_a_control_group_counts_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n")
    (tmp_path / "memory.stat").write_text("anon 1073741824\nshmem 0\n")
    (tmp_path / "io.stat").write_text(
        "259:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:0 rbytes=1 wbytes=2\n8:16 \n"
    )
    (tmp_path / "io.pressure").write_text(
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
    )
    pids = list[int]()
    assert read_job(tmp_path, lambda: pids) == JobCounters(2.5, 1.0, 4097, 8194, 1.5)
    monkeypatch.setattr(counter_files, "PROC", tmp_path / "none")
    assert read_job(tmp_path / "none", lambda: pids) == JobCounters()
    assert read_network() is None


@pytest.mark.parametrize("text", ["", "usage_usec", "usage_usec x\nsome total=", "some avg10=0\n259:0 rbytes=a"])
def test_files_that_say_something_else_are_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    for name in ("cpu.stat", "memory.stat", "io.stat", "io.pressure"):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(counter_files, "PROC", tmp_path / "none")
    assert read_job(tmp_path, list) == JobCounters()


def test_the_machines_network_counts_without_its_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "dev").write_text(
        "Inter-|   Receive                            |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier\n"
        "    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n"
        "  ens5: 100 1 0 0 0 0 0 0 40 1 0 0 0 0 0 0\n"
        "  ens6:20 1 0 0 0 0 0 0 2 1 0 0 0 0 0 0\n"
    )
    monkeypatch.setattr(counter_files, "PROC", tmp_path)
    assert read_network() == (120, 42)


def test_a_process_and_its_children_count_where_there_is_no_group(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "job-1-000001"
    run_dir.mkdir(parents=True)
    child = BUSY.format(end=str(tmp_path / "end"))
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    launcher = LocalLauncher(run_dir.parent, adopt=False, groups=False)
    process = launcher.launch(JobLaunch([sys.executable, "-c", program], run_dir, tmp_path, dict(os.environ)))
    try:
        eventually("the child's time counts", lambda: (process.counters().cpu_seconds or 0) > 0.2)
        assert (process.counters().written_bytes or 0) >= 0
    finally:
        process.kill()
    ended = process.counters()
    assert (ended.cpu_seconds, ended.memory_gib, ended.written_bytes) == (None, None, None)


class Scripted:
    """An attempt whose counters and reports a test writes, on a folder store, by a clock that is turned by hand."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        for name in ("control", "data"):
            (folder / name).mkdir(parents=True)
        self.store = Store.open(f"file://{folder}/control", f"file://{folder}/data", clock=self.clock)
        self.counters = JobCounters(cpu_seconds=0.0)
        self.status: Status | None = None
        self.failure: Exception | None = None
        self.sampler = self.restart()

    def restart(self) -> UtilizationSampler:
        self.sampler = UtilizationSampler(
            self.store, JobKey("job-1", 1), self.clock, counters=self.read, status=lambda: self.status, vcpus=4, gpus=()
        )
        return self.sampler

    def read(self) -> JobCounters:
        if self.failure is not None:
            raise self.failure
        return self.counters

    def run(self, span: timedelta, busy_vcpus: float = 1.0) -> None:
        end = self.clock.monotonic() + span
        self.sampler.sample()
        while self.clock.monotonic() < end:
            self.clock.advance(SAMPLE_EVERY)
            used = (self.counters.cpu_seconds or 0.0) + busy_vcpus * SAMPLE_EVERY.total_seconds()
            self.counters = JobCounters(cpu_seconds=used)
            self.sampler.sample()
            self.sampler.write()

    def windows(self) -> list[UtilizationWindow]:
        return self.store.read_utilization("job-1")

    def objects(self) -> int:
        return len(self.store.data.list("jobs/job-1/utilization/"))


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path / "buckets")


def test_the_history_of_a_long_attempt_stays_small(scripted: Scripted) -> None:
    """Given a job of a day, then it wrote 6 objects in the first hour and less than one an hour after it."""
    scripted.run(timedelta(hours=1))
    first = scripted.objects()
    scripted.run(timedelta(hours=23))
    scripted.sampler.write(last=True)
    windows = scripted.windows()
    size = sum(entry.size for entry in scripted.store.data.list("jobs/job-1/utilization/"))
    assert (first, scripted.objects()) == (6, 20)
    assert len(windows) == 30 + 50 + 132 + 24
    assert size < 64 << 10
    whole = combine(window.utilization for window in windows)
    assert whole == scripted.sampler.total
    assert (whole.seconds, whole.busy_vcpus, whole.cpu_share) == (86400, 1.0, 0.25)


def test_the_last_minute_forgets_what_was_before(scripted: Scripted) -> None:
    assert scripted.sampler.recent is None
    scripted.run(timedelta(minutes=10), busy_vcpus=4)
    scripted.run(timedelta(minutes=1), busy_vcpus=1)
    recent = scripted.sampler.recent
    assert recent is not None and (recent.seconds, recent.busy_vcpus) == (60, 1.0)


def test_a_counter_that_falls_or_is_missing_says_nothing(scripted: Scripted) -> None:
    scripted.run(timedelta(seconds=10))
    for value in (None, 3.0):  # a file that could not be read; a process that took its count along
        scripted.clock.advance(SAMPLE_EVERY)
        scripted.counters = JobCounters(cpu_seconds=value)
        scripted.sampler.sample()
    assert scripted.sampler.total is not None
    assert (scripted.sampler.total.cpu_seconds, scripted.sampler.total.seconds) == (10, 30)


def test_steps_and_waits_of_the_trainer_count_from_the_first_report_on(scripted: Scripted) -> None:
    scripted.status = Status(phase=TrainingPhase.TRAINING, loop_steps=10, loop_seconds=5.0, data_wait_seconds=1.0)
    scripted.run(timedelta(seconds=10))
    scripted.status = Status(phase=TrainingPhase.TRAINING, loop_steps=30, loop_seconds=15.0, data_wait_seconds=4.0)
    scripted.run(timedelta(seconds=10))
    total = scripted.sampler.total
    assert total is not None
    assert (total.steps, total.step_seconds, total.data_wait_share) == (20, 0.5, 0.3)


def test_what_cannot_be_measured_ends_the_measuring_alone(scripted: Scripted, caplog: pytest.LogCaptureFixture) -> None:
    scripted.run(timedelta(minutes=1))
    scripted.failure = ValueError("of another kernel")
    scripted.run(timedelta(minutes=1))
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "job job-1, epoch 1: its use of the machine is not measured any further"
    ]
    assert scripted.sampler.total is not None and scripted.sampler.total.seconds == 60


def test_windows_wait_for_the_store_and_follow_those_of_an_earlier_agent(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(scripted.store.utilization, "append", lambda *_: (_ for _ in ()).throw(StoreUnavailable("503")))
        scripted.run(timedelta(minutes=2))
        with pytest.raises(StoreUnavailable):
            scripted.sampler.write(last=True)
    scripted.sampler.write(last=True)
    assert len(scripted.windows()) == 6 < WINDOWS_PER_CHUNK
    scripted.restart()
    scripted.run(timedelta(minutes=1))
    scripted.sampler.write(last=True)
    assert (len(scripted.windows()), scripted.objects()) == (9, 2)


def test_lines_that_cannot_be_read_are_left_out(scripted: Scripted) -> None:
    scripted.run(timedelta(minutes=1))
    scripted.sampler.write(last=True)
    scripted.store.utilization.append("job-1", 1, 7, b'{"at": "no time"}\n\xff\n{"at":\n')
    assert len(scripted.windows()) == 3
