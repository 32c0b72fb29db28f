"""The result of a rehearsal for people."""

from typing import Any

from rich.table import Table
from rich.text import Text

from everspot_cli.tables import empty_table

_STYLE = {"exact": "green", "differs": "bold red", "failed": "bold red", "not reached": "dim"}
_LEFTOVERS = 5
_LONGEST = 60


def places_table(answer: dict[str, Any]) -> Table:
    """Return one row for each place of interruption."""
    table = empty_table(
        ("INTERRUPTED", "STEP", "RESULT", "FIRST DIFFERENCE"), text_columns=4, fold=("INTERRUPTED", "FIRST DIFFERENCE")
    )
    for row in answer["places"]:
        step = "" if row["step"] is None else str(row["step"])
        words = describe_difference(row["difference"]) if row["difference"] else row["message"]
        table.add_row(Text(row["place"]), step, Text(row["verdict"], style=_STYLE[row["verdict"]]), Text(words))
    return table


def describe_difference(difference: dict[str, Any]) -> str:
    """Return a difference in one line: what, where, and both values."""
    name = f" {difference['name']}" if difference["name"] else ""
    where = f" at step {difference['step']}" if difference["step"] is not None else ""
    rank = f" on rank {difference['rank']}" if difference["rank"] else ""
    values = f": {short(difference['actual'])} instead of {short(difference['expected'])}"
    return f"{difference['kind']}{name}{where}{rank}{values}"


def fixes(answer: dict[str, Any]) -> list[str]:
    """Return the advice, each sentence once, with the places of interruption that it applies to."""
    places: dict[str, list[str]] = {}
    for row in answer["places"]:
        if row["difference"]:
            places.setdefault(row["difference"]["fix"], []).append(row["place"])
    many = len(places) > 1
    return [f"{fix} ({', '.join(names)})" if many else fix for fix, names in places.items() if fix]


def leftovers(answer: dict[str, Any]) -> list[str]:
    """Return lines about variables that are not restored but have had no effect so far."""
    rows = answer["leftovers"]
    lines = [f"{row['name']}: {short(row['actual'])} instead of {short(row['expected'])}" for row in rows[:_LEFTOVERS]]
    more = len(rows) - len(lines)
    return [*lines, *([f"and {more} more (--json lists them)"] if more > 0 else [])]


def summary(answer: dict[str, Any]) -> str:
    """Return the last line."""
    places = [row for row in answer["places"] if row["verdict"] != "not reached"]
    steps = f" {answer['steps']} steps," if answer["steps"] else ""
    runs = f"{steps} {len(places)} place{'s' * (len(places) != 1)} of interruption"
    if answer["verdict"] == "exact":
        return f"Exact:{runs}; the resumed runs are the undisturbed one, bit for bit."
    differing = sum(row["verdict"] == "differs" for row in places)
    if answer["undisturbed"] and not differing:
        return f"Not deterministic:{runs}; what two undisturbed runs have in common is the same in all of them."
    return f"Not exact:{runs}; {differing} change{'s' * (differing == 1)} the result."


def short(text: str) -> str:
    """Return a value that fits into a line."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
