"""Who held an instance when: its life, cut by those who held it. What nobody held is boot, idling and the rest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Hold:
    """One instance was held from `start` to `end`. `holder`: the job, or whoever else is to answer for it."""

    holder: str
    start: datetime
    end: datetime


Part = tuple[str | None, datetime, datetime]
"""A part of an instance's life: who held it (None: nobody), from when, until when."""


def in_order(claims: Iterable[Hold]) -> list[Hold]:
    """The holds of one instance, in order, without overlap: where two claim a moment, the later assignment has it."""
    holds = sorted(claims, key=lambda h: (h.start, h.holder))
    cut = [Hold(h.holder, h.start, min(h.end, following.start)) for h, following in pairwise(holds)]
    return cut + holds[-1:]


def parts(launched: datetime, end: datetime, minimum: timedelta, holds: Sequence[Hold]) -> list[Part]:
    """An instance's life cut by who held it; what is paid beyond its end, up to the minimum, is nobody's."""
    found: list[Part] = []
    cursor = launched
    for hold in holds:
        start, until = max(hold.start, cursor), min(hold.end, end)
        if start < until:
            found += [(None, cursor, start), (hold.holder, start, until)]
            cursor = until
    found.append((None, cursor, max(end, launched + minimum)))
    return [(holder, start, until) for holder, start, until in found if start < until]
