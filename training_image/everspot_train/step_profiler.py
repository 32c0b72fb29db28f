"""Records steps of this process with torch's profiler when the agent orders it, and reports what they consisted of.

A failure of the profiler is reported, and training goes on. An order changes nothing that a step computes.
"""

import atexit
import gzip
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from everspot_core.counting import counted
from everspot_core.jobs.profile import (
    MOST_OPERATIONS,
    MOST_TRACE_BYTES,
    PROFILE_FOLDER,
    DataLoading,
    Operation,
    Profile,
    ProfileState,
)
from torch._C._autograd import DeviceType, _profiler_enabled
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity, profile, schedule

from everspot_train.rundir import OUTPUT_DIR_VARIABLE, ProfileOrder, ProfileReport, RunDir, RunDirError

PLAIN_STEPS = 5
"""The steps without the profiler, before a recording and again behind it, whose median is the measure of what it
costs."""
LONGEST_RECORDING = 120.0
"""Seconds after which a recording ends behind its present step, because its events fill the memory."""
MOST_TRACE_EVENTS = 2_000_000
"""The most events of a trace. Two million are half a gigabyte before they are compressed."""
_CLOSE_SECONDS = 30.0
_PYTHON = "(Python between the operations)"
_LOADER = "enumerate(DataLoader)#"
_PREPARE = "_prepare_trace"
"""The method with which each profiler of torch begins."""
_US = 1e6
_PIECE = 1 << 20
_log = logging.getLogger("everspot.profiler")


class LoopTimes(NamedTuple):
    """The times of a loop so far, in seconds. `waited`: for batches; None: not measured."""

    loop: float
    waited: float | None = None


class _Recording(NamedTuple):
    """A profile that is being recorded.

    Attributes:
        before: the steps that were done when it began.
        plain: seconds of each step without the profiler before it.
        recorded: seconds of each recorded step.
        stopped_seconds: in which training stood still for the profiler so far.
    """

    order: ProfileOrder
    before: int
    plain: list[float]
    recorded: list[float]
    stopped_seconds: float
    profiler: profile


class _Recorded(NamedTuple):
    """A recording that has ended, and waits for the steps without the profiler behind it.

    Attributes:
        before: the step behind which it ended.
        plain: seconds of each step without the profiler so far.
    """

    profiler: profile
    described: Profile
    before: int
    plain: list[float]


class StepProfiler:
    """The profiler of a run's first rank. `between_steps` is called by the thread that trains.

    Args:
        ranks: the processes that train together.
        times: returns the times of the loop so far; by default, of the clock on the wall.
    """

    def __init__(self, rundir: RunDir, ranks: int = 1, times: Callable[[], LoopTimes] | None = None) -> None:
        self._rundir, self._ranks = rundir, ranks
        self._times = times or (lambda: LoopTimes(time.monotonic()))
        self._last_order_id = ""
        self._order: ProfileOrder | None = None
        self._recording: _Recording | None = None
        self._recorded: _Recorded | None = None
        self._plain: list[float] = []
        self._warm: tuple[int, LoopTimes] | None = None
        self._analysis: threading.Thread | None = None
        self._loader: Any = None
        self._step, self._stepped_at = 0, 0.0
        self._unpatch: Callable[[], None] = lambda: None
        with suppress(OSError):  # a full disk: then the agent says that this program cannot be profiled
            rundir.write(ProfileReport())

    def between_steps(self, step: int, loader: Any = None) -> None:
        """Carry out an order, if there is one: begin, go on or end a recording. Without one this reads one file.

        Args:
            step: the steps that are done.
            loader: from which the loop gets its batches.
        """
        try:
            seconds = self._measure_step(step)
            self._loader, self._step = loader, step
            if self._recorded is not None:
                self._measure_steps_behind(step, seconds, self._recorded)
            elif self._recording is not None:
                self._go_on(step, seconds, self._recording)
            elif self._order is not None:
                self._measure_plain_steps(step, seconds, self._order)
            else:
                self._look_for_order(step)
        except Exception as error:  # a profile is no reason to lose a step
            self._fail(error)

    def close(self, *, hurry: bool = False) -> None:
        """End a recording, and wait for the one that is being evaluated. `hurry`: hardly, and without a result, because
        the machine is about to be taken away."""
        recording, self._order = self._recording, None
        if recording is not None:
            try:
                if self._warm is not None and self._step > self._warm[0] and not hurry:
                    self._finish(recording, self._warm)
                else:
                    words = f"training ended before {counted(recording.order.steps, 'step')} were recorded"
                    self._abandon(recording, words)
            except Exception as error:
                self._fail(error)
        if self._recorded is not None:
            self._analyze_soon(self._recorded)
        if self._analysis is not None:
            self._analysis.join(1.0 if hurry else _CLOSE_SECONDS)

    def _look_for_order(self, step: int) -> None:
        if self._analysis is not None and self._analysis.is_alive():
            return
        order = self._rundir.read(ProfileOrder)
        if order is None or order.id == self._last_order_id:
            return
        self._last_order_id, self._order, self._plain = order.id, order, []

    def _measure_step(self, step: int) -> float | None:
        """Return the mean time of the steps since the last call; None if none was done."""
        now, before = self._times().loop, self._stepped_at
        self._stepped_at = now
        return (now - before) / (step - self._step) if step > self._step else None

    def _measure_plain_steps(self, step: int, seconds: float | None, order: ProfileOrder) -> None:
        if seconds is not None:
            self._plain.append(seconds)
        if len(self._plain) < min(order.steps, PLAIN_STEPS):
            return
        current = self._rundir.read(ProfileOrder)
        if current is None or current.id != order.id:  # taken back
            self._order = None
            return
        if _profiler_enabled():
            raise RuntimeError("the program has a profiler of its own running, which a second one would end")
        began = time.monotonic()
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
        profiler = profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=order.steps, repeat=1))
        profiler.start()
        self._end_before_others()
        atexit.register(self.close)
        stopped = time.monotonic() - began
        self._recording = _Recording(order, step, self._plain, [], stopped, profiler)
        self._order = self._warm = None
        self._report(Profile(id=order.id, state=ProfileState.RECORDING, first_step=step + 2, ranks=self._ranks))

    def _go_on(self, step: int, seconds: float | None, recording: _Recording) -> None:
        """Tell the profiler that a step is over: the first one warms it up, the last one ends it."""
        if step <= recording.before:
            return
        warm, began = self._warm, time.monotonic()
        if warm is not None and seconds is not None:
            recording.recorded.append(seconds)
        if warm is None:
            recording.profiler.step()
            stopped = recording.stopped_seconds + time.monotonic() - began
            self._recording, self._warm = recording._replace(stopped_seconds=stopped), (step, self._times())
        elif step - warm[0] >= recording.order.steps or self._times().loop - warm[1].loop >= LONGEST_RECORDING:
            self._finish(recording, warm)
        else:
            recording.profiler.step()

    def _finish(self, recording: _Recording, warm: tuple[int, LoopTimes]) -> None:
        """End the recording behind the present step."""
        now, began, steps = self._times(), time.monotonic(), self._step - warm[0]
        self._stop(recording)
        waited = now.waited - warm[1].waited if now.waited is not None and warm[1].waited is not None else None
        described = Profile(
            id=recording.order.id,
            state=ProfileState.DONE,
            first_step=warm[0] + 1,
            steps=steps,
            step_seconds=(now.loop - warm[1].loop) / steps,
            median_step_seconds=median(recording.recorded) if recording.recorded else None,
            stopped_seconds=recording.stopped_seconds + time.monotonic() - began,
            ranks=self._ranks,
            data=_describe_loader(self._loader, waited),
        )
        self._recorded = _Recorded(recording.profiler, described, self._step, list(recording.plain))

    def _measure_steps_behind(self, step: int, seconds: float | None, recorded: _Recorded) -> None:
        """Measure as many steps behind the recording, then begin to evaluate it."""
        if seconds is not None:
            recorded.plain.append(seconds)
        if step - recorded.before >= min(recorded.described.steps, PLAIN_STEPS):
            self._analyze_soon(recorded)

    def _analyze_soon(self, recorded: _Recorded) -> None:
        self._recorded, plain = None, recorded.plain
        described = recorded.described.model_copy(
            update={"plain_step_seconds": median(plain) if plain else None, "plain_steps": len(plain)}
        )
        self._analysis = threading.Thread(
            target=self._analyze, args=(recorded.profiler, described), name="everspot-profile", daemon=True
        )
        self._analysis.start()

    def _abandon(self, recording: _Recording, message: str) -> None:
        """End the recording without a result."""
        self._stop(recording)
        self._report(Profile(id=recording.order.id, state=ProfileState.CUT_OFF, message=message))

    def _end_before_others(self) -> None:
        """End the recording before a profiler of the program begins, which would cancel it: the process crashes if a
        cancelled one is written."""
        prepare: Callable[[Any], None] = autograd_profiler.profile._prepare_trace

        def prepare_other(other: Any) -> None:
            if self._recording is not None:
                self._fail(RuntimeError("the program began a profiler of its own, which ended this one"))
            prepare(other)

        setattr(autograd_profiler.profile, _PREPARE, prepare_other)
        self._unpatch = lambda: setattr(autograd_profiler.profile, _PREPARE, prepare)

    def _stop(self, recording: _Recording) -> None:
        self._recording = None
        self._unpatch()
        recording.profiler.stop()  # a process that ends while it runs crashes
        atexit.unregister(self.close)

    def _analyze(self, profiler: profile, described: Profile) -> None:
        """Report the operations, and write the trace, while training goes on."""
        try:
            described = _add_operations(described, profiler)
            self._report(_add_trace(described, profiler))
        except Exception as error:
            _log.warning("the profile was not evaluated: %s", error)
            self._report(_failed(described.id, error))

    def _fail(self, error: Exception) -> None:
        """Report that the profiler failed, and end it if it runs."""
        recording, order = self._recording, self._order
        self._order = None
        _log.warning("the profiler failed, and training goes on: %s", error)
        if recording is not None:
            with suppress(Exception):
                self._stop(recording)
            order = recording.order
        if order is not None:
            self._report(_failed(order.id, error))

    def _report(self, described: Profile) -> None:
        try:
            self._rundir.write(ProfileReport(profile=described))
        except (OSError, RunDirError) as error:
            _log.warning("the profile was not reported: %s", error)


def _failed(order_id: str, error: Exception) -> Profile:
    return Profile(id=order_id, state=ProfileState.FAILED, message=f"{type(error).__name__}: {error}")


def _describe_loader(loader: Any, waited: float | None) -> DataLoading:
    workers = getattr(loader, "num_workers", None)
    return DataLoading(
        wait_seconds=waited,
        loader=type(loader).__name__ if loader is not None else "",
        workers=workers if isinstance(workers, int) else None,
    )


def _add_operations(described: Profile, profiler: profile) -> Profile:
    """Add the most expensive operations and their totals. GPU time counts for the operation that launched a kernel."""
    operations: list[Operation] = []
    cpu, gpu, launched, loader_wait = 0.0, 0.0, 0.0, None
    for event in profiler.key_averages():
        if event.device_type != DeviceType.CPU:
            gpu += 0.0 if event.is_user_annotation else event.self_device_time_total / _US
            continue
        own, on_gpu = event.self_cpu_time_total / _US, event.self_device_time_total / _US
        cpu, launched = cpu + own, launched + on_gpu
        name = _PYTHON if event.key.startswith("ProfilerStep") else event.key
        operations.append(Operation(name=name, calls=event.count, cpu_seconds=own, gpu_seconds=on_gpu))
        if event.key.startswith(_LOADER):
            loader_wait = (loader_wait or 0.0) + event.cpu_time_total / _US
    has_gpu = gpu > 0
    if gpu - launched > 0.01 * gpu:
        operations.append(Operation(name="(kernels of no operation)", cpu_seconds=0.0, gpu_seconds=gpu - launched))
    if not has_gpu:
        operations = [operation.model_copy(update={"gpu_seconds": None}) for operation in operations]
    operations.sort(key=lambda o: (o.gpu_seconds or 0.0, o.cpu_seconds or 0.0), reverse=True)
    data = described.data or DataLoading()
    if data.wait_seconds is None and loader_wait is not None:
        data = data.model_copy(update={"wait_seconds": loader_wait, "loader": data.loader or "DataLoader"})
    return described.model_copy(
        update={
            "operations": tuple(operations[:MOST_OPERATIONS]),
            "cpu_seconds": cpu,
            "gpu_seconds": gpu if has_gpu else None,
            "data": data,
        }
    )


def _add_trace(described: Profile, profiler: profile) -> Profile:
    """Write the trace below the outputs, and name it; if it is too large or the disk is full, say so."""
    first, last = described.first_step or 0, (described.first_step or 0) + described.steps - 1
    name = f"steps-{first}-{last}-{described.id}.trace.json.gz"
    try:
        size = _write_trace(profiler, Path(os.environ[OUTPUT_DIR_VARIABLE]) / PROFILE_FOLDER / name)
    except _TraceTooLarge as error:
        return described.model_copy(update={"trace_note": str(error)})
    except (OSError, KeyError) as error:
        return described.model_copy(update={"trace_note": f"the trace could not be written: {error}"})
    return described.model_copy(update={"trace": name, "trace_bytes": size})


class _TraceTooLarge(Exception):
    """The trace would be larger than what is kept."""


def _check_trace_size(size: int) -> None:
    if size > MOST_TRACE_BYTES:
        raise _TraceTooLarge(f"the trace has more than {MOST_TRACE_BYTES >> 20} MiB: profile fewer steps")


def _write_trace(profiler: profile, path: Path) -> int:
    """Write the trace, compressed. Return its size."""
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    events = len(results.events()) if results is not None else 0
    if events > MOST_TRACE_EVENTS:
        raise _TraceTooLarge(f"its {events:,} events are too many for a trace: profile fewer steps")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    try:
        with tempfile.TemporaryDirectory(prefix="everspot-profile-") as scratch:
            raw = Path(scratch) / "trace.json"
            profiler.export_chrome_trace(str(raw))
            with raw.open("rb") as source, partial.open("wb") as target, gzip.GzipFile("", "wb", 6, target) as packed:
                while piece := source.read(_PIECE):
                    packed.write(piece)
                    _check_trace_size(target.tell())
        size = partial.stat().st_size
        _check_trace_size(size)
        partial.replace(path)
        return size
    finally:
        partial.unlink(missing_ok=True)
