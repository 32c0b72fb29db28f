"""The commits of a push to a branch, and later commits, read from git alone."""

import re
from dataclasses import dataclass
from pathlib import Path

from everspot_review.affected import NO_REVISION, ChangeError, git

MOST = 50
"""Commits that are looked at, of a push and after it: for each the forge is asked for its pull request."""


@dataclass(frozen=True)
class Push:
    """The content of a push.

    Attributes:
        base: the revision to compare HEAD with, NO_REVISION if everything counts as changed.
        commits: the newest first; of merges the merge alone.
        warning: a sentence on the unknown parts, or empty.
    """

    base: str
    commits: tuple[str, ...]
    warning: str = ""


def pushed(root: Path, before: str) -> Push:
    """Return the push that moved a branch from `before` to HEAD. Where `before` is no ancestor of HEAD, as after a push
    by force, all environments count as changed, and only HEAD is known to be of the push.

    Raises:
        ChangeError: if git cannot say, or `before` is no revision.
    """
    head = git(root, "rev-parse", "HEAD").strip()
    if not before.strip("0 "):
        return Push(NO_REVISION, (head,))
    if not has(root, before) and not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", before):
        raise ChangeError(f"{before!r} is no revision that is known here")
    if not has(root, before) or not precedes(root, before, head):
        warning = (
            f"{before[:12]}, where the branch ended before this push, is no longer in its history, as after a push by "
            f"force: all environments are looked at, and only the pull request of {head[:12]} is asked"
        )
        return Push(NO_REVISION, (head,), warning)
    commits = _line(root, f"{before}..{head}")
    warning = f"this push has more than {MOST} commits: only the pull requests of its last {MOST} are asked"
    return Push(before, commits[:MOST] or (head,), warning if len(commits) > MOST else "")


def after(root: Path, tip: str) -> tuple[str, ...]:
    """Return the commits of a branch that ends at `tip` after HEAD, the newest first, at most one more than MOST.

    Raises:
        ChangeError: if git cannot say.
    """
    return _line(root, f"HEAD..{tip}")


def precedes(root: Path, older: str, newer: str) -> bool:
    """Return whether a revision is an ancestor of another one, or the same; False if git has one of them not."""
    if not (has(root, older) and has(root, newer)):
        return False
    return not git(root, "rev-list", "--max-count=1", older, "--not", newer, "--").strip()


def _line(root: Path, span: str) -> tuple[str, ...]:
    return tuple(git(root, "rev-list", "--first-parent", f"--max-count={MOST + 1}", span, "--").split())


def has(root: Path, revision: str) -> bool:
    """Return whether git has a revision."""
    try:
        git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except ChangeError:
        return False
    return True
