"""Sends the metrics of a job to its MLflow server, in a thread of its own. Training never waits for the server.

All attempts of a job are one run, found by a tag. What cannot be sent waits in a queue with a limit; then the oldest
metrics are dropped, and the log says how many.
"""

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

from everspot_core.clock import Clock
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.tracking import Tracking, derive_run_id

from everspot_train.mlflow_client import MOST_ENTITIES, Metric, MlflowClient, TrackerRefused, TrackerUnavailable
from everspot_train.rundir import RunContext

JOB_TAG = "everspot.job"
RUN_TAG = "everspot.run"
"""The tag by which the attempts find their run."""
MOST_WAITING = 20_000
"""The most metrics that wait for the server."""
SEND_EVERY = 5.0
"""Seconds between two requests."""
COST_EVERY = 60.0
"""Seconds between two values of dollars and GPU-hours."""
LONGEST_PAUSE = 300.0
"""The longest pause, in seconds, after failures; the first one is SEND_EVERY, and each further one twice as long."""
CLOSE_SECONDS = 20.0
"""The longest time for what is left when the program ends."""
_LONGEST_PARAM = 500
_MOST_PARAMS = 90  # one request takes 100
_log = logging.getLogger("everspot.tracking")


class RunStatus(StrEnum):
    """MLflow's status of a run."""

    RUNNING = "RUNNING"
    SCHEDULED = "SCHEDULED"  # it waits for its next attempt
    FINISHED = "FINISHED"
    FAILED = "FAILED"


class RunTracker:
    """The run of one job, on the first rank. Thread-safe.

    Args:
        environment: has the server's credentials.
    """

    def __init__(self, context: RunContext, tracking: Tracking, clock: Clock, environment: Mapping[str, str]) -> None:
        self._context, self._tracking, self._clock = context, tracking, clock
        self._client = MlflowClient(tracking.mlflow or "", environment)
        self._lock = threading.Lock()
        self._waiting: deque[Metric] = deque()
        self._dropped = 0
        self._tags: dict[str, str] = {}
        self._step: int | None = None  # an attempt that resumes begins at another one than 0
        self._began = clock.monotonic()
        self._costs_at: float | None = None
        self._run_id: str | None = None
        self._experiment: str | None = None
        self._status = RunStatus.RUNNING
        self._sent_status: RunStatus | None = None
        self._refused_names: set[str] = set()
        self._refused = False
        self._wake, self._closing = threading.Event(), False
        self._thread = threading.Thread(target=self._work, name="everspot-mlflow", daemon=True)
        self._params = job_params(context.submission.spec)
        self._job_tags = {name: value[:_LONGEST_PARAM] for name, value in context.submission.spec.tags.items()}
        self._thread.start()

    @classmethod
    def from_context(cls, context: RunContext, clock: Clock) -> "RunTracker | None":
        """Return the tracker that the job asks for; None if it asks for none."""
        tracking = context.submission.spec.tracking
        if tracking is None or tracking.mlflow is None:
            return None
        return cls(context, tracking, clock, os.environ)

    def begin(self, step: int) -> None:
        """Note that the attempt trains from `step`."""
        with self._lock:
            self._step, self._status = step, RunStatus.RUNNING
            self._tags |= {
                f"everspot.attempt.{self._context.epoch}": f"from step {step} on {self._context.instance_id}",
                "everspot.interruptions": str(self._context.interruptions),
            }
            self._put("everspot/interruptions", float(self._context.interruptions), step)

    def add(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add metrics of a step. Numbers that are not finite are left out."""
        with self._lock:
            self._step = step
            for name, value in metrics.items():
                if math.isfinite(value):
                    self._put(name, value, step)

    def close(self, status: RunStatus, step: int, message: str = "", *, hurry: bool = False) -> None:
        """Send what is left, and the status, as far as there is time. `hurry`: the machine is about to be taken
        away."""
        with self._lock:
            self._status, self._step = status, step
            if status is RunStatus.SCHEDULED:
                self._tags[f"everspot.interrupted.{self._context.epoch}"] = f"at step {step}"
            elif message:
                self._tags["everspot.message"] = message[:_LONGEST_PARAM]
            self._closing = True
        self._wake.set()
        self._thread.join(1.0 if hurry else CLOSE_SECONDS)
        if self._thread.is_alive() or self._dropped:
            _log.warning("MLflow: %d metrics were not sent", self._dropped + len(self._waiting))

    def _put(self, name: str, value: float, step: int) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(Metric(name, value, step, int(time.time() * 1000)))

    def _work(self) -> None:
        pause, complained = min(1.0, SEND_EVERY), ""
        end: float | None = None
        while True:
            self._wake.wait(0.5 if end is not None else pause)
            self._wake.clear()
            if self._closing and end is None:
                end = time.monotonic() + CLOSE_SECONDS
            try:
                self._add_costs(last=end is not None)
                self._send()
                pause, complained = SEND_EVERY, ""
            except TrackerUnavailable as error:
                pause = min(max(2 * pause, SEND_EVERY), LONGEST_PAUSE)
                if not complained:
                    _log.warning("MLflow does not answer, and training goes on: %s", error)
                complained = str(error)
                if end is not None and time.monotonic() < end:
                    continue
            except TrackerRefused as error:
                _log.warning("MLflow refuses this run, and gets nothing more of this attempt: %s", error)
                return
            except Exception:
                _log.exception("MLflow gets nothing more of this attempt")
                return
            if end is not None:
                return

    def _add_costs(self, *, last: bool) -> None:
        """Add dollars and GPU-hours so far, now and then."""
        spending, now = self._context.spending, time.monotonic()
        step = self._step
        if step is None or spending is None:
            return
        if not (last or self._costs_at is None or now - self._costs_at >= COST_EVERY):
            return
        self._costs_at = now
        hours = max(timedelta(), self._clock.now() - spending.at) / timedelta(hours=1)
        figures = {
            "everspot/dollars": spending.dollars_after(hours),
            "everspot/gpu_hours": spending.gpu_hours_after(hours),
        }
        with self._lock:
            for name, value in figures.items():
                if value is not None:
                    self._put(name, value, step)

    def _send(self) -> None:
        """Send everything that waits. What the server refuses is left out, and everything else is sent."""
        run_id = self._run()
        while True:
            with self._lock:
                tags, status = dict(self._tags), self._status
                size = min(MOST_ENTITIES - len(tags), len(self._waiting))
                batch = [self._waiting[n] for n in range(size)]
            if self._params:  # apart: a parameter or a tag of the user that is refused takes no metric with it
                self._send_batch(run_id, self._params, {})
                self._send_batch(run_id, {}, self._job_tags)
                self._params = {}
            if batch or tags:
                self._send_metrics(run_id, batch, tags)
                with self._lock:
                    for metric in batch:  # meanwhile the oldest may have been dropped
                        if self._waiting and self._waiting[0] is metric:
                            self._waiting.popleft()
                    self._tags = {name: value for name, value in self._tags.items() if tags.get(name) != value}
            if status is not self._sent_status:
                self._client.update(run_id, status.value, None if status is RunStatus.RUNNING else _milliseconds())
                self._sent_status = status
            if not self._waiting:
                return

    def _send_metrics(self, run_id: str, batch: list[Metric], tags: Mapping[str, str]) -> None:
        """Send metrics and tags. A request that is refused is halved until the refused metric is alone. No further
        value of that metric is sent."""
        batch = [metric for metric in batch if metric.name not in self._refused_names]
        if len(batch) + len(tags) == 0:
            return
        try:
            self._client.log(run_id, batch, {}, tags)
        except TrackerRefused as error:
            self._leave_out(error)
            if len(batch) == 1 and not tags:
                self._refused_names.add(batch[0].name)
            elif batch:
                half = len(batch) // 2
                self._send_metrics(run_id, batch[:half], {})
                self._send_metrics(run_id, batch[half:], {})
                self._send_metrics(run_id, [], tags)

    def _send_batch(self, run_id: str, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        if params or tags:
            try:
                self._client.log(run_id, [], params, tags)
            except TrackerRefused as error:
                self._leave_out(error)

    def _leave_out(self, error: TrackerRefused) -> None:
        """Log the first refusal of values. Raise any other refusal."""
        if error.code != "INVALID_PARAMETER_VALUE":
            raise error
        if not self._refused:
            _log.warning("MLflow refuses some metrics, parameters or tags, which are left out: %s", error)
        self._refused = True

    def _run(self) -> str:
        """Return the job's run. It is looked for before it is created: an earlier attempt, or a request whose answer
        was lost, may have created it."""
        if self._run_id is None:
            spec, visit = self._context.submission.spec, self._context.submission.visit
            job_id = visit.job_id if visit is not None else self._context.job_id
            if self._experiment is None:
                self._experiment = self._client.find_experiment(self._tracking.experiment or spec.name)
            tags = {JOB_TAG: job_id, RUN_TAG: derive_run_id(job_id, self._context.submission.submitted_at)}
            self._run_id = self._client.find_run(self._experiment, RUN_TAG, tags[RUN_TAG])
            if self._run_id is None:
                self._run_id = self._client.create_run(self._experiment, job_id, _milliseconds(), tags)
        return self._run_id


def job_params(spec: JobSpec) -> dict[str, str]:
    """Return a job's parameters for a tracker: those of the recipe, and what else determines what it computes."""
    params = {
        "everspot.program": spec.recipe or " ".join(spec.entrypoint or ()),
        "everspot.precision": spec.precision.value,
        "everspot.processes": str(spec.process_count),
        "everspot.datasets": " ".join(spec.datasets),
        **{name: str(value) for name, value in spec.parameters.items()},
    }
    return {name: value[:_LONGEST_PARAM] for name, value in list(params.items())[:_MOST_PARAMS] if value}


def _milliseconds() -> int:
    return int(time.time() * 1000)
