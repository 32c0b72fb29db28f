"""Real processes, killed and stopped at seeded moments, leave a consistent folder."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from everspot_core.jobs.records import Request
from everspot_store import Bucket, StoreError, Table

HAMMER = Path(__file__).with_name("hammer.py")
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Writer:
    """A process that writes until it is killed."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log
        while not (log.exists() and log.read_text().startswith("ready\n")):
            time.sleep(0.002)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> list[list[str]]:
        """Wait for the end of the killed process, and return its log of answered writes."""
        while Path(f"/proc/{self.pid}").exists():
            time.sleep(0.002)
        complete = self.log.read_text().rpartition("\n")[0]
        return [line.split() for line in complete.splitlines()[1:]]


Start = Callable[[str], Writer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bucket's."""
    path = tmp_path / "bucket"
    path.mkdir()
    return path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Starts writers by their names."""
    process = subprocess.Popen(
        [sys.executable, HAMMER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None and process.stdout is not None
    started: list[Writer] = []

    def begin(name: str) -> Writer:
        process.stdin.write(f"{name}\n")
        started.append(Writer(int(process.stdout.readline()), folder.parent / f"{name}.log"))
        return started[-1]

    with process:
        yield begin
        for writer in started:
            with suppress(ProcessLookupError):
                writer.kill()
        process.stdin.close()


def test_a_killed_writer_leaves_every_object_whole_and_every_answered_write_there(folder: Path, start: Start) -> None:
    """24 kills, two processes at a time on the same keys, at moments drawn from a seed."""
    draw = random.Random(20)
    highest = 0
    for round_ in range(12):
        processes = {name: start(name) for name in (f"a{round_}", f"b{round_}")}
        time.sleep(draw.uniform(0.01, 0.25))
        answers = {}
        for name, process in processes.items():
            time.sleep(draw.uniform(0, 0.01))
            process.kill()
            answers[name] = process.ended()
        bucket = Bucket.open(folder.as_uri())
        table = Table(bucket, "cancels", Request)

        counted = [int(value) for lines in answers.values() for verb, value in lines if verb == "counted"]
        assert len(counted) == len(set(counted)), "two writers were told that they wrote the same number"
        counter = table.get("counter")
        if counted:
            assert counter is not None and int(counter.value.note) >= max(counted) > highest
            assert int(counter.value.note) <= max(counted) + len(answers), "a write of which nobody knows"
            highest = int(counter.value.note)

        documents = table.scan()
        raw = [entry.key for entry in bucket.list("cancels/")]
        assert sorted(table.key(id) for id in documents) == raw, "an object is half written"
        for name, lines in answers.items():
            deleted = max([int(value) for verb, value in lines if verb == "deleted"], default=0)
            for verb, value in lines:
                if verb in ("created", "uploaded") and int(value) > deleted + 1:
                    key = f"cancels/{name}/{value}.json" if verb == "created" else f"parts/{name}/{value}"
                    assert bucket.get(key) is not None, f"{key} was answered and is gone"
        for entry in bucket.list("parts/"):
            name = entry.key.split("/")[1]
            stored = bucket.get(entry.key)
            assert stored is not None and stored.value == name.encode() * 50_000, f"{entry.key} is half written"

        written = table.replace("counter", counter, counter.value) if counter else None
        assert counter is None or written is not None, "a dead process still holds a lock"
    assert highest > 12


def test_many_writers_count_without_losing_a_number(start: Start) -> None:
    processes = [start(name) for name in "abc"]
    time.sleep(1.5)
    for process in processes:
        process.kill()
    counted = [int(value) for process in processes for verb, value in process.ended() if verb == "counted"]
    assert len(counted) == len(set(counted))
    missing = set(range(1, max(counted) + 1)) - set(counted)
    assert len(missing) <= len(processes), "each killed writer may have died before it told of one write"


def test_litter_of_the_dead_is_not_listed(folder: Path, tmp_path: Path) -> None:
    bucket = Bucket.open(folder.as_uri())
    (folder / ".everspot-store" / "tmp" / "1-x").write_bytes(b"half")
    bucket.put("a", b"1")
    assert [entry.key for entry in bucket.list()] == ["a"]
    digest = hashlib.sha256(b"1").hexdigest()
    assert bucket.download("a", tmp_path / "a") == digest


@pytest.mark.parametrize("key", ["../x", "a/../x", "/x", "a//b", "", ".hidden", "a/.everspot-store"])
def test_a_key_never_leads_out_of_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(StoreError, match="key"):
        Bucket.open(tmp_path.as_uri()).put(key, b"")
