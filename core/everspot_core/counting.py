"""Counts and sizes as people read them, in the same form in the command, the agent and the scheduler."""

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """Return a number of things: `1 file`, `12,000 files`. `noun`: in the singular; its plural takes an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def first_few(words: Sequence[str], most: int, *, between: str = ", ", remainder_phrase: str = " and {} more") -> str:
    """Return the first `most` words and the number of the others: `a, b and 3 more`.

    `remainder_phrase`: the phrase for that number.
    """
    remaining = len(words) - most
    return between.join(words[:most]) + (remainder_phrase.format(f"{remaining:,}") if remaining > 0 else "")


def size(count: float) -> str:
    """Return bytes with three digits and their unit, in steps of a thousand: `0 B`, `812 B`, `31.5 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if float(f"{count:.3g}") < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB" if count < 999 else f"{count:,.0f} TB"
