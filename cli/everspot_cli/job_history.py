"""The events of a job as lines for people."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from everspot_core.counting import size
from everspot_core.jobs.records import Event, EventKind
from everspot_core.jobs.reported_values import MOST_SECONDS, parse_number
from everspot_core.jobs.shard_traffic import SHARD_TRAFFIC
from everspot_core.jobs.utilization import UTILIZATION
from rich.table import Table
from rich.text import Text

from everspot_cli.tables import duration, empty_table, stamp

_STYLE = {
    EventKind.STOP_DEMANDED: "yellow",
    EventKind.INTERRUPTED: "magenta",
    EventKind.LOST: "red",
    EventKind.ERROR: "red",
    EventKind.FAILED: "bold red",
    EventKind.FINISHED: "bold green",
    EventKind.CHECKPOINTED: "cyan",
    EventKind.UNDERUSED: "yellow",
    EventKind.SKIPPED: "yellow",
    EventKind.NOT_CHECKPOINTED: "yellow",
    EventKind.NOT_TRACKED: "yellow",
    EventKind.CHECKPOINT_INTERVAL: "cyan",
    EventKind.FELL_BACK: "yellow",
}
HEAD, TAIL = 8, 32
"""Number of rows at the beginning and at the end of a shortened history."""
_LONGEST = 160  # characters of a value
_LEFT_OUT = ("traceback", UTILIZATION, SHARD_TRAFFIC)  # shown above the history


@dataclass(frozen=True)
class Chapter:
    """A line of a history: one event, or several checkpoints of an attempt. `attempt` 0: before the first; `left_out`:
    it stands for so many others, and says nothing else."""

    at: datetime
    attempt: int
    kind: EventKind
    title: str
    where: str
    detail: str
    left_out: int = 0


def in_market_time(events: Sequence[Event], scale: float) -> list[Event]:
    """Return the events with their durations in market seconds, as their times are.

    Agents and trainers measure `seconds` and `next_seconds` in real ones. `scale`: market seconds in a real second.
    """

    def scale_value(name: str, value: Any) -> Any:
        measured = name in ("seconds", "next_seconds") and isinstance(value, int | float)
        return value * scale if measured and not isinstance(value, bool) else value

    return [
        event.model_copy(update={"data": {name: scale_value(name, value) for name, value in event.data.items()}})
        for event in events
    ]


def chapters(events: Sequence[Event], *, whole: bool = False) -> list[Chapter]:
    """Return a job's events, oldest first. Unless `whole`, consecutive checkpoints are one line, and the middle of a
    long history and the durations of first steps are left out."""
    runs = [[event] for event in events] if whole else _runs([e for e in events if e.kind is not EventKind.STEPPED])
    hidden = 0 if whole else max(0, len(runs) - HEAD - TAIL)
    shown = [_chapter(run) for run in runs]
    if hidden < 2:
        return shown
    middle = replace(shown[HEAD], title="", where="", detail="", left_out=hidden)
    return [*shown[:HEAD], middle, *shown[HEAD + hidden :]]


def _chapter(run: Sequence[Event]) -> Chapter:
    first, last = run[0], run[-1]
    count = f" x{len(run)}" if len(run) > 1 else ""
    detail = words(first) if len(run) == 1 else _many(run)
    return Chapter(last.at, first.epoch, first.kind, f"{first.kind.value}{count}", first.instance_id or "", detail)


def history(events: Sequence[Event], *, whole: bool = False) -> Table:
    """Return the chapters as a table."""
    table = empty_table(("TIME", "ATT.", "WHAT", "WHERE", "DETAIL"), text_columns=5, fold=("DETAIL",))
    several_days = len({event.at.date() for event in events}) > 1
    for chapter in chapters(events, whole=whole):
        if chapter.left_out:
            table.add_row("…", "", "", "", Text(f"{chapter.left_out} more, with --events", style="dim"))
            continue
        table.add_row(
            stamp(chapter.at, dated=several_days),
            str(chapter.attempt or "—"),
            Text(chapter.title, style=_STYLE.get(chapter.kind, "")),
            chapter.where or "—",
            Text(chapter.detail),
        )
    return table


def _runs(events: Sequence[Event]) -> list[list[Event]]:
    """Return groups of events: consecutive checkpoints of an attempt together, every other event alone."""
    runs = []
    for (kind, _, _), run in groupby(events, key=lambda e: (e.kind, e.epoch, e.data.get("trigger"))):
        group = list(run)
        runs += [group] if kind is EventKind.CHECKPOINTED else [[event] for event in group]
    return runs


def _many(run: Sequence[Event]) -> str:
    first, last = run[0].data.get("step"), run[-1].data.get("step")
    spent = [seconds for e in run if isinstance(seconds := e.data.get("seconds"), int | float)]
    mean = f", {sum(spent) / len(spent):.1f} s each" if spent else ""
    # The agent publishes the folder of a plain program without knowing its steps.
    extent = f"steps {first} to {last}" if first is not None else f"files {run[-1].data.get('files')}"
    return f"{extent}, trigger {run[0].data.get('trigger')}{mean}"


def words(event: Event) -> str:
    """Return the data of an event, on one line."""
    if event.kind is EventKind.CHECKPOINT_INTERVAL:
        return "; ".join(text for text in describe_interval(event) if text)
    # The agent does not know from which step a plain program goes on, and says 0.
    unknown = ("from_step",) if event.kind is EventKind.TRAINING and event.data.get("by") == "agent" else ()
    return ", ".join(
        f"{name.removesuffix('_at').replace('_', ' ')} {_value(name, value)}"
        for name, value in event.data.items()
        if value not in ("", None) and name not in _LEFT_OUT and not (name in unknown and value == 0)
    )


def describe_interval(event: Event) -> tuple[str, str]:
    """Return how often the trainer checkpoints and why, and what a notice costs; both may be empty."""
    seconds, reason, notice = (event.data.get(name) for name in ("seconds", "reason", "notice"))
    number = parse_number(seconds, 0, MOST_SECONDS)
    interval = f"every {duration(number)}" if number is not None else ""
    parts = (interval, reason if isinstance(reason, str) else "")
    return ": ".join(part for part in parts if part), notice if isinstance(notice, str) else ""


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
