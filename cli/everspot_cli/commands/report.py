"""`everspot report` and `everspot compare`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.options import JobId, Json, session_of
from everspot_cli.errors import CliError, Exit
from everspot_cli.finding import find_job
from everspot_cli.report.gather import gather
from everspot_cli.report.html import document
from everspot_cli.report.model import build
from everspot_cli.report.terminal import money, page, percent, redone, where_prices_come_from
from everspot_cli.session import Session
from everspot_cli.tables import duration


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("report")(report)
    app.command("compare")(compare)


def report(
    context: typer.Context,
    job_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Only this job. Default: the whole cluster.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with the timeline; it needs no network.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="Count up to this moment, such as 2026-01-31T12:00:00Z."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what was trained, what it cost, what on-demand would have cost, and what was lost."""
    session = session_of(context, json)
    only = find_job(session, job_id).job_id if job_id else None
    material = gather(session, _moment(as_of))
    answer = build(material, _today(), only)
    if only is not None and only not in material.submissions:
        raise CliError(f"{only} was submitted after {material.as_of:%Y-%m-%d %H:%M:%S} UTC", Exit.NOT_FOUND)
    if html is not None:
        _write(html, document(answer, material, only))
    if session.json:
        session.answer(answer)
        return
    session.console.print(page(answer, session.console.width))
    if html is not None:
        session.console.print(f"\nThe picture: {html.resolve().as_uri()}", markup=False)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"--html: {path} cannot be written: {error.strerror or error}") from None


def _today() -> Any:
    # The age of a price is counted in real days, also where the market's time runs faster.
    return datetime.now().astimezone().date()


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise CliError(f"--as-of: {text!r} is not a time with a zone, such as 2026-01-31T12:00:00Z", Exit.USAGE)
    return moment.astimezone(UTC)


def compare(
    context: typer.Context,
    job_id: JobId,
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="A second run to compare with, instead of the computed one.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare a job as it ran with the same job on-demand: cost, time, interruptions.

    The on-demand side is computed: the job's useful seconds at list price, without interruptions. With OTHER it is
    another job as that one ran.
    """
    session = session_of(context, json)
    ids = [find_job(session, given).job_id for given in (job_id, *([other] if other else []))]
    material = gather(session)
    reports = [build(material, _today(), job) for job in ids]
    jobs = [report["jobs"][0] for report in reports]
    left = _as_it_ran(jobs[0])
    right = _as_it_ran(jobs[1]) if other else _on_demand(jobs[0])
    if session.json:
        saved = _cheaper(left, right) if other else jobs[0]["savings_percent"]
        prices = [price for report in reports for price in report["list_prices"]]
        session.answer({"job_id": ids[0], "sides": [left, right], "list_prices": prices,
                        "savings_percent": None if saved is None else round(saved, 2)})  # fmt: skip
    else:
        _print(session, left, right)
        told = dict.fromkeys(line for report in reports for line in where_prices_come_from(report))
        session.console.print(Text("\n".join(told), style="dim"))


def _as_it_ran(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "side": f"{job['job_id']} as it ran",
        "cost_usd": job["cost_usd"],
        "free_usd": job["free_usd"],
        "spot_hours": job["spot_hours"],
        "on_demand_hours": job["on_demand_hours"],
        "total_duration_seconds": job["total_duration_seconds"],
        "job_duration_seconds": job["job_duration_seconds"],
        "lost_seconds": job["lost_seconds"],
        "interruptions": job["interruptions"],
        "steps_redone": job["steps_redone"],
        "steps_redone_is_least": job["steps_redone_is_least"],
        "state": job["state"],
    }


def _on_demand(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "side": "on-demand, never interrupted (computed)",
        "cost_usd": job["on_demand_cost_usd"],
        "free_usd": 0.0,
        "spot_hours": 0.0,
        "on_demand_hours": round(job["useful_seconds"] / 3600, 4),
        "total_duration_seconds": max(0.0, job["total_duration_seconds"] - job["lost_seconds"]),
        "job_duration_seconds": job["useful_seconds"],
        "lost_seconds": 0.0,
        "interruptions": 0,
        "steps_redone": 0,
        "steps_redone_is_least": False,
        "state": job["state"],
    }


def _cheaper(left: dict[str, Any], right: dict[str, Any]) -> float | None:
    """How much less the left side costs, in percent."""
    return 100 * (1 - left["cost_usd"] / right["cost_usd"]) if right["cost_usd"] else None


def _verdict(left: dict[str, Any], right: dict[str, Any]) -> str:
    cheaper = _cheaper(left, right)
    if cheaper is None:
        return ""
    if abs(cheaper) < 0.05:
        return "Both cost the same."
    said = f"The left side costs {percent(abs(cheaper))} {'less' if cheaper > 0 else 'more'}."
    if left["free_usd"]:
        said += f" {money(left['free_usd'])} of its use was free: spot that the cloud took within its free time."
    return said


def _print(session: Session, left: dict[str, Any], right: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", left["side"], right["side"]):
        table.add_column(name, justify="right" if name else "left")
    for label, key, shown in (
        ("cost", "cost_usd", money),
        ("spot hours", "spot_hours", "{:.3f}".format),
        ("on-demand hours", "on_demand_hours", "{:.3f}".format),
        ("total duration", "total_duration_seconds", duration),
        ("job duration", "job_duration_seconds", duration),
        ("time lost", "lost_seconds", duration),
        ("interruptions", "interruptions", str),
    ):
        table.add_row(label, shown(left[key]), shown(right[key]))
    table.add_row("steps redone", redone(left), redone(right))
    table.add_row("state", left["state"], right["state"])
    session.console.print(table)
    words = " ".join(part for part in (_verdict(left, right), session.scale_note()) if part)
    session.console.print(Text(f"\n{words}", style="dim"))
