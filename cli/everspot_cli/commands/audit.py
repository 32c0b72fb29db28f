"""`everspot cost audit`: what the dollars of a month or a job were spent on, and what would save most of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from everspot_core.experiments.precision_comparison import Tolerance
from everspot_core.jobs.machine_review import job_use
from everspot_core.jobs.utilization import Utilization
from rich.console import RenderableType
from rich.text import Text

from everspot_cli.commands.options import Json, Month, current_session
from everspot_cli.commands.report import today
from everspot_cli.errors import CliError, Exit
from everspot_cli.governance.audit_document import audit_document
from everspot_cli.governance.audit_page import (
    GPU_COLUMNS,
    KIND_COLUMNS,
    POOL_COLUMNS,
    SIZE_COLUMNS,
    SMALL_ON_GPUS,
    audit_page,
    gpu_cells,
    kind_cells,
    lost_words,
    measure_words,
    part,
    pool_cells,
    size_cells,
    total,
    why_not,
)
from everspot_cli.governance.file_output import write_file
from everspot_cli.governance.job_audit import audit_rows, comparison_rows, figure_rows, job_audit
from everspot_cli.governance.month_ledger import parse_month, read_month
from everspot_cli.job_lookup import find_job
from everspot_cli.report.gather import gather
from everspot_cli.report.terminal import where_prices_come_from
from everspot_cli.session import Session
from everspot_cli.tables import empty_table, facts, money

_TOLERANCE = "1%"
_CHANCE = "Runs vary by chance: `everspot cost compare --a … --b …` compares sets of runs."


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    context: typer.Context,
    job_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="A job's id, or the beginning of it. Default: the whole month.")
    ] = None,
    month: Month = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained page.")] = None,
    discount: Annotated[
        list[str] | None,
        typer.Option("--discount", metavar="PLAN=PERCENT", help="As in `everspot cost commitments`."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="ID",
            help="With a job: the run to compare with. Default: the newest later run of the same name that succeeded.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="With a job: the metric that has to hold. Default: accuracy."),
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option(
            "--tolerance",
            metavar="AMOUNT",
            help="With a job: the difference of the metric that does not matter, as 0.5% or 0.004. Default: 1%.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Audit a month or a job: how the machines were used, what that cost, and the measures that would save most.

    Of a month: idle time, right-sizing, lost work and three measures, each saving with its calculation. Of a job: what
    kept it from using its GPUs or processors, at most two changes with their figures, and whether a later run shows
    that the change helped and that the metric held.
    """
    session = current_session(context, json)
    if job_id is not None:
        tolerated = _check_job_options(month, html, discount, metric, tolerance)
        _audit_job(session, job_id, against, metric, tolerated)
        return
    of_a_job = {"--against": against, "--metric": metric, "--tolerance": tolerance}
    _refuse(_misplaced(of_a_job, "belongs to the audit of a job"))
    chosen = parse_month(month, session.now)
    fleet = session.manifest.fleet
    ledger = read_month(session, chosen)
    document = audit_document(ledger, session.manifest, discount or [], fleet.types if fleet is not None else ())
    if html is not None:
        write_file(html, audit_page(document, session.manifest.cluster), "--html")
    if session.json:
        session.answer(document)
    else:
        _print(session, document)


def _check_job_options(
    month: str | None, html: Path | None, discount: list[str] | None, metric: str | None, tolerance: str | None
) -> Tolerance:
    """Return the tolerance. Raises `CliError`, which names all options that are wrong."""
    problems = _misplaced({"--month": month, "--html": html, "--discount": discount}, "belongs to the audit of a month")
    if metric is not None and not metric.strip():
        problems["--metric"] = "is empty"
    try:
        tolerated = Tolerance.parse(_TOLERANCE if tolerance is None else tolerance)
    except ValueError as error:
        problems["--tolerance"] = str(error)
    _refuse(problems)
    return tolerated


def _misplaced(options: dict[str, Any], problem: str) -> dict[str, str]:
    return {name: problem for name, value in options.items() if value}


def _refuse(problems: dict[str, str]) -> None:
    if problems:
        rows = [{"field": name, "problem": problem} for name, problem in problems.items()]
        raise CliError("`everspot cost audit` cannot be done", Exit.USAGE, problems=rows)


def _audit_job(session: Session, job_id: str, against: str | None, metric: str | None, tolerance: Tolerance) -> None:
    own = find_job(session, job_id, ended=True).job_id
    other = find_job(session, against, ended=True).job_id if against is not None else None
    if other == own:
        raise CliError(f"--against: {other} is the audited job itself", Exit.USAGE)
    material = gather(session)
    document = job_audit(material, own, other, metric, tolerance, today())
    if session.json:
        session.answer(document)
        return
    console, use = session.console, job_use(material.records[own], material.events[own])
    console.print(facts(audit_rows(document, use or Utilization())))
    comparison = document["comparison"]
    if comparison is not None:
        console.print(Text(f"\nCompared with {comparison['against']}", style="bold"))
        console.print(_table(("", own, comparison["against"]), figure_rows(comparison), 1))
        console.print(facts(comparison_rows(comparison)))
    notes = [
        _CHANCE if comparison is not None else "",
        *where_prices_come_from({**document, "spot_hours": 0}),
        session.scale_note(),
    ]
    console.print(Text("\n" + "\n".join(filter(None, notes)), style="dim"))


def _print(session: Session, document: dict[str, Any]) -> None:
    console, over = session.console, "" if document["complete"] else ", not final yet"
    head = [
        ("audit of", f"cluster {session.manifest.cluster}, {document['month']}{over}"),
        ("as of", f"{document['as_of']:%Y-%m-%d %H:%M:%S} UTC"),
        ("cost", total(document)),
        ("utilisation", f"{part(document['utilisation'])} of the agents' hours worked for jobs"),
        ("lost work", lost_words(document)),
    ]
    console.print(facts(head))
    console.print(Text("\nWhat would have saved most", style="bold"))
    for place, measure in enumerate(document["measures"], 1):
        console.print(Text(f"{place}. {measure['measure']}: {money(measure['saving_usd'])}", style="bold green"))
        console.print(Text(f"   {measure_words(measure)}"))
    if not document["measures"]:
        console.print("No measure is known to have saved anything in this month.")
    console.print(Text("\n".join(map(why_not, document["other_measures"])), style="dim"))
    for title, columns, rows, text_columns in (
        ("Where the dollars went", KIND_COLUMNS, kind_cells(document), 1),
        ("Pools", POOL_COLUMNS, pool_cells(document), 3),
        ("Jobs on larger types than they needed", SIZE_COLUMNS, size_cells(document), 3),
        (SMALL_ON_GPUS, GPU_COLUMNS, gpu_cells(document), 3),
    ):
        if rows:
            console.print(Text(f"\n{title}", style="bold"))
            console.print(_table(columns, rows, text_columns))
    left_out = f"Not in these figures: {', '.join(document['left_out'])}."
    notes = [*document["notes"], document["definitions"]["measures"], left_out, session.scale_note()]
    console.print(Text("\n" + "\n".join(filter(None, notes)), style="dim"))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int) -> RenderableType:
    table = empty_table([name.upper() for name in columns], text_columns=text_columns)
    for row in rows:
        table.add_row(*row)
    return table
