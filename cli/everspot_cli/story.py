"""The events of a job as lines for people."""

from collections.abc import Sequence
from typing import Any

from everspot_core.records import Event, EventKind
from rich.table import Table
from rich.text import Text

from everspot_cli.tables import sheet, stamp

_STYLE = {
    EventKind.NOTICE: "yellow",
    EventKind.INTERRUPTED: "magenta",
    EventKind.LOST: "red",
    EventKind.ERROR: "red",
    EventKind.FAILED: "bold red",
    EventKind.FINISHED: "bold green",
    EventKind.CHECKPOINTED: "cyan",
}


def history(events: Sequence[Event]) -> Table:
    """What happened, oldest first."""
    table = sheet(("TIME", "EPOCH", "WHAT", "WHERE", "DETAIL"), left=5, fold=())
    table.columns[-1].no_wrap = False
    dated = len({event.at.date() for event in events}) > 1
    for event in events:
        table.add_row(
            stamp(event.at, dated=dated),
            str(event.epoch or "—"),
            Text(event.kind.value, style=_STYLE.get(event.kind, "")),
            event.instance_id or "—",
            Text(words(event)),
        )
    return table


def words(event: Event) -> str:
    """The data of an event, on one line."""
    return ", ".join(
        f"{name.replace('_', ' ')} {_value(value)}" for name, value in event.data.items() if value not in ("", None)
    )


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} {_value(v)}" for k, v in value.items()) + "}"
    return str(value).replace("\n", " ⏎ ")
