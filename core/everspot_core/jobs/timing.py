"""Parses and evaluates the hours in which a job may run, and the condition that skips a run of a series."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo

from everspot_core.documents import is_stored

_WINDOW = re.compile(r"(\d{2}):(\d{2})-(\d{2}):(\d{2})(?: ([A-Za-z][A-Za-z0-9_+/-]{0,63}))?")
_SKIP = re.compile(r"([A-Za-z_][\w./-]{0,99}) (gain|drop) < (-?\d{1,12}(?:\.\d{1,12})?(?:e-?\d{1,2})?)")
_DAY = timedelta(days=1)
_SPANS = 4000
"""The number of future windows that are searched, more than ten years."""
_UTC = "UTC"


class BadZone(ValueError):
    """A time zone that is unknown on this machine."""


@dataclass(frozen=True, slots=True)
class Window:
    """The hours from `start` to `end` of each day in a time zone. They pass midnight if `end` is before `start`."""

    start: time
    end: time
    zone: str = _UTC

    @classmethod
    def parse(cls, text: str) -> "Window":
        """Return the window of a text such as `22:00-06:00`, in UTC, or `22:00-06:00 Europe/Berlin`.

        Raises:
            ValueError: if the text is no window, or the window has no length.
        """
        match = _WINDOW.fullmatch(text.strip())
        if match is None:
            raise ValueError("must be hours of the day such as 22:00-06:00 or 22:00-06:00 Europe/Berlin")
        hours = [int(part) for part in match.groups()[:4]]
        try:
            start, end = time(hours[0], hours[1]), time(hours[2], hours[3])
        except ValueError:
            raise ValueError("has an hour beyond 23 or a minute beyond 59") from None
        if start == end:
            raise ValueError("has no length: it begins when it ends")
        return cls(start, end, match.group(5) or _UTC)

    def __str__(self) -> str:
        """Return the window as a person writes it."""
        zone = "" if self.zone == _UTC else f" {self.zone}"
        return f"{self.start:%H:%M}-{self.end:%H:%M}{zone}"

    def spans(self, since: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Yield the spans in which the window is open, in UTC. The first span contains `since`, or follows it.

        Raises:
            BadZone: if its zone is unknown on this machine.
        """
        zone = self._zone()
        day, closed = since.astimezone(zone).date() - 2 * _DAY, datetime.min.replace(tzinfo=UTC)
        while True:
            opens = max(closed, datetime.combine(day, self.start, zone).astimezone(UTC))
            later = day if self.end > self.start else day + _DAY
            closes = datetime.combine(later, self.end, zone).astimezone(UTC)
            if closes > since and closes > opens:  # a short window may vanish when clocks are put forward
                yield opens, closes
            closed = max(closed, closes)  # when clocks are put forward, a long window may overlap the next one
            day += _DAY

    def is_open(self, at: datetime) -> bool:
        """Return whether the window is open at a moment.

        Raises:
            BadZone: if its zone is unknown on this machine.
        """
        return self.opens(at) <= at

    def opens(self, at: datetime) -> datetime:
        """Return the start of the span that contains a moment; if none does, the start of the next one.

        Raises:
            BadZone: if its zone is unknown on this machine.
        """
        return next(self.spans(at))[0]

    def open_time(self, begin: datetime, end: datetime) -> timedelta:
        """Return how long the window is open between two moments.

        Raises:
            BadZone: if its zone is unknown on this machine.
        """
        total = timedelta(0)
        for opens, closes in self.spans(begin):
            if opens >= end:
                break
            total += min(closes, end) - max(opens, begin)
        return total

    def shift(self, moment: datetime, days: int) -> datetime:
        """Return the moment that is as far from the window's opening so many days later as `moment` is from its own
        opening: the same wall time, except where clocks were put forward or back in between.

        Raises:
            BadZone: if its zone is unknown on this machine.
        """
        zone, opens = self._zone(), self.opens(moment)
        day = opens.astimezone(zone).date() + days * _DAY
        return datetime.combine(day, self.start, zone).astimezone(UTC) + (moment - opens)

    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError):  # a ZoneInfoNotFoundError is a KeyError
            raise BadZone(f"the time zone {self.zone} is not known") from None


def finish(begin: datetime, work: timedelta, changeover: timedelta, window: Window | None) -> datetime | None:
    """Return when work that begins as soon as possible is done; None if not within ten years.

    Each start, and each continuation in a later window, costs a changeover.

    Raises:
        BadZone: if the window's zone is not known here.
    """
    try:
        if window is None:
            return begin + changeover + work
        remaining = work
        for opens, closes in islice(window.spans(begin), _SPANS):
            ready = max(begin, opens) + changeover
            if ready + remaining <= closes:
                return ready + remaining
            remaining -= max(timedelta(0), closes - ready)
    except OverflowError:  # beyond the last date of the calendar
        pass
    return None


def effective(
    deadline: datetime, now: datetime, changeover: timedelta, window: Window, *, starting: bool = False
) -> datetime:
    """Return an earlier deadline that is equivalent to a deadline with a window: as far from `now` as the time in which
    the job can run until the deadline. Each start in a later window costs a changeover.

    Args:
        starting: the job has no instance, and its first changeover is subtracted from the result by the caller. In a
            first window that is shorter than that the job does not start, and the window costs nothing, as in `finish`.

    Raises:
        BadZone: if the window's zone is not known here.
    """
    time_left = timedelta(0)
    for number, (opens, closes) in enumerate(islice(window.spans(now), _SPANS)):
        if opens >= deadline:
            break
        span = min(closes, deadline) - max(opens, now)
        if number:
            time_left += max(timedelta(0), span - changeover)
        else:
            time_left = max(span, changeover) if starting else span
    return min(deadline, now + time_left)


class Better(StrEnum):
    """Whether a metric gets better by a gain or by a drop."""

    GAIN = "gain"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class SkipIf:
    """The condition that skips a run of a series: the last run improved a metric by less than `least` over the run
    before.

    `better`: the direction of an improvement, a gain (accuracy) or a drop (loss).
    """

    metric: str
    better: Better
    least: float

    @classmethod
    def parse(cls, text: str) -> "SkipIf":
        """Return the condition of a text such as `test_accuracy gain < 0.01`, or `loss drop < 0.1`.

        Raises:
            ValueError: if the text is no condition.
        """
        match = _SKIP.fullmatch(" ".join(text.split()))
        if match is None:
            raise ValueError("must be a metric and its least gain or drop, such as `test_accuracy gain < 0.01`")
        return cls(match.group(1), Better(match.group(2)), float(match.group(3)))

    def __str__(self) -> str:
        """Return the condition as a person writes it."""
        return f"{self.metric} {self.better.value} < {self.least:g}"

    def skips(self, before: float | None, last: float | None) -> bool:
        """Return whether the next run is skipped. It is not skipped if one of the two runs has not reported the
        metric."""
        if before is None or last is None:
            return False
        return (last - before if self.better is Better.GAIN else before - last) < self.least


def _window(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str):
        if isinstance(value, Window):
            return value
        raise ValueError("must be hours of the day such as 22:00-06:00, in quotes")
    window = Window.parse(value)
    if not is_stored(info):  # stored documents are read even if their zone is unknown here
        next(window.spans(datetime(2026, 1, 1, tzinfo=UTC)))
    return window


def _skip(value: Any) -> Any:
    if not isinstance(value, str):
        if isinstance(value, SkipIf):
            return value
        raise ValueError("must be a text such as `test_accuracy gain < 0.01`")
    return SkipIf.parse(value)


Hours = Annotated[Window, BeforeValidator(_window), PlainSerializer(str, return_type=str)]
"""A window, written as text in job files and documents."""
Skip = Annotated[SkipIf, BeforeValidator(_skip), PlainSerializer(str, return_type=str)]
"""A condition, written as text in job files and documents."""
