"""Decides about an upload that is under way when the machine is about to be taken."""

SAFETY = 1.25
"""The factor by which an upload may take longer than measured, because other instances upload at the same time."""


def gives_way(remaining: int | None, fresh: int, rate: float | None, seconds: float) -> bool:
    """Whether an upload under way is cancelled for that of a newer checkpoint.

    If the time is enough for both, both are uploaded. If it is enough for the newer one only, the older one is
    cancelled. If it is enough for neither, the older one goes on, since it is nearer to its end.

    Args:
        remaining: bytes of the upload under way that have not arrived; None: it has not begun.
        fresh: bytes of the newer checkpoint.
        rate: bytes per second, as measured; None: nothing has been measured.
        seconds: until the newer one must be durable.
    """
    if remaining is None or remaining >= fresh:  # nothing is lost: the newer one is at least as near
        return True
    if rate is None:
        return False
    affordable = rate * seconds / SAFETY
    return remaining + fresh > affordable >= fresh
