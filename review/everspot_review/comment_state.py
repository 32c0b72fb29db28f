"""The state of an environment after the merge that our comment keeps, in a line that is not shown: the applied
revision, or the remaining steps of a failed update.

Only the fourth line of the comment is parsed, because other lines may quote text of the change.
The caller has to check whose comment it is, since everybody may write such a line.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from everspot_review.markdown.digests import packed, unpacked

PLACE = 3
"""Lines of a comment before this one: the marker, the digests, and the revision that it is about."""

_BEGIN, _END = "<!-- everspot-kept ", " -->"
_FORMS = {"revision": r"[0-9a-f]{7,64}", "at": r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "rest": r"([0-9a-f]{64})?"}


@dataclass(frozen=True)
class CommentState:
    """The state of an environment at a revision.

    Attributes:
        at: the time, for people.
        rest: the digest of the remaining steps of a failed update, empty if the revision was applied.
    """

    revision: str
    at: str
    rest: str = ""

    @property
    def applied(self) -> bool:
        """Whether no steps remained."""
        return not self.rest


def read_states(body: str) -> dict[str, CommentState]:
    """Return the entries of a comment of ours, by environment; unreadable entries are left out."""
    line = "".join(_lines(body)[PLACE : PLACE + 1]).strip()
    entries = unpacked(line, _BEGIN, _END)
    return {name: CommentState(**item) for name, item in entries.items() if _right(item)}


def with_states(body: str, states: Mapping[str, CommentState]) -> str:
    """Return a comment with these states in its fourth line, in place of the earlier ones."""
    lines = _lines(body)
    had = bool(lines[PLACE:]) and lines[PLACE].startswith(_BEGIN)
    entries = packed({name: asdict(item) for name, item in states.items()})
    return "\n".join([*lines[:PLACE], *([f"{_BEGIN}{entries}{_END}"] if states else []), *lines[PLACE + had :]])


def minute(now: datetime) -> str:
    """Return a time in its stored form, which is also shown to people."""
    return f"{now.astimezone(UTC):%Y-%m-%d %H:%M UTC}"


def _right(item: Any) -> bool:
    if not isinstance(item, dict) or set(item) != set(_FORMS):
        return False
    return all(isinstance(item[key], str) and re.fullmatch(form, item[key]) for key, form in _FORMS.items())


def _lines(body: str) -> list[str]:
    return body.lstrip().replace("\r\n", "\n").split("\n")
