"""Reads what a job has printed, from its own cluster and from the one that it visits."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
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
    from everspot_store.chunks import Stream

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
    visit_log: _VisitLog | None = None
    attempts = _AttemptEnds()
    try:
        while True:
            if follow:
                _follow(session, job)
            # The state is read before the log: what a job wrote before it ended is then surely among what is read.
            record = read_record(session, job)
            state = record.state if record else JobState.PENDING
            for chunk in read_chunks(session, job, after, tail, age):
                yield attempts.separate(chunk.epoch, chunk)
                after = chunk.position
            if record is not None and record.away is not None:
                if visit_log is None or visit_log.visit != record.away.visit:
                    visit_log = _VisitLog(session, record.away, record.epoch)
                for attempt, chunk in visit_log.read(tail, age):
                    if after is None or chunk.position > after:  # else its copy at home was read
                        yield attempts.separate(attempt, chunk)
                        after = chunk.position
            if after is None:
                on_silence(record)
            if not follow or state.final:
                return
            session.clock.sleep(POLL)
    finally:
        if follow:
            _end_following(session, job)


class _AttemptEnds:
    """Ends the last line of an attempt that was killed while it wrote one, so that the next attempt begins a line."""

    def __init__(self) -> None:
        self._attempt: object = None
        self._is_line_open = False

    def separate(self, attempt: object, chunk: "Chunk") -> "Chunk":
        """Return the next chunk of the output, after a newline if it begins another attempt within a line."""
        begins = self._is_line_open and attempt != self._attempt
        self._attempt = attempt
        if chunk.data:
            self._is_line_open = not chunk.data.endswith(b"\n")
        return replace(chunk, data=b"\n" + chunk.data) if begins else chunk


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


class _VisitLog:
    """The output of a job at the cluster that it visits.

    The pieces have the positions that their copies get at home when the visit has ended (`copy_home`), so that a reader
    who goes on there gets each piece once.

    Args:
        session: The command's.
        away: The visit.
        epoch: The job's epoch at home.
    """

    def __init__(self, session: Session, away: "Away", epoch: int) -> None:
        self.visit = away.visit
        self._session, self._epoch = session, epoch
        self._stream: Stream | None = None
        self._after: tuple[int, int] | None = None
        self._count = 0
        self._is_refused = self._is_reported = False
        self._peer = next((p for p in session.manifest.federation if p.name == away.cluster), None)
        if self._peer is not None:
            peer_command = f"everspot --store {self._peer.control_url} logs {self.visit} -f"
            words = f"it is at {self._peer.name} as {self.visit}; `{peer_command}` follows it there"
            session.errors.print(words, style="dim", soft_wrap=True)

    def read(self, tail: int | None, age: timedelta | None) -> "Iterator[tuple[object, Chunk]]":
        """Yield what has come since the last call, each piece with its attempt at the host. Nothing, with one note on
        standard error, if this user may not read it. `tail` and `age` choose from the first call's pieces."""
        from everspot_store import StoreError, StoreUnavailable

        if self._peer is None or self._is_refused:
            return
        try:
            if self._stream is None:
                self._stream = self._session.peer_store(self._peer).logs
            chunks = self._choose(self._stream, tail, age)
        except (StoreError, CliError) as error:
            self._is_refused = not isinstance(error, StoreUnavailable)
            if not self._is_reported:
                self._is_reported = True
                self._session.errors.print(f"its log there cannot be read: {error}", style="yellow")
            return
        for chunk in chunks:
            yield (self.visit, chunk.epoch), replace(chunk, epoch=self._epoch, seq=self._count)
            self._after, self._count = chunk.position, self._count + 1

    def _choose(self, stream: "Stream", tail: int | None, age: timedelta | None) -> "list[Chunk]":
        since = self._session.now - age if age is not None else None
        if self._after is not None or (tail is None and since is None):
            return list(stream.read(self.visit, self._after))
        positions = stream.positions(self.visit)
        chunks = (
            stream.tail(self.visit, tail, since) if tail is not None else list(stream.read(self.visit, None, since))
        )
        if chunks:
            self._count = sum(position < chunks[0].position for position in positions)
        return chunks


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
