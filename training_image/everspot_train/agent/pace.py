"""How long a program's steps take, as its agent sees them, and when one has taken far too long."""

from dataclasses import dataclass, replace
from datetime import timedelta

from everspot_train.agent.actions import Stalled
from everspot_train.rundir import Status, TrainingPhase

FACTOR = 10
"""A program that makes no step for so many times its usual has stalled."""
LEAST = timedelta(minutes=1)
"""But not before this: an evaluation between two short steps is none."""
_FORGETS = 0.95
"""What is left of the longest step, as the usual one, with each step that is shorter."""


@dataclass(frozen=True)
class StepPace:
    """`step`: the last one seen, at `step_at`. `usual`: real time of a step, None before two were seen. `stalled`: what
    was told of the present silence. Moments are of CLOCK_MONOTONIC."""

    step: int | None = None
    step_at: timedelta = timedelta()
    usual: timedelta | None = None
    stalled: Stalled | None = None

    def seen(self, status: Status | None, now: timedelta, *, restart: bool) -> tuple["StepPace", Stalled | None]:
        """What to remember after a look, and the stall if it is one that has not been told."""
        if status is None or status.phase is not TrainingPhase.TRAINING:
            return replace(self, step_at=now), None
        if status.step != self.step:
            return StepPace(status.step, now, self._usual(status.step, now)), None
        silence = now - self.step_at
        if self.stalled is not None or self.usual is None or silence < max(self.usual * FACTOR, LEAST):
            return self, None
        stalled = Stalled(status.step, silence.total_seconds(), restart)
        return replace(self, stalled=stalled), stalled

    def _usual(self, step: int, now: timedelta) -> timedelta | None:
        if self.step is None or step < self.step:
            return self.usual
        each = (now - self.step_at) / (step - self.step)
        return each if self.usual is None else max(each, self.usual * _FORGETS)
