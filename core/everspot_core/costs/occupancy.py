"""Cuts an instance's life into parts by the job that held it. The parts that nobody held are boot, idle time and the
rest."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise

_ALL = Fraction(1)


@dataclass(frozen=True, slots=True)
class Tenure:
    """A holder held one instance from `start` to `end`.

    Attributes:
        holder: the job, or the team, that the cost is attributed to.
        share: the holder's fraction of the instance's cost; less than 1 where others may hold the instance too.
        gpus: those of the holder's seat; None: its share of the instance's GPUs.
    """

    holder: str
    start: datetime
    end: datetime
    share: Fraction = _ALL
    gpus: int | None = None

    @property
    def exclusive(self) -> bool:
        """Whether nobody else can hold the instance. A seat may pay for all of it, by all its GPUs, beside others that
        pay nothing."""
        return self.gpus is None and self.share == _ALL


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an instance's life.

    Attributes:
        holder: None: nobody.
        start: its begin.
        end: its end.
        share: the holder's fraction of the instance's cost. Nobody's may be 0, where GPUs alone are unassigned.
        gpus: those that the holder has, or nobody.
    """

    holder: str | None
    start: datetime
    end: datetime
    share: Fraction
    gpus: Fraction


def in_order(claims: Iterable[Tenure]) -> list[Tenure]:
    """Return the tenures of one instance, in order. If two overlap and one of them has the whole instance, the earlier
    one ends where the later one begins."""
    tenures = sorted(claims, key=lambda h: (h.start, h.holder))
    ordered: list[Tenure] = []
    alone: datetime | None = None
    following: datetime | None = None
    for hold in reversed(tenures):
        until = following if hold.exclusive else alone
        ordered.append(hold if until is None else replace(hold, end=min(hold.end, until)))
        following = hold.start
        alone = hold.start if hold.exclusive else alone
    return ordered[::-1]


def parts(
    launched: datetime,
    end: datetime,
    minimum: timedelta,
    tenures: Sequence[Tenure],
    *,
    gpus: Fraction = Fraction(0),
) -> list[Piece]:
    """Return an instance's life, cut by the job that held it. At each moment the shares add up to 1.

    Nobody holds the time that no share covers, nor the billed time after the end, up to the minimum. Two machines'
    clocks may disagree on the moment in which one job follows another, so that shares add up to more than 1. Then the
    later assignment gets its share first. A seat has its GPUs whatever its share is.

    Args:
        launched: The instance's begin.
        end: Its end.
        minimum: The shortest life that is billed.
        tenures: In order, of this instance.
        gpus: The instance's GPUs.
    """
    inside = [replace(h, start=max(h.start, launched), end=min(h.end, end)) for h in tenures]
    inside = [h for h in inside if h.start < h.end]
    cuts = {launched, max(end, launched + minimum), *(h.start for h in inside), *(h.end for h in inside)}
    pieces: list[Piece] = []
    present: list[Tenure] = []
    coming = inside[::-1]
    for start, until in pairwise(sorted(cuts)):
        while coming and coming[-1].start <= start:
            present.append(coming.pop())
        present = [h for h in present if h.end > start]
        unassigned, unassigned_gpus = _ALL, gpus
        for hold in reversed(present):
            share = min(hold.share, unassigned)
            seat_gpus = Fraction(hold.gpus) if hold.gpus is not None else share * gpus
            unassigned -= share
            unassigned_gpus -= seat_gpus
            pieces.append(Piece(hold.holder, start, until, share, seat_gpus))
        if unassigned or unassigned_gpus > 0:
            pieces.append(Piece(None, start, until, unassigned, max(Fraction(0), unassigned_gpus)))
    return _joined(pieces)


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbouring parts that differ in time only."""
    joined: list[Piece] = []
    at: dict[tuple[str | None, datetime, Fraction, Fraction], int] = {}
    for piece in pieces:
        n = at.pop((piece.holder, piece.start, piece.share, piece.gpus), None)
        if n is None:
            n = len(joined)
            joined.append(piece)
        else:
            joined[n] = replace(joined[n], end=piece.end)
        at[piece.holder, piece.end, piece.share, piece.gpus] = n
    return joined
