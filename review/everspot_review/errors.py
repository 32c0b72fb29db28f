"""The failures of the review's commands, with their exit codes."""

from enum import IntEnum


class ReviewExit(IntEnum):
    """Exit codes of `everspot review`, as docs/reference/cli.md lists them."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_REVIEWED = 3
    UNAVAILABLE = 4
    LOCKED = 6
    DRIFTED = 7


class ReviewError(Exception):
    """A sentence for people. `code`: the exit code of the command; `hint`: how to fix it."""

    code = ReviewExit.REFUSED
    hint = ""


class UnavailableError(ReviewError):
    """A required service or program cannot be reached or is missing: the engine, its backend, the forge."""

    code = ReviewExit.UNAVAILABLE
