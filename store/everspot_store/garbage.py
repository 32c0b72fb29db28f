"""Garbage collection: finds objects in the buckets that nothing needs any longer, and removes them.

Whether an object is garbage depends on the documents that name objects, and on its age: an object younger than a day
may belong to an upload or a submission that is under way. An object that any job's head names is never garbage, because
a retried job begins with parts of the earlier job. An unreadable document may name any object, so nothing is removed
while one exists.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.records import JobRecord

from everspot_store.backend import Entry
from everspot_store.checkpoints import parse_part_key
from everspot_store.code_store import NAMED, named_by, names
from everspot_store.errors import StoreUnavailable, Unreadable
from everspot_store.gc_announcements import PREFIX as SWEEPS
from everspot_store.store import Store

GRACE = timedelta(days=1)
_JOBS, _CODE, _FILES, _AGENTS = "jobs/", "code/", "datasets/_files/", "agents/"
_BATCH = 1000  # objects that are deleted between two readings of the documents
_RENEW_EVERY, _TRIES = 25, 4  # deletions between two renewals of the announcement; tries until it is fresh
_CHECKPOINTS, _OLD = "checkpoints", ("logs", "metrics", "utilization", "profiles", "event-files")


class GarbageKind(StrEnum):
    """The reason for which an object is garbage."""

    HEADS = "checkpoints taken over by jobs that were never submitted"
    PARTS = "parts of checkpoints that no job names"
    FINISHED = "checkpoints of jobs that ended long ago"
    LOGS = "logs and metrics of jobs that ended long ago"
    CODE = "code that no job names"
    FILES = "files that no dataset names"
    AGENTS = "logs of instances that ended long ago"
    NAMED = "marks of submissions that are long over"
    SWEEPS = "announcements of collectors that were cut off"


_SHARED = (GarbageKind.CODE, GarbageKind.FILES)
"""Kinds of objects that a new job or dataset may begin to use."""


@dataclass(frozen=True)
class Garbage:
    """One object of the data bucket, or a head in the control bucket. `size` in bytes; `job_id`: the job that it
    belongs to, if any."""

    kind: GarbageKind
    key: str
    size: int
    job_id: str | None = None


@dataclass(frozen=True)
class _References:
    """The cluster's documents. `used`: the keys in the data bucket that the documents name."""

    heads: dict[str, CheckpointHead]
    records: dict[str, JobRecord]
    jobs: frozenset[str]
    used: set[str]


class Collector:
    """Looks for garbage in one cluster.

    All methods raise `StoreUnavailable`, `StoreDenied` or `StoreMissing`, and `Unreadable` if a document that may name
    objects cannot be read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, keep: timedelta, now: datetime, store_now: datetime) -> list[Garbage]:
        """Return all garbage, in order of kinds and keys. Nothing is changed.

        Args:
            keep: how long the checkpoints, logs and metrics of an ended job stay, and the logs of an ended instance.
            now: market time, which measures the ends of jobs and instances.
            store_now: the store's own time, which measures the ages of objects.
        """
        references = _read(self._store)
        orphans = self._orphans(references, store_now)
        orphan_jobs = {orphan.job_id for orphan in orphans}
        heads = {job: head for job, head in references.heads.items() if job not in orphan_jobs}
        ended = {job for job, r in references.records.items() if r.state.final and now - r.changed_at >= keep}
        old = [entry for entry in self._store.data.list() if store_now - entry.modified >= GRACE]
        garbage = [
            *self._find_in_jobs(old, heads, references.records, ended),
            *(
                _garbage(GarbageKind.NAMED if e.key.startswith(NAMED) else GarbageKind.CODE, e)
                for e in old
                if e.key.startswith(_CODE) and e.key not in references.used
            ),
            *(_garbage(GarbageKind.FILES, e) for e in old if e.key.startswith(_FILES) and e.key not in references.used),
            *self._find_agent_logs(old, keep, now),
            *(_garbage(GarbageKind.SWEEPS, e) for e in old if e.key.startswith(f"{SWEEPS}/")),
            *orphans,
        ]
        return sorted(garbage, key=lambda item: (list(GarbageKind).index(item.kind), item.key))

    def remove(self, garbage: list[Garbage]) -> list[Garbage]:
        """Remove the objects of `find` that are still garbage. Returns the removed ones.

        The heads of ended jobs are emptied first, so that no reader finds an incomplete checkpoint. Right before code
        and files are deleted, the documents are read again, because a job may have been submitted, or a dataset put,
        since.
        """
        _read(self._store)
        ended = {item.job_id for item in garbage if item.kind is GarbageKind.FINISHED and item.job_id is not None}
        emptied = {job for job in ended if self._empty(job)}
        removed = []
        for some in _runs(garbage):
            if some[0].kind in _SHARED:
                removed += self._remove_shared(some)
            else:
                removed += self._remove(some, _read(self._store), emptied)
        return removed

    def _remove_shared(self, some: list[Garbage]) -> list[Garbage]:
        removed = []
        with self._store.gc_announcements.announced([item.key for item in some]) as announcement:
            references = _read(self._store)
            for at in range(0, len(some), _RENEW_EVERY):
                for _ in range(_TRIES):
                    if announcement.renew():
                        break
                    references = _read(self._store)
                else:
                    raise StoreUnavailable(
                        "reading the documents takes longer than the announcement of a removal is valid; the remaining "
                        "garbage was not removed"
                    )
                for item in some[at : at + _RENEW_EVERY]:
                    if item.key in references.used:
                        continue
                    announcement.unanswered.add(item.key)
                    if self._store.data.delete(item.key):
                        announcement.unanswered.discard(item.key)
                    removed.append(item)
        return removed

    def _remove(self, some: list[Garbage], references: _References, emptied: set[str]) -> list[Garbage]:
        """Remove the items that still are garbage, and return them."""
        removed = []
        for item in some:
            if item.kind is GarbageKind.HEADS:
                if item.job_id is None or item.job_id in references.jobs:
                    continue
                self._store.heads.delete(item.job_id)
            elif item.key in references.used or (item.kind is GarbageKind.FINISHED and item.job_id not in emptied):
                continue
            else:
                self._store.data.delete(item.key)
            removed.append(item)
        return removed

    def _orphans(self, references: _References, store_now: datetime) -> list[Garbage]:
        """Return the heads that a retry created for a job that was then never submitted. They would keep another job's
        parts for ever."""
        without = {job for job in references.heads if job not in references.jobs}
        if not without:
            return []
        heads = {
            entry.key: entry for entry in self._store.control.list("heads/") if store_now - entry.modified >= GRACE
        }
        keys = {job: self._store.heads.key(job) for job in sorted(without)}
        return [_garbage(GarbageKind.HEADS, heads[key], job) for job, key in keys.items() if key in heads]

    def _find_in_jobs(
        self, old: list[Entry], heads: dict[str, CheckpointHead], records: dict[str, JobRecord], ended: set[str]
    ) -> list[Garbage]:
        everybody = _part_keys(heads.values())
        retained = _part_keys(head for job, head in heads.items() if job not in ended)
        garbage = []
        for entry in old:
            if not entry.key.startswith(_JOBS) or entry.key.count("/") < 3:
                continue
            _, job, folder, *_ = entry.key.split("/")
            if job in ended and folder in _OLD:
                garbage.append(_garbage(GarbageKind.LOGS, entry, job))
            if folder != _CHECKPOINTS or job not in heads or job not in records:
                continue
            if job in ended and entry.key not in retained:
                garbage.append(_garbage(GarbageKind.FINISHED, entry, job))
                continue
            place = parse_part_key(entry.key)
            if place is None or entry.key in everybody:
                continue
            if place[0] < heads[job].epoch or (place[0] == heads[job].epoch and not records[job].state.owned):
                garbage.append(_garbage(GarbageKind.PARTS, entry, job))
        return garbage

    def _find_agent_logs(self, old: list[Entry], keep: timedelta, now: datetime) -> list[Garbage]:
        logs = [entry for entry in old if entry.key.startswith(_AGENTS)]
        if not logs:
            return []
        ends = {name: doc.value.ended_at for name, doc in self._store.ends.scan().items()}
        expired = {name for name, at in ends.items() if now - at >= keep}
        return [_garbage(GarbageKind.AGENTS, entry) for entry in logs if entry.key.split("/")[1] in expired]

    def _empty(self, job: str) -> bool:
        """Empty the head of an ended job. Return False if it changed meanwhile; it then stays as it is."""
        head = self._store.heads.get(job)
        if head is None or not head.value.checkpoints:
            return True
        new = head.value.model_copy(update={"checkpoints": [], "emptied": True})
        return self._store.heads.replace(job, head, new) is not None


def _garbage(kind: GarbageKind, entry: Entry, job_id: str | None = None) -> Garbage:
    return Garbage(kind, entry.key, entry.size, job_id)


def _runs(garbage: list[Garbage]) -> Iterator[list[Garbage]]:
    """Yield the garbage in order, in batches of one kind and at most `_BATCH` objects."""
    for kind in GarbageKind:
        items = [item for item in garbage if item.kind is kind]
        yield from (items[at : at + _BATCH] for at in range(0, len(items), _BATCH))


def _read(store: Store) -> _References:
    """Read all documents that name objects, in an order that misses none.

    Marks of submissions come before the jobs that follow them, and jobs before the archive, to which they move.
    Datasets come last, because a put creates its version when all of its files are there.
    """
    marked = {named_by(entry.key) for entry in store.data.list(NAMED)}
    heads, bad = store.heads.scan_with_unreadable()
    records, bad_records = store.records.scan_with_unreadable()
    jobs, bad_jobs = store.jobs.scan_with_unreadable()
    archived, bad_archived = store.archive.scan_with_unreadable()
    versions, bad_versions = store.datasets.scan_with_unreadable()
    if unreadable := [*bad, *bad_records, *bad_jobs, *bad_archived, *bad_versions]:
        raise Unreadable(unreadable)
    of_jobs = {job: dossier.record for job, dossier in archived.items() if dossier.record is not None}
    of_jobs |= {job: doc.value for job, doc in records.items()}
    submissions = [*(doc.value for doc in jobs.values()), *(dossier.submission for dossier in archived.values())]
    checkpoint_heads = {job: doc.value for job, doc in heads.items()}
    codes = {key for submission in submissions for key in names(submission)} | marked
    files = {file.key for version in versions for file in version.files}
    everyone = frozenset(submission.job_id for submission in submissions)
    return _References(checkpoint_heads, of_jobs, everyone, codes | files | _part_keys(checkpoint_heads.values()))


def _part_keys(heads: Iterable[CheckpointHead]) -> set[str]:
    return {part.key for head in heads for checkpoint in head.checkpoints for part in checkpoint.parts}
