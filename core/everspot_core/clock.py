"""The clock that is passed to everything in Everspot that waits or stamps a time, in place of the operating system's
clock."""

from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """A source of time. Stamps are market time; waits are real time.

    On a real cloud the two run at the same speed. In the local cloud market time runs faster by a factor, so a
    stamp or an absolute time read from the cloud is never compared with a duration of this machine without
    `to_real`.
    """

    def now(self) -> datetime:
        """Return market time, timezone-aware UTC. For stamps, and for comparison with times that the cloud states."""
        ...

    def monotonic(self) -> timedelta:
        """Real time since an arbitrary moment of this machine's boot; comparable between processes of one machine
        (CLOCK_MONOTONIC), never between machines."""
        ...

    def sleep(self, duration: timedelta) -> None:
        """Wait for a real duration."""
        ...

    def to_real(self, duration: timedelta) -> timedelta:
        """Return how long a span of market time takes on this machine."""
        ...

    def to_market(self, duration: timedelta) -> timedelta:
        """Return how much market time passes in a span of this machine's time: the inverse of `to_real`."""
        ...
