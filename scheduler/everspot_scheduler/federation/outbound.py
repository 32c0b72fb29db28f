"""Home's side of a move: the steps for a job that is away.

A step reads the job's record and the offer, and acts on them. Steps remember nothing that another step needs, so a step
may be cut off anywhere, and several schedulers may do it at the same time: a conditional write decides, of the record
at home or of the offer at the host. The steps wait for networks, so they run beside the scheduler's loop; the copies,
which take longest, run beside the steps.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.cluster.peers import Peer
from everspot_core.federation import migration
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.federation.offer_id import is_own_offer
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Event, EventKind, JobRecord, JobState, Progress, Request
from everspot_core.jobs.visit_records import Away, Origin, TripEnd
from everspot_store import (
    CheckpointCorrupt,
    DigestMismatch,
    Fenced,
    Store,
    StoreError,
    UnsafeArchive,
    Versioned,
    job_transfer,
)
from everspot_store.errors import DatasetMissing, StoreDenied, StoreMissing, StoreUnavailable

from everspot_scheduler.event_writer import History
from everspot_scheduler.federation.background_calls import BackgroundCalls
from everspot_scheduler.federation.peers import Peers

MIRROR_EVERY = timedelta(minutes=1)
"""Real time between two updates of a visit's progress in the home store."""
SENT = "SENT"
"""The record's state from the moment when an offer may exist."""
_NO_RECORD = "ENDED without a final record"
_NOT_COPIED = "ENDED with results that cannot be copied"
_STUCK = (CheckpointCorrupt, DigestMismatch, UnsafeArchive, DatasetMissing, FileNotFoundError)
"""Errors that no retry of the copy can resolve."""
_PASSING = (StoreUnavailable, StoreDenied, StoreMissing)
"""Errors of a store that a retry of the copy may resolve. The results are worth the wait."""
_ENDS = {
    JobState.SUCCEEDED: EventKind.FINISHED,
    JobState.FAILED: EventKind.FAILED,
    JobState.CANCELLED: EventKind.CANCELLED,
}
_log = logging.getLogger(__name__)


class CopyUnwanted(Exception):
    """A job is not to move any more, for this reason, and need not be copied to its end."""


class OutboundMoves:
    """The moves of one home's jobs. Thread-safe for different jobs. Methods raise the errors of either store."""

    def __init__(
        self,
        store: Store,
        peers: Peers,
        history: History,
        home: str,
        to_hosts: BackgroundCalls,
        to_home: BackgroundCalls,
    ) -> None:
        """`to_hosts` and `to_home` run the copies of jobs."""
        self._store, self._peers, self._history, self._home = store, peers, history, home
        self.to_hosts, self.to_home = to_hosts, to_home
        self._unwanted: dict[str, str] = {}
        self._since: dict[str, tuple[str, timedelta]] = {}
        self._mirrored: dict[str, timedelta] = {}

    def go_on(self, job_id: str, *, spent: tuple[float, float], back: str = "") -> None:
        """Do the next step for a job that is away. `spent`: dollars and GPU-hours that it has used so far. `back`: why
        it is wanted back; empty: it is not."""
        cancelled = self._store.cancels.get(job_id) is not None
        reason = "it was cancelled" if cancelled else back
        if self.to_home.is_under_way(job_id):
            return
        if self.to_hosts.is_under_way(job_id) and not self._stop_copy(job_id, reason):
            return
        document, job = self._store.records.get(job_id), self._store.jobs.get(job_id)
        if document is None or job is None or document.value.state is not JobState.AWAY or document.value.away is None:
            return
        away, peer = document.value.away, self._peers.find(document.value.away.cluster)
        if peer is None:
            _log.error("%s is away at %s, which is no peer any more: it stays there", job_id, away.cluster)
            return
        self._history.departed(document.value)
        MoveStep(self, document, job.value, peer, reason, spent).take(cancelled=cancelled)

    def _stop_copy(self, job_id: str, reason: str) -> bool:
        """Cut off the copy of a job to a host, for this reason; an empty one does not. Return whether none runs."""
        if not reason:
            return False
        self._unwanted[job_id] = reason
        return self.to_hosts.cancel(job_id)

    def copy_to_host(self, job_id: str, call: Callable[[], None]) -> None:
        """Begin to copy a job's files. Until that ends no other step of the job is done."""
        self._unwanted.pop(job_id, None)
        self.to_hosts.begin(job_id, call)

    def refuse_unwanted(self, job_id: str) -> None:
        """Cut off the copy of a job that was cancelled or called back meanwhile.

        Raises:
            CopyUnwanted: if it was.
        """
        if job_id in self._unwanted:
            raise CopyUnwanted(self._unwanted[job_id])

    def patient(self, away: Away, state: str, peer: Peer, clock: Clock) -> bool:
        """Return whether the peer may still take its time: the offer has not stood still in this state for its
        patience."""
        now = clock.monotonic()
        was, since = self._since.setdefault(away.visit, (state, now))
        if was != state:
            self._since[away.visit], since = (state, now), now
        return now - since < peer.patience

    def mirror_due(self, visit: str, clock: Clock) -> bool:
        """Return whether it is time to note at home how a visit does."""
        now = clock.monotonic()
        if visit in self._mirrored and now - self._mirrored[visit] < MIRROR_EVERY:
            return False
        self._mirrored[visit] = now
        return True

    def forget(self, visits: set[str]) -> None:
        """Forget all but these visits."""
        for by_visit in (self._since, self._mirrored):
            for visit in set(by_visit) - visits:
                by_visit.pop(visit, None)

    @property
    def store(self) -> Store:
        """Home's own store."""
        return self._store

    @property
    def home(self) -> str:
        """Home's name."""
        return self._home

    @property
    def origin(self) -> Origin:
        """Home as visits name it."""
        return Origin(cluster=self._home, control_url=self._store.control.url)

    @property
    def history(self) -> History:
        """The writer of home's events."""
        return self._history

    def has_copied(self, peer: Peer) -> None:
        """Note that files of a job were copied to a peer."""
        self._peers.forget_data(peer)

    def host(self, peer: Peer) -> Store:
        """Return the store of a peer."""
        return self._peers.store(peer)


class MoveStep:
    """One step of one move."""

    def __init__(
        self,
        moves: OutboundMoves,
        document: Versioned[JobRecord],
        job: JobSubmission,
        peer: Peer,
        back: str,
        spent: tuple[float, float],
    ) -> None:
        self._all, self._document, self._job, self._peer, self._back = moves, document, job, peer, back
        self._store, self._clock = moves.store, moves.store.clock
        self._spent = spent
        assert document.value.away is not None  # noqa: S101 - asked for jobs that are away only
        self._away = document.value.away

    def take(self, *, cancelled: bool) -> None:
        """Do the step that the offer's state requires."""
        if not self._away.reported_state:
            return self._begin()
        host = self._all.host(self._peer)
        offer = host.visits.get(self._away.visit)
        if offer is not None and not is_own_offer(offer.value, self._away, self._job, self._all.home):
            return self._home(TripEnd.WITHDRAWN, f"its name {self._away.visit} is taken at {self._peer.name}", None)
        if offer is None or offer.value.state is OfferState.OFFERED:
            state = offer.value.state.value if offer is not None else ""
            silent = not self._all.patient(self._away, state, self._peer, self._clock)
            if self._back or (silent and offer is not None):
                return self._withdraw(host, offer)
            return self._offer(host) if offer is None else None
        match offer.value.state:
            case OfferState.REFUSED:
                self._home(TripEnd.REFUSED, offer.value.why, offer.value)
            case OfferState.WITHDRAWN:
                self._home(TripEnd.WITHDRAWN, offer.value.why, offer.value)
            case OfferState.ACCEPTED | OfferState.RECALLED:
                self._follow(host, offer, cancelled=cancelled)
            case _ if offer.value.end is None:  # it never was a job there
                self._home(TripEnd.REFUSED, offer.value.why, offer.value)
            case _:
                self._settle(host, offer.value)
        return None

    def _begin(self) -> None:
        """Copy the files that the visit needs.

        Nobody may offer the visit until the record says that everything is sent. Until then home may take the job back
        by the record alone, whether or not the host answers.
        """
        if self._back:
            return self._home(TripEnd.WITHDRAWN, self._back, None)
        return self._all.copy_to_host(self._job.job_id, self._copy_to_host)

    def _copy_to_host(self) -> None:
        patient = self._all.patient(self._away, "", self._peer, self._clock)
        sent_sizes: list[int] = []

        def note_sent(size: int) -> None:
            sent_sizes.append(size)
            self._all.refuse_unwanted(self._job.job_id)

        try:
            sent = job_transfer.copy_to_host(
                self._store, self._all.host(self._peer), self._job, self._visit(), self._epoch, note_sent
            )
        except CopyUnwanted as reason:
            self._note_cut_off(sum(sent_sizes))
            return self._home(TripEnd.WITHDRAWN, str(reason), None)
        except _STUCK as error:
            self._note_cut_off(sum(sent_sizes))
            return self._home(TripEnd.WITHDRAWN, f"it cannot be copied: {error}", None)
        except Fenced as error:
            _log.info("overtaken: %s", error)
            return None
        except Exception as error:
            self._note_cut_off(sum(sent_sizes))
            if patient:
                raise
            return self._home(TripEnd.WITHDRAWN, f"{self._peer.name} cannot be reached: {error}", None)
        self._all.has_copied(self._peer)
        if self._write(migration.note_sent(self._document.value, SENT, sent, self._clock.now())):
            self._away = self._document.value.away or self._away
            self._offer(self._all.host(self._peer))
        return None

    def _note_cut_off(self, sent_bytes: int) -> None:
        """Add the bytes of a copy that was cut off to those that are billed. If the record cannot be written, a copy
        that is continued still counts them."""
        if sent_bytes:
            with suppress(StoreError):
                self._note(self._away.reported_state, None, self._away.sent_bytes + sent_bytes)
                self._away = self._document.value.away or self._away

    def _offer(self, host: Store) -> None:
        now = self._clock.now()
        offer = VisitOffer(
            visit=self._away.visit,
            home=self._all.home,
            state=OfferState.OFFERED,
            submission=self._visit(),
            progress=self._document.value.progress,
            at=self._away.offered_at,  # not now: an offer that comes very late is recognised by it
            changed_at=now,
            why=self._away.why,
        )
        if host.visits.create(offer.visit, offer) is not None:
            _log.info("%s is offered to %s as %s", self._job.job_id, self._peer.name, offer.visit)

    def _withdraw(self, host: Store, offer: Versioned[VisitOffer] | None) -> None:
        """Withdraw the offer. Only if this write wins the job is home's again."""
        reason, now = self._back or f"{self._peer.name} did not answer", self._clock.now()
        if offer is None:
            void = VisitOffer(
                visit=self._away.visit, home=self._all.home, state=OfferState.WITHDRAWN, submission=self._visit(),
                at=self._away.offered_at, changed_at=now, why=reason,
            )  # fmt: skip
            done = host.visits.create(void.visit, void)
        else:
            withdrawn_offer = migration.change_state(offer.value, OfferState.WITHDRAWN, reason, now)
            done = (
                host.visits.replace(self._away.visit, offer, withdrawn_offer) if withdrawn_offer is not None else None
            )
        if done is not None:
            self._home(TripEnd.WITHDRAWN, reason, done.value)

    def _follow(self, host: Store, offer: Versioned[VisitOffer], *, cancelled: bool) -> None:
        """Pass on the wishes of home, and note the progress of the visit."""
        visit = self._away.visit
        if cancelled:
            host.cancels.create(visit, Request(at=self._clock.now(), by=f"home {self._all.home}"))
        elif self._back:
            recalled_offer = migration.change_state(offer.value, OfferState.RECALLED, self._back, self._clock.now())
            if recalled_offer is not None and host.visits.replace(visit, offer, recalled_offer) is not None:
                _log.info("%s is called back from %s: %s", self._job.job_id, self._peer.name, self._back)
        if self._all.mirror_due(visit, self._clock):
            visit_record = host.records.get(visit)
            state = visit_record.value.state.value if visit_record is not None else offer.value.state.value
            self._note(state, visit_record.value.progress if visit_record is not None else None, 0, offer.value)

    def _settle(self, host: Store, offer: VisitOffer) -> None:
        """Read how the visit ended, and begin to bring it home."""
        visit = self._read_visit(host, offer)
        if visit is None:
            self._home(TripEnd.REFUSED, f"{self._away.visit} is another job at {self._peer.name}", None)
            return
        visit_record, events = visit
        if visit_record is None or not visit_record.state.final:
            _log.error("visit %s has ended by its offer, and has no final record", self._away.visit)
            if not self._all.patient(self._away, _NO_RECORD, self._peer, self._clock):
                reason = f"{self._peer.name} has no record of how {self._away.visit} ended"
                self._home(TripEnd.WITHDRAWN, reason, offer)
            return
        self._all.to_home.begin(self._job.job_id, lambda: self._bring_home(host, offer, visit_record, events))

    def _bring_home(self, host: Store, offer: VisitOffer, visit_record: JobRecord, events: Sequence[Event]) -> None:
        """Copy the results of the visit to home, then end the job, or put it back into the queue."""
        try:
            brought = job_transfer.copy_home(self._store, host, self._job, self._away.visit, self._epoch)
        except Fenced as error:
            _log.info("overtaken: %s", error)
            return
        except (*_PASSING, OSError):
            raise
        except Exception as error:
            if self._all.patient(self._away, _NOT_COPIED, self._peer, self._clock):
                raise
            brought = job_transfer.CopiedVisit(size=0, not_copied=(f"its results: {type(error).__name__}: {error}",))
        end = TripEnd.RETURNED if offer.returned else TripEnd.ENDED
        record, now = self._document.value, self._clock.now()
        heard = record.model_copy(update={"progress": visit_record.progress})
        whys = [offer.why] if offer.returned else []
        if brought.not_copied:
            _log.error("not all that visit %s made could be copied home: %s", self._away.visit, brought.not_copied)
            whys.append(
                f"{len(brought.not_copied)} of its files could not be copied home, such as {brought.not_copied[0]}"
            )
        trip = migration.close_trip(heard, end, "; ".join(whys), now, offer, self._peer, brought.size)
        self._all.history.returned(record, trip)
        if offer.returned:
            self._write(migration.come_back(record, trip, now, visit_record))
            return
        kind = _ENDS[visit_record.state]
        event_data = next((event.data for event in reversed(events) if event.kind is kind), {})
        data = {"step": visit_record.progress.step, "message": visit_record.detail, **event_data}
        self._all.history.write(kind, record.job_id, record.epoch, visit_record.changed_at, None, **data)
        self._write(migration.arrive(record, visit_record, trip, now))

    def _read_visit(self, host: Store, offer: VisitOffer) -> tuple[JobRecord | None, list[Event]] | None:
        """Return the visit's record and its events; None: they are another job's. Home may not read the host's jobs,
        only these and the archive, which is written before any of them is removed: it is read last."""
        visit = self._away.visit
        document, events = host.records.get(visit), host.events(visit, brief=True)
        archived = host.archive.get(visit)
        if archived is None:
            return (document.value if document is not None else None), events
        same_visit = archived.submission.visit == offer.submission.visit
        return (archived.record, archived.events) if same_visit else None

    def _home(self, end: TripEnd, reason: str, offer: VisitOffer | None) -> None:
        """Put the job back into home's queue after an offer that came to nothing."""
        now, record = self._clock.now(), self._document.value
        trip = migration.close_trip(record, end, reason, now, offer, self._peer)
        self._all.history.returned(record, trip)
        if self._write(migration.come_back(record, trip, now)):
            _log.info("%s is back from %s: %s", record.job_id, self._peer.name, reason)

    def _note(self, state: str, progress: Progress | None, sent: int, offer: VisitOffer | None = None) -> bool:
        return self._write(
            migration.note_progress(self._document.value, state, progress, sent, self._clock.now(), offer)
        )

    def _write(self, record: JobRecord) -> bool:
        written = self._store.records.replace(record.job_id, self._document, record)
        if written is not None:
            self._document = written
        return written is not None

    def _visit(self) -> JobSubmission:
        return migration.for_visit(self._job, self._document.value, self._all.origin, *self._spent)

    @property
    def _epoch(self) -> int:
        return self._document.value.epoch
