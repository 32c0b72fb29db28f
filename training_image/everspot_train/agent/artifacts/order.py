"""Finds the first file of each round of a fast program, which writes whole rounds between two scans.

A scan of such a program sees only the last write of each file, and may happen in the middle of a round. Then the files
seem to be written in the order `b, c, a`, although `a` already belongs to the next round. The pauses between the writes
show it: a program pauses longer between two rounds than between the files of one round.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

SPAN = timedelta(seconds=5)
"""A program is fast if two scans within this time see the same files written."""
_LOOKS = 3
"""The scans of all files that are needed before the leader is known."""
_REMEMBERED = 20
"""The number of remembered pauses before each file. The shortest counts, because a busy machine prolongs pauses."""
_CLEAR = 2
"""The least factor of the pause before the leader over the pause before any other file."""
_SLOWEST_WRITE = 50_000_000
"""Bytes per second. The time in which a file may have been written at this speed does not count as a pause before
it."""


@dataclass(frozen=True)
class TimedWrite:
    """The last write of a file before a scan.

    Attributes:
        template: the file's path without the number of its version.
        ctime_ns: the kernel's time of the write, in nanoseconds.
        size: bytes of the file.
    """

    template: bytes
    ctime_ns: int
    size: int = 0


class WriteOrder:
    """The order in which a program writes its files in each round.

    Attributes:
        is_fast: whether the program has written all its files again within `SPAN` from the beginning.
        templates: the templates of these files.
        leader: the first file of each round; None while it is unknown, or if each scan sees a single round.
    """

    def __init__(self) -> None:
        self._settled = False  # whether further looks change nothing
        self._restart()

    def _restart(self) -> None:
        self.is_fast = False
        self.templates: frozenset[bytes] = frozenset()
        self.leader: bytes | None = None
        self._first_at = timedelta()
        self._written_at: dict[bytes, timedelta] = {}
        self._pauses: dict[bytes, deque[float]] = {}
        self._rests: dict[bytes, float] = {}  # longest time from a look's last write to it, by its first file
        self._looks = 0

    def observe(self, writes: Sequence[TimedWrite], at: timedelta, wall_ns: int) -> None:
        """Record one scan.

        Args:
            writes: the writes since the last scan, in order.
            at: monotonic time of the scan.
            wall_ns: the time of the scan by the kernel's clock, in nanoseconds.
        """
        if self._settled or not writes:
            return
        written = frozenset(write.template for write in writes)
        if self.is_fast and at - max(self._written_at.values()) > SPAN:
            self._settled = self.leader is not None
            self._restart()
        if not self._written_at:
            self._first_at, self.templates = at, written
            self._settled = self._settled or len(writes) < 2 or len(written) < len(writes)
        elif not self.is_fast:
            self.is_fast = at - self._first_at <= SPAN and written >= self.templates
            self._settled = at - self._first_at > SPAN or not (self.is_fast or written <= self.templates)
        self._written_at |= dict.fromkeys(written, at)
        if self.is_fast:
            self._compare(writes, written, at, wall_ns)

    def _compare(self, writes: Sequence[TimedWrite], written: frozenset[bytes], at: timedelta, wall_ns: int) -> None:
        # A file that is not written in every round, such as a best model, is removed again.
        self.templates = frozenset(name for name, last in self._written_at.items() if at - last <= SPAN)
        for before, after in pairwise(writes):
            if after.ctime_ns > before.ctime_ns:  # the order within a tick of the kernel's clock is not known
                pauses = self._pauses.setdefault(after.template, deque(maxlen=_REMEMBERED))
                pauses.append(_pause_seconds(before.ctime_ns, after.ctime_ns, after.size))
        first, last = writes[0], writes[-1].ctime_ns
        rest_seconds = _pause_seconds(last, wall_ns, first.size)
        self._rests[first.template] = max(self._rests.get(first.template, 0.0), rest_seconds)
        self._looks += written >= self.templates
        if self._looks >= _LOOKS and len(self.templates) > 1:
            self.leader = self._find_leader()

    def _find_leader(self) -> bytes | None:
        pauses = {
            name: min(self._pauses[name]) if name in self._pauses else self._rests.get(name, 0.0)
            for name in self.templates
        }
        first, second = sorted(pauses, key=lambda name: (-pauses[name], name))[:2]
        if pauses[first] <= _CLEAR * max(pauses[second], 0.0):
            return None
        # If all scans begin with the same file, no pause before it was seen. It is longer than the other pauses of the
        # scans.
        unseen = self.templates - self._pauses.keys()
        return first if unseen <= {first} else None


def _pause_seconds(before_ns: int, after_ns: int, size: int) -> float:
    """Return the shortest possible pause of a program before it began to write a file of `size` bytes."""
    return (after_ns - before_ns) / 1e9 - size / _SLOWEST_WRITE
