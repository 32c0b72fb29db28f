"""Reads what a job has printed, from its own cluster and from the one that it visits."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from everspot_core.jobs.records import JobState

from everspot_cli.errors import CliError
from everspot_cli.job_lookup import read_record
from everspot_cli.session import Session

if TYPE_CHECKING:
    from everspot_core.jobs.records import JobRecord
    from everspot_core.jobs.visit_records import Away
    from everspot_store import Chunk

POLL = timedelta(seconds=1)


def read_job_log(
    session: Session,
    job: str,
    *,
    follow: bool,
    tail: int | None = None,
    age: timedelta | None = None,
    on_silence: "Callable[[JobRecord | None], None]" = lambda _: None,
) -> "Iterator[Chunk]":
    """Yield the pieces of a job's output, oldest first.

    Args:
        follow: Go on until the job has ended.
        tail: Only this many lines from the end, and with `follow` those that come later.
        age: Only output of this last time, market time.
        on_silence: Is called with the job's record after each look that found nothing of its output.
    """
    after: tuple[int, int] | None = None
    try:
        while True:
            if follow:
                _follow(session, job)
            # The state is read before the log: what a job wrote before it ended is then surely among what is read.
            record = read_record(session, job)
            state = record.state if record else JobState.PENDING
            for chunk in read_chunks(session, job, after, tail, age):
                yield chunk
                after = chunk.position
            if record is not None and record.away is not None:
                yield from _read_from_peer(session, record.away, tail, age)
                return
            if after is None:
                on_silence(record)
            if not follow or state.final:
                return
            session.clock.sleep(POLL)
    finally:
        if follow:
            _end_following(session, job)


def read_chunks(
    session: Session,
    name: str,
    after: tuple[int, int] | None,
    tail: int | None,
    age: timedelta | None,
    *,
    agent: bool = False,
) -> "Iterable[Chunk]":
    """Return the requested pieces of a job's output, or of an instance's log. The last lines are chosen once; later
    ones are returned as they come."""
    stream = session.store.agent_logs if agent else session.store.logs
    since = session.now - age if age is not None else None
    if tail is not None and after is None:
        return stream.tail(name, tail, since)
    return stream.read(name, after, since if after is None else None)


def _read_from_peer(session: Session, away: "Away", tail: int | None, age: timedelta | None) -> "Iterable[Chunk]":
    """Return what a job that is away has printed at its host. Empty, with a note on standard error, if this user may
    not read it."""
    from everspot_store import StoreError

    peer = next((p for p in session.manifest.federation if p.name == away.cluster), None)
    if peer is None:
        return ()
    peer_command = f"everspot --store {peer.control_url} logs {away.visit} -f"
    words = f"it is at {peer.name} as {away.visit}; `{peer_command}` follows it there"
    session.errors.print(words, style="dim", soft_wrap=True)
    try:
        logs = session.peer_store(peer).logs
        since = session.now - age if age is not None else None
        return logs.tail(away.visit, tail, since) if tail is not None else list(logs.read(away.visit, None, since))
    except (StoreError, CliError) as error:
        session.errors.print(f"its log there cannot be read: {error}", style="yellow")
        return ()


def _follow(session: Session, job: str) -> None:
    """Ask the agent for output within seconds. A user who may only read follows too, and gets output within a
    minute."""
    from everspot_store import StoreDenied

    with suppress(StoreDenied):
        session.store.following.renew(job)


def _end_following(session: Session, job: str) -> None:
    """Take the request back. A user who may not delete leaves it behind, and it expires by itself."""
    from everspot_store import StoreError

    with suppress(StoreError):
        session.store.following.end(job)
