"""The reasons why a refresh could not be made: the resource, and the words of its cloud or the engine."""

import json
import re
from collections.abc import Iterator, Sequence

from everspot_review.engine import Ended
from everspot_review.event_log import STACK, resource_name
from everspot_review.events import plain
from everspot_review.values import masked

QUOTED_CHARACTERS = 1_500
"""Characters of each refusal: a cloud names the call, the caller and the permission in some hundred."""

MOST = 20
"""Refusals that are reported; the others are counted. One missing permission may refuse each resource of a type."""

_ENDINGS = frozenset({"preview failed", "refresh failed", "update failed"})
"""The engine's messages about the whole stack after a resource was refused (pulumi/pkg, engine)."""
_PREFIX = re.compile(r"^(?:Preview failed: )?(?:refreshing urn:pulumi:\S+: )?")
_DIAGNOSTICS = "Diagnostics:\n"


def refusals(lines: Sequence[str], ended: Ended) -> tuple[str, ...]:
    """Return sentences, at least one, from a run's event log; if the log has no reason, from the engine's own words:
    its diagnostics, otherwise their end."""
    errors = sorted(set(_errors(lines)))
    late = [ended.output.rpartition("\n")[2]] if ended.late else []
    if not errors and not late:
        before, diagnostics, after = ended.output.rpartition(_DIAGNOSTICS)
        errors = [
            _line(
                after[:QUOTED_CHARACTERS] if diagnostics else before[-QUOTED_CHARACTERS:] or after[-QUOTED_CHARACTERS:]
            )
        ]
    sentences = [*errors[:MOST], *([f"and {len(errors) - MOST} more"] if len(errors) > MOST else []), *late]
    return tuple(each for each in sentences if each) or (f"the engine ended with exit code {ended.code}",)


def _errors(lines: Sequence[str]) -> Iterator[str]:
    """Yield the errors of an event log that say more than that it failed."""
    for line in lines:
        try:
            event = json.loads(line)["diagnosticEvent"]
            severity, text, urn = event["severity"], plain(str(event["message"])), str(event.get("urn") or "")
            passing = bool(event.get("ephemeral"))
        except (ValueError, KeyError, TypeError, AttributeError):  # another event, or a line that was cut
            continue
        if severity == "error" and not passing and text.strip() and text.strip() not in _ENDINGS:
            yield f"{_resource_prefix(urn)}{_line(_PREFIX.sub('', text.strip()))}"


def _resource_prefix(urn: str) -> str:
    """Return the type and name of a resource as a prefix of a sentence; empty for the stack itself."""
    parts = urn.split("::", 3)
    kind = parts[2].rpartition("$")[2] if len(parts) == 4 else STACK
    return "" if kind == STACK else f"{kind} {resource_name(urn)}: "


def _line(text: str) -> str:
    """Return a text of the engine in one line, without anything that looks like a credential."""
    return " ".join(masked(text[: 4 * QUOTED_CHARACTERS]).split())[:QUOTED_CHARACTERS]
