"""`everspot cost compare`: a job beside the same on-demand, two jobs, or two sets of jobs."""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from everspot_core.counting import counted
from rich.table import Table
from rich.text import Text

from everspot_cli.commands.options import Json, current_session
from everspot_cli.commands.report import today
from everspot_cli.errors import CliError, Exit
from everspot_cli.job_lookup import find_job
from everspot_cli.report.gather import gather
from everspot_cli.report.model import build
from everspot_cli.report.terminal import percent, redone, where_prices_come_from
from everspot_cli.session import Session
from everspot_cli.set_comparison import compare_sets, describe_measure
from everspot_cli.tables import duration, least, money

_SET = "KEY=VALUE of a tag, or ids or names, also with * and ?; several with commas, or given again."


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(compare)


def compare(
    context: typer.Context,
    job_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="The job's id, or the beginning of it. Not with --a and --b.")
    ] = None,
    other: Annotated[str | None, typer.Argument(metavar="OTHER", help="A second job to compare with.")] = None,
    a: Annotated[list[str] | None, typer.Option("--a", metavar="JOBS", help=f"The first set of jobs. {_SET}")] = None,
    b: Annotated[list[str] | None, typer.Option("--b", metavar="JOBS", help="The second set, in the same way.")] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", metavar="NAME", help="With --a and --b: the final metric to compare. Default: accuracy."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare a job with the same job on-demand, two jobs, or two sets of jobs: cost, time, interruptions.

    The on-demand cost of one job is computed: its useful seconds at list price, without interruptions. With --a and --b
    the succeeded jobs of each set are compared: the difference of the means with its 95 % confidence interval.
    """
    session = current_session(context, json)
    _check(job_id, a, b, metric)
    if a and b:
        everything = gather(session)
        answer = compare_sets(build(everything, today())["jobs"], everything.partial_runs, a, b, metric)
        if session.json:
            session.answer(answer)
        else:
            _print_sets(session, answer)
        return
    ids = [find_job(session, id_prefix).job_id for id_prefix in filter(None, (job_id, other))]
    material = gather(session)
    reports = [build(material, today(), job) for job in ids]
    jobs = [report["jobs"][0] for report in reports]
    left_side = _as_it_ran(jobs[0])
    right_side = _as_it_ran(jobs[1]) if other else _on_demand(jobs[0])
    partial_runs = material.partial_runs if other else {}
    notes = [f"{job} is no whole run: {partial_runs[job]}" for job in ids if job in partial_runs]
    if session.json:
        saved = _cheaper(left_side, right_side) if other else jobs[0]["savings_percent"]
        prices = [price for report in reports for price in report["list_prices"]]
        session.answer({"job_id": ids[0], "sides": [left_side, right_side], "list_prices": prices, "notes": notes,
                        "savings_percent": None if saved is None else round(saved, 2)})  # fmt: skip
    else:
        _print(session, left_side, right_side)
        price_notes = dict.fromkeys(line for report in reports for line in where_prices_come_from(report))
        session.console.print(Text("\n".join([*(f"Note: {note}." for note in notes), *price_notes]), style="dim"))


def _check(job_id: str | None, a: list[str] | None, b: list[str] | None, metric: str | None) -> None:
    """Refuse wrong arguments. The error names all of them."""
    mistakes: list[tuple[str, str]] = []
    if job_id is not None and (a or b):
        mistakes.append(("ID", "does not go with --a and --b"))
    if bool(a) is not bool(b):
        mistakes.append(("--b" if a else "--a", "is missing: two sets are compared"))
    if metric is not None and not (a or b):
        mistakes.append(("--metric", "belongs to --a and --b"))
    if job_id is None and not a and not b:
        mistakes.append(("ID", "is missing: a job, or two sets with --a and --b"))
    if mistakes:
        problems = [{"field": field, "problem": problem} for field, problem in mistakes]
        raise CliError("`everspot cost compare` cannot be done", Exit.USAGE, problems=problems)


def _print_sets(session: Session, answer: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (
        "",
        *(f"{side.upper()}: {counted(answer[side]['jobs'], 'job')}" for side in ("a", "b")),
        "B - A",
        "95 % interval",
    ):
        table.add_column(name, justify="right" if name else "left")
    for row in answer["measures"]:
        shown = _shown(row["unit"])
        interval = "unknown" if row["low"] is None else f"{shown(row['low'])} to {shown(row['high'])}"
        table.add_row(row["measure"], shown(row["a_mean"]), shown(row["b_mean"]), shown(row["difference"]), interval)
    session.console.print(table)
    notes = [*(describe_measure(row) for row in answer["measures"]), *answer["notes"], session.scale_note()]
    session.console.print(Text("\n" + "\n".join(filter(None, notes)), style="dim"))


def _shown(unit: str) -> Callable[[float], str]:
    """Return the format for figures of a unit."""
    formats: dict[str, Callable[[float], str]] = {
        "usd": money,
        "seconds": duration,
        "share": lambda share: percent(100 * share),
    }
    return formats.get(unit, "{:.4g}".format)


def _as_it_ran(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "side": f"{job['job_id']} as it ran",
        # A job that travelled has paid other clusters and the way, too.
        "cost_usd": round(job["cost_usd"] + job["abroad_usd"] + job["egress_usd"], 6),
        "cost_known": job["cost_known"],
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
        "cost_known": job["cost_known"] and not job["trips"],  # its work at other clusters is not in it
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


def _cheaper(left_side: dict[str, Any], right_side: dict[str, Any]) -> float | None:
    """Return how much less the left side costs, in percent. None if a cost is not known."""
    if not (left_side["cost_known"] and right_side["cost_known"]):
        return None
    return 100 * (1 - left_side["cost_usd"] / right_side["cost_usd"]) if right_side["cost_usd"] else None


def _verdict(left_side: dict[str, Any], right_side: dict[str, Any]) -> str:
    cheaper = _cheaper(left_side, right_side)
    if cheaper is None:
        return "" if right_side["cost_known"] and left_side["cost_known"] else "Not all of what they cost is known."
    if abs(cheaper) < 0.05:
        return "Both cost the same."
    sentence = f"The left side costs {percent(abs(cheaper))} {'less' if cheaper > 0 else 'more'}."
    if left_side["free_usd"]:
        sentence += (
            f" {money(left_side['free_usd'])} of its use was free: spot that the cloud took within its free time."
        )
    return sentence


def _print(session: Session, left_side: dict[str, Any], right_side: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", left_side["side"], right_side["side"]):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("cost", *(least(side["cost_usd"], side["cost_known"]) for side in (left_side, right_side)))
    for label, key, shown in (
        ("spot hours", "spot_hours", "{:.3f}".format),
        ("on-demand hours", "on_demand_hours", "{:.3f}".format),
        ("total duration", "total_duration_seconds", duration),
        ("job duration", "job_duration_seconds", duration),
        ("time lost", "lost_seconds", duration),
        ("interruptions", "interruptions", str),
    ):
        table.add_row(label, shown(left_side[key]), shown(right_side[key]))
    table.add_row("steps redone", redone(left_side), redone(right_side))
    table.add_row("state", left_side["state"], right_side["state"])
    session.console.print(table)
    words = " ".join(part for part in (_verdict(left_side, right_side), session.scale_note()) if part)
    session.console.print(Text(f"\n{words}", style="dim"))
