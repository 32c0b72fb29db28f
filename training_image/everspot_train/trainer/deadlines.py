"""What to do with an upload that is under way when the machine is about to go."""

SAFETY = 1.25
"""How much longer than measured an upload may take: other instances leave at the same time."""


def gives_way(left: int | None, fresh: int, rate: float | None, seconds: float) -> bool:
    """Whether an upload under way is cancelled for that of a newer checkpoint.

    Both are made durable where the time suffices, for the older one is safe soon. Else the newer one alone, where
    that suffices. Else the older one goes on: it is the nearer of the two.

    Args:
        left: bytes of the upload under way that have not arrived; None: it has not begun.
        fresh: bytes of the newer checkpoint.
        rate: bytes per second, as measured; None: nothing has been measured.
        seconds: until the newer one must be durable.
    """
    if left is None or left >= fresh:  # nothing is lost: the newer one is at least as near
        return True
    if rate is None:
        return False
    affordable = rate * seconds / SAFETY
    return left + fresh > affordable >= fresh
