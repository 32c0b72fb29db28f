"""The one comment of a pull request, and the one issue of an environment that has drifted: found, created, edited.

A comment is ours if its author is us and its first line is our marker. Anybody can write the marker, so another
author's comment with it is neither edited nor believed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from everspot_review.forge import Comment, Forge, Issue
from everspot_review.refusals import ForgeUnreachable

JOB = "github-actions[bot]"
"""The author of comments that a job's own token writes on GitHub, where the token cannot ask for it. No person's login
has brackets."""

WRITES = 3
"""How often a comment is looked up again after a write with an unknown result."""


class Published(StrEnum):
    """The result of publishing a comment. OVERTAKEN: a newer push has come, whose run has the newer facts; NOTHING:
    there was nothing to say, and no comment existed."""

    CREATED = "created"
    EDITED = "edited"
    UNCHANGED = "unchanged"
    OVERTAKEN = "overtaken"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Voice:
    """The identity of our comments. `author`: the login; `marker`: the first line of our comments."""

    author: str
    marker: str

    @classmethod
    def for_owner(cls, forge: Forge, marker: str, author: str | None = None) -> "Voice":
        """Return the voice of a token's owner. `author`: its login, where the forge cannot be asked for it."""
        return cls(author or forge.user() or JOB, marker)

    def own_comment(self, comments: list[Comment]) -> Comment | None:
        """Our comment: the oldest, should a forge have lost one of two races and made two."""
        own = [c for c in comments if c.author == self.author and c.body.lstrip().startswith(self.marker)]
        return min(own, key=lambda comment: comment.id, default=None)

    def issue(self, issues: list[Issue]) -> Issue | None:
        """Our open issue."""
        own = [i for i in issues if i.author == self.author and i.body.lstrip().startswith(self.marker)]
        return min(own, key=lambda issue: issue.number, default=None)


def publish(
    forge: Forge,
    voice: Voice,
    number: int,
    head: str,
    body: str | None,
    joined: Callable[[str, str], str] = lambda _, new: new,
) -> Published:
    """Write or edit the one comment of a pull request.

    Args:
        forge: The forge.
        voice: The identity of our comments.
        number: Of the pull request.
        head: The revision that was looked at.
        body: None if there is nothing to say, which is said only if a comment exists.
        joined: Makes the text from the old and the new one.

    Raises:
        ForgeError: if the forge refuses.
    """
    for attempt in range(1, WRITES + 1):
        if forge.pull(number).head != head:
            return Published.OVERTAKEN
        comment = voice.own_comment(forge.comments(number))
        if comment is None and body is None:
            return Published.NOTHING
        text = body if body is not None else f"{voice.marker}\nNo environment changes any more.\n"
        if comment is not None:
            text = joined(comment.body, text)
        if comment is not None and _plain(comment.body) == _plain(text):
            return Published.UNCHANGED
        try:
            if comment is not None:
                forge.edit(comment.id, text)
                return Published.EDITED
            forge.comment(number, text)
            return Published.CREATED
        except ForgeUnreachable:
            if attempt == WRITES:
                raise
    raise AssertionError("a comment has at least one try")


def keep_issue(forge: Forge, voice: Voice, title: str, body: str | None) -> Published:
    """Open or edit the one issue; close it where there is nothing to say any more (`body` None).

    Raises:
        ForgeError: if the forge refuses.
    """
    issue = voice.issue(forge.open_issues())
    if issue is None:
        if body is None:
            return Published.NOTHING
        forge.open_issue(title, body)
        return Published.CREATED
    if body is None:
        forge.edit_issue(issue.number, state="closed")
        return Published.EDITED
    if _plain(issue.body) == _plain(body):
        return Published.UNCHANGED
    forge.edit_issue(issue.number, body=body)
    return Published.EDITED


def _plain(text: str) -> str:
    """Return a text as it is compared: forges change line ends and blanks at the end."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
