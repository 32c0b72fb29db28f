"""Tracks the time of a program's steps, and detects stalls."""

from dataclasses import dataclass, replace
from datetime import timedelta

from everspot_train.agent.actions import Stalled
from everspot_train.rundir import Status, TrainingPhase

FACTOR = 10
"""A program has stalled if it makes no step for this many times its usual step."""
LEAST = timedelta(minutes=1)
"""The shortest stall. An evaluation between two short steps is no stall."""
QUIET = timedelta(minutes=30)
"""The longest time without a sign of life of a program without a known step time: one that has not made two steps yet,
does not report steps, or does something else, such as loading its checkpoint. See `life`."""
_FORGETS = 0.95
"""The usual step time is the longest so far. Each shorter step lowers it by this factor."""


@dataclass(frozen=True)
class StepPace:
    """The pace of a program's steps. Times are of CLOCK_MONOTONIC.

    `step`: the last step, seen at `step_at`. `usual`: real time of a usual step; None before two steps. `stalled`: the
    present stall, if it was reported.
    """

    step: int | None = None
    step_at: timedelta = timedelta()
    usual: timedelta | None = None
    stalled: Stalled | None = None

    def observe(
        self, status: Status | None, now: timedelta, *, alive_at: timedelta, restart: bool
    ) -> tuple["StepPace", Stalled | None]:
        """Return the pace after one more report, and a stall that was not reported yet, if any. `alive_at`: the time of
        the program's last sign of life."""
        if status is None or status.phase is not TrainingPhase.TRAINING:
            return replace(self, step_at=now)._quiet(status, now, alive_at, restart=restart)
        if status.step != self.step:
            return StepPace(status.step, now, self._usual(status.step, now)), None
        if self.usual is None:
            return self._quiet(status, now, alive_at, restart=restart)
        silence = now - self.step_at
        if self.stalled is not None or silence < max(self.usual * FACTOR, LEAST):
            return self, None
        stalled = Stalled(status.step, silence.total_seconds(), restart)
        return replace(self, stalled=stalled), stalled

    def _quiet(
        self, status: Status | None, now: timedelta, alive_at: timedelta, *, restart: bool
    ) -> tuple["StepPace", Stalled | None]:
        silence = now - alive_at
        if silence < QUIET:
            return replace(self, stalled=None), None
        if self.stalled is not None:
            return self, None
        stalled = Stalled(status.step if status is not None else None, silence.total_seconds(), restart)
        return replace(self, stalled=stalled), stalled

    def _usual(self, step: int, now: timedelta) -> timedelta | None:
        if self.step is None or step < self.step:
            return self.usual
        each = (now - self.step_at) / (step - self.step)
        return each if self.usual is None else max(each, self.usual * _FORGETS)
