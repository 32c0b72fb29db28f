"""The peers of a cluster: what its scheduler sees of them, and until it has looked, what this user sees."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from datetime import datetime, timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from everspot_cli.errors import CliError
from everspot_cli.session import Session

if TYPE_CHECKING:
    from everspot_core.cluster.peers import Peer
    from everspot_store import PeerSight

SCHEDULER, USER = "scheduler", "user"
ANSWER_TIME = timedelta(seconds=10)
"""The longest wait for the answers of all peers together, as long as for one request to a store."""
T = TypeVar("T")


def ask_peers(session: Session, peers: Iterable["Peer"], question: Callable[["Peer"], T]) -> dict[str, T]:
    """Ask peers at the same time, and return their answers by name.

    A peer that has not answered within ANSWER_TIME is left out, and this command does not ask it again. The threads
    that wait for it end with the command.

    Raises:
        The first exception of a question that has ended in time.
    """
    answers = {peer.name: Future[T]() for peer in peers if peer.name not in session.silent_peers}
    for peer in peers:
        if peer.name in answers:
            name = f"everspot-peer-{peer.name}"
            Thread(target=_answer, args=(answers[peer.name], question, peer), name=name, daemon=True).start()
    wait(answers.values(), ANSWER_TIME.total_seconds())
    ended = {name: answer for name, answer in answers.items() if answer.done()}
    session.silent_peers |= answers.keys() - ended.keys()
    return {name: answer.result() for name, answer in ended.items()}


def _answer(answer: "Future[T]", question: Callable[["Peer"], T], peer: "Peer") -> None:
    try:
        answer.set_result(question(peer))
    except BaseException as error:
        answer.set_exception(error)


def describe_silence() -> str:
    """Return the problem of a peer that has not answered."""
    return f"it did not answer within {ANSWER_TIME.total_seconds():g} s"


def peer_rows(session: Session) -> list[dict[str, Any]]:
    """Return a row for each declared peer, with its problem and its observer.

    Raises:
        StoreError: if the cluster's own store failed.
    """
    peers = session.manifest.federation
    if not peers:
        return []
    sights = scheduler_sights(session)
    own = ask_peers(session, [peer for peer in peers if peer.name not in sights], lambda peer: own_sight(session, peer))
    return [
        _row(peer, sights.get(peer.name) or own.get(peer.name) or _silent_sight(session, peer), peer.name in sights)
        for peer in peers
    ]


def scheduler_sights(session: Session) -> dict[str, "PeerSight"]:
    """Return what the schedulers have seen of the peers last, by the peer's name.

    Raises:
        StoreError: if the cluster's own store failed.
    """
    beats = sorted((beat.value for beat in session.store.schedulers.scan().values()), key=lambda beat: beat.updated_at)
    return {sight.name: sight for beat in beats for sight in beat.peers}  # the newest of each is last


def _silent_sight(session: Session, peer: "Peer") -> "PeerSight":
    from everspot_store import PeerSight

    return PeerSight(name=peer.name, seen_at=session.now, problem=describe_silence())


def _row(peer: "Peer", sight: "PeerSight", by_scheduler: bool) -> dict[str, Any]:
    return {
        "name": peer.name,
        "cloud": peer.cloud,
        "control_url": peer.control_url,
        "egress_usd_per_gb": peer.egress_usd_per_gb,
        "scheduler_beat_at": sight.beat_at,
        "clock_apart_seconds": sight.clock_apart_seconds,
        "seen_by": SCHEDULER if by_scheduler else USER,
        "seen_at": sight.seen_at,
        "heard_at": sight.heard_at,
        "down": sight.down,
        "problem": sight.problem or None,
    }


def own_sight(session: Session, peer: "Peer") -> "PeerSight":
    """Return a peer as this user reaches it, with the user's own credentials."""
    from everspot_store import PeerSight, StoreError

    now, beat, heard = session.now, None, None
    try:
        store = session.peer_store(peer)
        doc = store.read_manifest()
        manifest = doc.value if doc is not None else None
        beat = max((other.value.updated_at for other in store.schedulers.scan().values()), default=None)
        heard = now
        problem = peer.mistaken(manifest.cluster if manifest is not None else None)
        peer_names = {back.name for back in manifest.federation} if manifest is not None else set()
        if not problem and session.manifest.cluster not in peer_names:
            problem = f"it does not name {session.manifest.cluster} as its peer, and refuses its jobs"
    except (StoreError, CliError) as failed:
        problem = str(failed)
    return PeerSight(name=peer.name, seen_at=now, heard_at=heard, beat_at=beat, problem=problem)


def describe_sighting(row: dict[str, Any], now: datetime) -> str:
    """Return who saw the peer and when: `by its scheduler 12s ago`."""
    from everspot_cli.tables import relative_time

    return f"scheduler, {relative_time(row['seen_at'], now)}" if row["seen_by"] == SCHEDULER else "you, now"
