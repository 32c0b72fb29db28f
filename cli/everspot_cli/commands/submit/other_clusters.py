"""The cost of a job that may move in each cluster that it names, for a dry run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from everspot_core.capacity.catalogue import builtin
from everspot_core.cluster.peers import Peer, reachable
from everspot_core.documents import format_duration
from everspot_core.federation.data_locality import Inputs, describe_inputs
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.job import JobSubmission
from everspot_store import FleetState, PeerMarket, Store, StoreError
from rich.padding import Padding
from rich.text import Text

from everspot_cli.commands.submit.job_data import JobData
from everspot_cli.errors import CliError
from everspot_cli.job_view import plain_view
from everspot_cli.peers import ask_peers, describe_silence, own_sight, scheduler_sights
from everspot_cli.session import Session
from everspot_cli.tables import empty_table, relative_time

if TYPE_CHECKING:
    from everspot_core.federation.forecast import MoveCost

_PAID = "an idle standing instance would run it: only the transfer costs"


def price_at_peers(session: Session, submission: JobSubmission, data: JobData) -> list[dict[str, Any]]:
    """Return a row for the cluster itself and for each peer that the job may visit. Empty for a job that stays.

    The rows follow the pools that the schedulers have noted. The dollars are the schedulers' own estimate: for the
    whole job, with the changeover there, the expected spells of spot, and the transfer. A job that has not begun
    sends no checkpoint, and of its data only what the peer lacks. A peer that this user cannot read, or that does not
    answer in time, counts as one that has nothing.

    Raises:
        StoreError: if the cluster's own store failed.
    """
    from everspot_core.federation.forecast import STAYING, move_cost_to  # numpy, which others do without

    spec = submission.spec
    peers = [peer for peer in session.manifest.federation if reachable(peer, spec.clouds, spec.clusters)]
    if not peers:
        return []
    sights = scheduler_sights(session)
    noted = {name: doc.value for name, doc in session.store.notes.peers.scan().items()}
    all_missing = Inputs(data_bytes=data.datasets_bytes)
    home = Peer(name=session.manifest.cluster, cloud=session.manifest.cloud, control_url=session.store_url)
    price = partial(_row, session, submission)

    def read_peer(peer: Peer) -> _PeerAnswer:
        sight = sights.get(peer.name) or own_sight(session, peer)
        market, problem = _try_market(partial(_market, session, peer, noted.get(peer.name)))
        return _PeerAnswer(market, sight.problem or problem, _data_there(session, data, peer))

    answers = ask_peers(session, peers, read_peer)
    rows = [price(home, STAYING, *_try_market(partial(_read_published, session.store)))]
    for peer in peers:
        answer = answers.get(peer.name) or _PeerAnswer(noted.get(peer.name), describe_silence(), None)
        way = move_cost_to(answer.inputs or all_missing, peer)
        present = answer.inputs.present_bytes if answer.inputs is not None else None
        rows.append(price(peer, way, answer.market, answer.problem) | {"present_bytes": present})
    return rows


@dataclass(frozen=True)
class _PeerAnswer:
    """What was read of a peer. `inputs`: how much of the job's data it has; None: not known."""

    market: PeerMarket | None
    problem: str | None
    inputs: Inputs | None


def _data_there(session: Session, data: JobData, peer: Peer) -> Inputs | None:
    """Return how much of the job's data a peer has; None if this user cannot read that."""
    try:
        return session.peer_store(peer).datasets.measure(data.datasets)
    except (StoreError, CliError, OSError):
        return None


def able_peers(session: Session, submission: JobSubmission) -> list[str]:
    """Return the peers that the job may visit and that have an instance type which can hold it."""
    spec = submission.spec
    peers = [peer for peer in session.manifest.federation if reachable(peer, spec.clouds, spec.clusters)]
    markets = {name: doc.value for name, doc in session.store.notes.peers.scan().items()}
    unknown = [peer for peer in peers if peer.name not in markets]
    answers = ask_peers(session, unknown, lambda peer: _try_market(partial(_market, session, peer, None)))
    able = []
    for peer in peers:
        peer_market = markets.get(peer.name) or answers.get(peer.name, (None,))[0]
        if peer_market is None:
            continue
        types = builtin().with_types(peer_market.instance_types).types
        type_names = {pool.instance_type for pool in peer_market.fleet.pools} | {
            idle.instance_type for idle in peer_market.fleet.idle
        }
        if any(fits(spec.resources, Shape.from_machine(types[name])) for name in type_names & types.keys()):
            able.append(peer.name)
    return able


def _try_market(read: Callable[[], PeerMarket | None]) -> tuple[PeerMarket | None, str | None]:
    """Return what was read, and why it could not be."""
    try:
        return read(), None
    except (StoreError, CliError) as error:
        return None, str(error)


def _market(session: Session, peer: Peer, noted: PeerMarket | None) -> PeerMarket | None:
    """Return the pools that this cluster's scheduler has noted of a peer. Until it has noted them, what this user can
    read there."""
    return noted or _read_published(session.peer_store(peer))


def _read_published(store: Store) -> PeerMarket | None:
    manifest_doc, fleet = store.read_manifest(), store.notes.fleet.read()
    return PeerMarket(fleet=fleet, instance_types=manifest_doc.value.instance_types) if manifest_doc and fleet else None


def _row(
    session: Session,
    submission: JobSubmission,
    peer: Peer,
    way: "MoveCost",
    peer_market: PeerMarket | None,
    problem: str | None,
) -> dict[str, Any]:
    """Return the row of one cluster. A cluster that cannot be read has a problem, and no figures."""
    if peer_market is None:
        return _figures(peer, way, problem or "its scheduler has noted no pools yet", None, None)
    return _figures(
        peer, way, problem, _prospect(submission, peer.name, peer_market, way, session.now), peer_market.fleet
    )


def _prospect(
    submission: JobSubmission, name: str, peer_market: PeerMarket, way: "MoveCost", now: datetime
) -> dict[str, Any]:
    from everspot_core.federation.forecast import forecast_job
    from everspot_store.peer_market import build_market

    market = build_market(peer_market.fleet, name, builtin().with_types(peer_market.instance_types).types)
    forecast = forecast_job(plain_view(submission, None), market, now, move_cost=way)
    changeover = market.changeover
    return {
        "expected_usd": forecast.usd,
        "usd_per_hour": forecast.usd_per_hour,
        "changeover_seconds": changeover.expected.total_seconds() if changeover is not None else None,
        "capacity_now": forecast.feasible,
        "done_by": forecast.done_by,
        "why": _PAID if forecast.paid else forecast.reason or None,
    }


def _figures(
    peer: Peer, way: "MoveCost", problem: str | None, forecast: dict[str, Any] | None, fleet: FleetState | None
) -> dict[str, Any]:
    nothing = dict.fromkeys(("expected_usd", "usd_per_hour", "changeover_seconds", "capacity_now", "done_by", "why"))
    return {
        "cluster": peer.name,
        "cloud": peer.cloud,
        "problem": problem,
        **(forecast or nothing),
        "egress_usd": way.usd,
        "sent_bytes": way.inputs.sent_bytes,
        "present_bytes": 0,
        "way_seconds": way.expected.total_seconds(),
        "prices_at": fleet.updated_at if fleet is not None else None,
    }


def print_elsewhere(session: Session, submission: JobSubmission, rows: Sequence[dict[str, Any]]) -> None:
    """The rows as a table, home first. What is not known is a dash."""
    if not rows:
        return
    span = submission.spec.expected_duration
    cost = f"EXPECTED $\nFOR {format_duration(span)}" if span is not None else "EXPECTED $"
    table = empty_table(
        ("CLUSTER", cost, "OF THAT\nEGRESS $", "$/H", "CHANGEOVER", "PRICES"), text_columns=1, fold=("CLUSTER",)
    )
    for row in rows:
        usd, hourly = ("—" if value is None else f"{value:.4f}" for value in (row["expected_usd"], row["usd_per_hour"]))
        took = "—" if row["changeover_seconds"] is None else f"{row['changeover_seconds']:.0f} s"
        at = relative_time(row["prices_at"], session.now) if row["prices_at"] is not None else "—"
        table.add_row(row["cluster"], usd, f"{row['egress_usd']:.4f}", hourly, took, at)
    notes = ["By the schedulers' notes of their pools: with changeover, known spells of Spot, and the way there."]
    if span is None:
        notes.append("Without expected_duration nobody knows what the job costs as a whole.")
    notes.append("Later moves also send the newest checkpoint, whose size nobody knows yet.")
    notes += [f"{row['cluster']}: {words}" for row in rows if (words := row["problem"] or row["why"])]
    notes += [f"{row['cluster']}: {words}" for row in rows[1:] if (words := _describe_data(row))]
    session.console.print()
    session.console.print(table)
    session.console.print(Padding(Text("\n".join(notes), style="dim"), 0))


def _describe_data(row: dict[str, Any]) -> str:
    """Return what a move to a cluster sends. Empty for a job without data."""
    present = row["present_bytes"]
    inputs = Inputs(data_bytes=row["sent_bytes"] + (present or 0), present_bytes=present or 0)
    sent = describe_inputs(inputs, row["egress_usd"])
    unknown = " (which of its data are there cannot be read, so all of it counts)"
    return sent + (unknown if sent and present is None else "")
