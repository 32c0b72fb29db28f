"""Asks the cloud: not too often, and so that its troubles stop nothing else."""

import logging
from collections.abc import Callable

from everspot_clouds.base import Cloud, Trouble
from everspot_core.clock import Clock
from everspot_store import StoreDenied, StoreMissing, StoreUnavailable

from everspot_scheduler.pace import Pace

_log = logging.getLogger(__name__)


class Asking:
    """Calls to one cloud."""

    def __init__(self, cloud: Cloud, clock: Clock) -> None:
        self._cloud, self._clock = cloud, clock

    def ask(self, pace: Pace, call: Callable[[], None], what: str, *, urgent: bool = False) -> None:
        """Make a call if it is due. The store's errors pass; the cloud's must not stop the tick."""
        now = self._clock.monotonic()
        if not pace.due(now, urgent=urgent):
            return
        pace.called(now)
        try:
            call()
            pace.went_well()
        except (StoreUnavailable, StoreDenied, StoreMissing):
            raise
        except Exception as error:
            pace.throttled()
            self.trouble(what, error)

    def trouble(self, what: str, error: Exception) -> None:
        """Log an error of the cloud by what can be done about it."""
        match self._cloud.trouble(error):
            case Trouble.CREDENTIALS:
                _log.critical("%s failed for want of credentials or permission: %s", what, error)
            case Trouble.REQUEST:
                _log.error("%s failed: %s", what, error, exc_info=error)
            case trouble:
                _log.warning("%s failed (%s): %s", what, trouble.value, error)
