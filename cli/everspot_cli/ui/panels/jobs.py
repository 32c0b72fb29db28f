"""The web UI's page of all jobs: live jobs, why they wait, were moved or are late, and jobs that ended recently."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from everspot_core.counting import counted
from everspot_core.jobs.records import JobState

from everspot_cli.job_facts import deadline_words
from everspot_cli.rows import MEANING_OF_STATUS
from everspot_cli.stop_reasons import because
from everspot_cli.tables import duration, instance_label, is_late, relative_time, steps, visit_owner, warnings
from everspot_cli.visits import away_words
from everspot_cli.waiting import on_demand_words, sentences

SHOWN = 200
"""The most rows of a table; `more` times as many are shown on demand."""
_LONGEST = 200  # characters of a reason


@dataclass(frozen=True)
class Filter:
    """The choice of rows. `words`: a part of the id or name; `team` and `status`: exactly; empty: any. `times`: how
    many times `SHOWN` rows are shown."""

    words: str = ""
    team: str = ""
    status: str = ""
    times: int = 1

    def matches(self, row: dict[str, Any]) -> bool:
        """Return whether a row is chosen."""
        if self.team and row["tags"].get("Team", "") != self.team:
            return False
        if self.status and row["status"] != self.status:
            return False
        text = f"{row['job_id']} {row['name']}".lower()
        return self.words.strip().lower() in text


@dataclass(frozen=True)
class JobLine:
    """A row of the table. `reasons`: a sentence each; `percent`: of its steps, None if they are not known."""

    job_id: str
    owner: str
    status: str
    late: bool
    reasons: tuple[str, ...]
    place: str
    steps: str
    percent: int | None
    since: str
    duration: str
    interruptions: int
    priority: str


@dataclass(frozen=True)
class Lines:
    """The rows of a table, and how many were left out."""

    shown: tuple[JobLine, ...]
    left_out: int


@dataclass(frozen=True)
class JobsPanel:
    """The page. `summary`: one sentence, read aloud when it changes; `counts`: figures and what they count."""

    summary: str
    counts: tuple[tuple[int, str], ...]
    waiting: tuple[str, ...]
    live: Lines
    ended: Lines
    teams: tuple[str, ...]
    statuses: tuple[str, ...]


def panel(rows: Sequence[dict[str, Any]], now: datetime, chosen: Filter | None = None) -> JobsPanel:
    """Return the page for the rows of `everspot jobs`. Counts and reasons are of all rows, the tables of the chosen
    ones."""
    chosen = chosen or Filter()
    counts = _counts(rows)
    live = [row for row in rows if not _over(row)]
    ended = sorted((row for row in rows if _over(row)), key=lambda row: row["changed_at"], reverse=True)
    return JobsPanel(
        summary=", ".join(f"{number} {label}" for number, label in counts) + ".",
        counts=counts,
        waiting=tuple(sentences(live, now)),
        live=_lines(live, now, chosen),
        ended=_lines(ended, now, chosen),
        teams=tuple(sorted({row["tags"].get("Team", "") for row in rows} - {""})),
        statuses=tuple(MEANING_OF_STATUS),
    )


def list_reasons(row: dict[str, Any], now: datetime) -> list[str]:
    """Return the known reasons of a job's state: why it is late, waits, is away, has failed, or was moved."""
    reasons = []
    if is_late(row):
        reasons.append(f"Deadline {deadline_words(row, now)}")
    if row["waits_because"]:
        reasons.append(f"Waits: {row['waits_because']}")
        if on_demand := on_demand_words(row, now):
            reasons.append(f"On-demand {on_demand}")
    if row["away"]:
        reasons.append(away_words(row, now) or "")
    if row["status"] == "FAILED" and row["detail"]:
        reasons.append(row["detail"].strip().splitlines()[0])
    reasons += [words[0].upper() + words[1:] for words in warnings(row)]
    reasons += _describe_moves(row)
    return [words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…" for words in reasons]


def _describe_moves(row: dict[str, Any]) -> list[str]:
    """Describe how often the job left an instance, and the last reason. The last reason of an ended job is that of its
    end."""
    times = counted(row["interruptions"], "time")
    if _over(row):
        return [f"Was interrupted {times}"] if row["interruptions"] else []
    if not row["last_reason"]:
        return []
    often = f" {times}, last" if row["interruptions"] else ""
    return [f"Left its instance{often} because {because(row['last_reason'])}"]


def _over(row: dict[str, Any]) -> bool:
    return bool(JobState(row["state"]).final)


def _counts(rows: Sequence[dict[str, Any]]) -> tuple[tuple[int, str], ...]:
    by_status = Counter(row["status"] for row in rows)
    overdue = sum(is_late(row) and not _over(row) for row in rows)
    figures = (
        (by_status["RUNNING"] + by_status["STALLED"], "running"),
        (by_status["STARTING"], "starting"),
        (by_status["PENDING"] + by_status["RECOVERING"], "waiting"),
        (by_status["AWAY"], "away"),
        (overdue, "late"),
        (by_status["SUCCEEDED"], "succeeded"),
        (by_status["SKIPPED"], "skipped"),
        (by_status["FAILED"] + by_status["CANCELLED"], "failed or cancelled"),
    )
    always = ("running", "waiting", "late")
    return tuple((number, label) for number, label in figures if number or label in always)


def _lines(rows: Sequence[dict[str, Any]], now: datetime, chosen: Filter) -> Lines:
    chosen_rows = [row for row in rows if chosen.matches(row)]
    most = SHOWN * max(1, chosen.times)
    return Lines(tuple(_line(row, now) for row in chosen_rows[:most]), max(0, len(chosen_rows) - most))


def _line(row: dict[str, Any], now: datetime) -> JobLine:
    total, team = row["total_steps"], row["tags"].get("Team")
    visit = visit_owner(row)
    owner_parts = [f"visit of {visit}" if visit else "", f"team {team}" if team else "", row["user"] or ""]
    return JobLine(
        job_id=row["job_id"],
        owner=", ".join(part for part in owner_parts if part),
        status=row["status"],
        late=is_late(row),
        reasons=tuple(list_reasons(row, now)),
        place=instance_label(row),
        steps=steps(row),
        percent=(100 if row["status"] == "SUCCEEDED" else min(100, 100 * row["step"] // total)) if total else None,
        since=relative_time(row["submitted_at"], now),
        duration=duration(row["job_duration_seconds"]),
        interruptions=row["interruptions"],
        priority=row["priority"],
    )
