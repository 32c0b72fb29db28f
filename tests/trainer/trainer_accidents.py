"""A job with faults: processes are killed at any moment, and storage fails, is slow, or is full.

The accidents follow from a seed; the moment at which each one strikes also depends on the machine's speed.
"""

import contextlib
import itertools
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from everspot_core.jobs.records import Reason
from everspot_store import SystemClock
from everspot_store.folder import FolderBackend
from everspot_train.rundir import CheckpointRequest, StopRequest
from torch.distributed import TCPStore
from trainer_forks import Forked
from trainer_post import LOOP, Post

PATIENCE = 600
"""Seconds until an attempt counts as one that hangs."""
_UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@dataclass
class Attempt:
    """One attempt of the job: its processes, and the requests that it got."""

    post: Post
    processes: list[Forked]
    dice: random.Random
    first_step: int
    meeting: TCPStore | None = None
    """Where several ranks meet. It ends with its last reference."""
    ended: dict[int, int] = field(default_factory=dict)
    """Exit codes by rank."""
    requests: int = 0
    ends: bool = False
    """Whether an accident has ended it, or an agent would end it now."""

    def running(self) -> bool:
        """Whether all ranks are. An agent ends the others when one of them has failed."""
        for rank, process in enumerate(self.processes):
            if rank not in self.ended and (code := process.poll()) is not None:
                self.ended[rank] = code
        return len(self.ended) < len(self.processes) and not any(self.ended.values()) and not self.ends

    def ask_for_checkpoint(self) -> None:
        self.requests += 1
        self.post.rundir.write(CheckpointRequest(seq=self.requests))

    def writers(self) -> list[psutil.Process]:
        """The living writer, if it was started."""
        try:
            children = psutil.Process(self.processes[0].pid).children()
            return [p for p in children if "everspot_train.writer" in p.cmdline() and p.status() != "zombie"]
        except psutil.NoSuchProcess:
            return []

    def wait(self) -> None:
        """Wait for its end."""
        _wait(lambda: not self.running(), self)

    def close(self) -> None:
        for rank, process in enumerate(self.processes):
            if rank not in self.ended:
                _signal(process.pid, signal.SIGKILL)
                self.ended[rank] = process.wait(timeout=PATIENCE)
        self.meeting = None


@dataclass
class Story:
    """What has happened to a job. `struck`: accidents by their kind; `attempts`: the roots of the run directories."""

    struck: Counter[str] = field(default_factory=Counter)
    attempts: list[Path] = field(default_factory=list)
    resumed: list[tuple[int | None, int | None]] = field(default_factory=list)
    """For each attempt, the newest step that was published before, and the one from which it resumed."""
    errors: list[str] = field(default_factory=list)


def run_with_accidents(
    folder: Path, seed: int, accidents: int, ranks: int = 1, script: Path = LOOP, **settings: object
) -> Story:
    """Run the job to its end while `accidents` happen: each kind as often as any other, or once more. The losses of
    attempt n are in `run-n/losses`."""
    dice, story = random.Random(seed), Story()
    kinds = sorted(ACCIDENTS)
    deck = kinds * (accidents // len(kinds)) + dice.sample(kinds, accidents % len(kinds))
    gate = folder / "gate"
    if deck:
        gate.touch()
        settings["GATE"] = gate
    for epoch in itertools.count(1):
        root = folder / f"run-{epoch}"
        post = Post(root=root, store_root=folder / "store", epoch=epoch, machine={"memory_dir": str(folder / "memory")})
        (folder / "memory").mkdir(exist_ok=True)
        published = next(iter(post.steps_published), None)
        processes, meeting = start_ranks(post, ranks, script, settings)
        attempt = Attempt(post, processes, dice, published or 0, meeting)
        try:
            while attempt.running() and deck:
                kind = dice.choice(deck)
                if _wait_for_a_step(attempt) and ACCIDENTS[kind](attempt):
                    story.struck[kind] += 1
                    deck.remove(kind)
            if not deck:
                gate.unlink(missing_ok=True)
            attempt.wait()
        finally:
            attempt.close()
        story.attempts.append(root)
        if post.status.phase != "starting":
            story.resumed.append((published, post.status.resumed_from))
        if not any(attempt.ended.values()) and post.status.phase == "finished":
            return story
        if not attempt.ends:
            story.errors.append((root / "stderr").read_text()[-2000:])
            assert len(story.errors) <= story.struck.total(), story.errors
    raise AssertionError("never reached")


def start_ranks(
    post: Post, ranks: int, script: Path, settings: dict[str, object]
) -> tuple[list[Forked], TCPStore | None]:
    if ranks == 1:
        return [post.start(post.root / "losses", script, **settings)], None
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True"}
    processes = [
        post.start(post.root / "losses", script, **settings, **meeting, **own)
        for own in ({"RANK": n, "LOCAL_RANK": n, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks} for n in range(ranks))
    ]
    return processes, store


def _wait(condition: Callable[[], bool], attempt: Attempt) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            for process in attempt.processes:
                _signal(process.pid, signal.SIGUSR1)  # it writes where it is
            time.sleep(5)
            writers = [(writer.pid, writer.status()) for writer in attempt.writers()]
            output = (attempt.post.root / "stderr").read_text()
            raise AssertionError(f"{attempt.post.status}\nwriters: {writers}\n{output[-10_000:]}")
        time.sleep(0.005)


def _wait_for_a_step(attempt: Attempt) -> bool:
    """Wait until the attempt has made a step of its own. False: it has ended before."""
    _wait(lambda: not attempt.running() or attempt.post.status.step > attempt.first_step, attempt)
    return attempt.running()


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_a_rank(attempt: Attempt) -> bool:
    """At any moment of a step, or of a checkpoint."""
    if attempt.dice.random() < 0.7:
        attempt.ask_for_checkpoint()
    time.sleep(attempt.dice.choice([0, 0.02, 0.1, 0.5]) * attempt.dice.random())
    _signal(attempt.dice.choice(attempt.processes).pid, signal.SIGKILL)
    attempt.ends = True
    return True


def _kill_the_writer(attempt: Attempt) -> bool:
    """When it has written some more bytes: of a segment, of a file, of the head."""
    attempt.ask_for_checkpoint()
    writers = attempt.writers()
    if not writers:
        return False
    try:
        end = _written(writers[0]) + attempt.dice.choice([1, 10_000, 1 << 20, 100 << 20]) * attempt.dice.random()
        until = time.monotonic() + 0.5
        while attempt.running() and _written(writers[0]) < end and time.monotonic() < until:
            time.sleep(0.001)
        writers[0].kill()
    except psutil.NoSuchProcess:
        return False
    return True


def _give_notice(attempt: Attempt) -> bool:
    """And kill the writer while it publishes the last step, now and then."""
    deadline = time.monotonic() + 120
    attempt.post.rundir.write(StopRequest(reason=Reason.NOTICE, deadline=deadline))
    if attempt.dice.random() < 0.5:
        time.sleep(0.2 * attempt.dice.random())
        for writer in attempt.writers():
            _signal(writer.pid, signal.SIGKILL)
    attempt.wait()
    attempt.ends = True
    return True


def _fail_storage(attempt: Attempt) -> bool:
    """The store takes no more than a few bytes for a while: the writer's files may not grow."""
    return _limit_files([writer.pid for writer in attempt.writers()], attempt)


def _fill_the_disk(attempt: Attempt) -> bool:
    """And the shared memory: no file of the ranks may grow beyond 4 KiB for a while."""
    return _limit_files([process.pid for process in attempt.processes], attempt)


def _limit_files(pids: list[int], attempt: Attempt) -> bool:
    try:
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        attempt.ask_for_checkpoint()
        time.sleep(attempt.dice.random())
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, _UNLIMITED)
    except ProcessLookupError:
        return False
    return bool(pids)


def _slow_storage(attempt: Attempt) -> bool:
    """The writer stands still for a while, but never with the lock of a key, which no bucket has."""
    folders = [FolderBackend(attempt.post.store_root / name, SystemClock()) for name in ("control", "data")]
    attempt.ask_for_checkpoint()
    writers = attempt.writers()
    for writer in writers:
        _signal(writer.pid, signal.SIGSTOP)
        time.sleep(0.01)
        if not any(folder.locked() for folder in folders):
            time.sleep(attempt.dice.random())
        _signal(writer.pid, signal.SIGCONT)
    return bool(writers)


def _written(process: psutil.Process) -> int:
    return int(process.io_counters().write_chars)


ACCIDENTS: dict[str, Callable[[Attempt], bool]] = {
    "a rank is killed": _kill_a_rank,
    "the writer is killed": _kill_the_writer,
    "a notice": _give_notice,
    "storage fails": _fail_storage,
    "storage is slow": _slow_storage,
    "disk and memory are full": _fill_the_disk,
}
"""Functions that let an accident happen, by its kind. They return whether it did."""
