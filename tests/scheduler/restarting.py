"""A scheduler that crashes and restarts, beside others that run between its calls."""

from abc import ABC, abstractmethod
from typing import ClassVar

from everspot_scheduler.loop import Scheduler


class Restarting(ABC):
    """One that is started again after each crash, without any memory. `crash`: what ends it; `crashes`: how often."""

    crash: ClassVar[type[BaseException]]
    crashes = 0
    _busy = False
    _scheduler: Scheduler

    @abstractmethod
    def _start(self) -> Scheduler:
        """The next one."""

    def tick(self) -> None:
        """Run a tick, unless one is running."""
        if self._busy:  # it is the one that waits
            return
        self._busy = True
        try:
            self._scheduler.tick()
        except self.crash:
            self.crashes += 1
            self._scheduler = self._start()
        finally:
            self._busy = False
