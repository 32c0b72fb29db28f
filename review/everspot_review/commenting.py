"""From the reports of previews to the one comment, and from an update to a line in it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from everspot_review.affected import STACK_NAME
from everspot_review.apply import ApplyOutcome, ApplyResult, next_comment_state, stamp
from everspot_review.comment_state import read_states, with_states
from everspot_review.errors import ReviewError
from everspot_review.forge import Forge
from everspot_review.job import PullEvent, run_link, summarize
from everspot_review.markdown import MARKER, comment, summary
from everspot_review.previewing import LIST
from everspot_review.publish import Voice, publish
from everspot_review.refusals import ForgeError
from everspot_review.report import EnvironmentReport
from everspot_review.reviewed import Reviewed, comment_head, with_head

APPLIED = "<!-- everspot-applied -->"
LONGEST = 65_000
"""Characters of a comment that is edited: GitHub takes 65,536."""

NO_COMMENT = "there is no comment of ours"

_DID_NOTHING = (ApplyResult.UNCHANGED, ApplyResult.ALREADY, ApplyResult.SUPERSEDED)


@dataclass(frozen=True)
class CommentOutcome:
    """The result of writing the comment, in a word, and its text."""

    status: str
    body: str


def read_reports(folder: Path) -> list[EnvironmentReport]:
    """Return the reports that `preview` has written.

    Raises:
        ReviewError: if there are no reports, one is missing, or a file is not a report.
    """
    listed = folder / LIST
    if not listed.is_file():
        raise ReviewError(f"{folder} has no reports: `everspot review preview --out {folder}` writes them")
    names = listed.read_text().split()
    if invalid_names := [name for name in names if not STACK_NAME.fullmatch(name)]:
        raise ReviewError(f"{listed} has what is no name of an environment: {invalid_names[0][:80]!r}")
    reports: list[EnvironmentReport] = []
    for path in (folder / f"{name}.json" for name in sorted(names)):
        try:
            reports.append(EnvironmentReport.read(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise ReviewError(f"{path} is no report: {str(error)[:300]}") from None
    return reports


def comment_on(
    reports: Sequence[EnvironmentReport],
    event: PullEvent | None,
    forge_of: Callable[[], Forge],
    author: str | None = None,
) -> CommentOutcome:
    """Write the summary, and create or edit the comment. `event`: None to speak to no forge. On a fork's pull request,
    whose runs may not write, the summary is all.

    Raises:
        ForgeError: if the forge refuses.
    """
    link = run_link()
    body = comment(reports, run=link)
    summarize(summary(reports, run=link) if reports else "No environment changes.")
    if event is None:
        return CommentOutcome("shown", body)
    if event.fork:
        return CommentOutcome("in the summary: a fork's run may not write", body)
    heads = {report.head for report in reports if report.head}
    if heads and heads != {event.head}:
        return CommentOutcome(f"overtaken: the reports are about {', '.join(sorted(h[:12] for h in heads))}", body)
    forge = forge_of()
    text = with_head(body, event.head) if reports else None
    published = publish(forge, Voice.for_owner(forge, MARKER, author), event.number, event.head, text, carried)
    return CommentOutcome(published.value, text or body)


def carried(old: str, new: str) -> str:
    """Return a new comment with the old one's entries from after the merge, if both are about the same revision."""
    if not comment_head(new) or comment_head(old) != comment_head(new):
        return new
    text = with_states(new, read_states(old))
    _, mark, tail = old.replace("\r\n", "\n").rpartition(f"\n{APPLIED}\n")
    whole = f"{text.rstrip()}\n{APPLIED}\n{tail}" if mark else text
    return whole if len(whole) <= LONGEST else text


def stamped(
    forge: Forge | None, reviewed: Reviewed | None, outcome: ApplyOutcome, now: datetime, author: str | None = None
) -> str:
    """Write the result of applying an environment, and its remaining steps, into the comment. If that fails, no error
    is raised, because the update is done. Returns what to do after a failed update, or why the comment could not be
    edited."""
    try:
        reason = (
            _stamped(forge, reviewed, outcome, now, author)
            if forge is not None and reviewed is not None
            else NO_COMMENT
        )
    except ForgeError as error:
        reason = str(error)
    name, remaining = outcome.environment, outcome.remaining
    if remaining is None:
        return f"{name}: the comment could not be edited: {reason}" if reason not in ("", NO_COMMENT) else ""
    if not remaining.digest:
        return remaining.message
    if not reason:
        return f"{remaining.message}. Fix the cause and run this again: it goes on with the rest"
    by_hand = f"`everspot review apply {name} --reviewed {remaining.digest}` goes on with it at this revision"
    return f"{remaining.message}. It is not kept in a comment ({reason}): fix the cause, and {by_hand}"


def _stamped(forge: Forge, reviewed: Reviewed, outcome: ApplyOutcome, now: datetime, author: str | None) -> str:
    """Edit the comment; returns why it was not."""
    own_comment = Voice.for_owner(forge, MARKER, author).own_comment(forge.comments(reviewed.pull.number))
    if own_comment is None:
        return NO_COMMENT
    name, states = outcome.environment, read_states(own_comment.body)
    before = states.pop(name, None)
    if before is not None and before.applied and outcome.status in _DID_NOTHING:
        return ""  # the comment's entry on the earlier update stays
    after = next_comment_state(outcome, now, before)
    text = own_comment.body
    if comment_head(own_comment.body) == reviewed.pull.head:
        text = with_states(own_comment.body, {**states, **({name: after} if after is not None else {})})
    text = with_stamp(text, stamp(outcome, now), name)
    if len(text) > LONGEST:
        return "the comment has no room for more"
    forge.edit(own_comment.id, text)
    return ""


def with_stamp(body: str, text: str, environment: str) -> str:
    """Return a comment with a line on an environment at its end; an older one on it is replaced."""
    head, mark, tail = body.replace("\r\n", "\n").rstrip().partition(f"\n{APPLIED}\n")
    old = re.compile(rf"- \S+ \*\*{re.escape(environment)}\*\*:")
    lines = [each for each in tail.splitlines() if each.strip() and not old.match(each)] if mark else []
    return "\n".join([head, APPLIED, *(lines or ["", "**Applied**", ""])[:3], *lines[3:], text, ""])
