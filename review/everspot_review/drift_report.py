"""The report on drift for people: in the summary, on a terminal, and in one issue for each environment."""

from everspot_core.cluster.deployment import resolve_pending

from everspot_review.drift import Drift
from everspot_review.event_log import resource_name
from everspot_review.forge import Forge
from everspot_review.job import run_link
from everspot_review.markdown.safe import code
from everspot_review.publish import Published, Voice, keep_issue
from everspot_review.refreshing import QUOTED_CHARACTERS

LONGEST = 60_000
"""Characters of an issue; what does not fit is counted."""


def describe_drift(drift: Drift) -> str:
    """Return the findings as text. Values are in a fence, which none of them can end."""
    if drift.refused:
        return "\n".join(
            [f"{drift.environment} cannot be looked at: its refresh was refused.", "", *_reasons(drift), ""]
        )
    lines: list[str] = []
    for resource in drift.resources:
        lines.append(
            f"{'-' if resource.is_gone else '~'} {resource.type} {resource.name}{' is gone' * resource.is_gone}"
        )
        lines += [f"    {c.path}: {c.before or '(none)'} → {c.after or '(none)'}" for c in resource.changes]
    lines += [f"! {operation.type} {operation.name}: {operation.operation}, interrupted" for operation in drift.pending]
    for orphan in drift.orphans:
        lines.append(f"+ in no stack: {orphan.sentence}")
        lines += [f"    to remove it: {orphan.command}"] if orphan.command else []
    lines += [f"+ {each.kind} on {resource_name(each.urn)}, added by hand: {each.detail}" for each in drift.added]
    skipped_checks = [code(reason, 500) for reason in drift.skipped_checks]
    if not lines:
        clean = f"{drift.environment}: as it was left"
        return (
            "\n".join([f"{clean}, as far as could be seen" if drift.skipped_checks else clean, *skipped_checks]) + "\n"
        )
    shown, room = [], LONGEST
    for each in (line.replace("```", "'''").replace("\n", " ").replace("\r", " ") for line in lines):
        room -= len(each) + 1
        if room < 0:
            break
        shown.append(each)
    remainder = (
        [f"… and {len(lines) - len(shown)} lines more: everspot review drift"] if len(shown) < len(lines) else []
    )
    heading = f"{drift.environment} is not as its last update left it:"
    resolve = [f"To go on, {resolve_pending(drift.environment)}"] if drift.pending else []
    return "\n".join([heading, "", "```diff", *shown, *remainder, "```", *skipped_checks, *resolve, ""])


def _reasons(drift: Drift) -> list[str]:
    return [f"- {code(reason, QUOTED_CHARACTERS + 200)}" for reason in drift.refused]


def keep(forge: Forge, drift: Drift, author: str | None = None) -> Published:
    """Open, edit or close the environment's issue. The issue does not change if a look was incomplete. The reason for a
    refused refresh is in its own issue, until the refresh works.

    Raises:
        ForgeError: if the forge refuses.
    """
    unseen = Voice.for_owner(forge, f"<!-- everspot-unseen {drift.environment} -->", author)
    body = f"{unseen.marker}\n{describe_drift(drift)}\n{run_link()}".rstrip() if drift.refused else None
    published = keep_issue(forge, unseen, f"{drift.environment} cannot be looked at for drift", body)
    if drift.refused:
        return published
    voice = Voice.for_owner(forge, f"<!-- everspot-drift {drift.environment} -->", author)
    if drift.skipped_checks and not drift.has_drifted:
        return Published.UNCHANGED
    more = "Declare what should stay, or undo it: the next update undoes what it knows of, and nothing that was added."
    body = f"{voice.marker}\n{describe_drift(drift)}\n{more} {run_link()}".rstrip() if drift.has_drifted else None
    return keep_issue(forge, voice, f"{drift.environment} has drifted", body)
