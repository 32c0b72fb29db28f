"""The changes in one environment, resource by resource."""

from everspot_review.markdown.safe import code, cut, prose, visible
from everspot_review.report import Deed, EnvironmentReport, ResourceStep

SIGNS = {
    Deed.REPLACE: "-/+",
    Deed.DELETE: "-",
    Deed.FORGET: "-",
    Deed.UPDATE: "!",
    Deed.IMPORT: "+",
    Deed.CREATE: "+",
    Deed.READ: " ",
}
"""How a line of a resource begins, which is what gives it its colour in a fence of kind `diff`."""

ORDER = tuple(SIGNS)
_LONGEST = 400
"""Characters of a name, a path or a value that are shown."""
_WORDS = {
    Deed.REPLACE: "to replace",
    Deed.DELETE: "to delete",
    Deed.FORGET: "to forget",
    Deed.UPDATE: "to update",
    Deed.IMPORT: "to import",
    Deed.CREATE: "to create",
    Deed.READ: "to read",
}


def counts(report: EnvironmentReport) -> str:
    """Return how many resources change, by operation."""
    numbers = {deed: sum(step.deed is deed for step in report.steps) for deed in ORDER}
    return ", ".join(f"{number:,} {_WORDS[deed]}" for deed, number in numbers.items() if number) or "no change"


def notes(report: EnvironmentReport) -> list[list[str]]:
    """Return the effects on jobs that do no harm, and the warnings of the engine."""
    harmless = [effect for effect in report.effects if not effect.harm]
    entries = [[f"- {code(effect.resource)}: {prose(effect.text)}"] for effect in harmless]
    warned = [diagnostic for diagnostic in report.diagnostics if diagnostic.severity == "warning"]
    entries += [
        [f"- ⚠️ {code(diagnostic.resource or 'the program')}: {code(diagnostic.text, 400)}"] for diagnostic in warned
    ]
    return entries


def changes(report: EnvironmentReport, most: int | None) -> list[list[str]]:
    """Return each resource with at most so many of its properties; for a fence."""
    ordered = sorted(report.steps, key=lambda step: (ORDER.index(step.deed), step.urn))
    return [_step(step, most) for step in ordered]


def _step(step: ResourceStep, most: int | None) -> list[str]:
    flags = [
        label
        for label, so in (("protected", step.protected), ("stays in the cloud", step.retained))
        if so and step.deed in (Deed.REPLACE, Deed.DELETE, Deed.FORGET)
    ]
    lines = [
        f"{SIGNS[step.deed]} {cut(step.type, _LONGEST)} {cut(step.name, _LONGEST)}"
        + (f" ({', '.join(flags)})" if flags else "")
    ]
    for change in step.changes[:most]:
        before, after = ("none" if side is None else cut(side, _LONGEST) for side in (change.before, change.after))
        suffix = " (replaces)" if change.replaces else ""
        lines.append(f"      {cut(change.path, _LONGEST)}: {before} → {after}{suffix}")
    more = len(step.changes) - most if most is not None else 0
    if more > 0:
        lines.append(f"      … and {more:,} more properties")
    return [visible(line) for line in lines]
