"""How many instances of a group will be free, and when: what may be lent for a while, and from when on it is promised.

Times are hours from now; `inf` is never. Instances of a group stand for one another, so counting them is enough: jobs
whose times were promised by the count can always be seated, one after the other, as their times come.
"""

from bisect import bisect_left
from collections.abc import Iterable
from math import inf


class Timeline:
    """Free instances over time. Ends of what runs now count from when they are certain, promises take away."""

    def __init__(self, free: int, ends: Iterable[float]) -> None:
        known = sorted(e for e in ends if e < inf)
        self._times, self._counts = [0.0], [free]
        self._until: dict[int, float] = {}
        for end in known:
            if end > self._times[-1]:
                self._times.append(end)
                self._counts.append(self._counts[-1])
            self._counts[-1] += 1

    def enough_until(self, count: int) -> float:
        """Until when `count` are free without a break from now on."""
        if count not in self._until:
            steps = zip(self._times, self._counts, strict=True)
            self._until[count] = next((t for t, c in steps if c < count), inf)
        return self._until[count]

    def earliest(self, count: int, hours: float) -> float:
        """The first moment from which `count` are free for so long without a break; never: inf."""
        start: float | None = None
        for time, free in zip(self._times, self._counts, strict=True):
            if start is not None and time >= start + hours:
                return start
            if free < count:
                start = None
            elif start is None:
                start = time
        return inf if start is None else start

    def take(self, count: int, start: float, hours: float) -> None:
        """`count` are in use from `start` on for so long."""
        self._until.clear()
        first, last = self._at(start), self._at(start + hours)
        for n in range(first, last):
            self._counts[n] -= count

    def _at(self, time: float) -> int:
        """The position at which `time` begins a step of its own."""
        if time == inf:
            return len(self._times)
        n = bisect_left(self._times, time)
        if n == len(self._times) or self._times[n] != time:
            self._times.insert(n, time)
            self._counts.insert(n, self._counts[n - 1])
        return n
