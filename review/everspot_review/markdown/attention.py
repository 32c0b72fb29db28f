"""What a reviewer has to look at first: previews that failed, what is lost, what is drained, rules that are broken."""

from everspot_review.markdown.safe import code, fence, prose
from everspot_review.report import BrokenRule, Deed, EnvironmentReport, Foreseen, ResourceStep

_VERBS = {Deed.REPLACE: "is replaced", Deed.DELETE: "is deleted", Deed.FORGET: "is forgotten"}
_LINES_OF_AN_ERROR = 30


def attention(report: EnvironmentReport) -> list[list[str]]:
    """Its entries, the gravest first; each is some lines that belong together."""
    where = code(report.environment, 60)
    found = _failed(report, where)
    grave = [step for step in report.steps if step.grave]
    found += [_grave(step, report, where) for step in grave]
    told = {step.name for step in grave}
    found += [
        [f"- 🛑 {where} {code(effect.resource)}: {prose(effect.text)}"]
        for effect in report.effects
        if effect.harm and effect.resource not in told
    ]
    found += [_rule(rule, where) for rule in report.rules if rule.stops]
    found += [_rule(rule, where) for rule in report.rules if not rule.stops]
    return found


def _failed(report: EnvironmentReport, where: str) -> list[list[str]]:
    if report.outcome is not Foreseen.FAILED:
        return []
    errors = [said for said in report.diagnostics if said.severity == "error"]
    found = [f"- 🛑 {where}: the preview failed, so nobody knows what would be done."]
    lines = [line for said in errors for line in _told(said.resource, said.text)]
    if len(lines) > _LINES_OF_AN_ERROR:
        left = len(lines) - _LINES_OF_AN_ERROR
        lines = [*lines[:_LINES_OF_AN_ERROR], f"… and {left} lines more"]
    return [[*found, *(f"  {line}" for line in fence(lines))] if lines else found]


def _told(resource: str, text: str) -> list[str]:
    lines = [line[:300] for line in text.splitlines()]
    return [f"{resource[:120]}:", *lines] if resource else lines


def _grave(step: ResourceStep, report: EnvironmentReport, where: str) -> list[str]:
    what = " and ".join(word for word, so in (("protected", step.protected), ("holds data", step.stateful)) if so)
    because = (
        f" because of {', '.join(code(path) for path in step.replaces_because[:3])}" if step.replaces_because else ""
    )
    found = [f"- 🛑 {where} {code(step.name)} ({code(step.type)}; {what}) {_VERBS[step.deed]}{because}."]
    effects = [effect for effect in report.effects if effect.resource == step.name]
    return found + [f"  {prose(effect.text[:1].upper() + effect.text[1:])}" for effect in effects]


def _rule(rule: BrokenRule, where: str) -> list[str]:
    sign = "🛑" if rule.stops else "⚠️"
    of = code(rule.resource) if rule.resource else "the whole stack"
    severity = f" ({code(rule.severity, 20)})" if rule.severity else ""
    found = [f"- {sign} {where} rule {code(rule.rule)}{severity}, {of}: {code(rule.message, 400)}"]
    if rule.excepted is not None:
        found.append(f"  Excepted until {rule.excepted.until:%Y-%m-%d}: {code(rule.excepted.reason, 200)}")
    return found
