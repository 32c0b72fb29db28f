"""`everspot cost reconcile`: the ledger beside the cloud's own bill."""

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.counting import counted
from everspot_core.governance.reconcile import SETTLING, BillSide, MatchKind, reconcile
from everspot_core.validation.model_errors import legible
from rich.text import Text

from everspot_cli.commands.options import Json, Month, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.governance.bill_files import BillFile
from everspot_cli.governance.month_ledger import MonthLedger, parse_month, read_month
from everspot_cli.governance.reconciliation import reconcile_document
from everspot_cli.session import Session
from everspot_cli.tables import empty_table, facts, money

SHOWN = 5
_SAID = {
    MatchKind.BOTH: "in both",
    MatchKind.HERE: "only in the ledger",
    MatchKind.THERE: "only in the bill",
    MatchKind.UNPRICED: "without a price in the ledger",
    MatchKind.NOT_YET: "later than anything in the bill",
    MatchKind.NOT_WHOLE: "in the bill's newest {step}, not whole yet",
}


class BillCost(StrEnum):
    """Which cost of a bill is compared."""

    BILLED = "billed"
    EFFECTIVE = "effective"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("reconcile")(reconcile_bill)


def reconcile_bill(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="All parts of the bill: CSV or JSON lines, gzip or plain."),
    ],
    month: Month = None,
    cost: Annotated[
        BillCost, typer.Option("--cost", help="billed: what is invoiced; effective: with commitments spread.")
    ] = BillCost.BILLED,
    tolerance: Annotated[
        float,
        typer.Option("--tolerance", metavar="PERCENT", min=0, help="Exit with 1 if the gap is larger."),
    ] = 1.0,
    json: Json = False,
) -> None:
    """Compare a month of the ledger with the cloud's own bill, by instance and hour.

    The bill is FOCUS 1.0 or 1.2, or CUR 2.0. The command compares the time of the cluster's instances, and lists the
    rest of the bill by kind. In a month that is not over, both sides count up to the time of the bill (x_AsOf), or
    without its newest hour.
    """
    session = current_session(context, json)
    chosen = parse_month(month, session.now)
    if tolerance != tolerance or tolerance == float("inf"):
        raise CliError("--tolerance: has to be a number of percent, such as 1", Exit.USAGE)
    for path in files:
        if not path.is_file():
            raise CliError(f"there is no file {path}", Exit.NOT_FOUND)
    ledger = read_month(session, chosen)
    bill, tables, repeated = _read(session, ledger, files, cost)
    if bill.as_of is not None and bill.as_of < min(ledger.material.as_of, chosen.end):
        ledger = read_month(session, chosen, bill.as_of)  # its last hour is cut there, so the ledger's is, too
    settled = session.now >= chosen.end + SETTLING
    reconciliation = reconcile(ledger.rows, bill, over=ledger.over, settled=settled)
    document = reconcile_document(ledger, bill, reconciliation, tables, repeated, tolerance)
    if session.json:
        session.answer(document)
    else:
        _print(session, document)
    if not document["within_tolerance"]:
        raise typer.Exit(Exit.USER)


def _read(session: Session, ledger: MonthLedger, files: list[Path], cost: BillCost) -> tuple[BillSide, list[str], int]:
    invoicing, row_digests = session.cloud.invoicing, Counter[int]()
    bill = BillSide(
        month=ledger.month,
        instance_ids=frozenset(instance.launch.instance_id for instance in ledger.material.bill.instances),
        cluster=session.manifest.cluster,
        cluster_tag=invoicing.cluster_tag,
    )
    opened = [BillFile(path, invoicing, cost.value, row_digests) for path in files]
    for file in opened:
        for row in file.rows():
            bill.take(row)
    _check(bill, ledger.month.name)
    return bill, [file.table.name for file in opened if file.table is not None], sum(f.repeated for f in opened)


def _check(bill: BillSide, month: str) -> None:
    if not bill.rows:
        raise CliError("the bill has no rows")
    if sum(count.rows for count in bill.other_months.values()) == bill.rows:
        months = ", ".join(sorted(bill.other_months))
        raise CliError(f"the bill has no row of {month}; its rows are of {months}", hint="--month chooses")
    if not bill.resources:
        raise CliError("the bill names no resource in any row", hint="have it exported with the ids of resources")


def _print(session: Session, document: dict[str, Any]) -> None:
    table = empty_table(
        ("INSTANCE TIME", f"{document['step'].upper()}S", "LEDGER", "BILL", "DIFFERENCE"), text_columns=1
    )
    for category, label in _SAID.items():
        entry = document[category.value]
        if entry["count"]:
            difference = entry["here_usd"] - entry["there_usd"]
            table.add_row(
                label.format(step=document["step"]),
                str(entry["count"]),
                money(entry["here_usd"]),
                money(entry["there_usd"]),
                money(difference),
            )
    table.add_section()
    table.add_row("compared", "", *(money(document[name]) for name in ("here_usd", "there_usd", "difference_usd")))
    session.console.print(table)
    _print_largest(session, document)
    for key, lines in document["by_tag"].items():
        tags = empty_table(
            (key.upper(), "INSTANCES", "LEDGER", "BILL", "DIFFERENCE"), text_columns=1, fold=(key.upper(),)
        )
        for line in lines:
            amounts = (money(line[name]) for name in ("here_usd", "there_usd", "difference_usd"))
            without = "(without the tag)" if line["in_bill"] else "(not in the bill)"
            tags.add_row(Text(legible(line["value"] or without)), str(line["instances"]), *amounts)
        session.console.print()
        session.console.print(tags)
    session.console.print()
    session.console.print(facts(_uncompared_facts(document)))
    if not any(document[category.value]["count"] for category in MatchKind):
        session.console.print(f"\nNeither side has time of instances in {document['month']}: nothing was compared.")
        return
    verdict = "within" if document["within_tolerance"] else "more than"
    session.console.print(
        f"\nThe gap over all instances is {money(document['gap_usd'])}, {document['gap_percent']:.2f} %: {verdict} the "
        f"tolerance of {document['tolerance_percent']:g} %.",
        style="green" if document["within_tolerance"] else "bold red",
        soft_wrap=True,
    )


def _print_largest(session: Session, document: dict[str, Any]) -> None:
    rows = [
        (abs(row["difference_usd"]), row, label)
        for category, label in _SAID.items()
        if category.compared
        for row in document[category.value]["largest"]
        if row["difference_usd"]
    ]
    if not rows:
        return
    table = empty_table(("LARGEST", "FROM", "", "LEDGER", "BILL"), text_columns=3)
    for _, row, label in sorted(rows, key=lambda entry: (-entry[0], entry[1]["resource"]))[:SHOWN]:
        start = f"{row['start']:%Y-%m-%d %H:%M}"
        table.add_row(Text(legible(row["resource"])), start, label, money(row["here_usd"]), money(row["there_usd"]))
    session.console.print()
    session.console.print(table)


def _uncompared_facts(document: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the rows that were not compared, by kind."""

    def describe_counts(counts: dict[str, dict[str, Any]]) -> str | None:
        return "; ".join(f"{legible(name)}: {_rows(entry)}" for name, entry in counts.items()) or None

    def some(counts: dict[str, Any]) -> str | None:
        return _rows(counts) if counts["rows"] else None

    until, free, cut = document["billed_until"], document["free_here"], document["bill_as_of"]
    return [
        ("table", ", ".join(document["tables"])),
        ("bill until", f"{until:%Y-%m-%d %H:%M} UTC" if until else None),
        ("both sides as of", f"{cut:%Y-%m-%d %H:%M:%S} UTC, as the bill says" if cut else None),
        *(("not final", reason) for reason in document["pending_changes"]),
        ("free spot", f"{counted(free, document['step'])} of instances that the cloud took so soon" if free else None),
        ("corrections in it", some(document["corrections"])),
        ("commitments in it", some(document["committed"])),
        ("not usage", describe_counts(document["other_charges"])),
        ("other months", describe_counts(document["other_months"])),
        ("other costs of the cluster", describe_counts(document["beside"])),
        ("not the cluster's", _elsewhere(document["elsewhere"])),
        ("repeated rows", str(document["repeated_rows"]) if document["repeated_rows"] else None),
        ("not in the ledger", ", ".join(document["left_out"])),
        *(("note", note) for note in document["notes"]),
    ]


def _elsewhere(entry: dict[str, Any]) -> str | None:
    instances = f", {counted(entry['instances'], 'instance')} among them" if entry["instances"] else ""
    return f"{_rows(entry)}{instances}" if entry["rows"] else None


def _rows(entry: dict[str, Any]) -> str:
    return f"{money(entry['usd'])} in {counted(entry['rows'], 'row')}"
