"""Rows as tables for the terminal."""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

from rich.console import ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from everspot_cli.console import PlainConsole

STYLE = {
    "PENDING": "yellow",
    "STARTING": "cyan",
    "RUNNING": "green",
    "STALLED": "bold red",
    "RECOVERING": "magenta",
    "CANCELLING": "yellow",
    "SUCCEEDED": "bold green",
    "FAILED": "bold red",
    "CANCELLED": "dim",
    "SKIPPED": "dim",
    "READY": "green",
    "BUSY": "cyan",
    "DRAINING": "yellow",
    "SILENT": "bold red",
    "ENDED": "dim",
    "BOOTING": "yellow",
}


NARROW = 110
"""Terminals of fewer columns get tables with fewer, stacked columns."""
EPOCH_TOLERANCE = 1e-6
"""How far the number of epochs, as a quotient of steps, may be from a whole number."""


_LEAST_TEXT = 6
"""Columns of the terminal that a cut text still has."""
_LONGEST_WORD = 20
"""Columns of the terminal above which a word may be continued on a second line."""


class FittedTable(Table):
    """A table that is never wider than its terminal, and whose figures are never cut.

    Texts give way first, then the names above figures. If that does not suffice, each row is a block of lines.

    Args:
        text_columns: How many of its columns, from the first on, are text.
        whole: Names of the columns of text that are never cut.
    """

    def __init__(self, text_columns: int, whole: Sequence[str]) -> None:
        super().__init__(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        self._text_columns, self._whole = text_columns, whole

    def __rich_console__(self, console: Any, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or its rows as blocks."""
        cells = [[_as_text(cell) for cell in column.cells] for column in self.columns]
        names = [_as_text(column.header) for column in self.columns]
        widths = [_widest((name, *texts)) for name, texts in zip(names, cells, strict=True)]
        excess = sum(widths) + len(widths) - 1 - options.max_width
        for index in sorted(range(len(widths)), key=lambda index: (index >= self._text_columns, -widths[index])):
            reduction = max(0, min(excess, widths[index] - self._least(names[index], cells[index], index)))
            widths[index] -= reduction
            excess -= reduction
        if excess > 0:
            yield from self._blocks(names, cells)
            return
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)

    def _least(self, name: Text, texts: Sequence[Text], index: int) -> int:
        """Return the least width of a column."""
        if index >= self._text_columns:
            return max(_widest(texts), min(_LEAST_TEXT, _widest([name])))
        if name.plain in self._whole:
            return _widest((name, *texts))
        if self.columns[index].overflow == "fold":
            return min(_LONGEST_WORD, _widest([part for text in (name, *texts) for part in text.split(" ")]))
        return _LEAST_TEXT

    def _blocks(self, names: Sequence[Text], cells: Sequence[Sequence[Text]]) -> Iterator[Text]:
        """Yield each row: its first text, and a line for each other cell that is not empty."""
        for row in zip(*cells, strict=True):
            for index, (name, text) in enumerate(zip(names, row, strict=True)):
                if index == 0 and self._text_columns:
                    yield Text.assemble((text.plain, "bold"), overflow="fold")
                elif text.plain:
                    label = " ".join(name.plain.split())
                    yield Text.assemble("  ", *([label, " "] if label else []), text, overflow="fold")


def _as_text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _widest(texts: Sequence[Text]) -> int:
    return max((line.cell_len for text in texts for line in text.split()), default=0)


def empty_table(
    columns: Sequence[str], *, text_columns: int, fold: Sequence[str] = (), whole: Sequence[str] = ()
) -> Table:
    """Return an empty table whose first `text_columns` columns are text, the others figures.

    If the width does not suffice, the columns named in `fold` are continued on a second line, and other texts are cut,
    but neither figures nor the first column, nor those named in `whole`.
    """
    table = FittedTable(text_columns, [name for name in (*columns[:1], *whole) if name not in fold])
    for index, name in enumerate(columns):
        folds = name in fold
        side: Literal["left", "right"] = "left" if index < text_columns else "right"
        table.add_column(name, justify=side, no_wrap=not folds, overflow="fold" if folds else "ellipsis")
    return table


def stamp(moment: datetime, *, dated: bool) -> str:
    """Return a moment for a row of a table; with its day if the rows are of several days."""
    return f"{moment:%m-%d %H:%M:%S}" if dated else f"{moment:%H:%M:%S}"


def relative_time(moment: datetime, now: datetime) -> str:
    """Return a moment relative to now: `3h12m ago`, `in 4m05s`."""
    seconds = (now - moment).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def format_date(moment: datetime, now: datetime) -> str:
    """Return a moment relative to now, with its date: `3h12m ago (2026-03-01 12:00 UTC)`."""
    return f"{relative_time(moment, now)} ({moment:%Y-%m-%d %H:%M} UTC)"


def duration(seconds: float | None) -> str:
    """Return a duration in at most two units: `3h12m`, `4m05s`, `12s`."""
    if seconds is None:
        return "—"
    sign, whole = ("-", -seconds) if seconds < 0 else ("", seconds)
    whole = round(whole)
    if whole >= 86400:
        return f"{sign}{whole // 86400}d{whole % 86400 // 3600:02d}h"
    if whole >= 3600:
        return f"{sign}{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{sign}{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{sign}{whole}s"


def money(amount: float | None) -> str:
    """Return dollars for people: cents, and more digits where a cent would hide everything."""
    if amount is None:
        return "—"
    sign, size = ("-" if amount < 0 else ""), abs(amount)
    if 0 < size < 0.00005:
        return f"{sign}<$0.0001"
    return f"{sign}${size:,.2f}" if size >= 1 or size == 0 else f"{sign}${size:.4f}"


def least(amount: float, complete: bool) -> str:
    """Return dollars for people, as a lower bound if not `complete`."""
    return money(amount) if complete else f"≥ {money(amount)}"


def state_text(state: str) -> Text:
    """Return a state in its colour."""
    return Text(state, style=STYLE.get(state, ""))


def status(row: dict[str, Any]) -> Text:
    """Return a job's state in its colour, with a mark if its deadline has passed. A failed job with a deadline stays
    late."""
    text = state_text(row["status"])
    if is_late(row):
        text.append(", late", style="bold red")
    for words in warnings(row):
        text.append(f", {words}", style="yellow")
    return text


def checkpoint_warnings(row: dict[str, Any]) -> list[str]:
    """Describe what a job that has not succeeded has lost or may lose, because its program keeps no checkpoints."""
    if row["status"] == "SUCCEEDED":
        return []
    times, seconds = row.get("from_zero"), row.get("unkept_seconds")
    restarted = [f"restarted from zero ({times})"] if times else []
    return [*restarted, *([f"nothing kept for {duration(seconds)}"] if seconds else [])]


def low_use(row: dict[str, Any]) -> list[str]:
    """Describe how little the GPUs of a running job compute, if that is below the limit of its file."""
    share = row.get("low_gpu_share")
    return [f"GPUs computed for {share:.0%} of the time"] if share is not None else []


def warnings(row: dict[str, Any]) -> list[str]:
    """Describe what a job has lost or may lose, and what it makes too little use of."""
    return [*checkpoint_warnings(row), *low_use(row)]


def is_late(row: dict[str, Any]) -> bool:
    """Return whether a job's deadline has passed. A failed job with a deadline is always late."""
    return bool(row["deadline"] == "missed" and row["status"] != "FAILED")


def steps(row: dict[str, Any], between: str = " ") -> str:
    """Return progress, such as `120/938 13%, epoch 1 of 2`. A job that succeeded before its last step called
    `run.finish()`."""
    if not row["total_steps"]:
        return str(row["step"] or "—")
    if row["status"] == "SUCCEEDED" and row["step"] < row["total_steps"]:
        return f"{row['step']}/{row['total_steps']}{between}finished early"
    epoch = f",{between}epoch {_epoch(row)}" if row.get("steps_per_epoch") else ""
    return f"{row['step']}/{row['total_steps']} {100 * row['step'] // row['total_steps']}%{epoch}"


def _epoch(row: dict[str, Any]) -> str:
    """Return the epoch that the next step belongs to and the number of epochs, such as `2 of 3`."""
    epochs = max(1, math.ceil(row["total_steps"] / row["steps_per_epoch"] - EPOCH_TOLERANCE))
    return f"{min(epochs, int(row['step'] / row['steps_per_epoch'] + EPOCH_TOLERANCE) + 1)} of {epochs}"


def jobs_table(rows: Sequence[dict[str, Any]], width: int, now: datetime) -> RenderableType:
    """Return the table of the queue. In a narrow terminal a job's instance is below its id, and priority and submission
    are only in `everspot job ID`. In a very narrow one each id has a line of its own, which is never cut."""
    wide = empty_table(
        ("ID", "PRIORITY", "SUBMITTED", "STATUS", "ON", "STEPS", "TOT. DURATION", "JOB DURATION", "#INT."),
        text_columns=5,
    )
    # A long status is continued below. An id is not, because people and scripts copy it.
    columns = ("ID, ON", "STATUS", "STEPS", "TOT.\nDURATION", "JOB\nDURATION", "#INT.")
    narrow = empty_table(columns, text_columns=2, fold=("STATUS",))
    blocks: list[RenderableType] = []
    for row in rows:
        durations = (duration(row["total_duration_seconds"]), duration(row["job_duration_seconds"]))
        figures = (*durations, str(row["interruptions"]))
        submitted = relative_time(row["submitted_at"], now)
        visit_line = f"\n  {visit_owner(row)}" if row["visit_of"] else ""
        wide.add_row(
            f"{row['job_id']}{visit_line}",
            row["priority"],
            submitted,
            status(row),
            instance_label(row, " "),
            steps(row),
            *figures,
        )
        on = (
            "".join(f"\n  {line}" for line in instance_label(row, "\n").splitlines())
            if row["owner"] or row["away"]
            else ""
        )
        narrow.add_row(f"{row['job_id']}{visit_line}{on}", status(row), steps(row, "\n"), *figures)
        blocks.append(Text(row["job_id"], style="bold", no_wrap=True, overflow="ignore"))
        blocks.append(
            Padding(Text.assemble(status(row), f"{visit_line}{on}\n{steps(row)}, {durations[0]}"), (0, 0, 0, 2))
        )
    if fits_width(wide, width):
        return wide
    return narrow if _measure(narrow).minimum <= width else Group(*blocks)


def _measure(table: Table) -> Measurement:
    console = PlainConsole(width=1000)
    return Measurement.get(console, console.options, table)


def fits_width(table: Table, width: int) -> bool:
    """Return whether a table is shown in full on a terminal of so many columns."""
    return _measure(table).maximum <= width


def instance_label(row: dict[str, Any], between: str = " ") -> str:
    """Return the instance of a job, or the cluster that it visits, or `—`."""
    if not row["instance_type"]:
        return row["owner"] or away_label(row).replace(": ", f":{between}") or "—"
    return f"{row['instance_type']}{between}{row['zone']} {row['market']}"


def away_label(row: dict[str, Any]) -> str:
    """Return where a job is away, such as `at beta as visit-…-v1: RUNNING`, or ""."""
    away = row["away"]
    return f"at {away['cluster']} as {away['visit']}: {away['told'] or 'being copied'}" if away is not None else ""


def visit_owner(row: dict[str, Any]) -> str | None:
    """Return the job that a visit belongs to, such as `train-7 of alpha`, or None if the row is no visit."""
    visit = row["visit_of"]
    return f"{visit['job_id']} of {visit['home']}" if visit is not None else None


def instances_table(rows: Sequence[dict[str, Any]], width: int) -> Table:
    """Return the table of the instances. In a narrow terminal type and zone are below the id."""
    wide = empty_table(("INSTANCE", "TYPE", "ZONE", "MARKET", "ROLE", "STATE", "JOB", "NOTICE", "AGE"), text_columns=8)
    narrow = empty_table(("INSTANCE", "STATE", "JOB", "AGE"), text_columns=3, fold=("JOB",))
    for row in rows:
        job = row["job_id"] or ", ".join(row["residents"]) or "—"
        age, notice = duration(row["age_seconds"]), describe_notice(row)
        wide.add_row(
            row["instance_id"], row["instance_type"], row["zone"], row["market"], row["role"], state_text(row["state"]),
            job, notice or "—", age,
        )  # fmt: skip
        state = state_text(row["state"])
        if notice:
            state.append(f"\n{notice}", style="yellow")
        doing = "(scheduler)" if row["role"] == "scheduler" else job
        kind = f"{row['instance_id']}\n  {row['instance_type']}\n  {row['zone']} {row['market']}"
        narrow.add_row(kind, state, doing, age)
    return wide if fits_width(wide, width) else narrow


def describe_notice(row: dict[str, Any]) -> str:
    """Describe an instance's notice or trouble. Empty without one."""
    if row["interrupted"]:
        return "taken by the cloud"
    if row.get("detail") and not row["notice"]:
        return str(row["detail"])
    return f"{row['notice']['kind']} ({row['notice']['source']})" if row["notice"] else ""


def facts(pairs: Sequence[tuple[str, Any]]) -> Table:
    """Return a table of names and values, one below the other. Values of None are left out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            table.add_row(name, value if isinstance(value, Text) else Text(str(value)))
    return table
