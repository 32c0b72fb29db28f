"""What was reviewed: the digests that our comment on a pull request has, of the revision that it was about.

They are believed only in a comment of ours, and only if that speaks of the last revision of the pull request: what was
pushed after it, nobody has previewed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from everspot_review.forge import Forge, Pull
from everspot_review.kept import Kept, kept_of
from everspot_review.markdown import MARKER, digests
from everspot_review.publish import Voice

_HEAD = re.compile(r"<!-- everspot-head ([0-9a-f]{7,64}) -->")
_PLACE = 2
"""Lines of a comment before the one with its revision: the marker, and the digests."""


@dataclass(frozen=True)
class Reviewed:
    """What was reviewed in a pull request. `pull`: None if the commit came from none; `digests`: by environment;
    `kept`: what has become of environments at this commit; `why`: why there is no digest, a sentence."""

    pull: Pull | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    kept: Mapping[str, Kept] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Of the pull request; 0 if there is none."""
        return self.pull.number if self.pull is not None else 0

    @property
    def head(self) -> str:
        """The pull request's last revision; empty if there is none."""
        return self.pull.head if self.pull is not None else ""


def with_head(body: str, head: str) -> str:
    """A comment with the revision that it is about, in its third line."""
    lines = body.splitlines()
    return "\n".join([*lines[:_PLACE], f"<!-- everspot-head {head} -->", *lines[_PLACE:]]) + "\n"


def head_of(body: str) -> str:
    """The revision that a comment is about; empty if its third line tells none."""
    found = _HEAD.fullmatch("\n".join(body.lstrip().splitlines()[_PLACE : _PLACE + 1]).strip())
    return found[1] if found else ""


def reviewed_of(forge: Forge, commit: str, author: str | None = None) -> Reviewed:
    """What was reviewed of a commit, by the pull request that it came from.

    Raises:
        ForgeError: if the forge cannot be asked.
    """
    merged = [pull for pull in forge.pulls_of(commit) if pull.merged]
    if not merged:
        return Reviewed(why=f"{commit[:12]} came from no merged pull request")
    pull = max(merged, key=lambda found: found.number)
    mine = Voice.of(forge, MARKER, author).mine(forge.comments(pull.number))
    if mine is None:
        return Reviewed(pull, why=f"pull request {pull.number} has no comment of ours")
    head = head_of(mine.body)
    if head != pull.head:
        about = f"the comment on pull request {pull.number} is about {head[:12] or 'nothing'}"
        why = f"{about}, and its last revision is {pull.head[:12]}"
        return Reviewed(pull, why=why)
    kept = {name: item for name, item in kept_of(mine.body).items() if item.revision == commit}
    return Reviewed(pull, digests(mine.body), kept=kept)
