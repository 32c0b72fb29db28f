"""`everspot federation`."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from everspot_cli.abroad import travels
from everspot_cli.commands import peering
from everspot_cli.commands.options import Json, session_of
from everspot_cli.errors import CliError
from everspot_cli.session import Session
from everspot_cli.tables import humane, sheet, where, word

if TYPE_CHECKING:
    from everspot_core.peers import Peer
    from everspot_core.records import JobRecord


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("federation")(federation)


Add = Annotated[
    str | None,
    typer.Option(
        "--add", metavar="URL", help="Name the cluster with this control bucket as a peer. Both sides have to."
    ),
]
Remove = Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Name a peer no more.")]
Egress = Annotated[
    float, typer.Option(min=0, help="With --add: the price of a GB that is sent between the two, in dollars.")
]


def federation(
    context: typer.Context, json: Json = False, add: Add = None, remove: Remove = None, egress: Egress = 0.0
) -> None:
    """Show the clusters with which jobs are exchanged, the jobs that are away there, and those that visit here.

    A cluster on a folder gets its peers by --add and --remove, one on a cloud by its stack.
    """
    session = session_of(context, json)
    if remove is not None:
        peering.remove(session, remove)
    if add is not None:
        peering.add(session, add, egress)
    records = {name: found.value for name, found in session.store.records.scan().items()}
    answer = {
        "peers": [_peer(session, peer) for peer in session.manifest.federation],
        "away": _away(records),
        "visiting": _visiting(session, records),
    }
    if session.json:
        session.answer(answer)
    else:
        session.console.print(_page(answer, session.now))


def _peer(session: Session, peer: "Peer") -> dict[str, Any]:
    """A peer, and whether this user reaches it. The scheduler reaches it with a role of its own."""
    from everspot_store import StoreError

    beat, error = None, ""
    try:
        store = session.peer_store(peer)
        found = store.read_manifest()
        theirs = found.value if found is not None else None
        beats = [other.value.updated_at for other in store.schedulers.scan().values()]
        beat = max(beats, default=None)
        error = peer.mistaken(theirs.cluster if theirs is not None else None)
        named = {back.name for back in theirs.federation} if theirs is not None else set()
        if not error and session.manifest.cluster not in named:
            error = f"it does not name {session.manifest.cluster} as its peer, and refuses its jobs"
    except (StoreError, CliError) as failed:
        error = str(failed)
    return {
        "name": peer.name,
        "cloud": peer.cloud,
        "control_url": peer.control_url,
        "egress_usd_per_gb": peer.egress_usd_per_gb,
        "scheduler_beat_at": beat,
        "problem": error or None,
    }


def _away(records: Mapping[str, "JobRecord"]) -> list[dict[str, Any]]:
    away = [(name, record) for name, record in sorted(records.items()) if record.away is not None]
    return [{"job_id": name, "state": record.state.value, **travels(record)} for name, record in away]


def _visiting(session: Session, records: Mapping[str, "JobRecord"]) -> list[dict[str, Any]]:
    rows = []
    for visit, found in sorted(session.store.visits.scan().items()):
        offer, record = found.value, records.get(visit)
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
        return Text("No peers: this cluster exchanges no jobs. docs/federation.md says how peers are declared.")
    peers = sheet(("PEER", "CLOUD", "CONTROL", "SCHEDULER", "EGRESS $/GB", "PROBLEM"), left=4, fold=("PROBLEM",))
    for row in answer["peers"]:
        beat = humane(row["scheduler_beat_at"], now) if row["scheduler_beat_at"] is not None else "—"
        problem = Text(row["problem"] or "—", style="red" if row["problem"] else "")
        egress = f"{row['egress_usd_per_gb']:g}"
        peers.add_row(row["name"], row["cloud"], row["control_url"], beat, egress, problem)
    parts: list[RenderableType] = [peers]
    if answer["away"]:
        away = sheet(("JOB", "WHERE", "WHY"), left=3, fold=("WHY",))
        for row in answer["away"]:
            away.add_row(row["job_id"], where(row), row["away"]["why"] or "—")
        parts += [Text("\nAway", style="bold"), away]
    if answer["visiting"]:
        here = sheet(("VISIT", "OF", "OFFER", "STATE", "STEP", "SINCE", "WHY"), left=4, fold=("WHY",))
        for row in answer["visiting"]:
            state, since = word(row["state"] or "—"), humane(row["since"], now)
            here.add_row(
                row["visit"],
                f"{row['job_id'] or '—'} of {row['home']}",
                row["offer"],
                state,
                str(row["step"]),
                since,
                row["why"] or "—",
            )
        parts += [Text("\nVisiting", style="bold"), here]
    return Group(*parts)
