"""What was reviewed: the digests that our comment on a pull request has, of the revision that it was about.

They stand in a line that nobody sees. It is believed only in a comment of ours, and only if that speaks of the last
revision of the pull request: what was pushed after it, nobody has previewed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from everspot_review.forge import Forge
from everspot_review.publish import Voice
from everspot_review.report import EnvironmentReport

MARKER = "<!-- everspot-review -->"
"""First line of our comment."""

_LINE = re.compile(r"^<!-- everspot-reviewed (\{[^\n]*\}) -->$", re.MULTILINE)
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Reviewed:
    """What was reviewed in a pull request. `number`: of it, 0 if the commit came from none; `head`: its last revision;
    `digests`: by environment; `why`: why there is none, a sentence."""

    number: int = 0
    head: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


def line(reports: Sequence[EnvironmentReport]) -> str:
    """The line that a comment on these reports has. A report that blocks the merge is nothing that was reviewed."""
    digests = {report.environment: report.digest for report in reports if report.digest and not report.blocked}
    head = next((report.head for report in reports if report.head), "")
    return f"<!-- everspot-reviewed {json.dumps({'head': head, 'digests': digests}, sort_keys=True)} -->"


def parse(body: str) -> tuple[str, dict[str, str]]:
    """The revision and the digests of a comment; empty if it has none. The last line of its kind counts: what stands
    before it may be a value of the change's own."""
    found = _LINE.findall(body.replace("\r\n", "\n"))
    if not found:
        return "", {}
    try:
        said = json.loads(found[-1])
        digests = {str(name): str(digest) for name, digest in said["digests"].items()}
        return str(said["head"]), {name: digest for name, digest in digests.items() if _HEX.fullmatch(digest)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", {}


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
        return Reviewed(pull.number, pull.head, why=f"pull request {pull.number} has no comment of ours")
    head, digests = parse(mine.body)
    if head != pull.head:
        about = f"the comment on pull request {pull.number} is about {head[:12] or 'nothing'}"
        why = f"{about}, and its last revision is {pull.head[:12]}"
        return Reviewed(pull.number, pull.head, why=why)
    return Reviewed(pull.number, pull.head, digests)
