"""`everspot cost anomalies`: the anomalies that the scheduler found."""

from typing import Annotated, Any

import typer
from everspot_core.governance.anomalies import Anomaly
from everspot_store import BadDocument
from rich.text import Text

from everspot_cli.commands.options import Json, current_session
from everspot_cli.session import Session
from everspot_cli.tables import format_date


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("anomalies")(anomalies)


def anomalies(
    context: typer.Context,
    include_over: Annotated[bool, typer.Option("--all", help="Include the last hundred closed anomalies.")] = False,
    json: Json = False,
) -> None:
    """Show anomalies: jobs far over their estimate, teams over their norm, idle instances, expensive pools.

    The scheduler looks for anomalies every few minutes, and sends each one once to the topic or webhook of
    `notifications`.
    """
    session = current_session(context, json)
    note = None
    try:
        findings = session.store.notes.anomalies.read()
    except BadDocument as error:
        findings, note = None, f"{error}: the scheduler will write it again"
    now_open, over = (findings.open, findings.over if include_over else []) if findings is not None else ([], [])
    rows = [_row(a) for a in (*reversed(now_open), *reversed(over))]
    if session.json:
        session.answer(
            {"anomalies": rows, "updated_at": findings.updated_at if findings is not None else None, "note": note}
        )
        return
    _print(session, now_open, over, note)


def _row(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "kind": anomaly.kind,
        "subject": anomaly.subject,
        "words": anomaly.words,
        "figures": dict(anomaly.figures),
        "since": anomaly.since,
        "over_at": anomaly.over_at,
    }


def _print(session: Session, now_open: list[Anomaly], over: list[Anomaly], note: str | None) -> None:
    for anomaly in reversed(now_open):
        session.console.print(
            Text(f"{anomaly.kind}, since {format_date(anomaly.since, session.now)}", style="bold yellow")
        )
        session.console.print(Text(f"  {anomaly.words}"))
    if not now_open:
        session.console.print("The scheduler has found no anomaly.")
    for anomaly in reversed(over):
        ended = f"{anomaly.over_at:%Y-%m-%d %H:%M} UTC" if anomaly.over_at is not None else "—"
        session.console.print(
            Text(f"{anomaly.kind}, {anomaly.since:%Y-%m-%d %H:%M} to {ended}\n  {anomaly.words}", style="dim")
        )
    if note is not None:
        session.errors.print(f"warning: {note}", style="yellow", soft_wrap=True)
