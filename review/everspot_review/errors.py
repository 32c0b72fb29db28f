"""What a command of the review cannot do, and the exit code that says so."""

from enum import IntEnum


class ReviewExit(IntEnum):
    """Exit codes of `everspot review`, as docs/guide/review.md lists them."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_REVIEWED = 3
    UNAVAILABLE = 4
    LOCKED = 6
    DRIFTED = 7


class ReviewError(Exception):
    """A sentence for people. `code`: how the command ends; `hint`: what to do about it."""

    code = ReviewExit.REFUSED
    hint = ""


class UnavailableError(ReviewError):
    """What is needed cannot be reached or is not there: the engine, its backend, the forge."""

    code = ReviewExit.UNAVAILABLE
