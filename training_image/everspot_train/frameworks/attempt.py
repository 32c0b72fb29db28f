"""This process's part in one attempt of a job: what the agent asks for, and what is reported to it.

The agent sees such programs as ones that do not use the trainer library: it asks them to stop by `stop.json` and
SIGTERM, keeps their folder `checkpoints`, and reads their steps from their output.
"""

import atexit
import contextlib
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from enum import IntEnum
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from everspot_core.jobs.step_lines import MOST_NAMES, StepReport, format_step_lines, to_metric_name
from everspot_store import SystemClock

from everspot_train.agent_requests import Requests
from everspot_train.frameworks.stopping import FrameworkStop
from everspot_train.run_tracker import RunStatus, RunTracker
from everspot_train.rundir import CHECKPOINT_DIR_VARIABLE, RunDir, SavedState, read_context
from everspot_train.step_profiler import StepProfiler
from everspot_train.trainer.ranks import rank_from_environment, world_size_from_environment

STEP_EVERY = timedelta(seconds=5)
"""The least real time between two lines that report a step alone."""
METRICS_EVERY = timedelta(seconds=0.5)
"""The least real time between two lines with the same metrics."""


AUTO_INTERVAL = timedelta(minutes=10)
"""The interval of a job that leaves it to Everspot. It bounds the work that a loss without notice costs."""
_MOST_KEYS = 1000
"""The most sets of metrics whose last report is remembered: a program may name them anew at each step."""
_log = logging.getLogger(__name__)
_steps_of_calls = 0
"""The steps of the calls that have ended in this process, in this attempt or earlier ones."""


class StepDecision(IntEnum):
    """An action between two steps, the same on all ranks."""

    GO_ON = 0
    CHECKPOINT = 1
    STOP = 2


class FrameworkAttempt:
    """One attempt under an agent. Every rank has one; the first rank decides and reports.

    Attributes:
        folder: the folder `checkpoints`, which the agent keeps.
        job: the id of the job in its own cluster.
        stop: the job's `stop`.
        steps_before: the steps of the program's earlier calls. What is reported counts on from them.
    """

    def __init__(self, rundir: RunDir, folder: Path) -> None:
        self.folder = folder
        self.steps_before = _steps_of_calls
        self._rundir = rundir
        self._clock = SystemClock.from_environment()
        self._requests = Requests(rundir, self._clock)
        self._context = read_context(rundir)
        self.job, spec = self._context.submission.home_id, self._context.submission.spec
        policy = spec.checkpoint
        self.stop = FrameworkStop(rundir, spec.stop, lambda flag: bool(self._share(int(flag))))
        self._interval = AUTO_INTERVAL if policy.is_auto else policy.interval
        self._interval_steps = policy.steps
        self._saved_at, self._saved_step = self._clock.monotonic(), 0
        self._signalled = self._stopping = False
        self._previous_handler: Any = None
        self._group: Any = None
        self._step = self._reported_step = 0
        self._reported_at: dict[frozenset[str], timedelta] = {}
        self._unreported: dict[str, float] = {}
        self._names: set[str] = set()
        self._too_many_names = False
        self._profiler: StepProfiler | None = None
        self._tracker: RunTracker | None = None
        self._is_tracked = False

    @classmethod
    def from_environment(cls) -> "FrameworkAttempt | None":
        """Return the attempt that an agent has started; None by hand."""
        rundir, folder = RunDir.from_environment(), os.environ.get(CHECKPOINT_DIR_VARIABLE)
        return cls(rundir, Path(folder)) if rundir is not None and folder else None

    def is_of_smaller_run(self, saved_by: Any) -> bool:
        """Return whether state is that of the smaller run from which this job began: its end and its `stop` are not
        those of this job. `saved_by`: the job that saved it; None in checkpoints of earlier versions."""
        return self._context.submission.warm_start and saved_by != self.job

    def listen(self) -> None:
        """From now on until `close` SIGTERM is a request to stop between two steps. Outside of the main thread, where
        no handler can be set, the request comes by file alone."""
        if self._profiler is None and rank_from_environment() == 0:
            self._profiler = StepProfiler(self._rundir, world_size_from_environment())
            self._tracker = RunTracker.from_context(self._context, self._clock)
        if threading.current_thread() is not threading.main_thread():
            return
        previous = signal.signal(signal.SIGTERM, self._note_signal)
        if self._previous_handler is None:
            self._previous_handler = previous if previous is not None else signal.SIG_DFL
            os.register_at_fork(after_in_child=self._restore_in_child)

    def _restore_in_child(self) -> None:
        """In a child of the program, such as of a pool: SIGTERM ends it."""
        if self._previous_handler is not None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._signalled = True

    def decide_between_steps(self, step: int | None = None) -> StepDecision:
        """Return what happens now, between two steps. All ranks call it at the same step.

        Args:
            step: the steps that are done, for checkpoints at the job's interval; None: only at a request.
        """
        decision = StepDecision.GO_ON
        if rank_from_environment() == 0:
            if self._signalled or self._requests.stop() is not None:
                decision = StepDecision.STOP
            elif self._requests.checkpoint() or (step is not None and self._is_due(step)):
                decision = StepDecision.CHECKPOINT
        decision = StepDecision(self._share(int(decision)))
        self._stopping = self._stopping or decision is StepDecision.STOP
        return decision

    def evaluate(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Add an evaluation, if the metrics of a step have the one that the job's `stop` names."""
        for text, value in metrics.items() if self.stop.metric is not None else ():
            number = _number(value)
            if number is not None and to_metric_name(str(text)) == self.stop.metric:
                self.stop.add(self.steps_before + step, number)

    def _share(self, value: int) -> int:
        """Return the first rank's number on every rank."""
        if not _has_ranks():
            return value
        shared = torch.tensor([value])
        dist.broadcast(shared, src=0, group=self._control_group())
        return int(shared.item())

    def note_saved(self, step: int, path: Path | None = None) -> None:
        """Note that a checkpoint of `step` was saved or loaded: the interval begins anew.

        Args:
            path: the file or folder that was saved, so that the agent can say which step is durable; None: it was
                loaded.
        """
        self._saved_at, self._saved_step = self._clock.monotonic(), step
        if path is not None and rank_from_environment() == 0:
            relative = os.path.relpath(path.resolve(), self.folder.resolve())
            with contextlib.suppress(OSError):  # a full disk: the checkpoint itself is what matters
                self._rundir.write(SavedState(step=self.steps_before + step, path=relative))

    def end_call(self, steps: int) -> None:
        """Note that the call has come to its end after so many steps, in this attempt or an earlier one."""
        global _steps_of_calls
        _steps_of_calls = self.steps_before + steps

    def _is_due(self, step: int) -> bool:
        if step <= self._saved_step:
            return False
        by_time = self._interval is not None and self._clock.monotonic() - self._saved_at >= self._interval
        return by_time or (self._interval_steps is not None and step - self._saved_step >= self._interval_steps)

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's `value`, any small object, on every rank."""
        if not _has_ranks():
            return [value]
        values: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(values, value, group=self._control_group())
        return values

    def _control_group(self) -> Any:
        if self._group is None:  # of its own, so that a decision never waits for the device
            self._group = dist.new_group(backend="gloo")
        return self._group

    def close(self) -> None:
        """End the loop's part: what was left out of the reports is reported, and SIGTERM has its former effect. After
        a request to stop it has none, because it may come while the program ends."""
        if self._profiler is not None:
            self._profiler.close(hurry=self._stopping)
        if not self._stopping:
            self._restore_handler()
        if self._unreported or self._step != self._reported_step:
            metrics, self._unreported = self._unreported, {}
            self._reported_at.clear()
            self._report(self._step, metrics)
        exception = sys.exc_info()[0]
        if exception is GeneratorExit and self._tracker is not None and not self._stopping:
            # The loop was left by `break` or by an exception of its body, which only the program's end tells apart.
            atexit.register(self._close_tracker_at_exit)
        else:
            self._close_tracker(failed=exception is not None)
        self._group, group = None, self._group  # its threads would outlive the program
        if group is not None and dist.is_initialized():
            dist.destroy_process_group(group)

    def _close_tracker(self, *, failed: bool) -> None:
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            status = RunStatus.SCHEDULED if self._stopping else RunStatus.FAILED if failed else RunStatus.FINISHED
            tracker.close(status, self._step, hurry=self._stopping)

    def _close_tracker_at_exit(self) -> None:
        self._close_tracker(failed=getattr(sys, "last_value", None) is not None)  # of an exception that was not caught

    def _restore_handler(self) -> None:
        previous, self._previous_handler = self._previous_handler, None
        if previous is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, previous)

    def report(
        self,
        step: int,
        metrics: Mapping[str, Any] | None = None,
        *,
        total_steps: int | None = None,
        steps_per_epoch: float | None = None,
    ) -> None:
        """Report a step of this call, and metrics that are numbers, or tensors or arrays of one. Others are left out.
        Most reports of a fast loop write nothing."""
        total_steps = self.steps_before + total_steps if total_steps is not None else None
        self._report(self.steps_before + step, metrics, total_steps, steps_per_epoch)

    def _report(
        self,
        step: int,
        metrics: Mapping[str, Any] | None = None,
        total_steps: int | None = None,
        steps_per_epoch: float | None = None,
    ) -> None:
        if rank_from_environment() != 0:
            return
        if self._profiler is not None and step > self._step:
            self._profiler.between_steps(step)
        self._step = step
        numbers = self._numbers(metrics or {})
        if self._tracker is not None:
            if not self._is_tracked:
                self._tracker.begin(step)
                self._is_tracked = True
            self._tracker.add(step, numbers)
        now, key = self._clock.monotonic(), frozenset(numbers)
        reported_at = self._reported_at.get(key)
        spacing = METRICS_EVERY if numbers else STEP_EVERY
        is_start = total_steps is not None or steps_per_epoch is not None
        if reported_at is not None and now - reported_at < spacing and not is_start:
            self._unreported |= numbers
            return
        self._unreported = {name: value for name, value in self._unreported.items() if name not in numbers}
        if len(self._reported_at) >= _MOST_KEYS:
            self._reported_at.clear()
        self._reported_at[key] = self._reported_at[frozenset()] = now
        self._reported_step = step
        lines = format_step_lines(StepReport(step, total_steps, steps_per_epoch, numbers))
        with contextlib.suppress(OSError, ValueError):  # the program may have closed its output
            text = "\n".join(lines) + "\n"  # one write, into which other ranks cannot write
            print(text, end="", file=sys.__stdout__, flush=True)

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics that are numbers, by names that the agent takes, and no more than it takes."""
        numbers = dict[str, float]()
        for text, value in metrics.items():
            number, name = _number(value), to_metric_name(str(text))
            if number is None:
                continue
            if name not in self._names and len(self._names) >= MOST_NAMES:
                if not self._too_many_names:
                    _log.warning("the metric %s and further ones are not reported: a job has %d", name, MOST_NAMES)
                self._too_many_names = True
                continue
            self._names.add(name)
            numbers[name] = number
        return numbers


def _has_ranks() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _number(value: Any) -> float | None:
    if getattr(value, "size", None) == 1 or (isinstance(value, torch.Tensor) and value.numel() == 1):
        value = value.item()  # of numpy, or of torch
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
