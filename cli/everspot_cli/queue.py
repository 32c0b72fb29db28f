"""The rows of `everspot jobs`: chooses the jobs and reads their documents."""

import fnmatch
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.records import Event, EventKind, InstanceRecord, JobState

from everspot_cli.rows import job_row
from everspot_cli.session import Session, run_in_parallel
from everspot_cli.waiting import explain

RECENT = timedelta(days=1)
"""How long archived jobs are listed by default."""
FEW = 10
"""Up to so many instances are read one by one."""


@dataclass(frozen=True)
class JobQuery:
    """The choice of jobs. Each field narrows it.

    `since`: leaves out jobs that had ended before; `archived`: includes all archived jobs. Without either, archived
    jobs of the last day are included. `tables`: none that is archived, so that the archive is not listed. `names`:
    patterns such as `fashion-*`, over names and ids. `states`: words of the STATUS column. `tags`: with these values.
    `limit`: the newest.
    """

    active: bool = False
    archived: bool = False
    tables: bool = False
    since: datetime | None = None
    names: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    tags: dict[str, str] = field(default_factory=dict)
    limit: int | None = None


@dataclass(frozen=True)
class Rows:
    """Jobs, newest first, and their total number before `limit` was applied."""

    rows: list[dict[str, Any]]
    count: int


def job_rows(
    session: Session, query: JobQuery | None = None, event_cache: dict[str, list[Event]] | None = None
) -> Rows:
    """Return the rows of the chosen jobs. It takes one listing for each kind of document, and reads the documents that
    changed.

    `event_cache`: for repeated calls; the events of ended jobs are read once and kept there.
    """
    query = query or JobQuery()
    dossiers, cancels = _read(session, query)
    chosen = [d for d in dossiers if _of_interest(d, query, d.job_id in cancels, session.now)]
    chosen.sort(key=lambda d: (d.submission.submitted_at, d.job_id), reverse=True)
    shown = _with_events(session, chosen[: query.limit], event_cache if event_cache is not None else {})
    owners = _owners(session, shown)
    scale = session.clock.scale
    rows = [
        job_row(d.submission, d.record, d.events, session.now, d.job_id in cancels, owners, scale=scale) for d in shown
    ]
    explain(session, rows)
    return Rows(rows, len(chosen))


def _read(session: Session, query: JobQuery) -> tuple[list[Dossier], set[str]]:
    store = session.store
    jobs, records, cancels = run_in_parallel(store.jobs.scan, store.records.scan, store.cancels.names)
    dossiers = {
        job: Dossier(submission=doc.value, record=records[job].value if job in records else None)
        for job, doc in jobs.items()
    }
    if not (query.active or query.tables):
        # The archive last: what has left the tables by now is there.
        since = query.since or (None if query.archived else session.now - RECENT)
        dossiers.update(store.archive.scan(since, session.now))
    return list(dossiers.values()), set(cancels)


def _of_interest(dossier: Dossier, query: JobQuery, cancelling: bool, now: datetime) -> bool:
    spec, record = dossier.submission.spec, dossier.record
    ended = record.changed_at if record is not None and record.state.final else None
    if ended is not None and (query.active or (query.since is not None and ended < query.since)):
        return False
    if query.users and dossier.submission.submitted_by not in query.users:
        return False
    if any(spec.tags.get(key) != value for key, value in query.tags.items()):
        return False
    if query.names and not any(
        fnmatch.fnmatchcase(label, name) for name in query.names for label in (spec.name, dossier.job_id)
    ):
        return False
    return not query.states or job_row(dossier.submission, record, [], now, cancelling)["status"] in query.states


def _with_events(session: Session, dossiers: list[Dossier], event_cache: dict[str, list[Event]]) -> list[Dossier]:
    """Return the jobs, with events where the record lacks something: the last step of a succeeded job, or the time with
    an instance if an older release wrote the record."""
    silent = [
        d.job_id
        for d in dossiers
        if d.archived_at is None
        and d.record is not None
        and (d.record.state is JobState.SUCCEEDED or d.record.held_time(session.now) is None)
    ]
    if not silent:
        return dossiers
    events = session.store.events_by_job([job for job in silent if job not in event_cache], brief=True)
    event_cache |= {job: own for job, own in events.items() if any(e.kind is EventKind.FINISHED for e in own)}
    events |= {job: event_cache[job] for job in silent if job in event_cache}
    return [d.model_copy(update={"events": events[d.job_id]}) if d.job_id in events else d for d in dossiers]


def _owners(session: Session, dossiers: list[Dossier]) -> dict[str, InstanceRecord]:
    names = {d.record.owner for d in dossiers if d.record is not None and d.record.owner is not None}
    table = session.store.instances
    # Of many a listing tells which have changed; of few it is more than they are.
    docs = table.read(sorted(names)) if len(names) <= FEW else table.scan(include=names.__contains__)
    return {name: doc.value for name, doc in docs.items()}
