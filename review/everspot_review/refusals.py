"""The refusals of a forge, one class for each thing that a person can do about it:

ForgeError
├── ForgeUnknown      no call is made: the job's variables name no forge, or none that can be used
├── ForgeDenied       401, 403: the token may not do this
├── ForgeMissing      404: not there, or not for this token
├── ForgeRejected     other 4xx, such as 422 for a comment above 65,536 characters
├── ForgeBusy         a rate limit that lasts longer than there is patience
└── ForgeUnreachable  no answer, or 5xx: whether a write was done is not known
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from email.message import Message

from everspot_review.errors import ReviewError, ReviewExit

SECONDARY = timedelta(minutes=1)
"""The wait for a limit that names none: what GitHub's documentation asks for ("Rate limits for the REST API")."""


@dataclass(frozen=True)
class Patience:
    """How often a call is made, and the limit of all of its waits together. `sleep` takes seconds; `now` gives the
    seconds since 1970, in which GitHub says when a limit ends."""

    tries: int = 5
    waits: timedelta = timedelta(minutes=5)
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time


class ForgeError(ReviewError):
    """A call that the forge did not do."""


class ForgeUnknown(ForgeError):
    """The variables of the job name no forge."""

    code = ReviewExit.UNAVAILABLE


class ForgeDenied(ForgeError):
    """The token may not do this."""


class ForgeMissing(ForgeError):
    """It is not there, or not for this token."""


class ForgeRejected(ForgeError):
    """The forge rejects the content of the request."""


class ForgeBusy(ForgeError):
    """A rate limit that lasts longer than there is patience."""

    code = ReviewExit.UNAVAILABLE


class ForgeUnreachable(ForgeError):
    """There was no answer, or the answer does not show whether the write was done."""

    code = ReviewExit.UNAVAILABLE


class LaterError(Exception):
    """A refusal that may pass. `seconds`: until when, if it is known; `unknown`: whether it may have been done."""

    def __init__(self, error: ForgeError, seconds: float | None, *, unknown: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.seconds, self.unknown = error, seconds, unknown


def refusal(call: str, code: int, headers: Message, text: str, now: float) -> ForgeError | LaterError:
    """Return the error for an answer. `call`: the call; `text`: the forge's words; `now`: seconds since 1970."""
    wait = _limited(code, headers, text, now) if code in (403, 429) else None
    if wait is not None:
        return LaterError(ForgeBusy(f"{call}: the forge limits the rate of calls, for {wait:.0f} s more: {text}"), wait)
    if code >= 500:
        error = ForgeUnreachable(f"{call}: the forge answers {code}: {text}")
        return LaterError(error, _number(headers.get("Retry-After")), unknown=True)
    kind = {401: ForgeDenied, 403: ForgeDenied, 404: ForgeMissing}.get(code, ForgeRejected)
    return kind(f"{call}: {code}: {text}")


def _limited(code: int, headers: Message, text: str, now: float) -> float | None:
    """Return the seconds that a rate limit lasts; None if the refusal is for another reason."""
    after = _number(headers.get("Retry-After"))
    if after is not None:
        return after
    reset = _number(headers.get("X-RateLimit-Reset"))
    if headers.get("X-RateLimit-Remaining") == "0" and reset is not None:
        return max(reset - now, 0.0) + 1
    if code == 429 or "rate limit" in text.lower():
        return SECONDARY.total_seconds()
    return None


def _number(text: str | None) -> float | None:
    """Return a header's number of seconds; None if there is no number, or a date."""
    try:
        return max(float(text), 0.0) if text else None
    except ValueError:
        return None
