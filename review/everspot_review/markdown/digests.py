"""The two first lines of a comment: by the one it is known again, and in the other stands what was reviewed."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from everspot_review.report import EnvironmentReport

MARKER = "<!-- everspot-review -->"
_BEGIN, _END = "<!-- everspot-digests ", " -->"
_AT_MOST = 24_000
"""Characters of the line; of 40 environments it has 4,000."""


def digest_line(reports: Sequence[EnvironmentReport]) -> tuple[str, tuple[str, ...]]:
    """The line, and the environments that it has no more room for."""
    listed: dict[str, str] = {}
    omitted: list[str] = []
    room = _AT_MOST - len(_BEGIN) - len(_END)
    for report in sorted(reports, key=lambda report: report.environment):
        if not report.digest or report.environment in listed:
            continue
        cost = len(packed({report.environment: report.digest}))
        if cost > room:
            omitted.append(report.environment)
            continue
        listed[report.environment] = report.digest
        room -= cost
    return f"{_BEGIN}{packed(listed)}{_END}", tuple(omitted)


def digests(body: str) -> dict[str, str]:
    """What was reviewed, by environment, as a comment of ours tells it: in its second line and nowhere else, since any
    value in the rest of it may look the same. Empty if there is none.

    Whose comment it is has to be known before: everybody may write these lines.
    """
    lines = body.lstrip().splitlines()
    if len(lines) < 2 or lines[0].strip() != MARKER:
        return {}
    entries = unpacked(lines[1].strip(), _BEGIN, _END)
    return {name: digest for name, digest in entries.items() if isinstance(digest, str)}


def packed(entries: Mapping[str, object]) -> str:
    """JSON in which no comment ends, whatever an environment is called."""
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("--", "\\u002d\\u002d")


def unpacked(line: str, begin: str, end: str) -> dict[str, Any]:
    """What is packed in a line, between how it begins and how it ends. Empty if that is no JSON object."""
    if not (line.startswith(begin) and line.endswith(end)):
        return {}
    try:
        document = json.loads(line[len(begin) : -len(end)])
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
