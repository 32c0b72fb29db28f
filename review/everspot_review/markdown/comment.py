"""One comment for all environments, within a forge's limit: the table whole, then an equal share for each of them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from everspot_core.counting import counted

from everspot_review.markdown import money
from everspot_review.markdown.attention import attention
from everspot_review.markdown.details import changes, counts, notes
from everspot_review.markdown.digests import MARKER, digest_line
from everspot_review.markdown.safe import Measure, code, fence, marked, octets, size, units
from everspot_review.markdown.table import ranked, table
from everspot_review.report import EnvironmentReport, PreviewOutcome

COMMENT_AT_MOST = 60_000
"""GitHub refuses a comment of more than 65,536 characters; the rest is for safety."""

SUMMARY_AT_MOST = 1_000_000
"""Bytes. GitHub takes 1 MiB for the summary of a step."""

PROPERTIES_AT_MOST = 40
"""Of one resource, in the comment; the summary has all."""

TITLE = "### What this change does"
_RUN = re.compile(r"https?://[\w.:/?=&%~-]{1,400}")
_SAFETY = 400


def comment(reports: Sequence[EnvironmentReport], *, run: str = "") -> str:
    """Return the comment of a pull request, of at most `COMMENT_AT_MOST` characters. `run`: the URL of the run;
    entries without room are counted, and are in its summary."""
    return _rendered(ranked(reports), run, COMMENT_AT_MOST, units, PROPERTIES_AT_MOST)


def summary(reports: Sequence[EnvironmentReport], *, run: str = "") -> str:
    """Return the same for the summary of a run, which has room for all of it."""
    return _rendered(ranked(reports), run, SUMMARY_AT_MOST, octets, None)


@dataclass(frozen=True)
class _Section:
    """The entries about one environment. Entries are lines that belong together."""

    report: EnvironmentReport
    urgent: list[list[str]]
    costs: list[str]
    notes: list[list[str]]
    changes: list[list[str]]


@dataclass(frozen=True)
class _Shown:
    """The entries of a section that found room."""

    urgent: list[list[str]]
    costs: list[str]
    details: list[str]


def _rendered(
    reports: Sequence[EnvironmentReport], run: str, most: int, measure: Measure, properties: int | None
) -> str:
    line, untold = digest_line(reports)
    if not reports:
        return "\n".join([MARKER, line, TITLE, "", "No environment changes.", ""])
    foot = _foot(reports, run, untold)
    first = [MARKER, line, TITLE, ""]
    frame = size([*first, *foot, *money.HEAD], measure) + _SAFETY
    rows = table(reports, (most - frame) * 3 // 4, measure)
    sections = [_Section(r, attention(r), money.rows(r), notes(r), changes(r, properties)) for r in reports]
    shown = _shares(sections, most - frame - size(rows, measure), measure)
    lines = [*first, *rows]
    if any(section.urgent for section in shown):
        urgent = sorted((entry for section in shown for entry in section.urgent), key=lambda entry: not _stops(entry))
        lines += ["", "#### Look at this first", "", *_flat(urgent)]
    if any(section.costs for section in shown):
        lines += ["", "#### What it costs", "", *money.HEAD, *(text for section in shown for text in section.costs)]
    for section in shown:
        lines += section.details
    closed = sum(bool(s.notes or s.changes) and not section.details for s, section in zip(sections, shown, strict=True))
    if closed:
        lines += ["", f"The changes of {counted(closed, 'environment')} are in the run's summary."]
    return "\n".join([*lines, *foot, ""])


def _shares(sections: list[_Section], room: int, measure: Measure) -> list[_Shown]:
    """Return an equal share for each entry. Entries that need more get the unused parts of other shares."""
    sizes = {number: _total_size(section, measure) for number, section in enumerate(sections)}
    shown: dict[int, _Shown] = {}
    for done, number in enumerate(sorted(sizes, key=lambda number: (sizes[number], number))):
        shown[number] = _fitted(sections[number], room // (len(sections) - done), measure)
        part = shown[number]
        room -= size([*_flat(part.urgent), *part.costs, *part.details], measure)
    return [shown[number] for number in range(len(sections))]


def _total_size(section: _Section, measure: Measure) -> int:
    entries = [*section.urgent, section.costs, *section.notes, *section.changes]
    return sum(size(entry, measure) for entry in entries)


def _fitted(section: _Section, room: int, measure: Measure) -> _Shown:
    """Return the entries of a section that fit: first the urgent ones, then the cost, then the rest."""
    empty = _details(section, [], [], measure=measure)
    frame = size(empty, measure)
    has_details = bool(section.notes or section.changes) and frame <= room
    room -= frame if has_details else 0
    where = code(section.report.environment, 60)
    urgent, more = _take_fitting(section.urgent, room - 140, measure)
    if more and room >= 140:
        sign = "🛑" if any(_stops(entry) for entry in section.urgent if entry not in urgent) else "⚠️"
        urgent.append([f"- {sign} {where}: and {more:,} more, in the run's summary."])
    room -= sum(size(entry, measure) for entry in urgent)
    costs, unshown = _take_fitting([[row] for row in section.costs], room - 140, measure)
    if unshown and costs:
        costs.append([f"| {where} | and {unshown:,} more | in the run's summary | | |"])
    room -= sum(size(row, measure) for row in costs)
    details: list[str] = []
    if has_details:
        shown_notes, _ = _take_fitting(section.notes, room // 2, measure)
        room -= sum(size(entry, measure) for entry in shown_notes)
        steps, _ = _take_fitting(section.changes, room, measure)
        details = _details(section, shown_notes, steps, measure=measure)
    return _Shown(urgent, _flat(costs), details)


def _details(section: _Section, shown_notes: list[list[str]], steps: list[list[str]], *, measure: Measure) -> list[str]:
    """Return the lines of an environment that can be opened. Without any entry, they are what the others are measured
    beside: with the longest fence and both counts."""
    if not (section.notes or section.changes):
        return []
    empty = not shown_notes and not steps
    failed = section.report.outcome is PreviewOutcome.FAILED
    title = f"{marked(section.report.environment)}: {'as far as it came: ' if failed else ''}{counts(section.report)}"
    lines_out = ["", f"<details><summary>{title}</summary>", *([""] if shown_notes else []), *_flat(shown_notes)]
    unsaid = len(section.notes) - len(shown_notes)
    if unsaid:
        lines_out.append(f"- and {unsaid:,} more, in the run's summary")
    lines = _flat(steps)
    more = len(section.changes) - len(steps)
    if more:
        lines.append(f"… and {more:,} more resources; all of them are in the run's summary")
    if empty:
        around = fence(_flat(section.changes))[0]
        lines.append(" " * 2 * len(around))
    if lines:
        lines_out += ["", *fence(lines, "diff")]
    return [*lines_out, "", "</details>"]


def _take_fitting(entries: list[list[str]], room: int, measure: Measure) -> tuple[list[list[str]], int]:
    """Return the entries that fit, in their order, and how many do not. One that is too long does not keep others
    out."""
    fitting: list[list[str]] = []
    for entry in entries:
        cost = size(entry, measure)
        if cost <= room:
            fitting.append(entry)
            room -= cost
    return fitting, len(entries) - len(fitting)


def _stops(entry: list[str]) -> bool:
    return entry[0].startswith("- 🛑")


def _flat(entries: list[list[str]]) -> list[str]:
    return [line for entry in entries for line in entry]


def _foot(reports: Sequence[EnvironmentReport], run: str, untold: tuple[str, ...]) -> list[str]:
    lines = money.foot(reports)
    if untold:
        text = f"{len(untold):,} environments have no room in what an apply compares with, and are not applied."
        lines += ["", f"🛑 {text}"]
    revisions = sorted({(report.base[:12], report.head[:12]) for report in reports if report.head})
    looked = [f"{code(base)} → {code(head)}" if base else code(head) for base, head in revisions[:3]]
    link = f"[Run]({run})" if _RUN.fullmatch(run) else ""
    last = ". ".join(part for part in (f"Reviewed: {', '.join(looked)}" if looked else "", link) if part)
    return [*lines, "", f"{last}."] if last else lines
