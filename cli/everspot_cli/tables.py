"""Rows as tables for the terminal."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rich.table import Table
from rich.text import Text

STYLE = {
    "PENDING": "yellow",
    "STARTING": "cyan",
    "RUNNING": "green",
    "RECOVERING": "magenta",
    "CANCELLING": "yellow",
    "SUCCEEDED": "bold green",
    "FAILED": "bold red",
    "CANCELLED": "dim",
    "READY": "green",
    "BUSY": "cyan",
    "DRAINING": "yellow",
    "SILENT": "bold red",
    "ENDED": "dim",
    "BOOTING": "yellow",
}


def duration(seconds: float | None) -> str:
    """Two units at most: `3h12m`, `4m05s`, `12s`."""
    if seconds is None:
        return "—"
    sign, whole = ("-", -seconds) if seconds < 0 else ("", seconds)
    whole = round(whole)
    if whole >= 86400:
        return f"{sign}{whole // 86400}d{whole % 86400 // 3600:02d}h"
    if whole >= 3600:
        return f"{sign}{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{sign}{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{sign}{whole}s"


def word(state: str) -> Text:
    """A state in its colour."""
    return Text(state, style=STYLE.get(state, ""))


def steps(row: dict[str, Any]) -> str:
    """Progress, such as `120/938 13%`."""
    if not row["total_steps"]:
        return str(row["step"] or "—")
    return f"{row['step']}/{row['total_steps']} {100 * row['step'] // row['total_steps']}%"


def jobs_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The queue."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (
        ("ID", "left"),
        ("PRIORITY", "left"),
        ("SUBMITTED", "left"),
        ("TOT. DURATION", "right"),
        ("JOB DURATION", "right"),
        ("#INT.", "right"),
        ("STEPS", "right"),
        ("STATUS", "left"),
        ("ON", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=name in ("ID", "STATUS", "SUBMITTED", "STEPS"))  # type: ignore[arg-type]
    for row in rows:
        where = f"{row['instance_type']} {row['zone']} {row['market']}" if row["instance_type"] else row["owner"] or "—"
        table.add_row(
            row["job_id"],
            row["priority"],
            f"{row['submitted_at']:%m-%d %H:%M}",
            duration(row["total_duration_seconds"]),
            duration(row["job_duration_seconds"]),
            str(row["interruptions"]),
            steps(row),
            word(row["status"]),
            where,
        )
    return table


def instances_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The fleet."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("INSTANCE", "TYPE", "ZONE", "MARKET", "ROLE", "STATE", "JOB", "AGE", "NOTICE"):
        table.add_column(name, no_wrap=name in ("INSTANCE", "STATE"))
    for row in rows:
        notice = row["notice"]
        state = "ENDED" if row["state"] == "ENDED" else row["state"]
        table.add_row(
            row["instance_id"],
            row["instance_type"],
            row["zone"],
            row["market"],
            row["role"],
            word(state),
            row["job_id"] or "—",
            duration(row["age_seconds"]),
            "taken by the cloud" if row["interrupted"] else f"{notice['kind']} ({notice['source']})" if notice else "—",
        )
    return table


def facts(pairs: Sequence[tuple[str, Any]]) -> Table:
    """Names and values, one below the other; None is left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            table.add_row(name, value if isinstance(value, Text) else Text(str(value)))
    return table


def ago(delta: timedelta) -> str:
    """How long ago, for people."""
    return f"{duration(delta.total_seconds())} ago"
