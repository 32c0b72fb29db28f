"""What an update that failed has left to do, and whether all of that was reviewed.

Its digest is another one than the reviewed, since what is done is no longer to do. So the rest is held against the
preview before the update, resource by resource: it may do to a resource what was to be done to it, or what is left of
that, and nothing to any other.
"""

from dataclasses import dataclass

from everspot_core.counting import counted, first_few

from everspot_review.report import Deed, EnvironmentReport, Foreseen, ResourceStep

_LEAVES = {
    Deed.REPLACE: {Deed.REPLACE, Deed.CREATE, Deed.UPDATE, Deed.DELETE},
    Deed.CREATE: {Deed.CREATE, Deed.UPDATE, Deed.REPLACE},
    Deed.IMPORT: {Deed.IMPORT, Deed.UPDATE},
}
"""What may be left of a deed. A resource that was half made is updated or made anew, and of a replacement the deletion
of the old one may be left. Of any other deed only itself: no deletion is left of an update."""

_SHOWN = 5


@dataclass(frozen=True)
class RemainingSteps:
    """What is left. `digest`: of it, empty unless there is something left and all of it was reviewed; `message`: a
    sentence on it, and on what to do where it cannot be applied as it is."""

    digest: str
    message: str


def compute_remaining(reviewed: EnvironmentReport, remaining: EnvironmentReport) -> RemainingSteps:
    """What is left by the preview after the update that failed. `reviewed`: the one before it."""
    name = remaining.environment
    advice = f"open a pull request that touches Pulumi.{name}.yaml: its preview shows what is left"
    if remaining.blocked:
        return unknown(name, "the preview after the update failed" if remaining.outcome is Foreseen.FAILED else "")
    if remaining.outcome is Foreseen.UNCHANGED:
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
    """Nobody knows what is left, or a rule forbids it. `reason`: empty if that is a rule."""
    text = f"nobody knows what is left: {reason}" if reason else "what is left breaks a mandatory rule"
    return RemainingSteps(
        "", f"{environment}: {text}. Mend the cause, and open a pull request that touches Pulumi.{environment}.yaml: "
        f"its preview shows what is left",
    )  # fmt: skip


def _outside(reviewed: EnvironmentReport, remaining: EnvironmentReport) -> list[ResourceStep]:
    """The steps that are no part of what was reviewed."""
    deeds = {step.urn: _LEAVES.get(step.deed, {step.deed}) for step in reviewed.steps}
    return [step for step in remaining.steps if step.deed not in deeds.get(step.urn, ())]
