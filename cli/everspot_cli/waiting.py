"""Reads why jobs wait, as the scheduler has written it. Nothing is computed here."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everspot_core.records import JobState
from everspot_store import BadDocument, SchedulerBeat, Store, Wait, Waiting

from everspot_cli.session import Session, side_by_side
from everspot_cli.tables import duration
from everspot_cli.views import SCHEDULER_SILENT, grave

NOTHING_RUNS_IT = ("nothing-seen", "no-free-instance")
"""Reasons, by their codes, that faults of images and pools may explain."""
SHOWN = 5
"""Number of reasons that are listed below a table of jobs."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Why jobs wait, as it was read once. `trouble`: why there is nothing to be read; empty where there is."""

    waits: dict[str, Wait]
    trouble: str
    doubts: str

    def because(self, job_id: str) -> tuple[str, datetime | None]:
        """The reason for one job that waits, and when the scheduler found it; None if it is not the scheduler's."""
        wait = self.waits.get(job_id)
        if self.trouble:
            return _join(self.trouble, self.doubts), None
        if wait is None:
            return "the scheduler has not said why yet", None
        return _join(wait.words, self.doubts if wait.why in NOTHING_RUNS_IT else ""), wait.since


def explain(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Add `waits_because` and `waits_since` to each row of `job_row`; both are None for a job that does not wait."""
    waiting = {row["job_id"] for row in rows if row["state"] == JobState.PENDING.value}
    reading = read(session, waiting) if waiting else None
    for row in rows:
        because = reading.because(row["job_id"]) if reading is not None and row["job_id"] in waiting else (None, None)
        row["waits_because"], row["waits_since"] = because


def read(session: Session, jobs: Collection[str]) -> Reading:
    """Read what the schedulers have written last of these jobs. Faults are read only where they may be the reason."""
    (notes, unreadable), beats = side_by_side(lambda: _written(session.store), session.store.schedulers.scan)
    waits = {job: notes.jobs[job] for job in jobs if job in notes.jobs} if notes is not None else {}
    trouble = _trouble(session, [found.value for found in beats.values()]) or unreadable
    doubtful = bool(trouble) or any(wait.why in NOTHING_RUNS_IT for wait in waits.values())
    return Reading(waits, trouble, grave(session) if doubtful else "")


def sentences(rows: Sequence[dict[str, Any]], now: datetime) -> list[str]:
    """The reasons of the jobs that wait, those of most jobs first, one sentence each."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["waits_because"]:
            found.setdefault(row["waits_because"], []).append(row)
    most = sorted(found.items(), key=lambda item: -len(item[1]))
    said = [_sentence(words, waiting, now) for words, waiting in most[:SHOWN]]
    return said + ([f"{len(most) - SHOWN} further reasons: everspot job ID"] if len(most) > SHOWN else [])


def _sentence(words: str, waiting: Sequence[dict[str, Any]], now: datetime) -> str:
    who = waiting[0]["job_id"] if len(waiting) == 1 else f"{len(waiting)} jobs"
    since = min((row["waits_since"] for row in waiting if row["waits_since"] is not None), default=None)
    return f"Waiting: {who}, because {words}" + (
        f" (for {duration((now - since).total_seconds())})" if since is not None else ""
    )


def _written(store: Store) -> tuple[Waiting | None, str]:
    """What is written, and why it is not to be had."""
    try:
        return store.notes.waiting(), ""
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
    return "; ".join(word for word in words if word)
