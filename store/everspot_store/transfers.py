"""The progress of an upload, and a switch that cancels it."""

import threading
from datetime import timedelta

from everspot_core.clock import Clock

from everspot_store.errors import TransferCancelled


class Transfer:
    """The progress of an upload of one or more files. Thread-safe. Bytes count when they have arrived; the last pieces
    of a multipart upload count when the object exists."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began: timedelta | None = None
        self._size = 0
        self._sent = 0
        self._cancelled = False

    def begin(self, size: int) -> None:
        """Start, or restart, an upload of `size` bytes."""
        with self._lock:
            self._began, self._size, self._sent = self._clock.monotonic(), size, 0

    def moved(self, size: int) -> None:
        """Record that `size` more bytes have arrived.

        Raises:
            TransferCancelled: if it was cancelled.
        """
        with self._lock:
            if self._cancelled:
                raise TransferCancelled("a newer one has to be durable soon")
            self._sent += size

    def cancel(self) -> None:
        """Cancel the upload at its next piece."""
        self._cancelled = True

    @property
    def remaining_bytes(self) -> int | None:
        """Bytes that have not arrived; None before the upload began."""
        with self._lock:
            return None if self._began is None else max(0, self._size - self._sent)

    @property
    def rate(self) -> float | None:
        """Bytes per second of real time so far; None while nothing has arrived."""
        with self._lock:
            if self._began is None or not self._sent:
                return None
            elapsed = (self._clock.monotonic() - self._began).total_seconds()
            return self._sent / elapsed if elapsed > 0 else None
