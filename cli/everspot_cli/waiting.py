"""Reads the reasons why jobs wait, which the scheduler has written. Nothing is computed here."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from everspot_core.jobs.records import JobState
from everspot_store import BadDocument, SchedulerBeat, Store, Wait, Waiting
from rich.table import Table

from everspot_cli.rows import SCHEDULER_SILENT, startup_problems
from everspot_cli.session import Session, run_in_parallel
from everspot_cli.tables import duration, empty_table, format_date, relative_time

NOTHING_RUNS_IT = ("nothing-seen", "no-free-instance")
"""The codes of reasons that faults of images and pools may explain."""
SHOWN = 5
"""Number of reasons that are listed below a table of jobs."""
LISTED = 10
"""The most waiting jobs that are listed there with what they wait for."""


@dataclass(frozen=True, slots=True)
class WaitReading:
    """The reasons why jobs wait, as read once.

    Attributes:
        waits: The stored reasons, by job.
        trouble: Why nothing can be read, or empty.
        faults: What `startup_problems` returned, or empty.
    """

    waits: dict[str, Wait]
    trouble: str
    faults: str

    def because(self, job_id: str) -> tuple[str, datetime | None]:
        """Return the reason why a job waits, and when the scheduler found it. None if the reason is not the
        scheduler's."""
        wait = self.waits.get(job_id)
        if self.trouble:
            return _join(self.trouble, self.faults), None
        if wait is None:
            return "the scheduler has not said why yet", None
        return _join(wait.words, self.faults if wait.why in NOTHING_RUNS_IT else ""), wait.since

    def row(self, job_id: str) -> dict[str, Any]:
        """Return the fields of a job's row about its waiting. The plans of a silent scheduler are left out, because it
        does nothing."""
        because, since = self.because(job_id)
        wait = self.waits.get(job_id) if not self.trouble else None
        pool = wait.waits_for if wait is not None else None
        return {
            "waits_because": because,
            "waits_since": since,
            "waits_for": pool.model_dump(mode="json") if pool is not None else None,
            "on_demand_at": wait.on_demand_at if wait is not None else None,
        }


NOT_WAITING: dict[str, Any] = {"waits_because": None, "waits_since": None, "waits_for": None, "on_demand_at": None}


def explain(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Add to each row of `job_row` why it waits: `waits_because`, `waits_since`, the pool `waits_for`, and when
    on-demand is launched for it at the latest, `on_demand_at`. All are None for a job that does not wait."""
    waiting = {row["job_id"] for row in rows if row["state"] == JobState.PENDING.value}
    reading = read(session, waiting) if waiting else None
    for row in rows:
        row |= reading.row(row["job_id"]) if reading is not None and row["job_id"] in waiting else NOT_WAITING


def read(session: Session, jobs: Collection[str]) -> WaitReading:
    """Read what the schedulers have written last of these jobs. Faults are read only if they may be the reason."""
    (notes, unreadable), beats = run_in_parallel(lambda: _read_note(session.store), session.store.schedulers.scan)
    waits = {job: notes.jobs[job] for job in jobs if job in notes.jobs} if notes is not None else {}
    trouble = _trouble(session, [doc.value for doc in beats.values()]) or unreadable
    may_be_faults = bool(trouble) or any(wait.why in NOTHING_RUNS_IT for wait in waits.values())
    return WaitReading(waits, trouble, startup_problems(session) if may_be_faults else "")


def waiting_table(rows: Sequence[dict[str, Any]], now: datetime) -> Table | None:
    """Return a table of the jobs whose wait the scheduler explains, ordered by their on-demand launch. None without
    any."""
    detailed = sorted((row for row in rows if _has_forecast(row)), key=lambda row: (_soon(row), row["job_id"]))
    if not detailed:
        return None
    shown = empty_table(
        ("WAITING", "FOR", "ON-DEMAND AT\nTHE LATEST", "BECAUSE"), text_columns=4, fold=("WAITING", "FOR", "BECAUSE")
    )
    for row in detailed[:LISTED]:
        at = row["on_demand_at"]
        shown.add_row(
            row["job_id"],
            wait_pool(row) or "—",
            f"{relative_time(at, now)}\n{at:%Y-%m-%d %H:%M} UTC{_undated_reason(row, chr(10))}" if at else "—",
            f"{row['waits_because']}{_so_long([row], now)}",
        )
    if len(detailed) > LISTED:
        shown.add_row(f"{len(detailed) - LISTED} more", "", "", "everspot job ID")
    return shown


def _has_forecast(row: dict[str, Any]) -> bool:
    return row["waits_for"] is not None or row["on_demand_at"] is not None


def _soon(row: dict[str, Any]) -> datetime:
    return row["on_demand_at"] or datetime.max.replace(tzinfo=UTC)


def sentences(rows: Sequence[dict[str, Any]], now: datetime) -> list[str]:
    """Return a sentence for each reason of the other waiting jobs, the most frequent first."""
    rows_by_reason: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["waits_because"] and not _has_forecast(row):
            rows_by_reason.setdefault(row["waits_because"], []).append(row)
    most = sorted(rows_by_reason.items(), key=lambda item: -len(item[1]))
    lines = [_sentence(words, waiting, now) for words, waiting in most[:SHOWN]]
    return lines + ([f"{len(most) - SHOWN} further reasons: everspot job ID"] if len(most) > SHOWN else [])


def _sentence(words: str, waiting: Sequence[dict[str, Any]], now: datetime) -> str:
    subject = waiting[0]["job_id"] if len(waiting) == 1 else f"{len(waiting)} jobs"
    return f"Waiting: {subject}, because {words}{_so_long(waiting, now)}"


def _so_long(waiting: Sequence[dict[str, Any]], now: datetime) -> str:
    """Describe since when the reason holds, and since when the jobs exist. A new reason starts again."""
    since = min((row["waits_since"] for row in waiting if row["waits_since"] is not None), default=None)
    if since is None:
        return ""
    return f" (for {duration((now - since).total_seconds())}; {describe_submission(waiting, now)})"


def describe_submission(waiting: Sequence[dict[str, Any]], now: datetime) -> str:
    """Return when the first of these jobs was submitted: `submitted 3h12m ago`."""
    return f"submitted {relative_time(min(row['submitted_at'] for row in waiting), now)}"


def on_demand_words(row: dict[str, Any], now: datetime) -> str | None:
    """Return the latest moment at which on-demand is launched for a waiting job, with the reason if no deadline gives
    it."""
    at = row["on_demand_at"]
    return f"{format_date(at, now)} at the latest{_undated_reason(row, ', ')}" if at else None


def _undated_reason(row: dict[str, Any], before: str) -> str:
    """Return the reason for a job without a deadline: a day without spot (`STARVATION_LIMIT` in the schedule). Empty
    with a deadline."""
    return "" if row["deadline_at"] else f"{before}after a day without spot"


def wait_pool(row: dict[str, Any]) -> str | None:
    """Return the pool that a job waits for, for people."""
    pool = row["waits_for"]
    return f"{pool['instance_type']} {pool['zone']} {pool['market']}" if pool else None


def _read_note(store: Store) -> tuple[Waiting | None, str]:
    """Return the scheduler's note, or why it is not available."""
    try:
        return store.notes.waiting.read(), ""
    except BadDocument as error:
        return None, f"why it waits cannot be read: {error}"


def _trouble(session: Session, beats: Sequence[SchedulerBeat]) -> str:
    if not beats:
        return "no scheduler has reported yet, so nothing starts: it is booting, or there is none"
    last = max(beat.updated_at for beat in beats)
    silent = session.clock.to_real(session.now - last)
    if silent <= SCHEDULER_SILENT:
        return ""
    return f"the scheduler has been silent for {duration(silent.total_seconds())}, so nothing starts"


def _join(*words: str) -> str:
    return "; ".join(part for part in words if part)
