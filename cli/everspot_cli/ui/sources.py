"""The readings of the web UI, by the functions of the commands."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from everspot_core.costs.attempts import attempts, interruptions
from everspot_core.jobs.curves import CurveBuilder, JobCurves
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.lease import pending
from everspot_core.jobs.records import Event
from everspot_core.jobs.utilization import UtilizationWindow

from everspot_cli import budgets, fleet
from everspot_cli.job_history import in_market_time
from everspot_cli.queue import JobQuery, job_rows
from everspot_cli.report.gather import gather
from everspot_cli.report.model import build
from everspot_cli.report.paths import Path
from everspot_cli.rows import job_row
from everspot_cli.session import Session
from everspot_cli.ui.reading import Reading
from everspot_cli.waiting import explain

LIVELY = timedelta(seconds=2)
STEADY = timedelta(seconds=15)
SLOW = timedelta(seconds=60)
RARE = timedelta(minutes=5)
"""The least pauses: of what jobs and instances do; of a job's curves; of the month's spending, and of the archive's
list; of the bill of everything that ever was."""
KEPT = 64
"""The most jobs whose reading is kept."""


@dataclass(frozen=True)
class JobRead:
    """One job: its row as `everspot job --json` has it, its file, what happened, and its path."""

    row: dict[str, Any]
    spec: dict[str, Any]
    events: list[Event]
    path: Path
    submission: JobSubmission


@dataclass(frozen=True)
class FleetRead:
    """The pools and instances, and what `everspot fleet` says below its table."""

    pools: list[dict[str, Any]]
    instances: list[dict[str, Any]]
    notes: list[str]


class Sources:
    """The readings of one cluster. Thread-safe."""

    def __init__(self, session: Session, **timing: Any) -> None:
        self.session, self._timing = session, timing
        self.jobs = self._reading(RecentJobs(session).rows, LIVELY)
        self.all_jobs = self._reading(lambda: job_rows(fresh(session), JobQuery(archived=True)).rows, SLOW)
        self.fleet = self._reading(lambda: _fleet(fresh(session)), LIVELY)
        self.budgets = self._reading(lambda: budgets.read(fresh(session)), SLOW)
        self.report = self._reading(lambda: _report(fresh(session)), RARE)
        self.anomalies = self._reading(session.store.notes.anomalies.read, SLOW)
        self.changes = self._reading(session.store.changes.all, SLOW)
        self._each: OrderedDict[str, Reading[JobRead | None]] = OrderedDict()
        self._curves: OrderedDict[str, Reading[JobCurves]] = OrderedDict()
        self._lock = threading.Lock()

    def job(self, job_id: str) -> Reading[JobRead | None]:
        """Return the reading of one job. Its value is None if no job has this id."""
        return self._of_job(self._each, job_id, lambda: _job(fresh(self.session), job_id), LIVELY)

    def curves(self, job_id: str) -> Reading[JobCurves]:
        """Return the reading of a job's curves: empty ones if no job has this id."""
        return self._of_job(self._curves, job_id, CurveSource(self.session, job_id).read, STEADY)

    def changed(self, job_id: str) -> None:
        """Have what shows a job read it again."""
        self.job(job_id).stale()
        self.jobs.stale()

    def _of_job(
        self, readings: OrderedDict[str, Reading[Any]], job_id: str, read: Callable[[], Any], least: timedelta
    ) -> Reading[Any]:
        with self._lock:
            if job_id not in readings:
                readings[job_id] = self._reading(read, least)
            readings.move_to_end(job_id)
            while len(readings) > KEPT:
                readings.popitem(last=False)
            return readings[job_id]

    def _reading(self, read: Callable[[], Any], least: timedelta) -> Reading[Any]:
        return Reading(read, lambda: self.session.now, least, **self._timing)


def fresh(session: Session) -> Session:
    """Return a session that reads `cluster.json` and the price tables again, because they may have changed."""
    again = replace(session, json=True)  # it prints nothing
    again.__dict__.update({name: getattr(session, name) for name in ("clock", "target", "store")})
    return again


class RecentJobs:
    """The jobs of the tables, and those archived since a day. The archive is listed once in `SLOW`, and when a job has
    left the tables: a listing of it is long."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows_by_job: dict[str, dict[str, Any]] = {}
        self._listed_at: datetime | None = None
        self._event_cache: dict[str, list[Event]] = {}

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of `everspot jobs`, newest first."""
        session = fresh(self._session)
        rows = job_rows(session, JobQuery(tables=True), self._event_cache).rows
        here = {row["job_id"] for row in rows}
        departed = any(not (job in here or row["archived"]) for job, row in self._rows_by_job.items())
        now = session.now
        if departed or self._listed_at is None or session.clock.to_real(now - self._listed_at) >= SLOW:
            rows, self._listed_at = job_rows(session, event_cache=self._event_cache).rows, now
        else:
            rows += [row for job, row in self._rows_by_job.items() if row["archived"] and job not in here]
        self._event_cache = {job: events for job, events in self._event_cache.items() if job in here}
        self._rows_by_job = {row["job_id"]: {**row, "archived": row["job_id"] not in here} for row in rows}
        return sorted(self._rows_by_job.values(), key=lambda row: (row["submitted_at"], row["job_id"]), reverse=True)


class CurveSource:
    """The curves of one job. Each piece of its streams is read once. Not thread-safe."""

    def __init__(self, session: Session, job_id: str) -> None:
        self._session, self._job_id = session, job_id
        self._builder = CurveBuilder()
        self._metrics_after: tuple[int, int] | None = None
        self._use_after: tuple[int, int] | None = None

    def read(self) -> JobCurves:
        """Return the curves up to now.

        Raises:
            StoreError: if the store cannot be read. What was read before is kept.
        """
        store = self._session.store
        for chunk in store.metrics.read(self._job_id, self._metrics_after):
            self._builder.add_metrics(chunk.epoch, chunk.data)
            self._metrics_after = chunk.position
        for chunk in store.utilization.read(self._job_id, self._use_after):
            self._builder.add_utilization(chunk.data)
            self._use_after = chunk.position
        document = store.records.get(self._job_id)
        record = document.value if document is not None else None
        sample, recent = None, None
        if record is not None and record.state.owned:
            progress = record.progress
            sample = (progress.step, progress.metrics)
            if progress.recent_use is not None:
                recent = UtilizationWindow(at=record.changed_at, utilization=progress.recent_use)
        return self._builder.build(sample, recent, self._session.clock.scale)


def _job(session: Session, job_id: str) -> JobRead | None:
    store = session.store
    dossier = store.dossier(job_id)
    if dossier is None:
        return None
    record, events, now = dossier.record, dossier.events, session.now
    owner = store.instances.get(record.owner) if record is not None and record.owner else None
    owners = {owner.value.instance_id: owner.value} if owner is not None else {}
    cancelling = store.cancels.get(job_id) is not None
    row = job_row(dossier.submission, record, events, now, cancelling, owners, scale=session.clock.scale)
    explain(session, [row])
    history = attempts(events, record=record)
    record = record or pending(job_id, dossier.submission.submitted_at)
    path = Path(job_id, dossier.submission.submitted_at, record, tuple(history), tuple(interruptions(history)), now)
    return JobRead(
        row,
        dossier.submission.spec.model_dump(mode="json"),
        in_market_time(events, session.clock.scale),
        path,
        dossier.submission,
    )


def _fleet(session: Session) -> FleetRead:
    reading = fleet.read(session, live=False)
    return FleetRead(fleet.pool_rows(reading), reading.instances, fleet.notes(session, reading, session.now))


def _report(session: Session) -> dict[str, Any]:
    return build(gather(session), session.now.date())
