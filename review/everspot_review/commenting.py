"""From the reports of previews to the one comment, and from an update to a line in it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from everspot_review.applying import ApplyOutcome, stamp
from everspot_review.errors import ReviewError
from everspot_review.forge import Forge
from everspot_review.job import PullEvent, run_link, summarize
from everspot_review.markdown import MARKER, comment, summary
from everspot_review.previewing import LIST
from everspot_review.publish import Voice, publish
from everspot_review.refusals import ForgeError
from everspot_review.report import EnvironmentReport
from everspot_review.reviewed import Reviewed, with_head

APPLIED = "<!-- everspot-applied -->"
LONGEST = 65_000
"""Characters of a comment that is edited: GitHub takes 65,536."""


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
    word = publish(forge, Voice.of(forge, MARKER, author), event.number, event.head, text)
    return CommentOutcome(word.value, text or body)


def stamped(forge: Forge, seen: Reviewed, outcome: ApplyOutcome, now: datetime, author: str | None = None) -> None:
    """Say in the comment what has become of an environment. That this fails is no reason to fail: the update is made.
    Its reason goes to the summary."""
    try:
        mine = Voice.of(forge, MARKER, author).mine(forge.comments(seen.number))
        if mine is None:
            return
        text = with_stamp(mine.body, stamp(outcome, now), outcome.environment)
        if len(text) <= LONGEST:
            forge.edit(mine.id, text)
    except ForgeError as error:
        summarize(f"- the comment could not be edited: {error}")


def with_stamp(body: str, text: str, environment: str) -> str:
    """A comment with a line on an environment at its end; an older one on it is replaced."""
    head, mark, tail = body.replace("\r\n", "\n").rstrip().partition(f"\n{APPLIED}\n")
    old = re.compile(rf"- \S+ \*\*{re.escape(environment)}\*\*:")
    lines = [each for each in tail.splitlines() if each.strip() and not old.match(each)] if mark else []
    return "\n".join([head, APPLIED, *(lines or ["", "**Applied**", ""])[:3], *lines[3:], text, ""])
