"""Checks the subject of a commit message: `area: what changes`, at most 72 characters.

usage: commit_subject.py FILE, as git's commit-msg hook calls it.
"""

import re
import sys
from pathlib import Path

LONGEST = 72
"""Characters that `git log --oneline` shows beside a hash in 80 columns."""
SUBJECT = re.compile(r"[a-z][a-z0-9_/-]*(\([a-z0-9_, /-]+\))?: \S.*")
GENERATED = ("Merge ", "Revert ", "fixup! ", "squash! ")


def problems(message: str) -> list[str]:
    """Return what is wrong with a commit message; nothing for a message that git itself writes."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(GENERATED):
        return []
    wrong = []
    if len(subject) > LONGEST:
        wrong.append(f"the subject has {len(subject)} characters; at most {LONGEST} are allowed")
    if not SUBJECT.fullmatch(subject):
        wrong.append("the subject must be `area: what changes`, such as `store: retry a write that was throttled`")
    if len(lines) > 1 and lines[1].strip():
        wrong.append("the second line must be empty: the reason goes into the body")
    return wrong


def main() -> int:
    """Check the message in the file that git names; return the exit status."""
    wrong = problems(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for text in wrong:
        print(f"commit message: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
