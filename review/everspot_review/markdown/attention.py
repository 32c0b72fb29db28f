"""The points that a reviewer has to look at first: failed previews, losses, drains, broken rules."""

from everspot_review.markdown.safe import code, fence, prose
from everspot_review.report import BrokenRule, Deed, EnvironmentReport, PreviewOutcome, ResourceStep

_VERBS = {Deed.REPLACE: "is replaced", Deed.DELETE: "is deleted", Deed.FORGET: "is forgotten"}
_LINES_OF_AN_ERROR = 30


def attention(report: EnvironmentReport) -> list[list[str]]:
    """Return its entries, the gravest first; each is some lines that belong together."""
    where = code(report.environment, 60)
    entries = _failed(report, where)
    grave = [step for step in report.steps if step.grave]
    entries += [_grave(step, report, where) for step in grave]
    grave_names = {step.name for step in grave}
    entries += [
        [f"- 🛑 {where} {code(effect.resource)}: {prose(effect.text)}"]
        for effect in report.effects
        if effect.harm and effect.resource not in grave_names
    ]
    entries += [_rule(rule, where) for rule in report.rules if rule.stops]
    entries += [_rule(rule, where) for rule in report.rules if not rule.stops]
    return entries


def _failed(report: EnvironmentReport, where: str) -> list[list[str]]:
    if report.outcome is not PreviewOutcome.FAILED:
        return []
    errors = [diagnostic for diagnostic in report.diagnostics if diagnostic.severity == "error"]
    entry = [f"- 🛑 {where}: the preview failed, so nobody knows what would be done."]
    lines = [line for diagnostic in errors for line in _error_lines(diagnostic.resource, diagnostic.text)]
    if len(lines) > _LINES_OF_AN_ERROR:
        more = len(lines) - _LINES_OF_AN_ERROR
        lines = [*lines[:_LINES_OF_AN_ERROR], f"… and {more} lines more"]
    return [[*entry, *(f"  {line}" for line in fence(lines))] if lines else entry]


def _error_lines(resource: str, text: str) -> list[str]:
    lines = [line[:300] for line in text.splitlines()]
    return [f"{resource[:120]}:", *lines] if resource else lines


def _grave(step: ResourceStep, report: EnvironmentReport, where: str) -> list[str]:
    traits = " and ".join(label for label, so in (("protected", step.protected), ("holds data", step.stateful)) if so)
    because = (
        f" because of {', '.join(code(path) for path in step.replaces_because[:3])}" if step.replaces_because else ""
    )
    entry = [f"- 🛑 {where} {code(step.name)} ({code(step.type)}; {traits}) {_VERBS[step.deed]}{because}."]
    effects = [effect for effect in report.effects if effect.resource == step.name]
    return entry + [f"  {prose(effect.text[:1].upper() + effect.text[1:])}" for effect in effects]


def _rule(rule: BrokenRule, where: str) -> list[str]:
    sign = "🛑" if rule.stops else "⚠️"
    subject = code(rule.resource) if rule.resource else "the whole stack"
    severity = f" ({code(rule.severity, 20)})" if rule.severity else ""
    entry = [f"- {sign} {where} rule {code(rule.rule)}{severity}, {subject}: {code(rule.message, 400)}"]
    if rule.excepted is not None:
        entry.append(f"  Excepted until {rule.excepted.until:%Y-%m-%d}: {code(rule.excepted.reason, 200)}")
    return entry
