"""The facts about one job, as names and values: for the terminal and for the web UI."""

from datetime import datetime, timedelta
from typing import Any

from everspot_core.documents import format_duration
from everspot_core.jobs.records import JobState

from everspot_cli.stop_reasons import because
from everspot_cli.tables import duration, format_date, low_use, steps, visit_owner
from everspot_cli.visits import away_words, trip_words
from everspot_cli.waiting import describe_submission, on_demand_words, wait_pool

DETAIL = 6  # lines of what was said last


def _waits_since(row: dict[str, Any], now: datetime) -> str | None:
    """Return since when the job waits for this reason. It may have waited for others before."""
    since = row["waits_since"]
    return f"{format_date(since, now)} for this reason; {describe_submission([row], now)}" if since else None


def job_facts(
    row: dict[str, Any], spec: dict[str, Any], now: datetime, *, explained: bool
) -> list[tuple[str, str | int | None]]:
    """Return names and values of a row of `job_row`, in display order. A value of None or "" is unknown.

    `spec`: the job's file as JSON has it; `explained`: whether its failure is shown elsewhere.
    """
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in sorted(row["metrics"].items()))
    program = spec["recipe"] or " ".join(spec["entrypoint"] or [])
    where = f"{row['owner']} ({row['instance_type']} {row['zone']} {row['market']})" if row["instance_type"] else None
    requirements = ", ".join(f"{name} {_describe(value)}" for name, value in spec["resources"].items() if value)
    return [
        ("job", row["job_id"]),
        ("status", row["status"]),
        ("waits because", row["waits_because"]),
        ("waits for", wait_pool(row)),
        ("on-demand", on_demand_words(row, now)),
        ("waits since", _waits_since(row, now)),
        ("runs", program),
        ("needs", requirements),
        ("priority", row["priority"]),
        ("steps", steps(row)),
        ("metrics", metrics),
        ("checkpoints", row["checkpoint_interval"]),
        ("at a notice", row["notice_loss"]),
        ("on", where or row["owner"]),
        ("visit of", visit_owner(row)),
        ("away", away_words(row, now)),
        ("has been", trip_words(row)),
        ("interruptions", row["interruptions"]),
        ("from zero", _from_zero(row, spec)),
        ("not kept", f"nothing for {duration(row['unkept_seconds'])}" if row["unkept_seconds"] else None),
        ("warning", ", ".join(low_use(row))),
        ("errors", row["errors"] or None),
        ("attempt", row["attempt"] or None),
        ("retry of", row["retry_of"]),
        ("submitted", format_date(row["submitted_at"], now) + (f" by {row['user']}" if row["user"] else "")),
        ("after", ", ".join(row["after"])),
        ("begins", format_date(row["start_at"], now) if row["start_at"] and not row["attempt"] else None),
        ("window", row["window"]),
        ("series", _series(row, spec)),
        ("deadline", deadline_words(row, now)),
        ("total duration", duration(row["total_duration_seconds"])),
        ("job duration", duration(row["job_duration_seconds"])),
        ("last attempt ended", _ending(row["last_reason"])),
        ("exit code", None if explained or not JobState(row["state"]).final else row["exit_code"]),
        ("detail", None if explained else _cut(row["detail"])),
    ]


def _describe(requirement: object) -> str:
    if isinstance(requirement, list):
        return " or ".join(requirement)
    return f"{requirement:g}" if isinstance(requirement, int | float) else str(requirement)


def _from_zero(row: dict[str, Any], spec: dict[str, Any]) -> str | None:
    """Return how often the job was restarted from zero, and how often it may be."""
    if not row["from_zero"]:
        return None
    return f"restarted from zero ({row['from_zero']}); retries.from_zero allows {spec['retries']['from_zero']}"


def deadline_words(row: dict[str, Any], now: datetime) -> str | None:
    """Describe a deadline by its state: open, kept, or missed and by how much."""
    at, state = row["deadline_at"], row["deadline"]
    if at is None or state is None:
        return f"{at:%Y-%m-%d %H:%M} UTC" if at is not None else None
    if state == "open":
        return format_date(at, now)
    ended = row["changed_at"] if JobState(row["state"]).final else now
    late = (ended - at).total_seconds()
    if state == "kept":
        return f"kept with {duration(-late)} to spare ({at:%Y-%m-%d %H:%M} UTC)"
    by = f" by {duration(late)}{'' if JobState(row['state']).final else ' so far'}" if late > 0 else ": the job failed"
    return f"missed{by} ({at:%Y-%m-%d %H:%M} UTC)"


def _ending(reason: str | None) -> str | None:
    return f"by {reason}: {because(reason)}" if reason else None


def _series(row: dict[str, Any], spec: dict[str, Any]) -> str | None:
    """Return the number of the run in its series, and the interval of the series."""
    if row["series"] is None or spec["every"] is None:
        return None
    skip = f", skipped if {spec['skip_if']}" if spec["skip_if"] else ""
    return f"run {row['run']} of {row['series']}, every {format_duration(timedelta(seconds=spec['every']))}{skip}"


def _cut(detail: str) -> str:
    lines = detail.splitlines()
    more = f"\n… {len(lines) - DETAIL} more lines" if len(lines) > DETAIL else ""
    return "\n".join(lines[:DETAIL]) + more
