"""The commands' output. It contains no control sequences of terminals or CI runners, whatever a change contains.

A runner reads the output of a step for commands. GitHub's takes `::error …::` at the beginning of a line, after any
spaces, and `##[…]` anywhere in it (actions/runner, `ActionCommand.TryParseV2` and `TryParse`). Gitea's and Forgejo's
take both at the beginning (act_runner, `reporter.go`). Microsoft's agent takes `##vso[…]` and `##[…]` anywhere (its
`Command.TryParse`). Any of them may end a line where Unicode does.
"""

import json
import re
import sys
from typing import Any

from everspot_review.markdown.safe import visible

_COMMAND = re.compile(r"##(?=[A-Za-z]*\[)")
_BEGINNING = re.compile(r"^(\s*)(?=::)")


def harmless(text: str) -> str:
    """Return a text whose lines no runner obeys. Characters that are invisible, or would turn or end a line, are
    written out as their numbers; only line feeds stay."""
    return "\n".join(_BEGINNING.sub(r"\1\\", _COMMAND.sub("# #", visible(line))) for line in text.split("\n"))


def write(text: str) -> None:
    """Write to standard output, the answer's place."""
    sys.stdout.write(harmless(text))


def note(text: str) -> None:
    """Write a line of progress to standard error."""
    sys.stderr.write(harmless(f"{text}\n"))


def write_json(document: dict[str, Any]) -> None:
    """Write a document to standard output as JSON, whose texts no runner obeys either."""
    text = json.dumps(document, indent=2).replace("\x7f", "\\u007f")
    sys.stdout.write(_COMMAND.sub(r"#\\u0023", text) + "\n")
