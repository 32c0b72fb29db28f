"""Times the steps of a training loop, and how long it waits for batches."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class LoopTiming:
    """The time of a process's steps as its loop sees them, without waiting for a GPU. The time between two steps, such
    as for a checkpoint, does not count.

    Args:
        now: returns monotonic seconds.

    Attributes:
        steps: steps that are over.
        loop_seconds: real time of these steps.
        wait_seconds: the part of it in which the loop waited for its next batch.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began: float | None = None
        self._waited = 0.0
        self.steps = 0
        self.loop_seconds = self.wait_seconds = 0.0

    def begin_step(self) -> None:
        """Note that a step begins."""
        self._began, self._waited = self._now(), 0.0

    def end_step(self) -> None:
        """Note that a step is over, if one had begun."""
        if self._began is None:
            return
        self.steps += 1
        self.loop_seconds += self._now() - self._began
        self.wait_seconds += self._waited
        self._began = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time of the block as waiting for a batch."""
        began = self._now()
        yield
        self._waited += self._now() - began
