"""`everspot federation`."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from everspot_cli.commands import peering
from everspot_cli.commands.options import Json, current_session
from everspot_cli.peers import describe_sighting, peer_rows
from everspot_cli.session import Session
from everspot_cli.tables import away_label, empty_table, relative_time, state_text
from everspot_cli.visits import move_fields

if TYPE_CHECKING:
    from everspot_core.jobs.records import JobRecord


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("federation")(federation)


Add = Annotated[
    str | None,
    typer.Option("--add", metavar="URL", help="Add the cluster with this control bucket as a peer, on both sides."),
]
Remove = Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Remove a peer.")]
Egress = Annotated[float, typer.Option(min=0, help="With --add: dollars per GB that is sent between the two.")]


def federation(
    context: typer.Context, json: Json = False, add: Add = None, remove: Remove = None, egress: Egress = 0.0
) -> None:
    """Show the peer clusters, the jobs that are away there, and the visiting jobs here.

    A cluster on a folder gets its peers by --add and --remove, one on a cloud by its stack.
    """
    session = current_session(context, json)
    if remove is not None:
        peering.remove(session, remove)
    if add is not None:
        peering.add(session, add, egress)
    records = {name: doc.value for name, doc in session.store.records.scan().items()}
    answer = {
        "peers": peer_rows(session),
        "away": _away(records),
        "visiting": _visiting_rows(session, records),
    }
    if session.json:
        session.answer(answer)
    else:
        session.console.print(_page(answer, session.now))


def _away(records: Mapping[str, "JobRecord"]) -> list[dict[str, Any]]:
    away = [(name, record) for name, record in sorted(records.items()) if record.away is not None]
    return [{"job_id": name, "state": record.state.value, **move_fields(record)} for name, record in away]


def _visiting_rows(session: Session, records: Mapping[str, "JobRecord"]) -> list[dict[str, Any]]:
    rows = []
    for visit, doc in sorted(session.store.visits.scan().items()):
        offer, record = doc.value, records.get(visit)
        rows.append(
            {
                "visit": visit,
                "home": offer.home,
                "job_id": offer.submission.visit.job_id if offer.submission.visit is not None else None,
                "offer": offer.state.value,
                "state": record.state.value if record is not None else None,
                "step": record.progress.step if record is not None else offer.progress.step,
                "since": offer.at,
                "why": offer.why,
                "usd": offer.usd,
            }
        )
    return rows


def _page(answer: dict[str, Any], now: datetime) -> RenderableType:
    if not answer["peers"] and not answer["away"] and not answer["visiting"]:
        return Text("No peers: this cluster exchanges no jobs. docs/guide/federation.md says how peers are declared.")
    peers = empty_table(("PEER", "CLOUD", "SEEN BY", "HEARTBEAT", "EGRESS $/GB"), text_columns=3, fold=("PEER",))
    for row in answer["peers"]:
        beat = relative_time(row["scheduler_beat_at"], now) if row["scheduler_beat_at"] is not None else "none"
        first = _stack_lines(row["name"], row["control_url"], problem=row["problem"])
        peers.add_row(first, row["cloud"], describe_sighting(row, now), beat, f"{row['egress_usd_per_gb']:g}")
    parts: list[RenderableType] = [peers]
    if answer["away"]:
        parts.append(Text("\nAway", style="bold"))
        parts += [_stack_lines(row["job_id"], away_label(row), row["away"]["why"]) for row in answer["away"]]
    if answer["visiting"]:
        here = empty_table(("VISIT", "OFFER", "STATE", "STEP", "SINCE"), text_columns=3, fold=("VISIT",))
        for row in answer["visiting"]:
            first = _stack_lines(row["visit"], f"{row['job_id'] or '—'} of {row['home']}", row["why"])
            state, since = state_text(row["state"] or "—"), relative_time(row["since"], now)
            here.add_row(first, row["offer"], state, str(row["step"]), since)
        parts += [Text("\nVisiting", style="bold"), here]
    return Group(*parts)


def _stack_lines(name: str, *below: str | None, problem: str | None = None) -> RenderableType:
    """Return a name with its details below, so that 80 columns are enough."""
    lines: list[RenderableType] = [Text(name)]
    lines += [Padding(Text(line, overflow="fold"), (0, 0, 0, 2)) for line in below if line]
    if problem:
        lines.append(Padding(Text(problem, style="red", overflow="fold"), (0, 0, 0, 2)))
    return Group(*lines)
