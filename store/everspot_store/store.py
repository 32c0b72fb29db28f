"""The store of one cluster: two buckets, with a table for each kind of document.

docs/internals/store.md describes the layout.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from everspot_core.capacity.launching import LaunchIntent
from everspot_core.capacity.market import Market
from everspot_core.clock import Clock
from everspot_core.costs.ledger import EndRecord, FaultRecord, LaunchRecord, PricePoint
from everspot_core.federation.offer import VisitOffer
from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.job import JobSubmission, PrecedingJob
from everspot_core.jobs.job_archive import Dossier
from everspot_core.jobs.profile import Profile, ProfileRequest
from everspot_core.jobs.records import Assignment, Event, InstanceRecord, JobRecord, Request
from everspot_core.jobs.stage_cache import StageClaim
from everspot_core.jobs.utilization import UtilizationWindow
from pydantic import ValidationError

from everspot_store import code, resume_from
from everspot_store.archive import Archive
from everspot_store.backend import Guard
from everspot_store.bucket import Bucket
from everspot_store.changes import Changes
from everspot_store.checkpoints import Checkpoints
from everspot_store.chunks import Chunk, Stream
from everspot_store.clock import SystemClock
from everspot_store.cluster import ClusterDocuments, read_manifest
from everspot_store.code_store import CodeStore, code_owner
from everspot_store.datasets import Datasets
from everspot_store.document_cache import DocumentCache
from everspot_store.errors import JobExists, StoreError
from everspot_store.events import EventWriter, append, ordered
from everspot_store.gc_announcements import GcAnnouncements
from everspot_store.heartbeat import SchedulerBeat
from everspot_store.leases import Claim, Lease, take
from everspot_store.log_followers import LogFollowers
from everspot_store.outputs import Outputs
from everspot_store.skew import measure_skew, skew_of_write
from everspot_store.status_documents import StatusDocuments
from everspot_store.studies import Studies
from everspot_store.table import Table
from everspot_store.wakeup import Wakeup

if TYPE_CHECKING:
    from obstore.store import GCSCredentialProvider, S3CredentialProvider

Finalizer = Callable[[JobSubmission], JobSubmission]
"""A function that completes a submission right before its job is created."""
TRAINER = "trainer-"  # prefix of the names of trainers as writers of events


class Store(ClusterDocuments):
    """The store of one cluster. Thread-safe; all waits use `clock`.

    Every method raises `StoreUnavailable` (transient, bounded retries spent), `StoreDenied` or `StoreMissing`.
    """

    def __init__(self, control: Bucket, data: Bucket, clock: Clock, cache: DocumentCache | None = None) -> None:
        super().__init__(control)
        self.data = data
        self.clock = clock
        self.jobs = Table(control, "jobs", JobSubmission, cache, id_field="job_id")
        self.cancels = Table(control, "cancels", Request)
        self.drills = Table(control, "drills", Request)
        self.profile_requests = Table(control, "profiles", ProfileRequest)
        self.records = Table(control, "records", JobRecord, cache, id_field="job_id")
        self.heads = Table(control, "heads", CheckpointHead)
        self.instances = Table(control, "instances", InstanceRecord, id_field="instance_id")
        self.assignments = Table(control, "assignments", Assignment, id_field="instance_id")
        self.launches = Table(control, "ledger/launches", LaunchRecord, cache, id_field="instance_id")
        self.launching = Table(control, "launching", LaunchIntent, id_field="name")
        self.ends = Table(control, "ledger/ends", EndRecord, cache, id_field="instance_id")
        self.faults = Table(control, "faults", FaultRecord, id_field="instance_id")
        self.past_instances = Table(control, "ledger/instances", InstanceRecord, id_field="instance_id")
        self.sent_notices = Table(control, "told", Request)
        self.visits = Table(control, "visits", VisitOffer)
        self.schedulers = Table(control, "schedulers", SchedulerBeat)
        self.wakeup = Wakeup(control, clock)
        self.notes = StatusDocuments(control)
        self.studies = Studies(control)
        self.stages = Table(control, "stages", StageClaim, id_field="key")
        self.changes = Changes(control, cache)
        self._events = Table(control, "events", Event, cache)
        self.archive = Archive(control, self.jobs, self.records, self._events, (self.cancels, self.drills), cache)
        self._prices = Table(control, "ledger/prices", PricePoint, cache)
        self.gc_announcements = GcAnnouncements(data)
        self.datasets = Datasets(data, self.gc_announcements, clock)
        self._code = CodeStore(data, self.gc_announcements)
        self.logs = Stream(data, "logs", ".log")
        self.metrics = Stream(data, "metrics", ".jsonl")
        self.utilization = Stream(data, "utilization", ".jsonl")
        self.profiles = Stream(data, "profiles", ".json")
        self.event_files = Stream(data, "event-files", ".tfevents")
        self.agent_logs = Stream(data, "", ".log", root="agents")
        self.following = LogFollowers(Table(control, "follows", Request), clock)

    @classmethod
    def open(
        cls,
        control_url: str,
        data_url: str | None = None,
        *,
        clock: Clock | None = None,
        credentials: "S3CredentialProvider | GCSCredentialProvider | None" = None,
        cache_file: Path | None = None,
    ) -> "Store":
        """Return the store at `control_url`; the default of `data_url` is the URL in its `cluster.json`. `cache_file`:
        the file of a `DocumentCache`.

        Raises:
            StoreError: if a URL cannot be used, or `data_url` is not given and there is no `cluster.json`.
        """
        clock = clock or SystemClock.from_environment()
        control = Bucket.open(control_url, clock=clock, credentials=credentials)
        manifest = None
        if data_url is None:
            manifest = read_manifest(control)
            data_url = manifest.data_url
        cache = DocumentCache(cache_file, control_url) if cache_file is not None else None
        store = cls(control, Bucket.open(data_url, clock=clock, credentials=credentials), clock, cache)
        store._manifest = manifest
        return store

    def measure_skew(self) -> timedelta:
        """Return how far the store's clock is ahead of this machine's clock. See `skew.measure_skew`."""
        return measure_skew(self.control, self.clock)

    def skew_by_heartbeat(self, instance_id: str, before: datetime) -> timedelta:
        """Return the skew, measured with the heartbeat that an instance wrote just now. `before`: the time right before
        the write. See `skew.skew_of_write`."""
        return skew_of_write(self.control, self.clock, self.instances.key(instance_id), before)

    # Jobs

    def submit(
        self,
        submission: JobSubmission,
        code_dir: Path | None = None,
        ignored: code.Ignored | None = None,
        *,
        code_of: str | None = None,
        finalize: Finalizer | None = None,
    ) -> JobSubmission:
        """Upload the code, if any, and create the job by one conditional write. Once this returns, the job is never
        lost.

        Returns the submission with the digest of the code. `ignored`: paths that are left out of the code. `code_of`:
        the job whose code this job uses; by default the job that it retries. `finalize`: completes the submission after
        its code is uploaded, right before the job is created.

        Raises:
            JobExists: if the id is taken.
            UnsafeArchive: if the code cannot be packed.
        """
        other = code_of or submission.retry_of
        if code_dir is not None:
            with tempfile.TemporaryDirectory(prefix="everspot-code-") as scratch:
                archive = Path(scratch, "code.tar.gz")
                digest = code.pack(code_dir, archive, ignored)
                submission = submission.model_copy(update={"code_digest": digest})
                self._code.put(archive, digest, submission.job_id)
        elif other is not None and submission.code_digest is not None:
            dossier = self.dossier(other, brief=True)
            self._code.take_over(submission, code_owner(dossier.submission) if dossier is not None else other)
        submission = finalize(submission) if finalize is not None else submission
        if self.jobs.create(submission.job_id, submission) is None:
            raise JobExists(submission.job_id)
        self.wakeup.call()
        return submission

    def fetch_code(self, submission: JobSubmission, folder: Path) -> None:
        """Fetch a job's code and unpack it into `folder`.

        Raises:
            FileNotFoundError: if it has none, or it was never uploaded.
            DigestMismatch: if the bytes differ.
            UnsafeArchive: if it would write outside `folder`.
        """
        self._code.fetch(submission, folder)

    def send_code(self, submission: JobSubmission, host: "Store", visit: str) -> int:
        """Copy a job's code to the store of another cluster, for a job that will be created there. Returns its bytes.

        Raises:
            FileNotFoundError: if it was never uploaded, or is gone.
            DigestMismatch: if the bytes differ.
        """
        return self._code.send(submission, host._code, visit)

    def acquire(
        self,
        job_id: str,
        epoch: int,
        owner: str,
        *,
        ttl: timedelta | None = None,
        adopt: bool = False,
        from_zero: bool = False,
    ) -> Lease | None:
        """Start the lease of a job that is assigned to `owner` under `epoch`: ASSIGNED → RUNNING. Return None if it is
        not, or no longer, assigned like this.

        `adopt`: also take over a job that is RUNNING under the same epoch and owner. This is for a restarted agent,
        which has killed the processes of its earlier run that it found; any others are fenced out. `from_zero`: the
        earlier runs left no checkpoint; the record counts such starts. `ttl`: by default the manifest's.

        Raises:
            StoreError: if the job was never submitted.
        """
        ttl = ttl if ttl is not None else self.manifest().limits.lease_ttl
        submission = self.jobs.get(job_id)
        if submission is None:
            raise StoreError(f"job {job_id} was never submitted")
        claim = Claim(job_id, epoch, owner, adopt, from_zero)
        return take(self.records, self.clock, submission.value.spec, claim, ttl)

    def checkpoints(
        self, job_id: str, epoch: int | None = None, guard: Guard | None = None, *, incarnation: int = 0
    ) -> Checkpoints:
        """Return the checkpoints of a job: for its owner under `epoch` and the lease's `incarnation`, or for reading.
        `guard`: returns whether the lease is still valid."""
        return Checkpoints(self.heads, self.data, self.clock, job_id, epoch, guard, incarnation)

    def dossier(self, job_id: str, *, brief: bool = False) -> Dossier | None:
        """Return all documents of a job, archived or not, or None if it was never submitted. `brief`: as for `events`.

        Raises:
            BadDocument: if one of its documents cannot be read.
        """
        submission = self.jobs.get(job_id)
        if submission is not None:
            record = self.records.get(job_id)
            events = self.events(job_id, brief=brief)
            if self.jobs.get(job_id) is not None:  # otherwise it was archived meanwhile, and documents may be missing
                current_record = record.value if record is not None else None
                return Dossier(submission=submission.value, record=current_record, events=events)
        return self.archive.get(job_id)

    def outputs(self, job_id: str) -> Outputs:
        """Return the outputs of a job."""
        return Outputs(self.data, job_id)

    def record(self, job_id: str) -> JobRecord | None:
        """Return the record of a job, archived or not. None if it has never had an instance."""
        document = self.records.get(job_id)
        if document is not None:
            return document.value
        if self.jobs.get(job_id) is not None:
            return None
        dossier = self.archive.get(job_id)
        return dossier.record if dossier is not None else None

    def producer(self, job_id: str) -> str:
        """Return the job that computed the outputs of a job. This is another job if `cache` reused its outputs."""
        record = self.record(job_id)
        return record.reused_from or job_id if record is not None else job_id

    def input_producers(self, job_id: str) -> dict[str, str] | None:
        """Return, by name, the jobs that computed the outputs which an ended job has read; None if it was never
        submitted."""
        dossier = self.dossier(job_id, brief=True)
        if dossier is None:
            return None
        return {earlier.name: self.producer(earlier.job_id) for earlier in dossier.submission.after}

    def ran_on_generation(self, record: JobRecord | None, generation: str) -> bool:
        """Return whether a job ended on an instance of this generation, as far as is known. If it was not run itself,
        that is said of the job that computed its outputs."""
        if record is None:
            return False
        if record.reused_from is not None:
            return self.ran_on_generation(self.record(record.reused_from), generation)
        owner = record.last_owner
        instance = (self.instances.get(owner) or self.past_instances.get(owner)) if owner else None
        return instance is None or instance.value.generation == generation

    def resolve_inputs(self, submission: JobSubmission) -> JobSubmission:
        """Return a submission whose `after` names the jobs that computed the outputs (see `producer`)."""
        producers = [self.producer(earlier.job_id) for earlier in submission.after]
        after = [
            PrecedingJob(name=earlier.name, job_id=producer, reused=producer != earlier.job_id)
            for earlier, producer in zip(submission.after, producers, strict=True)
        ]
        return submission.model_copy(update={"after": after})

    def retry(self, submission: JobSubmission, other: str, finalize: Finalizer | None = None) -> JobSubmission:
        """Create a job that continues from the newest checkpoint of another job, which has ended. Otherwise like
        `submit`.

        The new job's head names the other job's parts. The new job never deletes them, because it deletes only below
        its own prefix. It has its own fence.

        Raises:
            JobExists: if the id is taken.
            NothingLeft: if the other job had checkpoints, and they were removed.
        """
        submission = resume_from.retry(self, submission, other, finalize)
        self.wakeup.call()
        return submission

    def request_drain(self, request: Request) -> None:
        """Ask for a drain, and wake an idle scheduler. A second request changes nothing."""
        super().request_drain(request)
        self.wakeup.call()

    # History

    def events(self, job_id: str, *, brief: bool = False) -> list[Event]:
        """Return the events of a job, in order of (at, epoch, writer, seq). `brief`: without the events of trainers,
        which are the most and an object each."""
        return self.events_by_job([job_id], brief=brief)[job_id]

    def events_by_job(self, job_ids: Sequence[str], *, brief: bool = False) -> dict[str, list[Event]]:
        """Return the `events` of many jobs, read in parallel."""
        include = (lambda id: f"-{TRAINER}" not in id.partition("/")[2]) if brief else None
        documents = self._events.scan_all([f"{job}/" for job in job_ids], include)
        return {job: ordered([doc.value for doc in documents[f"{job}/"].values()]) for job in job_ids}

    def event_writer(self, job_id: str, epoch: int, writer: str, instance_id: str | None = None) -> EventWriter:
        """Return a writer that numbers and writes events. `writer`: instance id, `trainer-<instance id>`, scheduler id
        or `cli`."""
        return EventWriter(self._events, self.clock, job_id, epoch, writer, instance_id)

    def append_event(self, event: Event) -> None:
        """Write an event that has its number already. Writing the same event again does nothing.

        Raises:
            KeyTaken: if another event has that number.
        """
        append(self._events, event)

    def prices(self, pools: Iterable[tuple[str, str, Market]] | None = None) -> list[PricePoint]:
        """Return the price points of these pools (type, zone, market), by default of all pools, oldest first."""
        begins = None if pools is None else tuple(_price_key(*pool) for pool in pools)
        include = None if begins is None else lambda id: id.startswith(begins)
        points = [document.value for document in self._prices.scan(include=include).values()]
        return sorted(points, key=lambda point: (point.at, point.instance_type, point.zone, point.market))

    def add_price(self, point: PricePoint) -> None:
        """Write a price. Only the first price for a pool and second is stored."""
        stamp = point.at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        self._prices.create(_price_key(point.instance_type, point.zone, point.market) + stamp, point)

    # Logs and metrics

    def read_logs(self, job_id: str, after: tuple[int, int] | None = None) -> Iterator[Chunk]:
        """Return the existing chunks of the log in order, after the position (epoch, seq) `after`."""
        return self.logs.read(job_id, after)

    def read_metrics(self, job_id: str) -> Iterator[Chunk]:
        """Return the existing chunks of the metrics in order."""
        return self.metrics.read(job_id)

    def read_profiles(self, job_id: str, request_id: str) -> list[Profile]:
        """Return the reports of one profile, in order, without unreadable ones."""
        profiles = []
        for chunk in self.profiles.read(job_id):
            with suppress(ValidationError):
                profiles.append(Profile.read(chunk.data))
        return [profile for profile in profiles if profile.id == request_id]

    def read_utilization(self, job_id: str) -> list[UtilizationWindow]:
        """Return the utilization windows of all attempts of a job, in order of attempts and time, without unreadable
        lines."""
        windows = []
        for chunk in self.utilization.read(job_id):
            for line in chunk.data.splitlines():
                with suppress(ValidationError):
                    windows.append(UtilizationWindow.read(line))
        return windows


def _price_key(instance_type: str, zone: str, market: Market) -> str:
    """Return the prefix of the ids of a pool's prices."""
    return f"{instance_type}/{zone}/{market.value}-"
