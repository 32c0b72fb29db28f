"""The host's side of visits: offers are answered, visits become jobs, and are stopped when they are to leave.

It acts on the host's own store alone. Everything that it does follows from the offer and the visit's documents, so a
crash between any two writes is repaired by the next look of any scheduler.
"""

import logging
from collections.abc import Callable, Container
from datetime import datetime, timedelta

from everspot_core.cluster.manifest import Manifest
from everspot_core.cluster.peers import reachable
from everspot_core.federation import migration
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.federation.offer_id import misnamed
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.lease import pending
from everspot_core.jobs.records import InstanceRecord, JobRecord, JobState, Order, Reason
from everspot_core.jobs.visit_records import HostInstance
from everspot_core.schedule import Finish, Stop, Why
from everspot_core.schedule.conditions import waited_for_instance
from everspot_store import BadDocument, Store, Versioned

from everspot_scheduler.actor import Actor
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observation

OFFER_LIFE = timedelta(hours=6)
"""An offer that is older is refused, because its home may have given it up and forgotten it. So is one that is as far
in the future."""
GIVE_BACK = timedelta(minutes=30)
"""A visit that has lacked only an instance here for this long is given back to its home."""
TELL_EVERY = timedelta(minutes=5)
"""Real time between two notes of a visit's cost so far. Another instance is noted immediately."""
_log = logging.getLogger(__name__)


def refusal(visit: str, offer: VisitOffer, manifest: Manifest, now: datetime, *, draining: bool) -> str:
    """Return why this cluster does not take the visit of this id; empty: it does."""
    spec = offer.submission.spec
    home = next((peer for peer in manifest.federation if peer.name == offer.home), None)
    if home is None:
        return f"{manifest.cluster} knows no peer {offer.home}"
    if misnamed(visit, offer):
        return "the offer's id does not match its home, job and visit number"
    if draining:
        return f"{manifest.cluster} is being drained"
    if not timedelta(0) <= now - offer.at + OFFER_LIFE <= 2 * OFFER_LIFE:
        problem = "too long ago" if offer.at < now else "in the future by this cluster's clock"
        return f"the offer was made at {offer.at:%Y-%m-%d %H:%M} UTC: {problem}"
    job = offer.submission
    since = max(job.submitted_at, (job.visit.waits_since if job.visit is not None else None) or job.submitted_at)
    if since - offer.at > OFFER_LIFE:  # times so far ahead that the plan's arithmetic could overflow
        return f"the job is said to have begun to wait at {since:%Y-%m-%d %H:%M} UTC, long after its offer"
    here = home.model_copy(update={"name": manifest.cluster, "cloud": manifest.cloud})
    if not reachable(here, spec.clouds, spec.clusters):
        return f"the job may not run in {manifest.cluster}"
    return ""


class InboundVisits:
    """The visits of one host. Raises the store's errors."""

    def __init__(
        self,
        store: Store,
        manifest_watch: ManifestWatch,
        actor: Actor,
        ledger: Ledger,
        launched: Callable[[], Container[str]],
    ) -> None:
        """`launched`: the instances that were launched for jobs."""
        self._store, self._manifest_watch, self._actor, self._ledger = store, manifest_watch, actor, ledger
        self._launched = launched
        self._reported_at: dict[str, timedelta] = {}

    def look(self, observation: Observation) -> None:
        """Answer offers, and go on with accepted visits. Changes of visits are in `observation` afterwards."""
        scanned = self._store.visits.scan()
        hosted = {visit for visit, document in scanned.items() if document.value.state.hosted}
        self._reported_at = {visit: at for visit, at in self._reported_at.items() if visit in hosted}
        for visit, document in scanned.items():
            try:
                self._go_on(visit, document, observation)
            except BadDocument as error:
                _log.error("visit %s stays as it is: %s", visit, error)

    def _go_on(self, visit: str, document: Versioned[VisitOffer], observation: Observation) -> None:
        if document.value.state is OfferState.OFFERED:
            answered = self._answer(visit, document, observation)
            if answered is None:
                return
            document = answered
        if document.value.state.hosted:
            self._serve(visit, document, observation)

    def _answer(
        self, visit: str, document: Versioned[VisitOffer], observation: Observation
    ) -> Versioned[VisitOffer] | None:
        offer, now = document.value, self._store.clock.now()
        reason = refusal(visit, offer, self._manifest_watch.manifest, now, draining=observation.draining)
        if not reason and self._name_is_used(visit, observation):
            reason = f"a job {visit} is in {self._manifest_watch.manifest.cluster} already"
        state = OfferState.REFUSED if reason else OfferState.ACCEPTED
        answered_offer = migration.change_state(offer, state, reason, now)
        done = self._store.visits.replace(visit, document, answered_offer) if answered_offer is not None else None
        if done is not None:
            _log.info("%s of %s is %s%s", visit, offer.home, state.value.lower(), f": {reason}" if reason else "")
        return done

    def _name_is_used(self, visit: str, observation: Observation) -> bool:
        """Return whether there is or was a job of this name. No visit is one before its offer is accepted."""
        if visit in observation.jobs or visit in observation.records or visit in observation.unreadable_jobs:
            return True
        return visit in self._store.archive.keys()  # noqa: SIM118 - a method

    def _serve(self, visit: str, document: Versioned[VisitOffer], observation: Observation) -> None:
        offer = document.value
        if visit in observation.unreadable_jobs:
            return
        record = observation.records[visit].value if visit in observation.records else None
        if visit not in observation.jobs:
            archived = self._store.archive.get(visit) if record is None else None
            if archived is not None and archived.record is not None:
                self._end(visit, document, archived.submission, archived.record)
            elif record is None:
                self._create(visit, document)
            return
        if observation.jobs[visit].value.visit != offer.submission.visit:
            self._void(visit, document)
        elif record is not None and record.state.final:
            self._end(visit, document, observation.jobs[visit].value, record)
        elif offer.state is OfferState.RECALLED:
            self._stop(visit, offer, record, observation)
        elif reason := self._gives_back(offer, observation.jobs[visit].value, record, draining=observation.draining):
            recalled_offer = migration.change_state(offer, OfferState.RECALLED, reason, self._store.clock.now())
            done = self._store.visits.replace(visit, document, recalled_offer) if recalled_offer is not None else None
            if done is not None:
                _log.info("%s goes back to %s: %s", visit, offer.home, reason)
                self._stop(visit, done.value, record, observation)
        else:
            self._report_progress(document, observation.jobs[visit].value, record, observation)

    def _report_progress(
        self, document: Versioned[VisitOffer], job: JobSubmission, record: JobRecord | None, observation: Observation
    ) -> None:
        """Write the visit's cost so far and its instance into the offer: home's decisions count with both."""
        offer, now = document.value, self._store.clock.monotonic()
        owner = (record.owner or "") if record is not None and record.state.owned else ""
        owned = observation.instances[owner].value if owner in observation.instances else None
        instance = None if owned is None else self._describe_instance(owned)
        last = self._reported_at.setdefault(offer.visit, now)
        if instance != offer.instance or now - last >= TELL_EVERY:
            self._reported_at[offer.visit] = now
            updated_offer = migration.update_bill(offer, instance, *self._spent(job, record))
            if updated_offer != offer:
                self._store.visits.replace(offer.visit, document, updated_offer)

    def _describe_instance(self, record: InstanceRecord) -> HostInstance:
        standing = record.instance_id not in self._launched()
        return HostInstance(
            instance_type=record.instance_type, zone=record.zone, market=record.market, standing=standing
        )

    def _create(self, visit: str, document: Versioned[VisitOffer]) -> None:
        """Create the visit's job. Its record only has the job's progress; without it the job runs all the same."""
        now, offer = self._store.clock.now(), document.value
        if misnamed(visit, offer):  # an earlier release accepted it, or its home wrote that itself
            if self._store.jobs.get(visit) is None:
                self._void(visit, document)
        elif self._store.jobs.create(offer.visit, offer.submission) is not None:
            record = pending(offer.visit, now).model_copy(update={"progress": offer.progress})
            self._store.records.create(offer.visit, record)

    def _gives_back(self, offer: VisitOffer, job: JobSubmission, record: JobRecord | None, *, draining: bool) -> str:
        """Return why a visit is sent home; empty: it stays."""
        if draining:
            return f"{self._manifest_watch.manifest.cluster} is being drained"
        waits = record is None or record.state is JobState.PENDING
        waited = waited_for_instance(job, record, offer.changed_at, self._store.clock.now()) if waits else timedelta(0)
        if waited >= GIVE_BACK:
            since = max(offer.changed_at, record.changed_at) if record is not None else offer.changed_at
            return (
                f"{self._manifest_watch.manifest.cluster} has had no instance for it since {since:%Y-%m-%d %H:%M} UTC"
            )
        return ""

    def _stop(self, visit: str, offer: VisitOffer, record: JobRecord | None, observation: Observation) -> None:
        """Tell the visit's owner to give it back; end it once nobody owns it."""
        figures: dict[str, int | float | str] = {"home": offer.home, "because": offer.why}
        if record is None or record.state is JobState.PENDING:
            epoch = record.epoch if record is not None else 0
            end = Finish(
                job_id=visit, epoch=epoch, state=JobState.CANCELLED, reason=Reason.RETURNED, cause=Why.RECALLED,
                figures=figures,
            )  # fmt: skip
            self._actor.carry_out(end, observation)
            return
        owner = record.owner or ""
        seat = observation.assignments[owner].value.for_job(visit) if owner in observation.assignments else None
        if seat is not None and seat.epoch == record.epoch and seat.order is Order.RUN:
            stop = Stop(
                job_id=visit, instance_id=owner, epoch=record.epoch, reason=Reason.MOVE, cause=Why.RECALLED,
                figures=figures,
            )  # fmt: skip
            self._actor.carry_out(stop, observation)

    def _void(self, visit: str, document: Versioned[VisitOffer]) -> None:
        """Give back a visit that cannot be a job here: its name is another job's, or not its own."""
        reason = f"a visit of this name cannot be a job of {self._manifest_watch.manifest.cluster}"
        voided_offer = migration.void_offer(document.value, reason, self._store.clock.now())
        if self._store.visits.replace(visit, document, voided_offer) is not None:
            _log.error("%s of %s goes back, and never was a job here: %s", visit, document.value.home, reason)

    def _end(self, visit: str, document: Versioned[VisitOffer], job: JobSubmission, record: JobRecord) -> None:
        """Write into the offer that the visit has ended, and its cost."""
        if job.visit != document.value.submission.visit:
            self._void(visit, document)
            return
        ended_offer = migration.end_offer(document.value, record, *self._spent(job, record), self._store.clock.now())
        if self._store.visits.replace(visit, document, ended_offer) is not None:
            _log.info("%s of %s has ended: %s", job.job_id, document.value.home, record.state.value)

    def _spent(self, job: JobSubmission, record: JobRecord | None) -> tuple[float, float]:
        """Return the dollars and GPU-hours of a visit so far."""
        spent = self._ledger.spent([(job, record)]).get(job.job_id)
        return (round(spent.dollars, 6), round(spent.gpu_hours, 6)) if spent is not None else (0.0, 0.0)
