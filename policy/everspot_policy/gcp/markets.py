"""The market of a group of instances, which is the market of its template."""

from collections.abc import Iterable
from fractions import Fraction

from everspot_policy.gcp.kinds import GROUPS, TEMPLATES
from everspot_policy.reading import mapping, number, objects, text, yes
from everspot_policy.rule import Subject


def spot(template: Subject) -> bool:
    """Return whether a template's instances are Spot."""
    scheduling = mapping(template.inputs.get("scheduling"))
    return text(scheduling.get("provisioningModel")) == "SPOT" or yes(scheduling.get("preemptible"))


def standing(subjects: Iterable[Subject]) -> tuple[Fraction, Fraction]:
    """Return how many instances the groups of a stack keep: the on-demand ones, and all. Only groups that choose among
    machine types, as a fleet does, and whose template is in the stack count."""
    resources = list(subjects)
    templates = {each.urn: each for each in resources if each.type in TEMPLATES}
    on_demand = total = Fraction(0)
    for group in resources:
        size = number(group.inputs.get("targetSize"))
        used = [templates[urn] for urn in group.depends if urn in templates]
        flexible = any(
            True for _ in objects(mapping(group.inputs.get("instanceFlexibilityPolicy")), "instanceSelections")
        )
        if group.type not in GROUPS or not flexible or size is None or size <= 0 or not used:
            continue
        total += Fraction(size)
        if not spot(used[0]):
            on_demand += Fraction(size)
    return on_demand, total
