"""Records the steps and metrics of a program that does not use the trainer library in the store."""

import threading
from collections import deque
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.jobs.records import Progress
from everspot_core.jobs.reported_values import update_metrics
from everspot_core.jobs.step_lines import LONGEST_LINE, MOST_METRICS, MOST_NAMES, StepReport
from everspot_store import Store

from everspot_train.agent.actions import JobKey
from everspot_train.agent.steps.event_files import EventFiles
from everspot_train.agent.steps.output import OutputSteps
from everspot_train.agent.steps.stop_watch import StopWatch
from everspot_train.agent.threads import DueTimer
from everspot_train.metrics_buffer import MetricsBuffer

WRITE_EVERY = timedelta(minutes=5)
"""The time between two writes. The newest metrics are also in the job's record, with each renewal of its lease."""
_SPACING = timedelta(seconds=0.5)
"""The least real time between two recorded values of one metric, the same as for programs on the trainer library."""
_RATE_WINDOW = timedelta(seconds=60)


class StepRecorder:
    """The steps of one attempt. `look` and `write` are called by one thread at a time; `add_to` by any.

    For a program that prints step lines only these lines count, because a TensorBoard file may count something else,
    such as epochs.
    """

    def __init__(
        self, store: Store, job: JobKey, output: Path, clock: Clock, stop_watch: StopWatch | None = None
    ) -> None:
        self._clock = clock
        self._stop_watch = stop_watch
        self._output = OutputSteps(output)
        self._event_files: EventFiles | None = None
        self._prints = False
        self._lock = threading.Lock()
        self._first: StepReport | None = None
        self._last: StepReport | None = None
        self._metrics: dict[str, float] = {}
        self._recorded_at: dict[str, timedelta] = {}
        self._skipped: dict[str, tuple[int, float]] = {}
        self._warnings: list[str] = []
        self._warned: set[str] = set()
        self._marks: deque[tuple[timedelta, int]] = deque()
        self._buffer = MetricsBuffer(store, job.job_id, job.epoch, clock)
        self._due = DueTimer(WRITE_EVERY, clock)
        self._due.due()

    def watch(self, folder: Path) -> None:
        """Also read TensorBoard's event files in this folder. Existing content does not count."""
        self._event_files = EventFiles(folder, self._clock)

    @property
    def first_step(self) -> int | None:
        """The first step that this attempt reported; None before it."""
        with self._lock:
            return self._first.step if self._first is not None else None

    @property
    def step(self) -> int | None:
        """The last reported step; None before the first."""
        with self._lock:
            return self._last.step if self._last is not None else None

    @property
    def total_steps(self) -> int | None:
        """The steps at which the program ends; None: not reported."""
        with self._lock:
            return self._last.total_steps if self._last is not None else None

    @property
    def metrics(self) -> dict[str, float]:
        """The last value of each metric, of those whose last value is finite."""
        with self._lock:
            return dict(self._metrics)

    def look(self, *, last: bool = False) -> None:
        """Read the program's new reports. `last`: the program has ended, and all remaining reports are read."""
        now = self._clock.monotonic()
        reports = [(now, report) for report in self._output.read()]
        self._prints = self._prints or bool(reports)
        if not self._prints and self._event_files is not None:
            reports = self._event_files.read(now=last)
        with self._lock:
            if self._output.overlong:
                self._warn("long line", f"a step line of more than {LONGEST_LINE} bytes is left out")
            if reports:
                self._take(reports, now)
            self._record_skipped(now, last=last)

    def add_to(self, progress: Progress) -> Progress:
        """Return the progress with the steps of this attempt; unchanged before the first."""
        with self._lock:
            if self._last is None:
                return progress
            return progress.model_copy(
                update={
                    "step": self._last.step,
                    "total_steps": self._last.total_steps,
                    "steps_per_epoch": self._last.steps_per_epoch,
                    "steps_per_second": self._rate(),
                    "metrics": dict(self._metrics),
                }
            )

    def take_warnings(self) -> list[str]:
        """Return warnings about left-out reports, each once."""
        with self._lock:
            warnings, self._warnings = self._warnings, []
            return warnings

    def write(self, *, last: bool = False) -> None:
        """Write the waiting metrics, if they are due or the `last`. Raises `StoreError`; then they stay."""
        if self._buffer.is_filling or last or self._due.due():
            self._buffer.write()

    def _take(self, reports: list[tuple[timedelta, StepReport]], now: timedelta) -> None:
        for moment, report in reports:
            self._record(report, moment)
        steps = [report for _, report in reports]
        for report in steps if self._prints else _leading(steps, self._last):
            before = self._last or report
            self._first, self._last = self._first or report, report
            if report.total_steps is None or report.steps_per_epoch is None:  # later lines may omit them
                self._last = replace(
                    report,
                    total_steps=report.total_steps or before.total_steps,
                    steps_per_epoch=report.steps_per_epoch or before.steps_per_epoch,
                )
        self._marks.append((now, self._last.step if self._last is not None else 0))
        while now - self._marks[0][0] > _RATE_WINDOW and len(self._marks) > 2:
            self._marks.popleft()

    def _record(self, report: StepReport, moment: timedelta) -> None:
        values = {
            name: value
            for name, value in report.metrics.items()
            if name in self._recorded_at or len(self._recorded_at) < MOST_NAMES
        }
        if report.left_out:
            self._warn("line", f"a step line has more than {MOST_METRICS} metrics: those behind them are left out")
        if len(values) < len(report.metrics):
            name = next(name for name in report.metrics if name not in values)
            self._warn("job", f"the metric {name} and further ones are left out: a program may have {MOST_NAMES}")
        self._metrics = update_metrics(self._metrics, values)
        due = dict[str, float]()
        for name, value in values.items():
            recorded_at = self._recorded_at.get(name)
            if self._stop_watch is not None and name == self._stop_watch.rule.metric:
                self._stop_watch.add(report.step, value)
                recorded_at = None  # an attempt elsewhere needs every evaluation
            if recorded_at is not None and abs(moment - recorded_at) < _SPACING:  # times may jump back
                self._skipped[name] = report.step, value
            else:
                self._recorded_at[name] = moment
                self._skipped.pop(name, None)
                due[name] = value
        self._buffer.add(report.step, due)

    def _record_skipped(self, now: timedelta, *, last: bool) -> None:
        """Record values that came too soon after another value, once no value has followed them."""
        for name, (step, value) in list(self._skipped.items()):
            if last or (self._prints and now - self._recorded_at[name] >= _SPACING):
                del self._skipped[name]
                self._recorded_at[name] = now
                self._buffer.add(step, {name: value})

    def _warn(self, subject: str, sentence: str) -> None:
        if subject not in self._warned:
            self._warned.add(subject)
            self._warnings.append(sentence)

    def _rate(self) -> float | None:
        if len(self._marks) < 2:
            return None
        (since, first), (until, last) = self._marks[0], self._marks[-1]
        elapsed = (until - since).total_seconds()
        return (last - first) / elapsed if elapsed > 0 and last > first else None


def _leading(reports: list[StepReport], last: StepReport | None) -> list[StepReport]:
    """Return the reports of event files, sorted by step, that show how far the program is: those beyond the last one of
    the metrics with the highest step. Other metrics may count epochs."""
    names = reports[-1].metrics.keys()
    return [report for report in reports if names & report.metrics.keys() and (last is None or report.step > last.step)]
