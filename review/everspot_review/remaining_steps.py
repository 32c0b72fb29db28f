"""The remaining steps of a failed update, and whether all of them were reviewed.

The digest of the remaining steps differs from the reviewed one, since some steps are done. So the remaining steps are
compared with the preview before the update, resource by resource. A resource may have its reviewed step, or the rest of
that step. No other resource may have a step.
"""

from dataclasses import dataclass

from everspot_core.counting import counted, first_few

from everspot_review.report import Deed, EnvironmentReport, PreviewOutcome, ResourceStep

_LEAVES = {
    Deed.REPLACE: {Deed.REPLACE, Deed.CREATE, Deed.UPDATE, Deed.DELETE},
    Deed.CREATE: {Deed.CREATE, Deed.UPDATE, Deed.REPLACE},
    Deed.IMPORT: {Deed.IMPORT, Deed.UPDATE},
}
"""The operations that may remain of an operation after an interrupted update. A half-created resource is updated or
created again, and of a replacement the deletion of the old resource may remain. Of any other operation only itself may
remain."""

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


def compute_remaining(reviewed: EnvironmentReport, remaining: EnvironmentReport) -> RemainingSteps:
    """Return the remaining steps by the preview after the failed update. `reviewed`: the preview before it."""
    name = remaining.environment
    advice = f"open a pull request that touches Pulumi.{name}.yaml: its preview shows what is left"
    if remaining.blocked:
        return unknown(
            name, "the preview after the update failed" if remaining.outcome is PreviewOutcome.FAILED else ""
        )
    if remaining.outcome is PreviewOutcome.UNCHANGED:
        return RemainingSteps("", f"{name}: nothing is left to do")
    if outside := _outside(reviewed, remaining):
        names = first_few([f"{step.name} ({step.deed.value})" for step in outside], _SHOWN)
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


def _outside(reviewed: EnvironmentReport, remaining: EnvironmentReport) -> list[ResourceStep]:
    """Return the steps that were not reviewed."""
    deeds = {step.urn: _LEAVES.get(step.deed, {step.deed}) for step in reviewed.steps}
    return [step for step in remaining.steps if step.deed not in deeds.get(step.urn, ())]
