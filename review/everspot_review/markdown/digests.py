"""The first two lines of a comment: the first identifies it as ours, and the second has the reviewed digests."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from everspot_review.report import EnvironmentReport

MARKER = "<!-- everspot-review -->"
_BEGIN, _END = "<!-- everspot-digests ", " -->"
_AT_MOST = 24_000
"""Characters of the line; of 40 environments it has 4,000."""


def digest_line(reports: Sequence[EnvironmentReport]) -> tuple[str, tuple[str, ...]]:
    """Return the line, and the environments that do not fit into it."""
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
    """Return the reviewed digests, by environment, from the second line of a comment of ours. The rest of the comment
    is not read, since any value in it may look the same. Empty if there are no digests.

    The caller has to check whose comment it is: everybody may write these lines.
    """
    lines = body.lstrip().splitlines()
    if len(lines) < 2 or lines[0].strip() != MARKER:
        return {}
    entries = unpacked(lines[1].strip(), _BEGIN, _END)
    return {name: digest for name, digest in entries.items() if isinstance(digest, str)}


def packed(entries: Mapping[str, object]) -> str:
    """Return JSON that ends no comment, whatever the names of environments."""
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("--", "\\u002d\\u002d")


def unpacked(line: str, begin: str, end: str) -> dict[str, Any]:
    """Return the object that is packed in a line, between its prefix and its suffix. Empty if that is no JSON
    object."""
    if not (line.startswith(begin) and line.endswith(end)):
        return {}
    try:
        document = json.loads(line[len(begin) : -len(end)])
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
