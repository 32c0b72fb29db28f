"""`everspot gc`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from everspot_core.counting import size
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.options import Json, current_session, parse_duration_option

if TYPE_CHECKING:
    from everspot_store.garbage import Garbage


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("gc")(gc)


def gc(
    context: typer.Context,
    delete: Annotated[bool, typer.Option("--delete", help="Remove it instead of showing it.")] = False,
    keep: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the checkpoints and logs of what has ended stay.")
    ] = "30d",
    json: Json = False,
) -> None:
    """Show the unused objects of the data bucket and their size; with --delete, remove them.

    Outputs of jobs stay, and everything that a job or a dataset refers to.
    """
    from everspot_store import SystemClock
    from everspot_store.garbage import Collector

    session = current_session(context, json)
    collector = Collector(session.store)
    age = parse_duration_option(keep, "--keep")
    # By the store's clock: by one of this machine that is ahead, what has just ended would be old.
    store_now = SystemClock().now() + session.clock_skew
    garbage = collector.find(age, session.submission_time, store_now)
    if delete:
        garbage = collector.remove(garbage)
    rows = _rows(garbage)
    if session.json:
        session.answer({"removed": delete, "bytes": sum(item.size for item in garbage), "kinds": rows})
        return
    if not rows:
        session.console.print("Nothing to remove.")
        return
    table = Table(box=None, pad_edge=False)
    for name, justify in (("what", "left"), ("objects", "right"), ("size", "right")):
        table.add_column(name.upper(), justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(row["kind"], f"{row['objects']:,}", size(row["bytes"]))
    total = sum(item.size for item in garbage)
    table.add_row("all", f"{len(garbage):,}", size(total), style="bold")
    session.console.print(table)
    words = "Removed." if delete else "Nothing was removed: `everspot gc --delete` does it."
    session.console.print(Text(words, style="dim"))


def _rows(garbage: "list[Garbage]") -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for item in garbage:
        row = rows.setdefault(item.kind.value, {"kind": item.kind.value, "objects": 0, "bytes": 0})
        row["objects"] += 1
        row["bytes"] += item.size
    return list(rows.values())
