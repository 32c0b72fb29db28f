"""`checkpoint.…`: what a checkpoint costs the training loop, on 0.8 GB of weights and AdamW's moments.

`stall_ratio` is the processor time of the loop's thread for a checkpoint, against copying the same bytes; `step_rise`
is the rise of the step's time while a checkpoint is written, with a core to spare; `memory` is the memory that all of
it needs, against the state. `torch.save` and `torch.distributed.checkpoint` are measured beside it, in one process.

`step_rise.write` and `step_rise.hash` are the rise of the step's time beside a process of the writer's priority that
only writes and syncs as many bytes, or only computes their digest: what any writer costs on this machine.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench._state import ROUNDS, environment, open_run, print_ratio, shared_memory, write_run

_MEASURE = "MEASURE"
_QUIET_STEPS = 10


def main() -> int:
    """Measure in a process of its own. Returns 0 if every figure is within its limit."""
    with tempfile.TemporaryDirectory(prefix="everspot-bench-") as name, shared_memory() as memory:
        write_run(Path(name, "run"), Path(name, "store"), 1, memory)
        settings = environment(Path(name, "run"), **{_MEASURE: name})
        return subprocess.run([sys.executable, "-m", "bench.checkpoint"], env=settings, check=False).returncode


def measure(folder: Path) -> int:
    """Train, and measure between the steps."""
    run, model, optimizer, batches = open_run(10**6)
    with run:
        loop = Loop(run, model, batches)
        loop.pause()
        for _ in range(3):
            loop.step()
        state = model.state_dict(), optimizer.state_dict()
        tensors = list(_tensors(state))
        size = sum(tensor.nbytes for tensor in tensors)
        loop.make_step()
        before = _private_bytes()  # the loop's own, with the gradients of a step
        loop.checkpoint()  # it starts what it needs
        peak = max(_private_bytes() + _shared_bytes() for _ in loop.until_durable())
        note = f"{size / 1e6:.0f} MB of state; bytes of shared memory, of the writer, and more than before of the loop"
        good = print_ratio("checkpoint.memory", [(peak - before) / size], 1.1, note)
        targets = [tensor.clone() for tensor in tensors]
        plain, stalls, copies = [], [], []
        others: dict[str, list[float]] = {name: [] for name in ("torch.save", "dcp.save", "dcp.async_save")}
        rises: dict[str, list[float]] = {name: [] for name in ("", ".write", ".hash")}
        for _ in range(ROUNDS):
            copies.append(_thread_seconds(lambda: [t.copy_(s) for t, s in zip(targets, tensors, strict=True)]))
            plain.append(loop.pause())
            loop.make_step()
            stalls.append(loop.checkpoint() - plain[-1])
            busy = {"": [loop.step() for _ in loop.until_durable()]}
            busy |= {
                f".{name}": [loop.step() for _ in work_in_background(name, folder, size)] for name in ("write", "hash")
            }
            quiet = statistics.median([loop.step() for _ in range(_QUIET_STEPS)])
            for name, seconds in busy.items():
                rises[name].append(statistics.median(seconds) / quiet)
            for name, save in savers(folder).items():
                others[name].append(save(state))
        for name, seconds in others.items():
            print_ratio(f"checkpoint.{name}", _ratios(seconds, copies), None, "processor time of the caller's thread")
        wall = statistics.median(copies)
        note = f"processor time of the loop's thread for a checkpoint ÷ {wall:.2f} s for a copy of {size / 1e6:.0f} MB"
        good &= print_ratio("checkpoint.stall_ratio", _ratios(stalls, copies), 2.0, note)
        for name, other in (
            (".write", "only writes and syncs the same bytes"),
            (".hash", "only computes their digest"),
        ):
            note = f"a step's time beside a process that {other} ÷ without"
            print_ratio(f"checkpoint.step_rise{name}", rises[name], None, note)
        note = "a step's time while a checkpoint is written ÷ without"
        good &= print_ratio("checkpoint.step_rise", rises[""], 1.05, note)
    return int(not good)


class Loop:
    """The loop, one step at a time."""

    def __init__(self, run: Any, model: Any, batches: Iterator[Any]) -> None:
        from everspot_train.rundir import RunDir

        self._run, self._model, self._batches = run, model, batches
        self._rundir = RunDir(Path(os.environ["EVERSPOT_RUN_DIR"]))
        self._requests = 0
        self._batch = next(batches)

    def step(self) -> float:
        """Make a step, and go on to the next batch. Returns the seconds of the step alone."""
        began = time.perf_counter()
        self.make_step()
        seconds = time.perf_counter() - began
        self.pause()
        return seconds

    def make_step(self) -> None:
        """Make a step, and stay at its batch."""
        self._run.step(self._model(self._batch[0]).square().mean())

    def pause(self) -> float:
        """Go on to the next batch. Returns the processor seconds of this thread."""
        return _thread_seconds(self._advance)

    def checkpoint(self) -> float:
        """Make a checkpoint after the step at this batch. Returns its processor seconds of this thread."""
        from everspot_train.rundir import CheckpointRequest

        self._requests += 1
        self._rundir.write(CheckpointRequest(seq=self._requests))
        self._step = self._run.steps_done
        return self.pause()

    def until_durable(self) -> Iterator[None]:
        """Yield until the checkpoint is durable."""
        from everspot_train.rundir import Status

        durable = None
        while durable != self._step:
            yield
            status = self._rundir.read(Status)
            durable = status.durable_step if status is not None else None

    def _advance(self) -> None:
        self._batch = next(self._batches)


def savers(folder: Path) -> dict[str, Callable[[Any], float]]:
    """The others, by name: functions that save a state and return the processor seconds of this thread."""
    import torch
    from torch.distributed.checkpoint import state_dict_saver as dcp

    def in_background(state: Any) -> float:
        waiting: list[Any] = []
        begin = lambda: waiting.append(dcp.async_save(_by_name(state), checkpoint_id=folder / "async"))  # noqa: E731
        seconds = _thread_seconds(begin)
        waiting[0].result()
        shutil.rmtree(folder / "async")
        return seconds

    def by(save: Callable[[Any], Any], name: str) -> Callable[[Any], float]:
        def timed(state: Any) -> float:
            seconds = _thread_seconds(lambda: save(state))
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            return seconds

        return timed

    return {
        "torch.save": by(lambda state: torch.save(state, folder / "torch"), "torch"),
        "dcp.save": by(lambda state: dcp.save(_by_name(state), checkpoint_id=folder / "dcp", no_dist=True), "dcp"),
        "dcp.async_save": in_background,
    }


def work_in_background(work: str, folder: Path, size: int) -> Iterator[None]:
    """Yield while a process of low priority writes `size` bytes, or computes their digest."""
    process = subprocess.Popen([sys.executable, "-c", _WORK[work], str(folder / "raw"), str(size)])
    while process.poll() is None:
        yield
    if process.returncode:
        raise RuntimeError(f"the process that should {work} ended with {process.returncode}")


_PREPARE = """
import os, sys
from pathlib import Path
from xxhash import xxh3_128
os.nice(10)
path, size, block = Path(sys.argv[1]), int(sys.argv[2]), os.urandom(64 << 20)
"""
_WORK = {
    "write": _PREPARE
    + """
with path.open("wb", buffering=0) as file:
    for _ in range(size // len(block)):
        file.write(block)
        os.fsync(file.fileno())
path.unlink()
""",
    "hash": _PREPARE
    + """
for _ in range(8 * size // len(block)):  # for about as long as a write takes
    xxh3_128(block).digest()
""",
}


def _by_name(state: Any) -> dict[str, Any]:
    return {"model": state[0], "optimizer": state[1]}


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _thread_seconds(action: Callable[[], Any]) -> float:
    began = time.thread_time()
    action()
    return time.thread_time() - began


def _ratios(measured: list[float], floor: list[float]) -> list[float]:
    return [seconds / least for seconds, least in zip(measured, floor, strict=True)]


def _private_bytes() -> int:
    """Bytes in memory of this process and its children that no file backs."""
    import psutil  # type: ignore[import-untyped]

    me = psutil.Process()
    maps = [Path(f"/proc/{process.pid}/smaps_rollup").read_text() for process in [me, *me.children(recursive=True)]]
    kilobytes = [line.split()[1] for text in maps for line in text.splitlines() if line.startswith("Anonymous:")]
    return sum(map(int, kilobytes)) * 1024


def _shared_bytes() -> int:
    """Bytes of the memory that is shared with the writer."""
    from everspot_train.rundir import RunContext, RunDir

    context = RunDir(Path(os.environ["EVERSPOT_RUN_DIR"])).read(RunContext)
    files = Path(context.memory_dir or "").rglob("*") if context is not None else []
    return sum(path.stat().st_blocks * 512 for path in files)


if __name__ == "__main__":
    sys.exit(measure(Path(os.environ[_MEASURE])))
