"""Counts and sizes as people read them, told alike by the command, the agent and the scheduler."""


def counted(count: int, noun: str) -> str:
    """A number of things: `1 file`, `12,000 files`. `noun`: in the singular; its plural takes an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: float) -> str:
    """Bytes with three digits and their unit, which goes by thousands: `0 B`, `812 B`, `31.5 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if float(f"{count:.3g}") < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB" if count < 999 else f"{count:,.0f} TB"
