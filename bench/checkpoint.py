"""`checkpoint.…`: what a checkpoint costs the training loop, on 0.8 GB of weights and AdamW's moments.

`stall_ratio` is the processor time of the loop's thread for a checkpoint, against copying the same bytes; `step_rise`
is the rise of the step's time while a checkpoint is written, with a core to spare; `memory` is the memory that all of
it needs, against the state. `torch.save` and `torch.distributed.checkpoint` are measured beside it, in one process.

`step_rise.write` and `step_rise.hash` are the rise of the step's time beside a process of the writer's priority that
only writes and syncs as many bytes, or only computes their digest: what any writer costs on this machine. Memory that
is freed stays in the process: page faults for gradients are half of a step on a CPU, and their number varies.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench._state import ROUNDS, environment, open_run, print_ratio, shared_memory, write_run
from bench._step_rise import StepTime, measure_rises, print_rise

_MEASURE = "MEASURE"
_KEEP_FREED_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(1 << 40)}
"""Variables of glibc (mallopt(3))."""


def main() -> int:
    """Measure in processes of their own. Returns 0 if every figure is within its limit."""
    return max(_measure_apart("stall", {}), _measure_apart("step_rise", _KEEP_FREED_MEMORY))


def _measure_apart(measured: str, variables: dict[str, str]) -> int:
    with tempfile.TemporaryDirectory(prefix="everspot-bench-") as name, shared_memory() as memory:
        write_run(Path(name, "run"), Path(name, "store"), 1, memory)
        settings = environment(Path(name, "run"), **{_MEASURE: name}, **variables)
        return subprocess.run(
            [sys.executable, "-m", "bench.checkpoint", measured], env=settings, check=False
        ).returncode


def measure_stall(folder: Path) -> bool:
    """Train, and measure between the steps. Returns whether the figures are within their limits."""
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
        for _ in range(ROUNDS):
            copies.append(_thread_seconds(lambda: [t.copy_(s) for t, s in zip(targets, tensors, strict=True)]))
            plain.append(loop.pause())
            loop.make_step()
            stalls.append(loop.checkpoint() - plain[-1])
            for _ in loop.until_durable():
                loop.step()
            for name, save in savers(folder).items():
                others[name].append(save(state))
        for name, seconds in others.items():
            print_ratio(f"checkpoint.{name}", _ratios(seconds, copies), None, "processor time of the caller's thread")
        wall = statistics.median(copies)
        note = f"processor time of the loop's thread for a checkpoint ÷ {wall:.2f} s for a copy of {size / 1e6:.0f} MB"
        good &= print_ratio("checkpoint.stall_ratio", _ratios(stalls, copies), 2.0, note)
    return good


def measure_step_rise(folder: Path) -> bool:
    """Train, and measure steps beside other work. Returns whether the figure is within its limit."""
    for name in _KEEP_FREED_MEMORY:
        del os.environ[name]  # the writer runs as it does for a user
    run, model, optimizer, batches = open_run(10**6)
    with run:
        loop = Loop(run, model, batches)
        loop.pause()
        for _ in range(3):
            loop.step()
        size = sum(tensor.nbytes for tensor in _tensors((model.state_dict(), optimizer.state_dict())))
        for _ in loop.checkpoint_beside():  # it starts what it needs
            loop.step()
        works = {name: partial(work_in_background, name, folder, size) for name in _WORK}
        rises = measure_rises({"": loop.checkpoint_beside} | works, loop.step)
        for name, other in (("write", "writes and syncs the same bytes"), ("hash", "computes their digest")):
            note = f"a step's time beside a process that only {other} ÷ without"
            print_rise(f"checkpoint.step_rise.{name}", rises[name], None, note)
        note = "a step's time while a checkpoint is written ÷ without"
        return print_rise("checkpoint.step_rise", rises[""], 1.05, note)


class Loop:
    """The loop, one step at a time."""

    def __init__(self, run: Any, model: Any, batches: Iterator[Any]) -> None:
        from everspot_train.rundir import RunDir

        self._run, self._model, self._batches = run, model, batches
        self._rundir = RunDir(Path(os.environ["EVERSPOT_RUN_DIR"]))
        self._requests = 0
        self._batch = next(batches)

    def step(self) -> StepTime:
        """Make a step, and go on to the next batch. Returns the seconds of the step alone."""
        began, thread_began = time.perf_counter(), time.thread_time()
        self.make_step()
        seconds = StepTime(time.perf_counter() - began, time.thread_time() - thread_began)
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

    def checkpoint_beside(self) -> Iterator[None]:
        """Make a step and a checkpoint of it. Yield first, and then until it is durable."""
        yield
        self.make_step()
        self.checkpoint()
        yield from self.until_durable()

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
    """Have a process of low priority write `size` bytes, or compute their digest. Yield when it is ready, and then
    until it has ended."""
    command = [sys.executable, "-c", _PREPARE + _WORK[work], str(folder / "raw"), str(size)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdout.readline()
    yield
    process.stdin.close()
    while process.poll() is None:
        yield
    process.stdout.close()
    if process.returncode:
        raise RuntimeError(f"the process that should {work} ended with {process.returncode}")


_PREPARE = """
import mmap, os, sys
from pathlib import Path
from everspot_store.copying import write_new
from xxhash import xxh3_128
os.nice(10)
path, size = Path(sys.argv[1]), int(sys.argv[2])
block = memoryview(mmap.mmap(-1, 64 << 20))
block[:] = os.urandom(len(block))
print("ready", flush=True)
sys.stdin.read()
"""
_WORK = {
    "write": """
for _ in range(size // len(block)):
    write_new(path, block)
    path.unlink()
""",
    "hash": """
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
    measure_figures = {"stall": measure_stall, "step_rise": measure_step_rise}[sys.argv[1]]
    sys.exit(not measure_figures(Path(os.environ[_MEASURE])))
