"""The host's side of visits: offers are answered, visits become jobs, and are stopped when they are to leave.

It acts on the host's own store alone. Everything that it does follows from the offer and the visit's documents, so a
crash between any two writes is repaired by the next look of any scheduler.
"""

import logging
from collections.abc import Callable, Container
from datetime import datetime, timedelta

from everspot_core.federation import journey
from everspot_core.federation.naming import misnamed
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.job import JobSubmission
from everspot_core.lease import pending
from everspot_core.manifest import Manifest
from everspot_core.peers import reachable
from everspot_core.records import InstanceRecord, JobRecord, JobState, Order, Reason
from everspot_core.schedule import Finish, Stop, Why
from everspot_core.visits import Berth
from everspot_store import BadDocument, Store, Versioned

from everspot_scheduler.act import Actor
from everspot_scheduler.declaration import Declaration
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.observe import Observation

OFFER_LIFE = timedelta(hours=6)
"""An offer that is older is refused: by now its home may have given it up, and have forgotten it."""
GIVE_BACK = timedelta(minutes=30)
"""A visit that has waited here for this long without an instance is given back to its home."""
TELL_EVERY = timedelta(minutes=5)
"""Real time between two notes of what a visit has cost so far. That it has another instance is told at once."""
_log = logging.getLogger(__name__)


def refusal(visit: str, offer: VisitOffer, manifest: Manifest, now: datetime, *, draining: bool) -> str:
    """Why this cluster does not take the visit of this id; empty: it does."""
    spec = offer.submission.spec
    home = next((peer for peer in manifest.federation if peer.name == offer.home), None)
    if home is None:
        return f"{manifest.cluster} knows no peer {offer.home}"
    if misnamed(visit, offer):
        return "its name is not that of this visit of this job"
    if draining:
        return f"{manifest.cluster} is being drained"
    if not timedelta(0) <= now - offer.at + OFFER_LIFE <= 2 * OFFER_LIFE:
        return f"the offer was made at {offer.at:%Y-%m-%d %H:%M} UTC: too long ago"
    job = offer.submission
    since = max(job.submitted_at, (job.visit.waits_since if job.visit is not None else None) or job.submitted_at)
    if since - offer.at > OFFER_LIFE:  # moments so far ahead that the plan cannot reckon with them
        return f"the job is said to have begun to wait at {since:%Y-%m-%d %H:%M} UTC, long after its offer"
    here = home.model_copy(update={"name": manifest.cluster, "cloud": manifest.cloud})
    if not reachable(here, spec.clouds, spec.clusters):
        return f"the job may not run in {manifest.cluster}"
    return ""


class Hosting:
    """The visits of one host. Raises the store's errors."""

    def __init__(
        self,
        store: Store,
        declaration: Declaration,
        actor: Actor,
        ledger: Ledger,
        launched: Callable[[], Container[str]],
    ) -> None:
        """`launched`: the instances that were launched for jobs."""
        self._store, self._declaration, self._actor, self._ledger = store, declaration, actor, ledger
        self._launched = launched
        self._told: dict[str, timedelta] = {}

    def look(self, seen: Observation) -> None:
        """Answer offers, and go on with what was accepted. What it does to visits is in `seen` afterwards."""
        scanned = self._store.visits.scan()
        hosted = {visit for visit, found in scanned.items() if found.value.state.hosted}
        self._told = {visit: at for visit, at in self._told.items() if visit in hosted}
        for visit, found in scanned.items():
            try:
                self._go_on(visit, found, seen)
            except BadDocument as error:
                _log.error("visit %s stays as it is: %s", visit, error)

    def _go_on(self, visit: str, found: Versioned[VisitOffer], seen: Observation) -> None:
        if found.value.state is OfferState.OFFERED:
            answered = self._answer(visit, found, seen)
            if answered is None:
                return
            found = answered
        if found.value.state.hosted:
            self._serve(visit, found, seen)

    def _answer(self, visit: str, found: Versioned[VisitOffer], seen: Observation) -> Versioned[VisitOffer] | None:
        offer, now = found.value, self._store.clock.now()
        why = refusal(visit, offer, self._declaration.manifest, now, draining=seen.draining)
        if not why and self._taken(visit, seen):
            why = f"a job {visit} is in {self._declaration.manifest.cluster} already"
        state = OfferState.REFUSED if why else OfferState.ACCEPTED
        wanted = journey.answered(offer, state, why, now)
        done = self._store.visits.replace(visit, found, wanted) if wanted is not None else None
        if done is not None:
            _log.info("%s of %s is %s%s", visit, offer.home, state.value.lower(), f": {why}" if why else "")
        return done

    def _taken(self, visit: str, seen: Observation) -> bool:
        """Whether there is or was a job of this name. No visit is one before its offer is accepted."""
        if visit in seen.jobs or visit in seen.records or visit in seen.unreadable_jobs:
            return True
        return visit in self._store.archive.keys()  # noqa: SIM118 - a method

    def _serve(self, visit: str, found: Versioned[VisitOffer], seen: Observation) -> None:
        offer = found.value
        if visit in seen.unreadable_jobs:
            return
        record = seen.records[visit].value if visit in seen.records else None
        if visit not in seen.jobs:
            archived = self._store.archive.get(visit) if record is None else None
            if archived is not None and archived.record is not None:
                self._end(visit, found, archived.submission, archived.record)
            elif record is None:
                self._create(visit, found)
            return
        if seen.jobs[visit].value.visit != offer.submission.visit:
            self._void(visit, found)
        elif record is not None and record.state.final:
            self._end(visit, found, seen.jobs[visit].value, record)
        elif offer.state is OfferState.RECALLED:
            self._stop(visit, offer, record, seen)
        elif why := self._gives_back(offer, record, draining=seen.draining):
            wanted = journey.answered(offer, OfferState.RECALLED, why, self._store.clock.now())
            done = self._store.visits.replace(visit, found, wanted) if wanted is not None else None
            if done is not None:
                _log.info("%s goes back to %s: %s", visit, offer.home, why)
                self._stop(visit, done.value, record, seen)
        else:
            self._tell(found, seen.jobs[visit].value, record, seen)

    def _tell(
        self, found: Versioned[VisitOffer], job: JobSubmission, record: JobRecord | None, seen: Observation
    ) -> None:
        """Write into the offer what the visit has cost so far, and what it has: home's decisions count with both."""
        offer, now = found.value, self._store.clock.monotonic()
        owner = (record.owner or "") if record is not None and record.state.owned else ""
        runs = seen.instances[owner].value if owner in seen.instances else None
        berth = None if runs is None else self._berth(runs)
        last = self._told.setdefault(offer.visit, now)
        if berth != offer.berth or now - last >= TELL_EVERY:
            self._told[offer.visit] = now
            wanted = journey.so_far(offer, berth, *self._spent(job, record))
            if wanted != offer:
                self._store.visits.replace(offer.visit, found, wanted)

    def _berth(self, runs: InstanceRecord) -> Berth:
        standing = runs.instance_id not in self._launched()
        return Berth(instance_type=runs.instance_type, zone=runs.zone, market=runs.market, standing=standing)

    def _create(self, visit: str, found: Versioned[VisitOffer]) -> None:
        """Create the visit's job. The record only tells how far it has come; without it the job runs all the same."""
        now, offer = self._store.clock.now(), found.value
        if misnamed(visit, offer):  # an earlier release accepted it, or its home wrote that itself
            if self._store.jobs.get(visit) is None:
                self._void(visit, found)
        elif self._store.jobs.create(offer.visit, offer.submission) is not None:
            record = pending(offer.visit, now).model_copy(update={"progress": offer.progress})
            self._store.records.create(offer.visit, record)

    def _gives_back(self, offer: VisitOffer, record: JobRecord | None, *, draining: bool) -> str:
        """Why a visit is sent home; empty: it stays."""
        if draining:
            return f"{self._declaration.manifest.cluster} is being drained"
        waits = record is None or record.state is JobState.PENDING
        since = max(offer.changed_at, record.changed_at) if record is not None else offer.changed_at
        if waits and self._store.clock.now() - since >= GIVE_BACK:
            return f"{self._declaration.manifest.cluster} has had no instance for it since {since:%Y-%m-%d %H:%M} UTC"
        return ""

    def _stop(self, visit: str, offer: VisitOffer, record: JobRecord | None, seen: Observation) -> None:
        """Tell the visit's owner to give it back; end it once nobody owns it."""
        figures: dict[str, int | float | str] = {"home": offer.home, "because": offer.why}
        if record is None or record.state is JobState.PENDING:
            epoch = record.epoch if record is not None else 0
            end = Finish(
                job_id=visit, epoch=epoch, state=JobState.CANCELLED, reason=Reason.RETURNED, why=Why.RECALLED,
                figures=figures,
            )  # fmt: skip
            self._actor.carry_out(end, seen)
            return
        owner = record.owner or ""
        given = seen.assignments[owner].value.of(visit) if owner in seen.assignments else None
        if given is not None and given.epoch == record.epoch and given.order is Order.RUN:
            stop = Stop(
                job_id=visit, instance_id=owner, epoch=record.epoch, reason=Reason.MOVE, why=Why.RECALLED,
                figures=figures,
            )  # fmt: skip
            self._actor.carry_out(stop, seen)

    def _void(self, visit: str, found: Versioned[VisitOffer]) -> None:
        """Give back a visit that cannot be a job here: its name is another job's, or not its own."""
        why = f"a visit of this name cannot be a job of {self._declaration.manifest.cluster}"
        wanted = journey.void(found.value, why, self._store.clock.now())
        if self._store.visits.replace(visit, found, wanted) is not None:
            _log.error("%s of %s goes back, and never was a job here: %s", visit, found.value.home, why)

    def _end(self, visit: str, found: Versioned[VisitOffer], job: JobSubmission, record: JobRecord) -> None:
        """Write into the offer that the visit has ended, and what it has cost."""
        if job.visit != found.value.submission.visit:
            self._void(visit, found)
            return
        wanted = journey.ended(found.value, record, *self._spent(job, record), self._store.clock.now())
        if self._store.visits.replace(visit, found, wanted) is not None:
            _log.info("%s of %s has ended: %s", job.job_id, found.value.home, record.state.value)

    def _spent(self, job: JobSubmission, record: JobRecord | None) -> tuple[float, float]:
        """The dollars and GPU-hours of a visit so far."""
        spent = self._ledger.spent([(job, record)]).get(job.job_id)
        return (round(spent.dollars, 6), round(spent.gpu_hours, 6)) if spent is not None else (0.0, 0.0)
