"""The web UI's page of one job: its state and reasons, the possible actions, its attempts and its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everspot_core.costs.attempts import Attempt
from everspot_core.jobs.records import JobState

from everspot_cli.failure import FailureWords, summarize_failure
from everspot_cli.job_facts import job_facts
from everspot_cli.job_history import Chapter, chapters
from everspot_cli.report.paths import Path, draw
from everspot_cli.rows import MEANING_OF_STATUS
from everspot_cli.stop_reasons import MEANING_OF_REASON
from everspot_cli.tables import duration, is_late, least, money, stamp
from everspot_cli.ui.panels.jobs import list_reasons
from everspot_cli.ui.sources import JobRead


@dataclass(frozen=True)
class AttemptLine:
    """A row of the table of attempts."""

    number: int
    place: str
    instance: str
    start: str
    length: str
    steps: str
    end: str


@dataclass(frozen=True)
class HistoryLine:
    """A row of the history. `left_out`: it stands for so many others."""

    at: str
    chapter: Chapter
    left_out: int


@dataclass(frozen=True)
class JobPanel:
    """The page. `drawing`: SVG whose texts are escaped; empty without an attempt. `summary`: read aloud when it
    changes."""

    job_id: str
    status: str
    meaning: str
    late: bool
    summary: str
    reasons: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    failure: FailureWords | None
    drawing: str
    attempts: tuple[AttemptLine, ...]
    history: tuple[HistoryLine, ...]
    can_cancel: bool
    can_interrupt: bool


def panel(read: JobRead, now: datetime, *, whole: bool = False, report: Mapping[str, Any] | None = None) -> JobPanel:
    """Return the page for a reading of a job. `whole`: its history is not shortened; `report`: the cluster's, from
    which the job's cost is taken."""
    row, state = read.row, JobState(read.row["state"])
    failed, moments = summarize_failure(row, read.events), [event.at for event in read.events]
    facts = [
        *job_facts(row, read.spec, now, explained=failed is not None),
        *_cost(row["job_id"], report),
        *_machine(row["job_id"], report),
    ]
    several_days = len({moment.date() for moment in moments}) > 1
    overdue = is_late(row)
    return JobPanel(
        job_id=row["job_id"],
        status=row["status"],
        meaning=MEANING_OF_STATUS[row["status"]],
        late=overdue,
        summary=f"{row['status']}{', late' if overdue else ''}: {MEANING_OF_STATUS[row['status']]}.",
        reasons=tuple(list_reasons(row, now)),
        facts=tuple((name, str(value)) for name, value in facts if value not in (None, "") and name not in _ABOVE),
        failure=failed,
        drawing=_draw_path(read.path),
        attempts=tuple(_attempt(number, a, now) for number, a in enumerate(read.path.attempts, 1)),
        history=tuple(
            HistoryLine(stamp(chapter.at, dated=several_days), chapter, chapter.left_out)
            for chapter in chapters(read.events, whole=whole)
        ),
        can_cancel=not state.final and row["status"] != "CANCELLING",
        can_interrupt=state.owned,
    )


_ABOVE = ("job", "status", "waits because")  # shown above the table of facts


def _cost(job_id: str, report: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the cost of the job, as `everspot cost report` has it. Empty until a report contains the job."""
    bill = _bill(job_id, report)
    if report is None or bill is None:
        return []
    elsewhere, over = bill["abroad_usd"] + bill["egress_usd"], bill["ended_at"] is not None
    cost = least(bill["cost_usd"] + elsewhere, bill["cost_known"])
    if elsewhere:
        detail = f"{money(elsewhere)} of it for visits to other clusters"
    else:
        detail = f"{money(bill['on_demand_cost_usd'])} on-demand"
    if over:
        return [("cost", f"{cost} ({detail})")]
    return [("cost", f"{cost} until {datetime.fromisoformat(report['as_of']):%Y-%m-%d %H:%M} UTC ({detail})")]


def _machine(job_id: str, report: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return how well the job used its machines, and what would help. Empty until a report contains the job, and if
    nothing was measured."""
    bill = _bill(job_id, report)
    machine = bill["machine"] if bill is not None else None
    if machine is None or machine["bottleneck"] is None:
        return []
    wasted = machine["wasted_gpu_usd"]
    return [
        ("used well", f"{'yes' if machine['bottleneck'] == 'none' else 'no'}: {machine['reason']}"),
        ("wasted", f"{money(wasted)} were paid while its GPUs did not compute" if wasted is not None else ""),
        *(("would help", change) for change in machine["changes"]),
    ]


def _bill(job_id: str, report: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return next((job for job in report["jobs"] if job["job_id"] == job_id), None) if report is not None else None


def _draw_path(path: Path) -> str:
    return draw([path], {path.job_id: 0}) if path.attempts else ""


def _attempt(number: int, attempt: Attempt, now: datetime) -> AttemptLine:
    where: Sequence[str | None] = (attempt.instance_type, attempt.zone, attempt.market)
    last = f"{attempt.from_step or 0} to {attempt.last_step}" if attempt.last_step is not None else "—"
    ended = "" if attempt.end is None else MEANING_OF_REASON[attempt.reason] if attempt.reason else "not known"
    return AttemptLine(
        number=number,
        place=" ".join(part for part in where if part) or "—",
        instance=attempt.instance_id or "—",
        start=f"{attempt.start:%Y-%m-%d %H:%M:%S}",
        length=duration(((attempt.end or now) - attempt.start).total_seconds()),
        steps=last,
        end=ended or "goes on",
    )
