"""What a program prints: all of it arrives, in few pieces, and the disk stays bounded."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from agent_helpers import Cluster, eventually
from everspot_store import ManualClock, Store, StoreUnavailable
from everspot_store.testing import Fault, FaultScript, MemoryBackend, faulty_store
from everspot_train.agent import logs
from everspot_train.agent.actions import JobKey
from everspot_train.agent.logs import LogShipper

JOB = JobKey("job-1", 1)
MIB = 1 << 20


@pytest.fixture
def shelf(clock: ManualClock) -> tuple[Store, FaultScript]:
    faults = FaultScript()
    return faulty_store(MemoryBackend(), MemoryBackend(), clock, faults), faults


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def shipper(store: Store, folder: Path, clock: ManualClock, backlog: int = 1 << 30) -> LogShipper:
    return LogShipper(store, JOB, folder, clock, backlog)


def append_output(folder: Path, data: bytes) -> None:
    with (folder / "output.log").open("ab") as file:
        file.write(data)


def read(store: Store) -> bytes:
    return b"".join(chunk.data for chunk in store.read_logs("job-1"))


def test_a_hundred_mib_at_the_end_all_arrive_and_the_disk_gets_its_room_back(
    shelf: tuple[Store, FaultScript], tmp_path: Path, clock: ManualClock
) -> None:
    store, _ = shelf
    log_shipper = shipper(store, tmp_path, clock)
    for number in range(100):
        append_output(tmp_path, bytes([number]) * MIB)
    log_shipper.ship_rest()
    got = read(store)
    assert len(got) == 100 * MIB
    assert all(got[number * MIB] == number == got[(number + 1) * MIB - 1] for number in range(100))
    assert (tmp_path / "output.log").stat().st_blocks * 512 <= 2 * logs.KEPT_BYTES
    append_output(tmp_path, b"the last word\n")
    assert log_shipper.tail(14) == "the last word\n"
    log_shipper.ship_rest()
    assert read(store)[-14:] == b"the last word\n"


def test_pieces_are_a_minute_apart_unless_somebody_follows_or_a_whole_one_waits(
    shelf: tuple[Store, FaultScript], tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = shelf
    log_shipper = shipper(store, tmp_path, clock)

    def pieces(seconds: int) -> int:
        before = len(list(store.read_logs("job-1")))
        for _ in range(seconds):
            append_output(tmp_path, b"x\n")
            clock.advance(timedelta(seconds=1))
            log_shipper.ship_if_due()
        return len(list(store.read_logs("job-1"))) - before

    assert pieces(300) == 5
    store.following.renew("job-1")
    pieces(30)  # by then it has looked
    assert pieces(50) == 10
    pieces(60)  # the request has expired
    assert pieces(120) == 2
    monkeypatch.setattr(logs, "CHUNK_BYTES", 8)
    assert pieces(4) >= 1


def test_what_the_disk_cannot_hold_while_the_store_is_away_is_left_out_and_reported(
    shelf: tuple[Store, FaultScript], tmp_path: Path, clock: ManualClock
) -> None:
    store, faults = shelf
    log_shipper = shipper(store, tmp_path, clock, backlog=4 * MIB)
    append_output(tmp_path, b"a" * 2 * MIB)
    for nth in range(1, 5):
        faults.on("create", nth=nth, fault=Fault.NEVER_ARRIVED)
    clock.advance(timedelta(minutes=1))
    with pytest.raises(StoreUnavailable):
        log_shipper.ship_if_due()
    append_output(tmp_path, b"b" * 4 * MIB)
    log_shipper.ship_rest()
    got = read(store)
    assert got.startswith(b"\n[everspot: 2097152 bytes of output are left out here")
    assert got.endswith(b"b" * 4 * MIB)
    assert b"a" not in got.partition(b"]\n")[2]


def test_what_a_killed_agent_had_not_uploaded_is_uploaded_by_the_next(cluster: Cluster) -> None:
    code = cluster.root / "code"
    code.mkdir()
    (code / "print.py").write_text(
        "import os, time\nprint('first', flush=True)\n"
        "while os.path.exists(os.environ['MARK']):\n    time.sleep(0.05)\n"
        "print('last words', flush=True)\ntime.sleep(300)\n"
    )
    mark = cluster.root / "mark"
    mark.touch()
    cluster.submit("job-1", code, entrypoint=["print.py"], env={"MARK": str(mark)})
    cluster.assign("job-1", "i-1")
    agent = cluster.start_agent("i-1", EVERSPOT_HOME=str(cluster.root / "home"))
    output = cluster.root / "home/runs/job-1-000001/output.log"
    eventually("it prints", lambda: output.exists() and "first" in output.read_text())
    mark.unlink()
    eventually("it prints more", lambda: "last words\n" in output.read_text())
    agent.popen.kill()
    agent.wait()
    assert b"".join(chunk.data for chunk in cluster.store.read_logs("job-1")) == b""

    again = cluster.start_agent("i-1", EVERSPOT_HOME=str(cluster.root / "home"))

    def log() -> str:
        return b"".join(chunk.data for chunk in cluster.store.read_logs("job-1")).decode()

    eventually("the log is whole", lambda: log().startswith("first\nlast words\n"))
    again.end()


def test_a_shipper_goes_on_where_the_one_of_a_killed_agent_has_stopped(tmp_path: Path) -> None:
    store = Store.open(*(f"file://{folder}" for folder in _folders(tmp_path)))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "output.log").write_bytes(b"one\n")
    job = JobKey("job-1", 1)
    LogShipper(store, job, run_dir, store.clock).ship_rest()
    (run_dir / "output.log").write_bytes(b"one\ntwo\n")

    LogShipper.resumed(store, job, run_dir, store.clock).ship_rest()
    LogShipper.resumed(store, job, run_dir, store.clock).ship_rest()

    assert [chunk.data for chunk in store.read_logs("job-1")] == [b"one\n", b"two\n"]


def _folders(root: Path) -> list[Path]:
    folders = [root / "control", root / "data"]
    for folder in folders:
        folder.mkdir()
    return folders


@pytest.mark.timeout(60)
def test_a_pipe_where_the_agent_writes_how_far_it_is_does_not_hold_it_up(
    shelf: tuple[Store, FaultScript], tmp_path: Path, clock: ManualClock
) -> None:
    store, _ = shelf
    os.mkfifo(tmp_path / ".shipped")
    append_output(tmp_path, b"words\n")
    shipper(store, tmp_path, clock).ship_rest()
    assert read(store) == b"words\n"
    append_output(tmp_path, b"more\n")
    LogShipper.resumed(store, JOB, tmp_path, clock).ship_rest()
    assert read(store) == b"words\nmore\n"


@pytest.mark.parametrize("number", ["9" * 30, "-5", "1e3", "\u0664"])
def test_a_false_number_of_uploaded_bytes_does_not_end_the_agent(
    shelf: tuple[Store, FaultScript], tmp_path: Path, clock: ManualClock, number: str
) -> None:
    """The job may write the file, too."""
    store, _ = shelf
    append_output(tmp_path, b"words\n")
    (tmp_path / ".shipped").write_text(number)
    log_shipper = LogShipper.resumed(store, JOB, tmp_path, clock)
    log_shipper.ship_rest()
    append_output(tmp_path, b"more\n")
    clock.advance(timedelta(minutes=2))
    log_shipper.ship_if_due()
    assert read(store).endswith(b"more\n")


def test_an_output_that_is_extended_without_being_written_uploads_only_what_is_written(
    shelf: tuple[Store, FaultScript], tmp_path: Path, clock: ManualClock
) -> None:
    store, _ = shelf
    log_shipper, output = shipper(store, tmp_path, clock), tmp_path / "output.log"
    append_output(tmp_path, b"first\n")
    os.truncate(output, 700 * MIB)
    append_output(tmp_path, b"second\n")
    os.truncate(output, 900 * MIB)
    clock.advance(timedelta(minutes=2))
    log_shipper.ship_if_due()
    assert len(read(store)) <= 16 * 4096
    append_output(tmp_path, b"third\n")
    log_shipper.ship_rest()
    os.truncate(output, 1 << 40)
    log_shipper.ship_rest()
    append_output(tmp_path, b"last\n")
    log_shipper.ship_rest()
    log = read(store)
    assert [line for line in log.replace(b"\0", b"").splitlines() if line.islower() and b" " not in line] == [
        b"first",
        b"second",
        b"third",
        b"last",
    ]
    assert len(log) <= 32 * 4096
