"""The table of all environments: first, and whole."""

from collections.abc import Sequence

from everspot_review.markdown.details import counts
from everspot_review.markdown.money import change
from everspot_review.markdown.safe import Measure, cell, size
from everspot_review.report import EnvironmentReport, PreviewOutcome

_HEAD = [
    "| environment | resources | jobs and data | expected a month, before → after | rules |",
    "| --- | --- | --- | --- | --- |",
]
_SHORT = ["| environment | |", "| --- | --- |"]


def ranked(reports: Sequence[EnvironmentReport]) -> list[EnvironmentReport]:
    """Return the reports, those first that need a reviewer most."""
    return sorted(
        reports, key=lambda r: (not r.blocked, not _harms(r), r.outcome is PreviewOutcome.UNCHANGED, r.environment)
    )


def table(reports: Sequence[EnvironmentReport], room: int, measure: Measure) -> list[str]:
    """Return a row for each environment. If there are too many rows for all columns, there are two columns; if there is
    no room for all rows either, the others are counted."""
    full = [*_HEAD, *(_row(report) for report in reports)]
    if size(full, measure) <= room:
        return full
    lines = list(_SHORT)
    remaining = [f"| {cell(report.environment)} | {_sign(report)} |" for report in reports]
    room_left = room - size(lines, measure) - 60
    while remaining and measure(remaining[0]) + 1 <= room_left:
        room_left -= measure(remaining[0]) + 1
        lines.append(remaining.pop(0))
    return [*lines, f"| and {len(remaining):,} more | in the run's summary |"] if remaining else lines


def _row(report: EnvironmentReport) -> str:
    if report.outcome is PreviewOutcome.FAILED:
        summary = "🛑 the preview failed"
    else:
        summary = f"new: {counts(report)}" if report.first else counts(report)
    columns = (cell(report.environment), summary, _effects(report), change(report.estimate), _rules(report))
    return f"| {' | '.join(columns)} |"


def _effects(report: EnvironmentReport) -> str:
    if report.outcome is PreviewOutcome.FAILED:
        return "unknown"
    harms = _harms(report)
    return f"🛑 {harms} harmed" if harms else "no harm"


def _harms(report: EnvironmentReport) -> int:
    """Return the resources that are lost with their content, or with jobs on them."""
    harmed = {effect.resource for effect in report.effects if effect.harm}
    return len(harmed | {step.name for step in report.steps if step.grave})


def _rules(report: EnvironmentReport) -> str:
    stops = sum(rule.stops for rule in report.rules)
    others = len(report.rules) - stops
    if stops or others:
        return ", ".join(label for label, so in ((f"🛑 {stops} broken", stops), (f"⚠️ {others}", others)) if so)
    return f"✅ {len(report.passed)}" if report.passed else "none judged"


def _sign(report: EnvironmentReport) -> str:
    if report.blocked or _harms(report):
        return "🛑"
    return "no change" if report.outcome is PreviewOutcome.UNCHANGED else "changes"
