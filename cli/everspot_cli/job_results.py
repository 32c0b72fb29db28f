"""Reads the jobs of a sweep or a comparison, and what each has cost."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from everspot_core.costs.job_budget import spent
from everspot_core.costs.prices import PriceBook
from everspot_core.costs.team_budgets import Amount
from everspot_core.jobs.curves import read_metric
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.records import JobRecord

from everspot_cli.session import Session
from everspot_cli.visits import spent_abroad


def read_dossiers(session: Session, job_ids: Iterable[str]) -> dict[str, Dossier]:
    """Return the dossiers of the jobs that exist, archived ones included, by their ids.

    Raises:
        StoreError: if the store could not be asked.
    """
    store, jobs = session.store, list(job_ids)
    docs, records = store.jobs.read(jobs), store.records.read(jobs)
    events = store.events_by_job(list(docs), brief=True) if docs else {}
    dossiers = {
        job: Dossier(submission=doc.value, record=records[job].value if job in records else None, events=events[job])
        for job, doc in docs.items()
    }
    if missing := [job for job in jobs if job not in dossiers]:
        keys = store.archive.keys()
        dossiers |= store.archive.read(keys[job] for job in missing if job in keys)
    return dossiers


def read_last_value(session: Session, job_id: str, metric: str) -> float | None:
    """Return the last stored value of a metric, NaN included, which a job's record leaves out; None if it was never
    reported.

    Raises:
        StoreError: if the store could not be asked.
    """
    chunks = session.store.read_metrics(job_id)
    values = [value for chunk in chunks for _, value in read_metric(chunk.data, metric)]
    return values[-1] if values else None


def compute_spending(session: Session, dossiers: Mapping[str, Dossier]) -> dict[str, Amount]:
    """Return what each job that has begun has cost so far, by the rules of the bill, with its visits to other clusters.

    An owner that has not renewed its lease in time counts up to its last renewal. While no scheduler runs, nothing
    records the end of its instance.

    Raises:
        StoreError: if the store could not be asked.
    """
    begun = {job: d for job, d in dossiers.items() if d.record is not None and d.record.epoch}
    if not begun:
        return {}
    store = session.store
    launches = {name: doc.value for name, doc in store.launches.scan().items()}
    ends = {name: doc.value for name, doc in store.ends.scan().items()}
    prices = PriceBook(store.prices(), session.billing_catalogue)
    spending = {}
    for job, dossier in begun.items():
        used = spent(
            dossier.events, submitted_at=dossier.submission.submitted_at, now=session.now, launches=launches,
            ends=ends, prices=prices, catalogue=session.billing_catalogue, rules=session.cloud.billing,
            alive_at=_last_renewal(session, dossier.record), record=dossier.record,
        )  # fmt: skip
        spending[job] = Amount(used.dollars, used.gpu_hours) + spent_abroad(dossier.record)
    return spending


def _last_renewal(session: Session, record: JobRecord | None) -> dict[str, datetime]:
    """Return the job's owner and the moment of its last renewal, if its lease has expired; otherwise nothing."""
    if record is None or record.owner is None:
        return {}
    has_expired = session.now - record.changed_at > session.clock.to_market(session.manifest.limits.lease_ttl)
    return {record.owner: record.changed_at} if has_expired else {}
