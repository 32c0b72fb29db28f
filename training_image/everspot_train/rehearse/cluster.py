"""A cluster in a folder of this machine. Its instances are real agents, each for one attempt."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from everspot_clouds.base import Identity
from everspot_clouds.folder import FolderMetadata
from everspot_core.cluster.manifest import Limits, Manifest
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import Assignment, EventKind, JobRecord, JobState, Market
from everspot_store import Store, SystemClock

from everspot_train.agent.agent import Agent, HelperDied
from everspot_train.agent.fitness import Fitness
from everspot_train.agent.folder import FolderCheckpoints
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.own_log import OwnLog
from everspot_train.agent.process import LocalLauncher
from everspot_train.agent.program import LAUNCHER_VARIABLE
from everspot_train.agent.starter import Starter, Surroundings
from everspot_train.agent.watch import NoticeWatcher
from everspot_train.agent.work_folders import WORK_VARIABLE

NOTICE = timedelta(minutes=2)
"""The time between a notice and the end of the instance, the shortest of most clouds."""
LIMITS = Limits(
    lease_ttl=timedelta(minutes=10),  # a laptop may be busy, and there is no other instance
    beat_every=timedelta(seconds=10),
    poll_every=timedelta(seconds=0.2),
    notice_poll=timedelta(seconds=0.2),
)
_ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
_LOOK_EVERY = 0.02
_OUTPUT_BYTES = 4000
_JOIN_SECONDS = 60.0


class RehearsalError(Exception):
    """The rehearsal itself failed. The message has the reason."""


class NoticeMetadata(FolderMetadata):
    """The metadata service of an instance, with interruptions on the rehearsal's command."""

    def __init__(self, manifest_file: Path, identity: Identity) -> None:
        super().__init__(manifest_file, identity)
        self.interrupted_at: datetime | None = None
        self.recommended_at: datetime | None = None

    def interruption(self) -> datetime | None:
        """Return the announced time of the interruption, or None."""
        return self.interrupted_at

    def rebalance(self) -> datetime | None:
        """Return the time of the rebalance recommendation, or None."""
        return self.recommended_at


@dataclass(frozen=True)
class InstanceParts:
    """The common parts of a cluster's instances: the store, the manifest's file, the hardware, and the environment."""

    store: Store
    manifest: Manifest
    manifest_file: Path
    hardware: Hardware
    environ: Mapping[str, str]
    clock: SystemClock


class Instance:
    """One instance: an agent in a thread of this process."""

    def __init__(self, site: InstanceParts, name: str, home: Path, environ: Mapping[str, str]) -> None:
        clock, store, manifest = site.clock, site.store, site.manifest
        identity = Identity(instance_id=name, instance_type="local", zone="local", market=Market.SPOT)
        self.home = home
        self._clock = clock
        self._metadata = NoticeMetadata(site.manifest_file, identity)
        watch = NoticeWatcher(store, self._metadata, name, clock)
        own_log = OwnLog()
        own_log.to(store, name, clock)
        surroundings = Surroundings(home, {**site.environ, **environ}, site.environ.get(LAUNCHER_VARIABLE))
        home.mkdir(parents=True)
        starter = Starter(
            store=store,
            manifest=manifest,
            identity=identity,
            hardware=site.hardware,
            processes=LocalLauncher(surroundings.runs, adopt=True, groups=False),
            surroundings=surroundings,
            clock=clock,
        )
        starter.clear_remains()
        heartbeat = Heartbeat(
            store, manifest, identity, site.hardware, watch.store_contact, clock, agent_version="rehearsal"
        )
        self._agent = Agent(
            manifest=manifest,
            starter=starter,
            watch=watch,
            heartbeat=heartbeat,
            fitness=Fitness(None, site.hardware, home, site.environ, clock),
            own_log=own_log,
            clock=clock,
        )
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"agent {name}", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Announce the interruption of this instance."""
        self._metadata.interrupted_at = self._clock.now() + NOTICE

    def recommend(self) -> None:
        """Send a rebalance recommendation, at which the trainer checkpoints and continues."""
        self._metadata.recommended_at = self._clock.now()

    def end(self) -> None:
        """End the instance immediately: kill its processes, and write nothing more for its job.

        Raises:
            RehearsalError: if the agent does not end, or has failed.
        """
        self._agent.shut_down(timedelta())
        self._thread.join(_JOIN_SECONDS)
        if self._thread.is_alive():
            raise RehearsalError("the agent does not end")

    def check(self) -> None:
        """Raise `RehearsalError` if the agent has failed."""
        if self._failure is not None:
            raise RehearsalError(f"the agent failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            self._agent.run()
        except HelperDied as error:
            self._failure = error.__cause__ or error
        except BaseException as error:
            self._failure = error


class RehearsalCluster:
    """A cluster of one instance at a time.

    Args:
        root: an empty folder for everything. Its path should be short, because it contains sockets.
        hardware: the hardware of the instances.
        environ: the environment that programs inherit.
    """

    def __init__(self, root: Path, hardware: Hardware, environ: Mapping[str, str]) -> None:
        for name in ("control", "data", "records"):
            (root / name).mkdir(parents=True)
        clock = SystemClock()
        control, data = f"file://{root}/control", f"file://{root}/data"
        manifest = Manifest(cluster="rehearsal", cloud="folder", control_url=control, data_url=data, limits=LIMITS)
        store = Store.open(control, data, clock=clock)
        store.write_manifest(manifest)
        manifest_file = root / "manifest.json"
        manifest_file.write_bytes(manifest.to_json())
        self.root, self.store = root, store
        surroundings = {**environ, WORK_VARIABLE: str(root / "work")}  # one path for all attempts of a job
        self._site = InstanceParts(store, manifest, manifest_file, hardware, surroundings, clock)
        self._clock = clock
        self._instances = 0

    def submit(self, job_id: str, spec: JobSpec, code: Path | None) -> None:
        """Submit a job."""
        submission = JobSubmission(job_id=job_id, spec=spec, submitted_at=self._clock.now())
        self.store.submit(submission, code)

    @contextmanager
    def instance(self, job_id: str, environ: Mapping[str, str]) -> Iterator[Instance]:
        """Assign a job to a fresh instance, which ends with the block."""
        self._instances += 1
        name = f"i{self._instances}"
        self._assign(job_id, name)
        instance = Instance(self._site, name, self.root / name, environ)
        try:
            yield instance
        finally:
            instance.end()

    def record(self, job_id: str) -> JobRecord:
        """Return the job's record."""
        document = self.store.records.get(job_id)
        if document is None:
            raise RehearsalError(f"the store has no record of {job_id}")
        return document.value

    def wait(
        self, instance: Instance, job_id: str, limit: timedelta, act: Callable[[], bool] | None = None
    ) -> JobRecord | None:
        """Wait until the job has left its instance, and call `act` repeatedly. Returns the job's record, or None if
        `act` returned True first.

        Raises:
            TimeoutError: if that takes longer than `limit`.
        """
        end, looked = time.monotonic() + limit.total_seconds(), 0.0
        while True:
            if act is not None and act():
                return None
            if time.monotonic() - looked >= 0.2:
                instance.check()
                record = self.record(job_id)
                if record.state in _ENDED or (record.state is JobState.PENDING and record.last_owner is not None):
                    return record
                looked = time.monotonic()
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(_LOOK_EVERY)

    def expire(self, job_id: str) -> None:
        """Expire the lease of an instance that is gone, as the scheduler does."""
        document = self.store.records.get(job_id)
        if document is not None and document.value.state in (JobState.ASSIGNED, JobState.RUNNING):
            self.store.records.replace(job_id, document, transitions.expire(document.value, self._clock.now()))

    def durable_step(self, job_id: str) -> int | None:
        """Return the step of the job's newest checkpoint; None if it has none."""
        head = self.store.heads.get(job_id)
        return head.value.checkpoints[0].step if head is not None and head.value.checkpoints else None

    def fetch_outputs(self, job_id: str, folder: Path) -> None:
        """Fetch the files of the job's `outputs/` into a subfolder of this name, as a user would."""
        outputs = self.store.outputs(job_id)
        (folder / "outputs").mkdir(parents=True, exist_ok=True)
        for output in outputs.list():
            outputs.fetch(output, folder / "outputs")

    def fetch_checkpoint(self, job_id: str, folder: Path) -> None:
        """Restore the newest checkpoint of a plain program into a folder, as the agent does for the next attempt."""
        scratch = self.root / "scratch" / job_id
        checkpoints = self.store.checkpoints(job_id)
        FolderCheckpoints(checkpoints, folder, scratch, None, 2, lambda kind, **data: None, self._clock).restore()

    def why_not_kept(self, job_id: str) -> str:
        """Return the agent's reason for files of `checkpoints/` that it did not publish; empty without such files."""
        kinds = (EventKind.SKIPPED, EventKind.NOT_CHECKPOINTED)
        reasons = [str(e.data.get("reason", "")) for e in self.store.events(job_id) if e.kind in kinds]
        return next((reason for reason in reversed(reasons) if reason), "")

    def output(self, job_id: str) -> str:
        """Return the end of the job's output."""
        text = b"".join(chunk.data for chunk in self.store.read_logs(job_id))
        return text[-_OUTPUT_BYTES:].decode(errors="replace")

    def _assign(self, job_id: str, name: str) -> None:
        old = self.store.records.get(job_id)
        now = self._clock.now()
        record = transitions.assign(old.value if old else None, job_id, name, now)
        self.store.assignments.put(
            name, Assignment(instance_id=name, changed_at=now, job_id=job_id, epoch=record.epoch)
        )
        if old is None:
            self.store.records.create(job_id, record)
        else:
            self.store.records.replace(job_id, old, record)
        self.store.event_writer(job_id, record.epoch, "rehearsal").emit(
            EventKind.ASSIGNED, instance_type="local", zone="local", market="spot", instance=name
        )
