"""Starts jobs: acquires the lease, creates the run directory, fetches the code, and launches the training process."""

import errno
import hashlib
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from everspot_clouds.base import CloudError, Identity, Trouble
from everspot_clouds.image_registry import ImageMissing, PullStopped, RegistryError
from everspot_clouds.registry import provider
from everspot_core.capacity.instances import AGENT_FAULT
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.costs.ledger import FaultKind
from everspot_core.costs.pool_history import USUAL_HOURS
from everspot_core.counting import counted
from everspot_core.jobs.access import job_access
from everspot_core.jobs.image_reference import parse_registry_image
from everspot_core.jobs.job import JobSubmission, Precision
from everspot_core.jobs.lower_precision import trains_mixed
from everspot_core.jobs.records import EventKind, JobState, Reason, Seat
from everspot_core.jobs.shard_traffic import SHARD_TRAFFIC
from everspot_core.jobs.tracking import Spending, wandb_settings
from everspot_store import (
    CheckpointCorrupt,
    DigestMismatch,
    Lease,
    Store,
    StoreDenied,
    StoreError,
    StoreMissing,
    UnsafeArchive,
    remove_tree,
)
from pydantic import JsonValue

from everspot_train.agent import cdi
from everspot_train.agent.actions import JobKey
from everspot_train.agent.endings import Ending, agent_failure
from everspot_train.agent.fitness import CACHE, find_type
from everspot_train.agent.folder import FolderCheckpoints
from everspot_train.agent.hardware import Hardware
from everspot_train.agent.images import ImageFetcher
from everspot_train.agent.job_endpoint import JobEndpoint, JobGrant
from everspot_train.agent.logs import OUTPUT, LogShipper
from everspot_train.agent.notice_fit import FolderNoticeFit
from everspot_train.agent.outcome import long_detail
from everspot_train.agent.process import JobLaunch, ProgramLauncher
from everspot_train.agent.program import CHECKPOINTS, OUTPUTS, command_for, environment_for, prepared, too_many_threads
from everspot_train.agent.session import JobSession
from everspot_train.agent.spending import read_spending
from everspot_train.agent.stop_demand import stop_margin
from everspot_train.agent.temporary import MEMORY, TemporaryFolders
from everspot_train.agent.threads import Background
from everspot_train.agent.work_folders import FOLDER as WORK
from everspot_train.agent.work_folders import WORK_VARIABLE, WorkFolders
from everspot_train.device_edits import DeviceEdits
from everspot_train.prepare.errors import NotReady
from everspot_train.rundir import RunContext, RunDir, RunDirError

_DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
REMAINS_TIME = timedelta(seconds=30)
"""The longest time for uploading the output that earlier agents left, before the agent begins its work."""
MOST_RESTARTS = 5
"""After this many restarts during a job, the agent gives it back and takes no further jobs."""
CDI_VARIABLE = "EVERSPOT_CDI"
"""The folders of CDI specifications, separated by colons, in place of the usual ones."""
MOST_RETRIED = 100
"""The longest chain of retries. The last job of a chain may read the checkpoints of all its jobs."""
TOLD = 400  # characters of an error, which may contain a long path

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surroundings:
    """The agent's surroundings.

    Attributes:
        home: its state folder.
        environ: the environment that training processes inherit.
        launcher: the command that replaces torchrun, if any.
        separate_caches: whether jobs of different submitters have different caches, because a job can write to its
            cache.
    """

    home: Path
    environ: Mapping[str, str]
    launcher: str | None = None
    separate_caches: bool = False

    @property
    def runs(self) -> Path:
        """The folder of the run directories."""
        return self.home / "runs"

    @property
    def work(self) -> Path:
        """The folder of the working directories."""
        return Path(self.environ.get(WORK_VARIABLE) or self.home / WORK)

    @property
    def device_specifications(self) -> Sequence[Path]:
        """The folders of the specifications of the machine's GPUs."""
        folders = self.environ.get(CDI_VARIABLE)
        return [Path(folder) for folder in folders.split(":")] if folders else cdi.FOLDERS

    def cache(self, submission: JobSubmission) -> Path:
        """Return the folder with a job's datasets and packages, for later jobs."""
        cache = self.home / CACHE
        if not self.separate_caches:
            return cache
        # A job cannot choose its submitter's name. Without a name the job has its own cache.
        person = submission.submitted_by or f"job {submission.job_id}"
        return cache / hashlib.sha256(person.encode()).hexdigest()[:16]


class Starter:
    """Starts jobs. The thread that calls it must live as long as the training process that it starts: when it ends, the
    process gets its parent-death signal."""

    def __init__(
        self,
        *,
        store: Store,
        manifest: Manifest,
        identity: Identity,
        hardware: Hardware,
        processes: ProgramLauncher,
        surroundings: Surroundings,
        clock: Clock,
    ) -> None:
        self._endpoint: JobEndpoint | None = None
        self._store = store
        self._manifest = manifest
        self._identity = identity
        self._hardware = hardware
        self._processes = processes
        self._surroundings = surroundings
        self._clock = clock
        self._work = WorkFolders(surroundings.work)
        self._temporary = TemporaryFolders(surroundings.home)
        self._memory = TemporaryFolders(None, MEMORY)
        self._memory_folders: dict[str, tuple[JobSession, Path]] = {}
        self._images = ImageFetcher(provider(manifest.cloud).registry_login, clock)

    def clear_remains(self) -> None:
        """Kill what an earlier agent of this machine left running, and remove its run directories.

        Only after this the agent may adopt a job that this instance was already running.
        """
        killed = self._processes.clear()
        if killed:
            _log.warning("killed %d processes of an earlier agent", killed)
        self._ship_remains()
        shutil.rmtree(self._surroundings.runs, ignore_errors=True)
        self._work.clear()
        self._temporary.clear()
        self._memory.clear()
        self._surroundings.runs.mkdir(parents=True, exist_ok=True)

    def _ship_remains(self) -> None:
        """Upload the output that earlier agents did not upload, because there is no other copy."""

        def ship() -> None:
            for folder in sorted(self._surroundings.runs.iterdir()):
                try:
                    context = RunDir(folder).read(RunContext)
                    if context is not None:
                        job = JobKey(context.job_id, context.epoch)
                        LogShipper.resumed(self._store, job, folder, self._clock).ship_rest()
                except (RunDirError, OSError, StoreError) as error:
                    _log.warning("the rest of the output in %s is lost: %s", folder.name, error)

        if self._surroundings.runs.is_dir():
            end = self._clock.monotonic() + REMAINS_TIME
            Background(ship).wait(lambda: self._clock.monotonic() >= end)

    @property
    def moved_at(self) -> timedelta:
        """The monotonic time of the last piece that a transfer has moved."""
        return max(self._store.data.moved_at, self._images.moved_at)

    def take(self, job: JobKey) -> JobSession | None:
        """Acquire the job's lease. Return None if the job is not, or no longer, this instance's. Raises
        `StoreError`."""
        ttl, owner = self._manifest.limits.lease_ttl, self._identity.instance_id
        zero = self._starts_over(job)
        lease = self._store.acquire(job.job_id, job.epoch, owner, ttl=ttl, adopt=True, from_zero=zero)
        if lease is None:
            return None
        try:
            return self._session(job, lease)
        except StoreError:
            raise  # the next try adopts it
        except Exception as error:
            _log.exception("job %s, epoch %d could not be taken up", *job)
            ending = agent_failure(owner, error)
            lease.release(ending.reason, detail=long_detail(ending, ""), unstarted=True)
            return None

    def _session(self, job: JobKey, lease: Lease) -> JobSession:
        submission = self._store.jobs.get(job.job_id)
        if submission is None:
            raise StoreError(f"job {job.job_id} has a lease and no submission")
        # Processes of an earlier agent that this one did not find use another run directory, and see no renewals.
        again = f"-{lease.incarnation}" if lease.incarnation > 1 else ""
        run_dir = self._surroundings.runs / f"{job.job_id}-{job.epoch:06d}{again}"
        resolved = self._store.resolve_inputs(submission.value)
        return JobSession(self._store, self._clock, lease, resolved, run_dir, self._manifest.limits)

    def start(
        self,
        session: JobSession,
        seat: Seat | None = None,
        hours_between_interruptions: float | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Launch the job's program, in its seat if it shares the machine.

        A failure becomes the session's ending: an error of the user if the code caused it, a preemption if the store or
        this machine did. A failure of the machine counts towards a limit and has a back-off, because code that no
        machine can unpack (a path that is too long, more than a disk) causes the same failure.

        Args:
            hours_between_interruptions: of an instance of this machine's pool, market time; None: the usual value.
            is_stopped: whether the job has to stop. It is asked while its image is fetched, which may take long.
        """
        try:
            session.unstarted = _too_often(session) or self._restarted_too_often(session)
            if session.unstarted is None:
                session.work = work = self._work.claim(session.key.job_id)
                context = self._context(session, work.path, hours_between_interruptions, seat)
                session.prepare(context)
                self._fetch_image(session, is_stopped)
                self._launch(session, context, work.path, seat)
        except (FileNotFoundError, DigestMismatch, ImageMissing) as error:
            session.unstarted = _could_not_start(error, Reason.MISSING)
        except PullStopped:
            message = "it had to stop while its image was fetched"
            session.unstarted = Ending(Reason.SHUTDOWN, None, None, None, message)
        except (UnsafeArchive, NotReady, ValueError) as error:
            # A ValueError: an environment that no process can have.
            session.unstarted = _could_not_start(error, Reason.ERROR)
        except cdi.CdiError as error:
            message = f"{self._identity.instance_id} cannot give a container its GPUs: {str(error)[:TOLD]}"
            session.unstarted = Ending(Reason.MACHINE, None, None, None, message, unstarted=True)
        except CheckpointCorrupt as error:
            message = f"none of the job's checkpoints is whole: {error}"
            session.unstarted = Ending(Reason.DAMAGED, None, None, None, message, unstarted=True)
        except (StoreDenied, StoreMissing) as error:
            message = f"the store refuses what the job needs: {error}"
            session.unstarted = Ending(Reason.DENIED, None, None, None, message, unstarted=True)
        except StoreError as error:
            session.unstarted = Ending(Reason.SHUTDOWN, None, None, None, str(error))
        except CloudError as error:
            # A failed call may succeed later or on another machine. A refusal is the same everywhere.
            passing = error.trouble in (Trouble.TRANSIENT, Trouble.THROTTLED)
            subject = "image" if isinstance(error, RegistryError) else "credentials"
            message = f"the job's {subject} cannot be had: {error}{f': {error.fix}' if error.fix else ''}"
            reason = Reason.SHUTDOWN if passing else Reason.DENIED
            session.unstarted = Ending(reason, None, None, None, message, unstarted=not passing)
        except OSError as error:
            message = f"{self._identity.instance_id} could not start the job: {str(error)[:TOLD]}"
            reason = Reason.MACHINE if error.errno in _DISK_TROUBLE else Reason.SHUTDOWN
            machines = Ending(reason, None, None, None, message, unstarted=True)
            users = error.errno == errno.E2BIG
            session.unstarted = _could_not_start(error, Reason.ERROR) if users else machines
        except Exception as error:  # of the agent or its machine: it must not end the agent
            _log.exception("job %s, epoch %d could not be started", *session.key)
            session.unstarted = agent_failure(self._identity.instance_id, error)
        if session.unstarted is not None:
            _log.warning("job %s, epoch %d: %s", *session.key, session.unstarted.message)

    def decline(self, job: JobKey, reason: Reason) -> bool:
        """Release a job without starting it. Return False if it was not assigned to this instance. Raises
        `StoreError`."""
        session = self.take(job)
        return session is not None and session.conclude(Ending(reason, None, None, None), None)

    def is_early(self, job: JobKey) -> bool:
        """Return whether the job's record has not reached this epoch yet. Raises `StoreError`.

        An assignment is two writes, first the instance's document and then the record. Until the second one the job
        cannot be acquired, but will be.
        """
        record = self._store.records.get(job.job_id)
        return record is None or record.value.epoch < job.epoch

    def _grant(self, session: JobSession) -> JobGrant | None:
        """Return the credentials and secrets for the job's processes, in place of the instance's credentials; None if
        the cloud cannot limit credentials.

        Raises:
            CloudError: if the cloud issues no credentials.
            StoreError: if the store fails, or the job has a later owner.
            ValueError: if the job names more objects than credentials can be limited to.
        """
        job, submission, clouds = session.key, session.submission, provider(self._manifest.cloud)
        limit_credentials = clouds.job_credentials(self._manifest, self._clock)
        if limit_credentials is None:
            return None
        # Stores answer 403 in place of 404 to callers that may not list the bucket, so the head is created first.
        head = self._store.checkpoints(
            job.job_id, job.epoch, guard=session.owns, incarnation=session.incarnation
        ).fence()
        credentials = limit_credentials(job_access(submission, job.epoch, head, self._retried(submission)))
        return JobGrant(credentials, submission.spec.secrets, clouds.secrets(self._manifest.region))

    def _retried(self, submission: JobSubmission) -> list[str]:
        """Return the earlier jobs of this job's chain of retries, the last one first, from the submissions, which jobs
        cannot write. Raises `StoreError`."""
        retried: list[str] = []
        current: JobSubmission | None = submission
        while current is not None and current.retry_of is not None and len(retried) < MOST_RETRIED:
            retried.append(current.retry_of)
            stored = self._store.jobs.get(current.retry_of)
            dossier = self._store.archive.get(current.retry_of) if stored is None else None
            current = stored.value if stored is not None else dossier.submission if dossier is not None else None
        return retried

    def _fetch_image(self, session: JobSession, is_stopped: Callable[[], bool]) -> None:
        """Fetch the job's image, if it is in a registry. Raises what `ImageFetcher.fetch` raises."""
        image = parse_registry_image(session.submission.spec.image)
        if image is not None:
            session.note(f"image {image.name}")
            cache = self._surroundings.cache(session.submission)
            session.image = self._images.fetch(image, cache, is_stopped)

    def _launch(self, session: JobSession, context: RunContext, cwd: Path, seat: Seat | None) -> None:
        spec = session.submission.spec
        folder = session.run_dir.path
        if session.submission.code_digest is not None:
            self._store.fetch_code(session.submission, cwd)
        command = prepared(session.submission, command_for(spec, self._surroundings.launcher))
        gpus = seat.gpus if seat is not None else None
        session.temporary = temporary = self._temporary.make()
        vcpus = self._hardware.vcpus
        environment = environment_for(spec, self._surroundings.environ, vcpus, folder, cwd, temporary, gpus)
        environment = _wandb_environment(session.submission, cwd / OUTPUTS) | environment
        if (grant := self._grant(session)) is not None:
            environment = self._serve(session, grant, environment)
        session.artifacts.outputs = cwd / OUTPUTS
        if spec.entrypoint is not None:
            session.artifacts.put_back(self._folder(session, cwd / CHECKPOINTS))
        zero = session.record.from_zero
        for warning in (too_many_threads(spec, self._hardware.vcpus), _describe_left_out(context.devices)):
            if warning is not None:
                with (folder / OUTPUT).open("a") as output:
                    output.write(f"everspot: {warning}\n")
        if session.key.epoch > 1 or session.incarnation > 1:
            session.note(_attempt_words(session, self._identity.instance_id))
        session.watch_steps(cwd)
        cache = self._surroundings.cache(session.submission)
        cache.mkdir(parents=True, exist_ok=True)
        folders = [temporary, cache, *([Path(context.memory_dir)] if context.memory_dir is not None else [])]
        launch = JobLaunch(
            command, folder, cwd, environment, seat, folders, metadata=grant is None, container=spec.image is not None
        )
        process = self._processes.launch(launch)
        session.watch_machine(
            process,
            vcpus=seat.vcpus if seat is not None else vcpus,
            gpus=range(spec.resources.gpus) if gpus is None else gpus,
        )
        before = session.record.progress
        again: dict[str, JsonValue] = {"again": session.incarnation, "step_before": before.step}
        if before.shard_traffic is not None:
            again[SHARD_TRAFFIC] = before.shard_traffic.model_dump(mode="json")
        session.started(process, **({"from_zero": zero} if zero else {}), **(again if session.incarnation > 1 else {}))

    def _serve(self, session: JobSession, grant: JobGrant, environment: Mapping[str, str]) -> dict[str, str]:
        """Serve a grant until the session is cleaned up. Return the job's environment with it."""
        grant.renew()
        if self._endpoint is None:
            self._endpoint = JobEndpoint()
        self._endpoint.serve(grant)
        session.grant = grant
        return grant.environment(environment, self._endpoint.address, session.run_dir.path)

    def _restarted_too_often(self, session: JobSession) -> Ending | None:
        """Return the ending of a job during which the agent was restarted too often; otherwise None.

        Either the job or the machine may be the cause. So the job is tried elsewhere, and this machine takes no further
        jobs.
        """
        restarts = session.incarnation - 1
        if restarts < MOST_RESTARTS:
            return None
        words = f"{AGENT_FAULT}of {self._identity.instance_id} was restarted {restarts} times while it had the job"
        return Ending(Reason.AGENT, None, None, None, words, unstarted=True, fault=FaultKind.AGENT)

    def _folder(self, session: JobSession, folder: Path) -> FolderCheckpoints:
        policy, scratch = session.submission.spec.checkpoint, session.run_dir.path / "scratch"
        job_id, epoch = session.key
        owner = session.incarnation
        checkpoints = self._store.checkpoints(job_id, epoch, guard=session.owns, incarnation=owner)
        fit = FolderNoticeFit(*self._notice(), session.emit, self._clock)
        return FolderCheckpoints(
            checkpoints,
            folder,
            scratch,
            policy.interval,
            policy.keep,
            session.emit,
            self._clock,
            fit,
            self._processes.open_files(session.run_dir.path),
            session.saved_state,
            session.write_evaluations,
        )

    def _notice(self) -> tuple[timedelta, timedelta]:
        """Return the length of this instance's notice, market time, and the part of it in which nothing is saved, real
        time."""
        notice, limits = provider(self._manifest.cloud).notice(self._manifest), self._manifest.limits
        return notice, limits.notice_poll + stop_margin(limits, self._clock.to_real(notice))

    def _starts_over(self, job: JobKey) -> bool:
        """Return whether the job has run before and has no durable checkpoint. Raises `StoreError`."""
        try:
            return self._has_no_checkpoint(job)
        except StoreError:
            raise
        except Exception:  # the start raises it again, and ends the attempt
            _log.exception("job %s, epoch %d: its checkpoints could not be read", *job)
            return False

    def _has_no_checkpoint(self, job: JobKey) -> bool:
        record = self._store.records.get(job.job_id)
        if record is None or record.value.epoch != job.epoch or record.value.state is not JobState.ASSIGNED:
            return False
        last = record.value.last_reason
        if last is None or not last.preemption or record.value.unstarted:
            return False
        head = self._store.heads.get(job.job_id)
        return head is None or not head.value.checkpoints

    def _context(
        self, session: JobSession, cwd: Path, hours_between_interruptions: float | None, seat: Seat | None
    ) -> RunContext:
        folder = session.run_dir.path
        notice, notice_reserve = self._notice()
        return RunContext(
            job_id=session.key.job_id,
            epoch=session.key.epoch,
            incarnation=session.incarnation,
            instance_id=self._identity.instance_id,
            control_url=self._manifest.control_url,
            data_url=self._manifest.data_url,
            submission=session.submission,
            code_dir=str(cwd) if session.submission.code_digest is not None else None,
            cloud=self._manifest.cloud,
            region=self._manifest.region,
            cache_dir=str(self._surroundings.cache(session.submission)),
            scratch_dir=str(folder / "scratch"),
            memory_dir=self._memory_folder(session),
            hours_between_interruptions=hours_between_interruptions or USUAL_HOURS[self._identity.market],
            notice=notice,
            notice_reserve=notice_reserve,
            mixed=self._lowers_precision(session),
            interruptions=session.record.preemptions,
            spending=self._spending(session),
            devices=self._devices(session, seat),
        )

    def _devices(self, session: JobSession, seat: Seat | None) -> DeviceEdits | None:
        """Return what gives a container the job's own GPUs. Raises `CdiError`."""
        spec = session.submission.spec
        if spec.image is None or not spec.resources.gpus:
            return None
        gpus = seat.gpus if seat is not None else range(spec.resources.gpus)
        return cdi.read_edits(self._surroundings.device_specifications, gpus)

    def _spending(self, session: JobSession) -> Spending | None:
        submission, tracking = session.submission, session.submission.spec.tracking
        if tracking is None or tracking.mlflow is None:
            return None
        return read_spending(self._store, self._manifest, self._identity, submission, session.key.epoch)

    def close(self) -> None:
        """Remove the memory folders of the jobs that have ended here, and stop serving."""
        if self._endpoint is not None:
            self._endpoint.close()
        for _, folder in self._memory_folders.values():
            remove_tree(folder)

    def _memory_folder(self, session: JobSession) -> str | None:
        """Return a folder in memory for the job; None without such a file system.

        If the last job that ended here was the same job, this is the folder of that attempt, whose checkpoint data need
        not be fetched again. The folders of all other ended jobs are removed.
        """
        job_id, folder = session.key.job_id, None
        for other_id, (other, other_folder) in list(self._memory_folders.items()):
            if not other.cleaned:
                continue
            del self._memory_folders[other_id]
            if other_id == job_id and other_folder.is_dir():
                folder = other_folder
            else:
                remove_tree(other_folder)
        try:
            folder = folder or self._memory.make()
        except OSError as error:
            _log.info("no folder in memory (%s): checkpoints wait on disk for their upload", error)
            return None
        self._memory_folders[job_id] = session, folder
        return str(folder)

    def _lowers_precision(self, session: JobSession) -> bool:
        """Return whether the job trains in mixed precision here. Record the change when it happens."""
        spec, progress = session.submission.spec, session.record.progress
        kind = find_type(self._manifest, self._identity.instance_type)
        gpu_memory = kind.gpu_memory_gib if kind is not None else None
        lowered = trains_mixed(spec, progress, gpu_memory)
        if lowered and not progress.mixed:
            session.emit(
                EventKind.PRECISION_CHANGED,
                before=Precision.FP32.value,
                after="mixed",
                used_gib=progress.gpu_memory_gib,
                gpu_memory_gib=gpu_memory,
            )
        return lowered


def _wandb_environment(submission: JobSubmission, outputs: Path) -> dict[str, str]:
    """Return the variables of the program's `wandb`, with its files below the outputs; empty without a project. The
    job's own variables take precedence."""
    spec, home = submission.spec, submission.visit
    job_id = home.job_id if home is not None else submission.job_id
    settings = wandb_settings(spec.tracking, job_id, submission.submitted_at, spec.secrets)
    return settings | {"WANDB_DIR": str(outputs)} if settings else {}


def _describe_left_out(devices: DeviceEdits | None) -> str | None:
    if devices is None or not devices.left_out:
        return None
    return f"unknown entries of this machine's CDI specification are not applied: {'; '.join(devices.left_out)}"


def _attempt_words(session: JobSession, instance_id: str) -> str:
    """Return the first line of an attempt in the log."""
    times = session.record.from_zero
    if session.artifacts.restored:
        state = "its folder checkpoints was put back"
    elif times and not session.record.progress.step and not session.record.progress.durable_step:
        state = f"restarted from zero ({times}): no checkpoint was kept"
    else:
        state = "it resumes from its last checkpoint, if it has one"
    again = f", the agent was restarted ({session.incarnation - 1})" if session.incarnation > 1 else ""
    return f"---- attempt {session.key.epoch} on {instance_id}{again}: {state} ----"


def _could_not_start(error: Exception, reason: Reason) -> Ending:
    return Ending(reason, None, None, None, f"the job could not be started: {error}")


def _too_often(session: JobSession) -> Ending | None:
    """Return the ending of a job without checkpoints that was started over more often than allowed; otherwise None."""
    times, most = session.record.from_zero, session.submission.spec.retries.from_zero
    if times <= most:
        return None
    message = (
        f"it had to begin from zero after an interruption ({counted(times, 'time')}; retries.from_zero allows {most}): "
        f"write checkpoints into the folder {CHECKPOINTS}, or use the trainer library"
    )
    return Ending(Reason.ERROR, None, None, None, message, hopeless=True)
