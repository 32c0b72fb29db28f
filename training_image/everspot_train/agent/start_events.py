"""Writes the events of a program's start: its launch and, if the program does not report it, the beginning of its
training."""

from collections.abc import Callable
from datetime import datetime, timedelta

from everspot_core.clock import Clock
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import EventKind, Progress
from pydantic import JsonValue

from everspot_train.agent.outbox import Outbox
from everspot_train.agent.program import needs_preparation
from everspot_train.rundir import Ready, RunDir, RunDirError, Status

SILENCE = timedelta(minutes=1)
"""A program that has not reported for this long counts as one that does not use the trainer library."""


class StartEvents:
    """The start of a program in one attempt. `status`: returns the program's report; None before the first."""

    def __init__(
        self,
        submission: JobSubmission,
        run_dir: RunDir,
        events: Outbox,
        clock: Clock,
        status: Callable[[], Status | None],
    ) -> None:
        self._submission = submission
        self._run_dir = run_dir
        self._events = events
        self._clock = clock
        self._status = status
        self._launched: tuple[datetime, timedelta] | None = None
        self._written = False

    def launched(self, **data: JsonValue) -> None:
        """Record that the first process runs: the program itself, or its preparation."""
        self._events.emit(EventKind.STARTED, **data)
        self._launched = (self._events.now(), self._clock.monotonic())  # its events come after its start

    def progress(self, last: Progress) -> Progress | None:
        """Return the progress of a program that has not reported yet: the last known progress, and whether its data and
        packages are being prepared. None if nothing is new."""
        preparing = self._launched is not None and not self.is_program_started()
        return last.model_copy(update={"preparing": preparing}) if preparing or last.preparing else None

    def is_program_started(self) -> bool:
        """Return whether the program itself runs, or has run, and not only its preparation."""
        return self._began() is not None

    def tell_if_silent(self, before: Progress, *, restored: bool) -> None:
        """Write `training` for a program that has not reported for SILENCE. See `write_training`."""
        began = self._began()
        if began is not None and self._clock.monotonic() - began[1] >= SILENCE:
            self.write_training(before, restored=restored)

    def write_reported(self, first_step: int, *, restored: bool) -> None:
        """Write `training` for a program whose output has reported its first step in this attempt."""
        if not self._written and self._status() is None:
            self._written = True
            self._events.emit(EventKind.TRAINING, from_step=first_step, restored=restored, by="agent")

    def write_training(self, before: Progress, *, restored: bool) -> None:
        """Write `training` for a program that does not report: it counts as training since its start.

        A program that never started, because its data, packages or set-up failed, gets no such event. Neither does a
        program that has reported on an earlier instance, as `before` shows: it has not trained here yet.
        """
        began = self._began()
        reports = before.step > 0 or before.total_steps is not None
        if began is None or self._written or reports or self._status() is not None:
            return
        self._written = True
        self._events.put(EventKind.TRAINING, began[0], {"from_step": 0, "restored": restored, "by": "agent"})

    def _began(self) -> tuple[datetime, timedelta] | None:
        """Return the start of the program itself, in market time and in this machine's real time; None if it was not
        started."""
        if self._launched is None or not needs_preparation(self._submission):
            return self._launched
        try:
            ready = self._run_dir.read(Ready)
        except (RunDirError, OSError):  # the job's own processes may write there
            return self._launched
        return None if ready is None else (max(ready.at, self._launched[0]), timedelta(seconds=ready.since))
