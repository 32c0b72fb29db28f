"""Reads the material of a report from the store."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from everspot_core.capacity.catalogue import Catalogue
from everspot_core.costs.attempts import attempts, interruptions
from everspot_core.costs.bill import Bill, bill
from everspot_core.experiments.sweep import SweepRecord
from everspot_core.governance.run_comparison import describe_partial_run
from everspot_core.jobs.changeover import Changeovers
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.lease import pending
from everspot_core.jobs.records import Event, EventKind, InstanceRecord, JobRecord, JobState, Progress
from everspot_core.jobs.reported_values import parse_count
from everspot_core.jobs.visit_records import Away, Trip
from everspot_store import BadDocument, Store

from everspot_cli.close_ledger import missing_entries, settle
from everspot_cli.report.sweeps import read_sweeps
from everspot_cli.session import Session, run_in_parallel


@dataclass(frozen=True)
class Material:
    """The input of a report. `as_of`: market time up to which everything counts. `note`: why the ledger may lack the
    latest events."""

    cluster: str
    as_of: datetime
    note: str | None
    time_scale: float
    catalogue: Catalogue
    submissions: dict[str, JobSubmission]
    records: dict[str, JobRecord]
    instances: dict[str, InstanceRecord]
    events: dict[str, list[Event]]
    bill: Bill
    changeovers: Changeovers | None
    sweeps: dict[str, SweepRecord]

    @property
    def partial_runs(self) -> dict[str, str]:
        """The jobs whose cost is not that of a whole run, each with the reason."""
        reasons = {
            own.job_id: describe_partial_run(self.submissions[own.job_id], self.records[own.job_id], own.attempts)
            for own in self.bill.jobs
        }
        return {job: reason for job, reason in reasons.items() if reason is not None}


def gather(session: Session, as_of: datetime | None = None, *, settles: bool = False) -> Material:
    """Read the whole cluster and compute its bill. All jobs are needed, even for the bill of one, to know which seconds
    were its own.

    Args:
        session: The command's.
        as_of: The moment up to which everything counts. None: this one.
        settles: Whether the ledger is brought up to date first. Else nothing is written.
    """
    store, note, earlier = session.store, None, as_of
    if as_of is None:
        as_of = session.now  # before the ledger is settled: what happens meanwhile is later
    failure = settle(session) if settles else None
    if earlier is None:
        note = failure if settles else missing_entries(session)
    elif as_of > session.now:
        note = "this moment has not come yet: what runs now is counted as if it ran until then"
    note = failure or note
    dossiers = _dossiers(session)
    # Of this moment everything counts: what another machine's clock, being ahead, says will be, has been.
    chosen = {job: d for job, d in dossiers.items() if earlier is None or d.submission.submitted_at <= as_of}
    submissions = {job: d.submission for job, d in chosen.items()}
    records = {job: d.record for job, d in chosen.items() if d.record is not None}
    events = {job: d.events for job, d in chosen.items()}
    if earlier is not None:
        events = {job: [e for e in job_events if e.at <= as_of] for job, job_events in events.items()}
    launches, ends, prices = run_in_parallel(store.launches.scan, store.ends.scan, store.prices)
    computed = bill(
        [doc.value for doc in launches.values()],
        [doc.value for doc in ends.values()],
        prices,
        events,
        session.billing_catalogue,
        as_of,
        _read_last_steps(store, events),
        rules=session.cloud.billing,
        records={job: r for job, r in records.items() if earlier is None or r.changed_at <= as_of},
    )
    return Material(
        cluster=session.manifest.cluster,
        as_of=as_of,
        note=note,
        time_scale=session.clock.scale,
        catalogue=session.billing_catalogue,
        submissions=submissions,
        records={
            job: _record_at(records.get(job) or pending(job, s.submitted_at), events[job], earlier)
            for job, s in submissions.items()
        },
        instances={i: doc.value for i, doc in store.instances.scan().items()},
        events=events,
        bill=computed,
        changeovers=_changeovers(store),
        sweeps=read_sweeps(store, submissions),
    )


def _changeovers(store: Store) -> Changeovers | None:
    """Return the measured changeovers, or None if the document cannot be read."""
    try:
        return store.notes.changeovers.read()
    except BadDocument:
        return None


def _dossiers(session: Session) -> dict[str, Dossier]:
    """Return every job, archived or not. The archive is read last, so that a job that is archived meanwhile is found
    there."""
    store = session.store
    jobs, records = run_in_parallel(store.jobs.scan, store.records.scan)
    events = store.events_by_job(list(jobs))
    live_dossiers = {
        job: Dossier(submission=doc.value, record=records[job].value if job in records else None, events=events[job])
        for job, doc in jobs.items()
    }
    return dict(sorted((live_dossiers | store.archive.scan()).items()))


def _record_at(record: JobRecord, events: list[Event], as_of: datetime | None) -> JobRecord:
    """Return the record as it was at an earlier moment, by the events up to then. A job that ended later had not ended,
    a visit that ended later had no bill yet, and later visits had not begun."""
    if as_of is None or record.changed_at <= as_of:
        return record
    history, away = attempts(events), _away_at(record, events, as_of)
    is_running = bool(history) and history[-1].end is None
    returns = [parse_count(e.data.get("step")) or 0 for e in events if e.kind is EventKind.RETURNED]
    steps = [*(a.last_step or 0 for a in history), *returns]
    from_zero = [parse_count(e.data.get("from_zero")) or 0 for e in events if e.kind is EventKind.STARTED]
    return record.model_copy(
        update={
            "state": JobState.AWAY if away is not None else JobState.RUNNING if is_running else JobState.PENDING,
            "progress": Progress(step=max(steps, default=0), total_steps=record.progress.total_steps),
            "errors": sum(e.kind is EventKind.ERROR for e in events),
            "from_zero": max(from_zero, default=0),
            "detail": "",
            "reused_from": None,
            "trips": [trip for trip in record.trips if trip.until <= as_of],
            "away": away,
        }
    )


def _away_at(record: JobRecord, events: list[Event], as_of: datetime) -> Away | None:
    """Return the visit that went on at a moment, without the host's bill, which is of a later moment; None if the job
    was at home."""
    moves = [e for e in events if e.kind in (EventKind.DEPARTED, EventKind.RETURNED)]
    if moves and moves[-1].kind is EventKind.RETURNED:
        return None
    visits: list[Trip | Away] = [*record.trips, *([record.away] if record.away is not None else [])]
    last = next((v for v in reversed(visits) if v.since <= as_of), None)
    if last is None or (isinstance(last, Trip) and last.until <= as_of):
        return None
    return Away(cluster=last.cluster, visit=last.visit, number=last.number, since=last.since)


def _read_last_steps(store: Store, events: dict[str, list[Event]]) -> dict[tuple[str, int], int]:
    """Return the last step in the metrics of every attempt that ended without a last event. Its events may be older."""
    last_steps: dict[tuple[str, int], int] = {}
    for job, own in events.items():
        silent = {i.attempt.epoch for i in interruptions(attempts(own)) if not i.with_notice}
        if not silent:
            continue
        for chunk in store.read_metrics(job):
            if chunk.epoch in silent:
                last_steps[(job, chunk.epoch)] = max(
                    last_steps.get((job, chunk.epoch), 0), _last_step(chunk.data.splitlines())
                )
    return last_steps


def _last_step(lines: Sequence[bytes]) -> int:
    for line in reversed(lines):
        try:
            sample = json.loads(line)
        except ValueError:
            continue  # a line that the kill cut off
        if isinstance(sample, dict) and isinstance(sample.get("step"), int):
            return int(sample["step"])
    return 0
