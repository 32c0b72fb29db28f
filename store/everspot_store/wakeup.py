"""The wake-up call to an idle scheduler.

A listing costs twelve times as much as a read, on every cloud. An idle scheduler therefore lists its tables rarely, and
reads one small object often: `wakeup`. A process that adds work rewrites that object. A call that fails or is not
permitted only costs time, because the scheduler reads everything every few minutes anyway.
"""

import logging
import secrets
from datetime import timedelta

from everspot_core.clock import Clock

from everspot_store.bucket import Bucket
from everspot_store.errors import StoreError

KEY = "wakeup"
SPACING = timedelta(seconds=2)
"""One process makes no second call within this time: Cloud Storage allows one write a second for an object, and a
scheduler stays awake for longer once it is woken."""

_log = logging.getLogger(__name__)


class Wakeup:
    """The object `wakeup` of one control bucket. Thread-safe."""

    def __init__(self, control: Bucket, clock: Clock) -> None:
        self._control, self._clock = control, clock
        self._called_at: timedelta | None = None

    def call(self) -> None:
        """Wake the scheduler, after something was written for it. Never raises the store's errors."""
        now = self._clock.monotonic()
        if self._called_at is not None and now - self._called_at < SPACING:
            return
        self._called_at = now
        try:
            self._control.put(KEY, secrets.token_hex(8).encode())
        except StoreError as error:
            _log.info("the scheduler was not woken and will read the store within minutes: %s", error)

    def token(self) -> bytes:
        """Return the token of the last call; empty before the first one.

        Raises:
            StoreError: if the store does not answer.
        """
        entry = self._control.get(KEY)
        return b"" if entry is None else entry.value
