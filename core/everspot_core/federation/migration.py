"""The transitions of a job that runs in another cluster: of its record at home, and of the offer at the host. Pure
functions.

    at home     PENDING ──depart──▶ AWAY ──come_back──▶ PENDING
                                     └────arrive──────▶ SUCCEEDED | FAILED | CANCELLED

The job has an owner at home only if its record is ASSIGNED or RUNNING, and at the host only if the offer is ACCEPTED or
RECALLED. The record is AWAY before there is an offer that could be accepted, and it comes back only when the offer has
ended for ever. So there are never two owners.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from everspot_core.cluster.peers import Peer
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.lease import DETAIL_LIMIT, IllegalTransition, pending, waits_since
from everspot_core.jobs.records import JobRecord, JobState, Progress, Reason
from everspot_core.jobs.visit_records import Away, HostInstance, Origin, Trip, TripEnd, Visit, visit_id

TRIPS_KEPT = 64
"""The most trips in a record. Beyond it the oldest trips are added up in one."""
GIGABYTE = 1e9
"""Bytes of a GB, as clouds bill egress."""


def depart(
    record: JobRecord | None,
    job: JobSubmission,
    origin: Origin,
    cluster: str,
    reason: str,
    now: datetime,
    withheld: timedelta = timedelta(0),
) -> JobRecord:
    """Send a waiting job to another cluster. The epoch is raised, so that its fence shuts out every earlier owner.
    `origin`: the job's home. `withheld`: the part of its wait in which it might not run, which does not count as
    waiting, here or at the host.

    Raises:
        IllegalTransition: if the job has an owner, is away or final.
    """
    record = record or pending(job.job_id, now)
    if record.state is not JobState.PENDING:
        raise IllegalTransition("send it away", record)
    number = max((trip.number for trip in record.trips), default=0) + 1
    visit = visit_id(origin, job.job_id, job.submitted_at, number)
    waits = waits_since(record, job)
    waits = max(waits, min(waits + withheld, now))
    away = Away(cluster=cluster, visit=visit, number=number, since=now, waits_since=waits, why=reason)
    return record.model_copy(
        update={
            "state": JobState.AWAY,
            "epoch": record.epoch + 1,
            "beat": 0,
            "away": away,
            "not_before": None,
            "waits_since": waits,
            "changed_at": now,
            "held_seconds": record.held_seconds if record.epoch else 0.0,
        }
    )


def note_progress(
    record: JobRecord,
    state: str,
    progress: Progress | None,
    sent_bytes: int,
    now: datetime,
    offer: VisitOffer | None = None,
) -> JobRecord:
    """Record the reported state of a job that is away. `offer`: the host's offer, with the bill and the instance.

    Raises:
        IllegalTransition: if the job is not away.
    """
    away = _away(record, "hear of it")
    reported = away.model_copy(
        update={"reported_state": state, "reported_at": now, "sent_bytes": max(sent_bytes, away.sent_bytes)}
    )
    if offer is not None:
        reported = reported.model_copy(update={"usd": offer.usd, "instance": offer.instance})
    update: dict[str, object] = {"away": reported, "beat": record.beat + 1, "changed_at": now}
    return record.model_copy(update=update | ({"progress": progress} if progress is not None else {}))


def close_trip(
    record: JobRecord,
    end: TripEnd,
    reason: str,
    now: datetime,
    offer: VisitOffer | None,
    peer: Peer,
    returned_bytes: int = 0,
) -> Trip:
    """Return the trip that ends now, with its cost. `returned_bytes`: the bytes that were copied back.

    Raises:
        IllegalTransition: if the job is not away.
    """
    away = _away(record, "end its trip")
    return Trip(
        cluster=away.cluster,
        visit=away.visit,
        number=away.number,
        since=away.since,
        until=now,
        end=end,
        why=reason,
        step=record.progress.step,
        sent_bytes=away.sent_bytes,
        brought_bytes=returned_bytes,
        usd=offer.usd if offer is not None else None,
        gpu_hours=offer.gpu_hours if offer is not None else None,
        egress_usd=(away.sent_bytes + returned_bytes) / GIGABYTE * peer.egress_usd_per_gb,
        host_failed=end is TripEnd.RETURNED and offer is not None and offer.end is JobState.FAILED,
    )


def come_back(record: JobRecord, trip: Trip, now: datetime, visit_record: JobRecord | None = None) -> JobRecord:
    """Put a job that was away back into its home's queue. The epoch stays; the next assignment raises it.

    `visit_record`: the visit's final record, whose errors and back-off count at home; None: there was no visit.

    Raises:
        IllegalTransition: if it is not away.
    """
    _away(record, "bring it back")
    progress = visit_record.progress if visit_record is not None else None
    update = {"state": JobState.PENDING, **_over(record, trip, now, progress)}
    if visit_record is not None:
        update |= {"errors": record.errors + visit_record.errors, "not_before": visit_record.not_before}
    if trip.end is TripEnd.RETURNED:
        update["last_reason"] = Reason.RETURNED
    return record.model_copy(update=update)


def arrive(record: JobRecord, visit_record: JobRecord, trip: Trip, now: datetime) -> JobRecord:
    """End a job with the state in which its visit ended. `visit_record`: the visit's final record.

    Raises:
        IllegalTransition: if it is not away, or the visit has not ended.
    """
    _away(record, "end it")
    if not visit_record.state.final:
        raise IllegalTransition("end the job at home with it", visit_record)
    update = {"state": visit_record.state, **_over(record, trip, now, visit_record.progress)}
    update |= {
        "last_reason": visit_record.last_reason,
        "exit_code": visit_record.exit_code,
        "detail": visit_record.detail[-DETAIL_LIMIT:],
        "preemptions": record.preemptions + visit_record.preemptions,
        "errors": record.errors + visit_record.errors,
    }
    return record.model_copy(update=update)


def for_visit(
    submission: JobSubmission, record: JobRecord, origin: Origin, dollars: float, gpu_hours: float
) -> JobSubmission:
    """Return the submission of a visit. `dollars` and `gpu_hours`: the amounts that the job has used; they are
    subtracted from its budget at the host, and its errors from its retries.

    Raises:
        IllegalTransition: if the job is not away.
    """
    away, spec = _away(record, "offer it"), submission.spec
    budget = spec.budget.model_copy(
        update={
            "dollars": None if spec.budget.dollars is None else max(spec.budget.dollars - dollars, _LEAST),
            "gpu_hours": None if spec.budget.gpu_hours is None else max(spec.budget.gpu_hours - gpu_hours, _LEAST),
        }
    )
    retries = spec.retries.model_copy(update={"errors": max(0, spec.retries.errors - record.errors)})
    changes = {"budget": budget, "retries": retries, "every": None, "skip_if": None, "start_after": None}
    return submission.model_copy(
        update={
            "job_id": away.visit,
            "spec": spec.model_copy(update=changes),
            "series": None,
            "retry_of": None,
            "forced": True,  # home has judged its deadline
            "visit": Visit(
                home=origin.cluster,
                control_url=origin.control_url,
                job_id=submission.job_id,
                number=away.number,
                waits_since=away.waits_since,
            ),
        }
    )


_LEAST = 1e-6  # the remaining budget if it is used up: the host then ends the visit immediately


def note_sent(record: JobRecord, state: str, sent_bytes: int, now: datetime) -> JobRecord:
    """Record that everything was copied. From now on there may be an offer, with this time. `state`: of the offer, for
    the record.

    Raises:
        IllegalTransition: if it is not away.
    """
    record = note_progress(record, state, None, sent_bytes, now)
    return record.model_copy(update={"away": _away(record, "offer it").model_copy(update={"sent_at": now})})


def void_offer(offer: VisitOffer, reason: str, now: datetime) -> VisitOffer:
    """Return the ended offer of a visit that never became a job of the host. Its home gets the job back unchanged.

    Raises:
        IllegalTransition: if the host has not accepted it.
    """
    if not offer.state.hosted:
        raise IllegalTransition("give it back", pending(offer.visit, now))
    update = {"state": OfferState.ENDED, "end": None, "returned": True, "usd": 0.0, "gpu_hours": 0.0, "instance": None}
    return offer.model_copy(update=update | {"why": reason, "changed_at": now})


def change_state(offer: VisitOffer, state: OfferState, reason: str, now: datetime) -> VisitOffer | None:
    """Return the offer in another state, or None if its present state does not allow that."""
    if state not in _NEXT[offer.state]:
        return None
    return offer.model_copy(update={"state": state, "why": reason or offer.why, "changed_at": now})


def update_bill(offer: VisitOffer, instance: HostInstance | None, usd: float, gpu_hours: float) -> VisitOffer:
    """Return the offer of a running visit, with its instance and its cost so far."""
    return offer.model_copy(update={"instance": instance, "usd": usd, "gpu_hours": gpu_hours})


def end_offer(
    offer: VisitOffer, record: JobRecord, usd: float | None, gpu_hours: float | None, now: datetime
) -> VisitOffer:
    """Return the offer of a visit whose record is final. A visit that failed because the host's instances could not run
    it is returned, so that its job goes on in another cluster.

    Raises:
        IllegalTransition: if the record is not final, or the host does not run the visit.
    """
    if not record.state.final or not offer.state.hosted:
        raise IllegalTransition("end its visit", record)
    host_failed = _host_failed(record)
    update = {
        "state": OfferState.ENDED,
        "end": record.state,
        "returned": record.last_reason is Reason.RETURNED or host_failed,
        "why": f"its instances could not run it: {record.detail[:_WHY_LIMIT]}" if host_failed else offer.why,
        "usd": usd,
        "gpu_hours": gpu_hours,
        "instance": None,
        "changed_at": now,
    }
    return offer.model_copy(update=update)


_WHY_LIMIT = 500  # characters of a visit's detail in its offer and in the trips of its job


def _host_failed(record: JobRecord) -> bool:
    """Return whether a visit failed by the limits on starts and on attempts without progress. Their cause may be the
    host: its image, its disks, its permissions."""
    reason = record.last_reason
    return (
        record.state is JobState.FAILED and reason is not None and (reason.preemption or reason is Reason.NO_PROGRESS)
    )


_NEXT = {
    OfferState.OFFERED: {OfferState.ACCEPTED, OfferState.REFUSED, OfferState.WITHDRAWN},
    OfferState.ACCEPTED: {OfferState.RECALLED},
    OfferState.RECALLED: set[OfferState](),
    OfferState.REFUSED: set[OfferState](),
    OfferState.WITHDRAWN: set[OfferState](),
    OfferState.ENDED: set[OfferState](),
}


def fruitless_visits(trips: list[Trip]) -> dict[str, int]:
    """Return for each cluster how many of the last trips to it, in a row, got no instance that could run the job."""
    counts: dict[str, int] = {}
    for trip in trips:
        counts[trip.cluster] = 0 if trip.usd and not trip.host_failed else counts.get(trip.cluster, 0) + 1
    return counts


def failures_of_hosts(records: Iterable[JobRecord]) -> dict[str, list[Trip]]:
    """Return for each cluster the trips of all jobs that its instances could not run, in order of time. A later trip
    of any job that its instances did run forgives them."""
    failures: dict[str, list[Trip]] = {}
    for trip in sorted((t for record in records for t in record.trips), key=lambda t: t.until):
        if trip.host_failed:
            failures.setdefault(trip.cluster, []).append(trip)
        elif trip.usd:
            failures.pop(trip.cluster, None)
    return failures


def sum_trips(trips: list[Trip]) -> tuple[float, float]:
    """Return the dollars, egress included, and the GPU-hours of trips, as far as they are known."""
    usd = sum(((t.usd or 0.0) + t.egress_usd for t in trips), 0.0)
    return usd, sum((t.gpu_hours or 0.0 for t in trips), 0.0)


def _away(record: JobRecord, verb: str) -> Away:
    if record.state is not JobState.AWAY or record.away is None:
        raise IllegalTransition(verb, record)
    return record.away


def _over(record: JobRecord, trip: Trip, now: datetime, progress: Progress | None) -> dict[str, object]:
    return {
        "away": None,
        "waits_since": None if trip.usd else record.waits_since,
        "trips": _compact([*record.trips, trip]),
        "beat": record.beat + 1,
        "changed_at": now,
        "progress": progress or record.progress,
    }


def _compact(trips: list[Trip]) -> list[Trip]:
    """Return the newest trips, with the oldest ones added up in one, so that no dollar is lost."""
    if len(trips) <= TRIPS_KEPT:
        return trips
    first, second = trips[0], trips[1]
    usd, hours = sum_trips([first, second])
    merged = second.model_copy(
        update={
            "since": first.since,
            "usd": usd - first.egress_usd - second.egress_usd,
            "egress_usd": first.egress_usd + second.egress_usd,
            "gpu_hours": hours,
            "sent_bytes": first.sent_bytes + second.sent_bytes,
            "brought_bytes": first.brought_bytes + second.brought_bytes,
        }
    )
    return [merged, *trips[2:]]
