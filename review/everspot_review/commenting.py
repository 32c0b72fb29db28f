"""From the reports of previews to the one comment, and from an update to a line in it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from everspot_review.applying import Applied, ApplyOutcome, kept_after, stamp
from everspot_review.changed import STACK_NAME
from everspot_review.errors import ReviewError
from everspot_review.forge import Forge
from everspot_review.job import PullEvent, run_link, summarize
from everspot_review.kept import kept_of, with_kept
from everspot_review.markdown import MARKER, comment, summary
from everspot_review.previewing import LIST
from everspot_review.publish import Voice, publish
from everspot_review.refusals import ForgeError
from everspot_review.report import EnvironmentReport
from everspot_review.reviewed import Reviewed, head_of, with_head

APPLIED = "<!-- everspot-applied -->"
LONGEST = 65_000
"""Characters of a comment that is edited: GitHub takes 65,536."""

NO_COMMENT = "there is no comment of ours"

_DID_NOTHING = (Applied.UNCHANGED, Applied.ALREADY, Applied.SUPERSEDED)


@dataclass(frozen=True)
class CommentOutcome:
    """What has become of the comment, in a word, and its text."""

    word: str
    body: str


def reports_of(folder: Path) -> list[EnvironmentReport]:
    """The reports that `preview` has written.

    Raises:
        ReviewError: if there are none, one is missing, or what lies there is no report.
    """
    listed = folder / LIST
    if not listed.is_file():
        raise ReviewError(f"{folder} has no reports: `everspot review preview --out {folder}` writes them")
    wanted = listed.read_text().split()
    if odd := [name for name in wanted if not STACK_NAME.fullmatch(name)]:
        raise ReviewError(f"{listed} has what is no name of an environment: {odd[0][:80]!r}")
    found: list[EnvironmentReport] = []
    for path in (folder / f"{name}.json" for name in sorted(wanted)):
        try:
            found.append(EnvironmentReport.read(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise ReviewError(f"{path} is no report: {str(error)[:300]}") from None
    return found


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
    word = publish(forge, Voice.of(forge, MARKER, author), event.number, event.head, text, carried)
    return CommentOutcome(word.value, text or body)


def carried(old: str, new: str) -> str:
    """A new comment with what the old one tells of the time after the merge, if both are about the same revision."""
    if not head_of(new) or head_of(old) != head_of(new):
        return new
    text = with_kept(new, kept_of(old))
    _, mark, tail = old.replace("\r\n", "\n").rpartition(f"\n{APPLIED}\n")
    whole = f"{text.rstrip()}\n{APPLIED}\n{tail}" if mark else text
    return whole if len(whole) <= LONGEST else text


def stamped(
    forge: Forge | None, seen: Reviewed | None, outcome: ApplyOutcome, now: datetime, author: str | None = None
) -> str:
    """Say in the comment what has become of an environment, and keep there what is left of it. That this fails is no
    reason to fail: the update is made. Returns what to do after an update that failed, or why nothing could be kept."""
    try:
        why = _stamped(forge, seen, outcome, now, author) if forge is not None and seen is not None else NO_COMMENT
    except ForgeError as error:
        why = str(error)
    name, rest = outcome.environment, outcome.rest
    if rest is None:
        return f"{name}: the comment could not be edited: {why}" if why not in ("", NO_COMMENT) else ""
    if not rest.digest:
        return rest.said
    if not why:
        return f"{rest.said}. Mend the cause and run this again: it goes on with the rest"
    by_hand = f"`everspot review apply {name} --reviewed {rest.digest}` goes on with it at this revision"
    return f"{rest.said}. It is not kept in a comment ({why}): mend the cause, and {by_hand}"


def _stamped(forge: Forge, seen: Reviewed, outcome: ApplyOutcome, now: datetime, author: str | None) -> str:
    """Edit the comment; returns why it was not."""
    mine = Voice.of(forge, MARKER, author).mine(forge.comments(seen.pull.number))
    if mine is None:
        return NO_COMMENT
    name, kept = outcome.environment, kept_of(mine.body)
    before = kept.pop(name, None)
    if before is not None and before.applied and outcome.word in _DID_NOTHING:
        return ""  # what it says of the update stays
    after = kept_after(outcome, now, before)
    text = mine.body
    if head_of(mine.body) == seen.pull.head:
        text = with_kept(mine.body, {**kept, **({name: after} if after is not None else {})})
    text = with_stamp(text, stamp(outcome, now), name)
    if len(text) > LONGEST:
        return "the comment has no room for more"
    forge.edit(mine.id, text)
    return ""


def with_stamp(body: str, text: str, environment: str) -> str:
    """A comment with a line on an environment at its end; an older one on it is replaced."""
    head, mark, tail = body.replace("\r\n", "\n").rstrip().partition(f"\n{APPLIED}\n")
    old = re.compile(rf"- \S+ \*\*{re.escape(environment)}\*\*:")
    lines = [each for each in tail.splitlines() if each.strip() and not old.match(each)] if mark else []
    return "\n".join([head, APPLIED, *(lines or ["", "**Applied**", ""])[:3], *lines[3:], text, ""])
