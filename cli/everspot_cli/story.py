"""The events of a job as lines for people."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from everspot_core.counting import size
from everspot_core.records import Event, EventKind
from rich.table import Table
from rich.text import Text

from everspot_cli.tables import duration, sheet, stamp

_STYLE = {
    EventKind.NOTICE: "yellow",
    EventKind.INTERRUPTED: "magenta",
    EventKind.LOST: "red",
    EventKind.ERROR: "red",
    EventKind.FAILED: "bold red",
    EventKind.FINISHED: "bold green",
    EventKind.CHECKPOINTED: "cyan",
}
HEAD, TAIL = 8, 32
"""Number of rows at the beginning and at the end of a shortened history."""
_LONGEST = 160  # characters of a value
_LEFT_OUT = ("traceback",)  # shown above the history, where it explains something


def history(events: Sequence[Event], *, whole: bool = False) -> Table:
    """A job's events, oldest first. Unless `whole`, consecutive checkpoints are one line, and the middle of a long
    history and the durations of first steps are left out."""
    table = sheet(("TIME", "ATT.", "WHAT", "WHERE", "DETAIL"), left=5, fold=("DETAIL",))
    dated = len({event.at.date() for event in events}) > 1
    runs = [[event] for event in events] if whole else _runs([e for e in events if e.kind is not EventKind.STEPPED])
    hidden = 0 if whole else max(0, len(runs) - HEAD - TAIL)
    for number, run in enumerate(runs):
        if hidden > 1 and HEAD <= number < HEAD + hidden:
            if number == HEAD:
                table.add_row("…", "", "", "", Text(f"{hidden} more, with --events", style="dim"))
            continue
        first, last = run[0], run[-1]
        count = f" x{len(run)}" if len(run) > 1 else ""
        table.add_row(
            stamp(last.at, dated=dated),
            str(first.epoch or "—"),
            Text(f"{first.kind.value}{count}", style=_STYLE.get(first.kind, "")),
            first.instance_id or "—",
            Text(words(first) if len(run) == 1 else _many(run)),
        )
    return table


def _runs(events: Sequence[Event]) -> list[list[Event]]:
    """Groups of events: consecutive checkpoints of an attempt together, every other event alone."""
    runs = []
    for (kind, _, _), run in groupby(events, key=lambda e: (e.kind, e.epoch, e.data.get("trigger"))):
        found = list(run)
        runs += [found] if kind is EventKind.CHECKPOINTED else [[event] for event in found]
    return runs


def _many(run: Sequence[Event]) -> str:
    first, last = run[0].data.get("step"), run[-1].data.get("step")
    spent = [seconds for e in run if isinstance(seconds := e.data.get("seconds"), int | float)]
    mean = f", {sum(spent) / len(spent):.1f} s each" if spent else ""
    return f"steps {first} to {last}, trigger {run[0].data.get('trigger')}{mean}"


def words(event: Event) -> str:
    """The data of an event, on one line."""
    return ", ".join(
        f"{name.removesuffix('_at').replace('_', ' ')} {_value(name, value)}"
        for name, value in event.data.items()
        if value not in ("", None) and name not in _LEFT_OUT
    )


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and (name == "seconds" or name.endswith("_seconds")):
        return f"{value:.1f} s" if value < 60 else duration(value)
    if name == "bytes" and isinstance(value, int):
        return size(value)
    if name.endswith("_at") and isinstance(value, str):
        try:
            return f"{datetime.fromisoformat(value):%H:%M:%S}"
        except ValueError:
            return value
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} {_value(k, v)}" for k, v in value.items()) + "}"
    text = str(value).strip()
    line = text.splitlines()[0] if text else ""
    return f"{line[: _LONGEST - 1]}…" if len(line) > _LONGEST or line != text else line
