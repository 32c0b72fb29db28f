"""What our comment keeps of an environment after the merge, in a line that is not shown: that a revision was applied,
or what an update of it that failed has left to do.

The line is the fourth of the comment, and is believed there and nowhere else: any value in the rest may look the same.
Whose comment it is has to be known before, since everybody may write such a line.
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
    """What has become of an environment at a revision. `at`: when, for people; `rest`: the digest of what is left after
    an update that failed, empty if it was applied."""

    revision: str
    at: str
    rest: str = ""

    @property
    def applied(self) -> bool:
        """Whether nothing was left to do."""
        return not self.rest


def read_states(body: str) -> dict[str, CommentState]:
    """Return what a comment of ours keeps, by environment; what is no such entry is left out."""
    line = "".join(_lines(body)[PLACE : PLACE + 1]).strip()
    entries = unpacked(line, _BEGIN, _END)
    return {name: CommentState(**item) for name, item in entries.items() if _right(item)}


def with_states(body: str, states: Mapping[str, CommentState]) -> str:
    """Return a comment with this in its fourth line, in place of what was there."""
    lines = _lines(body)
    had = bool(lines[PLACE:]) and lines[PLACE].startswith(_BEGIN)
    entries = packed({name: asdict(item) for name, item in states.items()})
    return "\n".join([*lines[:PLACE], *([f"{_BEGIN}{entries}{_END}"] if states else []), *lines[PLACE + had :]])


def minute(now: datetime) -> str:
    """Return a time as it is kept, and told to people."""
    return f"{now.astimezone(UTC):%Y-%m-%d %H:%M UTC}"


def _right(item: Any) -> bool:
    if not isinstance(item, dict) or set(item) != set(_FORMS):
        return False
    return all(isinstance(item[key], str) and re.fullmatch(form, item[key]) for key, form in _FORMS.items())


def _lines(body: str) -> list[str]:
    return body.lstrip().replace("\r\n", "\n").split("\n")
