"""`everspot federation`."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from everspot_cli.commands.options import Json, current_session
from everspot_cli.errors import CliError, Exit
from everspot_cli.peers import describe_sighting, peer_rows
from everspot_cli.session import Session
from everspot_cli.tables import away_label, empty_table, relative_time, state_text
from everspot_cli.target import as_url
from everspot_cli.visits import move_fields

if TYPE_CHECKING:
    from everspot_core.cluster.manifest import Manifest
    from everspot_core.cluster.peers import Peer

FOLDER = "folder"


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
        remove_peer(session, remove)
    if add is not None:
        add_peer(session, add, egress)
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


def add_peer(session: Session, url: str, egress: float) -> None:
    """Name the cluster behind a URL and this cluster as peers of each other. A peer that is named already gets the new
    figures.

    Raises:
        CliError: if one of the two is not on a folder, or there is no cluster behind the URL.
        StoreError: if a description cannot be read or written.
    """
    from everspot_core.cluster.peers import Peer

    _need_folder(session.manifest)
    url = as_url(url)
    peer_store = session.peer_store(Peer(name=url, cloud=FOLDER, control_url=url, data_url=url))
    doc = peer_store.read_manifest()
    if doc is None:
        raise CliError(f"there is no cluster at {url}: it has no cluster.json", Exit.NOT_FOUND)
    manifest = doc.value
    if manifest.cluster == session.manifest.cluster:
        raise CliError(f"{manifest.cluster} is this cluster itself, or has its name", Exit.USER)
    _need_folder(manifest)
    own = session.manifest
    here = Peer(name=own.cluster, cloud=own.cloud, control_url=session.store_url, egress_usd_per_gb=egress)
    # The peer first: it refuses jobs of a cluster that it does not name.
    others = [p for p in manifest.federation if p.name != here.name]
    peer_store.write_manifest(manifest.model_copy(update={"federation": (*others, here)}))
    peer = Peer(name=manifest.cluster, cloud=manifest.cloud, control_url=url, egress_usd_per_gb=egress)
    _write_peers(session, [*(p for p in own.federation if p.name != peer.name), peer])


def remove_peer(session: Session, name: str) -> None:
    """Remove a peer. It still names this cluster, until it is removed there, too.

    Raises:
        CliError: if this cluster is not on a folder, no peer has the name, or jobs are there.
    """
    _need_folder(session.manifest)
    peers = session.manifest.federation
    if name not in [peer.name for peer in peers]:
        names = ", ".join(peer.name for peer in peers) or "none"
        raise CliError(f"no peer is called {name}: there is {names}", Exit.NOT_FOUND)
    records = session.store.records.scan().items()
    away_jobs = sorted(job for job, doc in records if doc.value.away is not None and doc.value.away.cluster == name)
    if away_jobs:
        raise CliError(
            f"{', '.join(away_jobs)} would be lost sight of: away at {name}", hint="drain this cluster, or wait"
        )
    _write_peers(session, [peer for peer in peers if peer.name != name])


def _need_folder(manifest: "Manifest") -> None:
    if manifest.cloud != FOLDER:
        raise CliError(
            f"the peers of {manifest.cluster}, a cluster on {manifest.cloud}, are declared in its stack",
            hint="`federation` in the stack's settings",
        )


def _write_peers(session: Session, peers: "list[Peer]") -> None:
    session.store.write_manifest(session.manifest.model_copy(update={"federation": tuple(peers)}))
    del session.manifest  # so that it is read again
