"""A real owner is stopped (SIGSTOP) past its lease, its successor publishes, and it is woken (SIGCONT)."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import JobState
from everspot_store import Store
from everspot_store.folder import FolderBackend

SLEEPER = Path(__file__).with_name("sleeper.py")
TTL = 1.0


def read(process: subprocess.Popen[str], prefix: str, seconds: float = 60) -> str:
    """The next line that begins with `prefix`."""
    assert process.stdout is not None
    watchdog = threading.Timer(seconds, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            if line.startswith(prefix):
                return line
    finally:
        watchdog.cancel()
    raise AssertionError(f"ended, or was killed after {seconds} s, before it said {prefix!r}")


def stop(process: subprocess.Popen[str], store: Store) -> None:
    """Stop a process; in a folder not while it holds the lock of a key, which would keep the key locked (see
    docs/internals/store.md: a limit of folders)."""
    for _ in range(50):
        process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{process.pid}/task")
        while any((task / "stat").read_text().rpartition(")")[2].split()[0] not in "TZ" for task in threads.iterdir()):
            time.sleep(0.002)
        buckets = [bucket.url for bucket in (store.control, store.data) if bucket.url.startswith("file:")]
        if not any(FolderBackend(Path(url.removeprefix("file://")), store.clock).locked() for url in buckets):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("it always holds a lock")


def assign(store: Store, job_id: str, instance: str) -> int:
    old = store.records.get(job_id)
    new = transitions.assign(old.value if old else None, job_id, instance, datetime.now(UTC))
    written = store.records.create(job_id, new) if old is None else store.records.replace(job_id, old, new)
    assert written is not None
    return new.epoch


def expire_when_it_stands_still(store: Store, job_id: str) -> None:
    """Expire the lease as a scheduler does: by its own clock and the unchanged ETag alone."""
    end = time.monotonic() + 60
    etag, since = "", time.monotonic()
    while time.monotonic() < end:
        record = store.records.get(job_id)
        assert record is not None
        if record.etag != etag:
            etag, since = record.etag, time.monotonic()
        elif time.monotonic() - since >= TTL:
            assert store.records.replace(job_id, record, transitions.expire(record.value, datetime.now(UTC)))
            return
        time.sleep(0.05)
    raise AssertionError("the owner never stood still")


@pytest.mark.parametrize("kind", ["folder", "s3"])
@pytest.mark.parametrize(("guarded", "seed"), [("1", 1), ("1", 2), ("0", 3), ("0", 4), ("0", 5)])
def test_an_owner_that_overslept_its_lease_harms_nothing(
    request: pytest.FixtureRequest,
    kind: str,
    guarded: str,
    seed: int,
    submission: Callable[..., JobSubmission],
    tmp_path: Path,
) -> None:
    store: Store = request.getfixturevalue(f"{kind}_store")
    store.submit(submission())
    epoch = assign(store, "job-1", "i-1")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    arguments = [store.control.url, store.data.url, "job-1", str(epoch), "i-1", str(TTL), str(scratch), guarded]
    owner = subprocess.Popen([sys.executable, SLEEPER, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        read(owner, "published")
        time.sleep(random.Random(seed).uniform(0, 0.3))
        stop(owner, store)

        expire_when_it_stands_still(store, "job-1")
        heir_epoch = assign(store, "job-1", "i-2")
        lease = store.acquire("job-1", heir_epoch, "i-2")
        assert lease is not None and heir_epoch == epoch + 1
        heir = store.checkpoints("job-1", heir_epoch)
        restored = heir.restore(tmp_path / "restored")
        assert restored is not None
        (tmp_path / "part").write_bytes(b"heir")
        heir.publish(restored.step + 1, {"model": tmp_path / "part"}, keep=3)
        head, record = store.heads.get("job-1"), store.records.get("job-1")
        assert head is not None and record is not None and record.value.state is JobState.RUNNING
        published = {part.key for checkpoint in head.value.checkpoints for part in checkpoint.parts}
        before = {entry.key: entry.etag for entry in store.data.list("jobs/")}

        owner.send_signal(signal.SIGCONT)
        line = read(owner, "fenced")
        assert "epoch 1" in line
        owner.wait(60)
        assert store.heads.get("job-1") == head, "it published"
        assert store.records.get("job-1") == record, "it renewed or released"
        after = {entry.key: entry.etag for entry in store.data.list("jobs/")}
        assert {key: after.get(key) for key in published} == {key: before[key] for key in published}, (
            "it destroyed a part"
        )
        changed = {key for key in before if after.get(key) != before[key]}
        assert all("/000001/" in key for key in changed) and len(changed) <= 1, "it deleted or overwrote"
        assert all("/000001/" in key for key in after.keys() - before.keys()), "it wrote where it may not"
        if guarded == "1":
            assert len(after.keys() - before.keys()) <= 2, "with its lease over it began another upload"
        again = store.checkpoints("job-1").restore(tmp_path / "again")
        assert again is not None and again.step == restored.step + 1
    finally:
        owner.kill()
        owner.communicate()
