"""Every wait for the checkpoint writer is bounded, whatever happens to the writer."""

import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.records import Reason
from everspot_store import StoreUnavailable
from everspot_store.cloud_errors import Refused
from everspot_store.file_locks import LockBusy
from everspot_train.agent.endings import judge_ending
from everspot_train.agent.failures import Failure
from everspot_train.rundir import Status, TrainingPhase
from everspot_train.trainer.publisher import Publisher, Snapshot, WriterDied, WriterFailed, WriterOutOfMemory

pytestmark = pytest.mark.torch

SILENCE = timedelta(seconds=3)
LONG_SECONDS = 300
"""Far longer than any of these waits takes, on a slow machine too."""
ALIVE = 'import sys, time\nwhile True:\n    print(\'{"kind": "alive"}\', flush=True)\n    time.sleep(0.2)\n'
HOLDER = "import os, sys, time\nif os.fork() == 0:\n    time.sleep(30)\nsys.exit(4)\n"
"""The child has the other end of the pipe, so that the pipe has no end."""
TORN = """
import os, signal
print('{"kind": "restored", "check', end="", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
NOISE = "print('a library says hello', flush=True)\n"


def publisher(program: str) -> Publisher:
    return Publisher(2, lambda checkpoint, snapshot: None, (sys.executable, "-S", "-c", program), SILENCE)


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("import time; time.sleep(300)", "no sign of life for 3 s"),
        (HOLDER, "ended with status 4"),
        (TORN, "ended with status -9"),
        (NOISE, "ended with status 0"),
        (NOISE + "import time; time.sleep(300)", "no sign of life for 3 s"),
    ],
    ids=["hangs", "its pipe stays open", "dies within an answer", "prints", "prints and hangs"],
)
def test_a_restore_ends_with_an_error_that_says_what_the_writer_did(
    tmp_path: Path, program: str, complaint: str
) -> None:
    begun = time.monotonic()
    reader = publisher(program)
    reader.fetch(tmp_path / "files", [tmp_path / "streams"], {})
    error_class = WriterOutOfMemory if program is TORN else WriterFailed
    with pytest.raises(error_class, match=complaint):
        reader.fetched()
    reader.close()
    assert time.monotonic() - begun < LONG_SECONDS


@pytest.mark.parametrize(
    ("program", "error", "reason"),
    [
        ("raise SystemExit(3)", WriterFailed, Reason.MACHINE),
        ("import os; os.kill(os.getpid(), 9)", WriterOutOfMemory, Reason.ERROR),
    ],
)
def test_training_ends_when_writers_die_again_and_again(
    tmp_path: Path, program: str, error: type[Exception], reason: Reason
) -> None:
    """Given writers that always die, when checkpoints are published in the background, then training ends, and so does
    the wait for a checkpoint."""
    sender, published = publisher(program), 0

    def make_snapshot(step: int) -> Snapshot:
        (tmp_path / f"snapshot-{step}").mkdir()
        return Snapshot(step, tmp_path / f"snapshot-{step}", "interval", timedelta(), {})

    with pytest.raises(error, match="ended with status") as raised:
        while published < 100:
            published += 1
            sender.start(make_snapshot(published))
    assert 3 < published < 20
    message = f"{error.__name__}: {raised.value}"
    status = Status(phase=TrainingPhase.FAILED, step=7, message=message)
    assert judge_ending(None, 1, status, Failure(message=message)).reason is reason
    sender = publisher(program)
    sender.start(make_snapshot(200), now=True)
    with pytest.raises(error):
        sender.wait()
    sender.close()


def test_a_writer_that_works_past_the_deadline_is_given_up(tmp_path: Path) -> None:
    sender = publisher(ALIVE)
    (tmp_path / "snapshot-7").mkdir()
    sender.start(Snapshot(7, tmp_path / "snapshot-7", "notice", timedelta(), {}), now=True)
    with pytest.raises(WriterDied, match="step 7 was not durable 1 s after it was waited for"):
        sender.wait(timedelta(seconds=1))
    sender.close()


def test_an_earlier_publication_that_does_not_end_costs_no_newer_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sender = publisher(ALIVE)
    (tmp_path / "snapshot-6").mkdir()
    sender.start(Snapshot(6, tmp_path / "snapshot-6", "interval", timedelta(), {}))
    assert sender.busy
    sender.await_publication(timedelta(seconds=1))
    assert not sender.busy
    assert "step 6 was not durable 1 s after it was waited for" in caplog.text
    sender.close()


def test_each_error_of_an_unavailable_store_is_an_outage_of_the_store() -> None:
    errors = {error for error in StoreUnavailable.__subclasses__() if error.__module__.startswith("everspot_")}
    assert {LockBusy, WriterDied, Refused} <= errors
    for error in errors - {Refused}:  # the store handles `Refused` itself
        assert judge_ending(None, 1, None, Failure(message=f"{error.__name__}: x")).reason is Reason.SHUTDOWN
