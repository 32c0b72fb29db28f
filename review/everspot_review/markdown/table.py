"""The table of all environments: first, and whole."""

from collections.abc import Sequence

from everspot_review.markdown.details import counts
from everspot_review.markdown.money import change
from everspot_review.markdown.safe import Measure, cell, size
from everspot_review.report import EnvironmentReport, Foreseen

_HEAD = [
    "| environment | resources | jobs and data | expected a month, before → after | rules |",
    "| --- | --- | --- | --- | --- |",
]
_SHORT = ["| environment | |", "| --- | --- |"]


def ranked(reports: Sequence[EnvironmentReport]) -> list[EnvironmentReport]:
    """The reports, those first that need a reviewer most."""
    return sorted(reports, key=lambda r: (not r.blocked, not _harms(r), r.outcome is Foreseen.UNCHANGED, r.environment))


def table(reports: Sequence[EnvironmentReport], room: int, measure: Measure) -> list[str]:
    """A row for each environment. Where hundreds of them leave no room for all columns, there are two of them; where
    there is none for all rows either, the others are counted."""
    full = [*_HEAD, *(_row(report) for report in reports)]
    if size(full, measure) <= room:
        return full
    found = list(_SHORT)
    rest = [f"| {cell(report.environment)} | {_sign(report)} |" for report in reports]
    left = room - size(found, measure) - 60
    while rest and measure(rest[0]) + 1 <= left:
        left -= measure(rest[0]) + 1
        found.append(rest.pop(0))
    return [*found, f"| and {len(rest):,} more | in the run's summary |"] if rest else found


def _row(report: EnvironmentReport) -> str:
    if report.outcome is Foreseen.FAILED:
        what = "🛑 the preview failed"
    else:
        what = f"new: {counts(report)}" if report.first else counts(report)
    columns = (cell(report.environment), what, _effects(report), change(report.estimate), _rules(report))
    return f"| {' | '.join(columns)} |"


def _effects(report: EnvironmentReport) -> str:
    if report.outcome is Foreseen.FAILED:
        return "unknown"
    harms = _harms(report)
    return f"🛑 {harms} harmed" if harms else "no harm"


def _harms(report: EnvironmentReport) -> int:
    """Resources that go with what they hold, or with jobs on them."""
    harmed = {effect.resource for effect in report.effects if effect.harm}
    return len(harmed | {step.name for step in report.steps if step.grave})


def _rules(report: EnvironmentReport) -> str:
    stops = sum(rule.stops for rule in report.rules)
    others = len(report.rules) - stops
    if stops or others:
        return ", ".join(word for word, so in ((f"🛑 {stops} broken", stops), (f"⚠️ {others}", others)) if so)
    return f"✅ {len(report.passed)}" if report.passed else "none judged"


def _sign(report: EnvironmentReport) -> str:
    if report.blocked or _harms(report):
        return "🛑"
    return "no change" if report.outcome is Foreseen.UNCHANGED else "changes"
