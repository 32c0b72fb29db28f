"""The remaining steps of a failed update, and whether all of them were reviewed.

The digest of the remaining steps differs from the reviewed one, since some steps are done. So the remaining steps are
compared with the preview before the update, resource by resource and value by value (`deviations`).
"""

from dataclasses import dataclass

from everspot_core.counting import counted, first_few

from everspot_review.deviations import list_deviations
from everspot_review.previewing import LoggedPreview
from everspot_review.report import PreviewOutcome

_SHOWN = 5


@dataclass(frozen=True)
class RemainingSteps:
    """The remaining steps.

    Attributes:
        digest: of the steps; empty unless there are steps and all of them were reviewed.
        message: a sentence on the steps, and on the way out if they cannot be applied.
    """

    digest: str
    message: str


def compute_remaining(reviewed: LoggedPreview, after: LoggedPreview) -> RemainingSteps:
    """Return the remaining steps by the preview after the failed update. `reviewed`: the preview before it."""
    remaining = after.report
    name = remaining.environment
    advice = f"open a pull request that touches Pulumi.{name}.yaml: its preview shows what is left"
    if remaining.blocked:
        return unknown(
            name, "the preview after the update failed" if remaining.outcome is PreviewOutcome.FAILED else ""
        )
    if remaining.outcome is PreviewOutcome.UNCHANGED:
        return RemainingSteps("", f"{name}: nothing is left to do")
    if deviations := list_deviations(reviewed.log, after.log):
        names = first_few(deviations, _SHOWN)
        return RemainingSteps(
            "", f"{name}: of what is left to do, this was not reviewed: {names}. To apply it, {advice}"
        )
    count = counted(len(remaining.steps), "resource")
    return RemainingSteps(
        remaining.digest, f"{name}: left to do, and reviewed: {count}, digest {remaining.digest[:12]}"
    )


def unknown(environment: str, reason: str) -> RemainingSteps:
    """Return remaining steps that are unknown, or that a rule forbids. `reason`: empty if a rule forbids them."""
    text = f"nobody knows what is left: {reason}" if reason else "what is left breaks a mandatory rule"
    return RemainingSteps(
        "", f"{environment}: {text}. Fix the cause, and open a pull request that touches Pulumi.{environment}.yaml: "
        f"its preview shows what is left",
    )  # fmt: skip
