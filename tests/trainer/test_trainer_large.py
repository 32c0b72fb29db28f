"""Two ranks with 1.2 GB of state get a notice in the middle of an upload.

It takes about 6 GB of memory, and 6 GB of disk in `/var/tmp`.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from everspot_core.jobs.records import Reason
from everspot_train.rundir import StopRequest
from trainer_accidents import Attempt, start_ranks
from trainer_large import STATE_BYTES, TOTAL
from trainer_large import __file__ as LARGE
from trainer_post import Post, read_losses, wait_for

pytestmark = [pytest.mark.torch, pytest.mark.nightly, pytest.mark.timeout(1800)]

RANKS = 2
NOTICE_SECONDS = 120
PATIENCE_SECONDS = 900
WRITER_BYTES = 256 << 20
"""The most memory of the writer's own: what it imports, and what it uploads at a time."""
_POLL_SECONDS = 0.02


class Memory:
    """The most bytes of each kind that the processes of an attempt have had at a time.

    Attributes:
        shared: of all ranks, that other processes may share.
        of_rank: of one rank alone.
        of_writer: of the writer alone.
    """

    def __init__(self) -> None:
        self.shared = self.of_rank = self.of_writer = 0

    def look(self, attempt: Attempt) -> None:
        ranks = [process.pid for process in attempt.processes]
        self.shared = max(self.shared, sum(status_bytes(pid, "RssShmem") for pid in ranks))
        self.of_rank = max(self.of_rank, *(status_bytes(pid, "RssAnon") for pid in ranks))
        self.of_writer = max([self.of_writer, *(status_bytes(writer.pid, "RssAnon") for writer in attempt.writers())])


def status_bytes(pid: int, field: str) -> int:
    """Return a field of /proc/PID/status; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:")), 0)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Attempt]]:
    """Starts attempts. Their stores are on a disk, their memory for checkpoints is shared memory."""
    attempts = list[Attempt]()
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="everspot-large-") as disk,
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="everspot-large-") as memory,
    ):

        def begin(name: str, store: str, epoch: int = 1) -> Attempt:
            post = Post(tmp_path / name, Path(disk) / store, epoch, machine={"memory_dir": f"{memory}/{name}"})
            Path(memory, name).mkdir()
            processes, meeting = start_ranks(post, RANKS, Path(LARGE), {})
            attempts.append(Attempt(post, processes, random.Random(1), first_step=0, meeting=meeting))
            return attempts[-1]

        yield begin
        for attempt in attempts:
            attempt.close()


def finish(attempt: Attempt, memory: Memory) -> None:
    """Wait for a good end."""
    end = time.monotonic() + PATIENCE_SECONDS
    while attempt.running():
        assert time.monotonic() < end, attempt.post.status
        memory.look(attempt)
        time.sleep(_POLL_SECONDS)
    attempt.close()
    assert not any(attempt.ended.values()), (attempt.post.root / "stderr").read_text()[-3000:]


def digests(attempt: Attempt) -> list[str]:
    return [(attempt.post.root / f"losses.{rank}.digest").read_text() for rank in range(RANKS)]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_large_sharded_state_is_durable_within_a_notice_that_comes_in_the_middle_of_an_upload(
    start: Callable[..., Attempt],
) -> None:
    calm, struck = Memory(), Memory()
    whole = start("whole", "other")
    finish(whole, calm)

    first = start("first", "store")
    post = first.post
    wait_for(lambda: post.status.step >= 1, post, PATIENCE_SECONDS)
    first.ask_for_checkpoint()
    wait_for(lambda: size_of(post.store_root / "data") >= STATE_BYTES // 4, post, PATIENCE_SECONDS)
    assert post.steps_published == []
    noticed = time.monotonic()
    post.rundir.write(StopRequest(reason=Reason.NOTICE, deadline=noticed + NOTICE_SECONDS))
    finish(first, struck)
    seconds, step = time.monotonic() - noticed, post.status.step
    print(f"durable {seconds:.1f} s after the notice, at step {step}; bytes: {vars(calm)} {vars(struck)}")
    assert seconds < NOTICE_SECONDS
    assert 0 < step < TOTAL
    assert (post.status.phase, post.status.durable_step, post.steps_published[0]) == ("stopped", step, step)
    assert 0 < struck.shared <= 1.1 * STATE_BYTES
    assert struck.of_rank <= 1.1 * calm.of_rank
    assert 0 < struck.of_writer <= WRITER_BYTES

    second = start("second", "store", epoch=2)
    finish(second, Memory())
    assert second.post.status.resumed_from == step
    assert digests(second) == digests(whole)
    for rank in range(RANKS):
        name = f"losses.{rank}"
        assert read_losses(post.root / name, second.post.root / name) == read_losses(whole.post.root / name)
