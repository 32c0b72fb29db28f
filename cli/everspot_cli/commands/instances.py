"""`everspot instances`."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from everspot_core.capacity.launching import launched_ids
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Manifest
from everspot_core.documents import format_duration
from everspot_core.jobs.records import Role
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.commands.options import Json, Watch, current_session
from everspot_cli.rows import instance_rows
from everspot_cli.session import Session
from everspot_cli.tables import duration, instances_table


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("instances")(instances)


def instances(
    context: typer.Context,
    all: Annotated[bool, typer.Option("--all", "-a", help="Include ended instances.")] = False,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """List the cluster's instances with type, zone, market, activity and notices."""
    session = current_session(context, json)
    if session.json:
        session.answer(instance_rows(session, include_ended=all))
    elif watch:
        session.redraw(lambda: _page(session, all), lambda: _lines(session, all))
    else:
        session.console.print(_page(session, all))


def _page(session: Session, all: bool) -> RenderableType:
    rows = instance_rows(session, include_ended=all)
    if not rows:
        if session.manifest.standing is None and session.manifest.elastic is not None:
            return Text("No instances. They are launched for jobs: `everspot jobs` says what waiting jobs wait for.")
        return Text("No instances. The fleet's target may be 0, or they are being launched: `everspot doctor` checks.")
    spot = sum(row["market"] == "spot" and row["state"] != "ENDED" for row in rows)
    alive = sum(row["state"] != "ENDED" for row in rows)
    words = [f"{alive} alive, {spot} of them spot. {session.scale_note()}".strip()]
    if session.manifest.standing is not None:
        launched = launched_ids(doc.value for doc in session.store.launching.scan().values())
        words += describe_surplus(session.manifest, [row for row in rows if row["instance_id"] not in launched])
    return Group(instances_table(rows, session.console.width), Text("\n".join(words), style="dim"))


def _lines(session: Session, all: bool) -> dict[str, str]:
    """Return a line for each instance, printed when it changes if standard output is no terminal."""
    lines = {}
    for row in instance_rows(session, include_ended=all):
        name, jobs = row["instance_id"], row["job_id"] or ", ".join(row["residents"])
        kind = f"{row['instance_type']} {row['zone']} {row['market']}"
        lines[name] = f"{name} ({kind}): {row['state']}{f' with {jobs}' if jobs else ''}"
    return lines


def describe_surplus(manifest: Manifest, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what happens to standing instances beyond the declared number, and when, by market.

    `rows`: without the instances that were launched for jobs, which belong to no fleet's target.
    """
    standing, sentences = manifest.standing, []
    if standing is None:
        return []
    for market, target in ((Market.ON_DEMAND, standing.on_demand_units), (Market.SPOT, standing.spot_units)):
        standing_rows = [
            row for row in rows
            if row["market"] == market.value and row["role"] == Role.AGENT.value and row["state"] in ("READY", "BUSY")
            and not row["notice"]
        ]  # fmt: skip
        weights = [standing.weights.get(row["instance_type"], 1.0) for row in standing_rows]
        if standing_rows and sum(weights) - min(weights) >= target:
            units = f"{sum(weights):g} unit{'' if sum(weights) == 1 else 's'}"
            sentences.append(f"{market.value}: {units} held, {target:g} declared. {_describe_release(standing_rows)}")
    return sentences


def _describe_release(rows: Sequence[dict[str, Any]]) -> str:
    from everspot_core.schedule.provisioning.leaving import YOUNG  # the scheduler's policy: only a surplus needs it

    idle = [max(0.0, YOUNG.total_seconds() - row["age_seconds"]) for row in rows if row["state"] == "READY"]
    if not idle:
        return "All of them are busy: one beyond that is let go when its job has left it."
    first = f"the first in {duration(min(idle))}" if min(idle) else "the first at the scheduler's next tick"
    age = format_duration(YOUNG)
    return f"Idle ones beyond that are let go once they are {age} old, {first}; busy ones when their job has left them."
