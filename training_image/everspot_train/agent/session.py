"""One attempt of a job: its lease, its run directory, its process, and its events."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Limits
from everspot_core.costs.ledger import FaultKind
from everspot_core.documents import format_duration
from everspot_core.jobs.early_stop import EarlyStop
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import EventKind, JobRecord, Progress, Reason
from everspot_core.jobs.shard_traffic import ShardTraffic, sum_traffic
from everspot_core.jobs.utilization_limit import GpuUseWatch
from everspot_store import Lease, Store, StoreError, StoreUnavailable, TreeInUse, remove_tree
from everspot_store.outputs import DENIED, NO_BUCKET
from pydantic import JsonValue

from everspot_train.agent import memory
from everspot_train.agent.actions import JobKey, StopDemand
from everspot_train.agent.endings import Ending, agent_failure
from everspot_train.agent.failures import Failure, by_signal, describe_exit, read_failure
from everspot_train.agent.fitness import is_full
from everspot_train.agent.job_artifacts import RELEASE_TIME, JobArtifacts
from everspot_train.agent.job_endpoint import JobGrant
from everspot_train.agent.life import SignsOfLife
from everspot_train.agent.logs import OUTPUT, LogShipper
from everspot_train.agent.mailbox import Mailbox
from everspot_train.agent.outbox import Outbox
from everspot_train.agent.outcome import long_detail, write_outcome
from everspot_train.agent.process import TrainingProcess
from everspot_train.agent.profiles import ProfileRelay
from everspot_train.agent.program import ENDED
from everspot_train.agent.progress import report_progress
from everspot_train.agent.start_events import StartEvents
from everspot_train.agent.steps.event_shipper import EventFileShipper
from everspot_train.agent.steps.recorder import StepRecorder
from everspot_train.agent.steps.stop_watch import StopWatch
from everspot_train.agent.threads import Background, DueTimer
from everspot_train.agent.utilization.sampler import UtilizationSampler
from everspot_train.agent.work_folders import WorkFolder
from everspot_train.agent.world import LeaseView
from everspot_train.rundir import RunContext, RunDir, SavedState, Status, append_regular
from everspot_train.shard_cache.traffic import DATA_FOLDER, STREAMED, TrafficFile
from everspot_train.sound_end import count_ended

_log = logging.getLogger(__name__)

TAIL_BYTES = 8000
OUTPUT_TIME = timedelta(minutes=30)
"""The upload of the log and the outputs of a job that has ended stops when nothing has arrived for this time."""
CANCEL_TIME = timedelta(seconds=30)
"""The longest time for the same upload of a job that was cancelled."""
MOST_NAMES = 5
"""The most missing outputs that a job's record names."""
RENEWED_AFTER = 0.6
"""The fraction of the lease's length after which it is renewed."""
RENEW_AGAIN = timedelta(seconds=5)
"""The wait after a failed renewal. No object is rewritten more often."""


def renewal_interval(limits: Limits) -> timedelta:
    """Return the time between two renewals. Each renewal costs a request, and the remaining lease allows further
    tries."""
    return max(limits.beat_every, limits.lease_ttl * RENEWED_AFTER)


class JobSession:
    """One attempt. Only its own thread starts, stops and ends it. Helper threads only call `renew_if_due`, `ship` and
    `keep_folder`, which do nothing after the end of the session.

    `unstarted`: the ending, if the training process could not be started at all. `temporary` and `work`: the job's
    temporary directory and its working directory, once they exist. `grant`: the credentials and secrets that its
    processes get in place of the instance's. `image`: the layout of the job's image, if it was fetched from a registry;
    it stays until the session is cleaned up. `cleaned`: whether the session has ended and its folders are removed.
    """

    def __init__(
        self, store: Store, clock: Clock, lease: Lease, submission: JobSubmission, run_dir: Path, limits: Limits
    ) -> None:
        instance_id = lease.owner
        self.key = JobKey(lease.job_id, lease.epoch)
        self.submission = submission
        self.run_dir = RunDir(run_dir)
        self._mailbox = Mailbox(self.run_dir, f"job {lease.job_id}, epoch {lease.epoch}")
        self.process: TrainingProcess | None = None
        self.unstarted: Ending | None = None
        self.temporary: Path | None = None
        self.work: WorkFolder | None = None
        self.grant: JobGrant | None = None
        self.image: TreeInUse | None = None
        self.cleaned = False
        self.artifacts = JobArtifacts(store, self.key, clock, self.emit, limits.orphan_limit)
        self._store = store
        self._clock = clock
        self._lease = lease
        self._valid_until = lease.valid_until
        self._lost = False
        self._events = Outbox(store.event_writer(lease.job_id, lease.epoch, instance_id, instance_id))
        self._logs = LogShipper(store, self.key, run_dir, clock)
        self._profiles = ProfileRelay(store, self.key, self._mailbox, clock, self.note)
        streamed = self.run_dir.path / DATA_FOLDER / STREAMED
        self._traffic_files = [TrafficFile(streamed, name) for name in submission.spec.stream]
        rule = submission.spec.stop
        self._stop_watch = StopWatch(store, self.key, rule) if rule is not None else None
        self._steps = StepRecorder(store, self.key, run_dir / OUTPUT, clock, self._stop_watch)
        self._event_files: EventFileShipper | None = None
        self._steps_failed = False
        self._ship_lock = threading.Lock()
        self._lease_lock = threading.Lock()
        self._traffic_lock = threading.Lock()
        self._renewal = DueTimer(renewal_interval(limits), clock)
        self._renewal.due()  # acquiring the lease was the first renewal
        self._concluding = False
        self._releasing = False
        self._ending_told = False
        self._decided: Ending | None = None
        self._uploads: Background | None = None
        self._uploads_end = timedelta()
        self._missing_outputs: dict[str, str] | None = None  # the reasons by path; None until their upload has ended
        self._over = False
        self._crash_noted = False
        self._failure: Failure | None = None
        self._beginning = StartEvents(submission, self.run_dir, self._events, clock, self.status)
        self._stopping = False
        self._stalled: tuple[int | None, timedelta] | None = None
        self._unkept_seconds: float | None = None
        self._life: SignsOfLife | None = None
        self._utilization: UtilizationSampler | None = None
        self._low_use_due: timedelta | None = None

    @property
    def record(self) -> JobRecord:
        """The job's record as this owner last wrote or read it."""
        return self._lease.record

    @property
    def incarnation(self) -> int:
        """The number of agents that have held the lease under this epoch: more than 1 after a restart."""
        return self._lease.incarnation

    def owns(self) -> bool:
        """Return whether this instance may still write as the owner.

        Raises:
            StoreUnavailable: while the lease is suspended. It may be renewed.
        """
        if self._over or self._releasing:
            return False
        view = self.lease_view()
        if view is LeaseView.SUSPENDED:
            raise StoreUnavailable("the lease is over and not renewed yet")
        return view is LeaseView.VALID

    def prepare(self, context: RunContext) -> None:
        """Lay out a fresh run directory."""
        self._mailbox.lay_out(context, self._valid_until)

    @property
    def lease_until(self) -> timedelta:
        """The monotonic time at which the lease ends without a renewal, or has ended."""
        return self._valid_until

    def lease_view(self) -> LeaseView:
        """Return the state of the lease by this machine's clock. A lease that ends during its release counts as lost:
        it is either released, or expires."""
        if self._lost:
            return LeaseView.LOST
        if self._clock.monotonic() < self._valid_until:
            return LeaseView.VALID
        return LeaseView.LOST if self._releasing else LeaseView.SUSPENDED

    def status(self) -> Status | None:
        """Return the trainer's last report; None before the first."""
        return self._mailbox.status()

    def saved_state(self) -> SavedState | None:
        """Return the newest checkpoint that a program on a framework's integration has saved."""
        return self._mailbox.saved_state()

    def early_stop(self) -> EarlyStop | None:
        """Return why the job's `stop` ends the program; None while it continues."""
        if self._stop_watch is None:
            return None
        report = self._mailbox.stop_report()
        return report.early_stop if report is not None else self._stop_watch.early_stop

    def has_to_stop(self) -> bool:
        """Return whether the agent has to end the program because of the job's `stop`."""
        if self._stop_watch is None or self._stop_watch.early_stop is None:
            return False
        return self._silent() and self._mailbox.stop_report() is None

    def exit_code(self) -> int | None:
        """Return the exit code of the training process; None while it runs.

        It is also 0 if a signal killed a process after the program had ended without an error in all of them: a crash
        while Python shuts down, for example in threads of C++ libraries, is no failure of the program.
        """
        code = self.process.exit_code() if self.process is not None else None
        if code is None or not by_signal(code):
            return code
        if count_ended(self.run_dir.path / ENDED) < self.submission.spec.process_count:
            return code
        if not self._crash_noted:
            self._crash_noted = True
            self.note(f"the process {describe_exit(code)} while Python shut down: the program had ended without error")
        return 0

    def renew_if_due(self) -> bool:
        """Renew the lease with the present progress, and tell the trainer until when the lease holds. Return whether it
        was renewed.

        Raises:
            StoreError: if the store did not answer. The lease holds until its end.
        """
        with self._lease_lock:
            if self._over or self._releasing or self.lease_view() is LeaseView.LOST or not self._renewal.due():
                return False
            reclaimed = self._lease.reclaimed
            try:
                renewed = self._lease.renew(self._progress())
            except StoreError:
                self._renewal.again_in(RENEW_AGAIN)
                raise
            self._lost = not renewed
            self._valid_until = self._lease.valid_until if renewed else timedelta()
            self._mailbox.tell_lease(self._valid_until, lost=self._lost)
            if self._lease.reclaimed != reclaimed:
                self._tell_reclaimed()
            return renewed

    def watch_steps(self, folder: Path) -> None:
        """Look for the steps of a program that does not use the trainer library in TensorBoard's files below `folder`,
        too, and copy these files to the store. Call it before the program begins."""
        self._steps.watch(folder)
        self._event_files = EventFileShipper(self._store, self.key, folder, self._clock, self.note)

    def started(self, process: TrainingProcess, **data: JsonValue) -> None:
        """Record that the program was launched."""
        self.process = process
        self._life = SignsOfLife(self._traces, process.cpu_seconds, self._clock)
        self.artifacts.launched()
        self._beginning.launched(**data)

    def watch_machine(self, process: TrainingProcess, *, vcpus: int, gpus: Sequence[int]) -> None:
        """Measure the program's utilization from now on. `vcpus`: its processors. `gpus`: its GPUs by number."""
        limits = self.submission.spec.limits
        watch = None
        if limits is not None:
            watch = GpuUseWatch(limits.gpu_utilization_below / 100, self._clock.to_real(limits.span))
        self._utilization = UtilizationSampler(
            self._store, self.key, self._clock, counters=process.counters, status=self.status, vcpus=vcpus, gpus=gpus,
            limit=watch, is_limited=self._beginning.is_program_started,
        )  # fmt: skip

    def measure(self) -> None:
        """Sample the program's utilization, if it is due. A broken GPU may block this for ever."""
        if self._utilization is not None and not (self._over or self._concluding):
            self._utilization.sample()

    def failure(self) -> Failure:
        """Return the failure of a program that has ended. It is read once, because the files are removed later."""
        if self._failure is None:
            folder = self.run_dir.path
            sound = self.exit_code() == 0 and self._crash_noted
            failure = Failure() if sound else read_failure(folder, self._tail(), disk_full=is_full(folder))
            limit_hit = self.process.limit_hit() if self.process is not None else None
            failure = replace(failure, limit_hit=limit_hit, gpus=self.submission.spec.resources.gpus)
            if failure.fault() is FaultKind.GPUS and self._utilization is not None:
                failure = replace(failure, is_gpu_confirmed=self._utilization.confirm_gpu_fault())
            self._failure = failure
        return self._failure

    def alive_at(self) -> timedelta | None:
        """The time of the program's last sign of life; None before its launch."""
        return self._life.look() if self._life is not None else None

    def _traces(self) -> tuple[int, Status | None]:
        """Return the size of the output, and the last report."""
        try:
            size = (self.run_dir.path / OUTPUT).stat().st_size
        except OSError:
            size = 0
        return size, self.status()

    def stalled(self, step: int | None, seconds: float, *, restart: bool) -> None:
        """Record that the program has made no step for `seconds` after `step`."""
        self._stalled = (step, self._clock.monotonic() - timedelta(seconds=seconds))
        self.emit(EventKind.STALLED, step=step, seconds=round(seconds, 1), restarted=restart)

    def keep_folder(self) -> None:
        """Upload the folder of a program that does not use the trainer library, if it is due, and a finished profile.
        Raises `StoreError`."""
        if not (self._over or self._concluding) and self._silent():
            self.artifacts.keep_if_due(urgent=self._stopping)
        if not (self._over or self._concluding or self._stopping) and self.lease_view() is LeaseView.VALID:
            self._profiles.publish(self.artifacts.outputs)

    def write_evaluations(self) -> None:
        """Write the metrics of a program with a `stop` before its folder is published, because an attempt that resumes
        from there needs the evaluations up to that point. Raises `StoreError`."""
        if self._stop_watch is not None:
            with self._ship_lock:
                self._read_steps()
                self._steps.write(last=True)

    def emit(self, kind: EventKind, **data: JsonValue) -> None:
        """Put an event into the outbox. The next `ship`, or the ending, writes it, in order."""
        seconds = data.get("seconds")
        if kind is EventKind.NOT_CHECKPOINTED and isinstance(seconds, int | float):
            self._unkept_seconds = float(seconds)
            self.note(f"warning: nothing was kept for {seconds:.0f} s: {data.get('reason')}")
        elif kind is EventKind.CHECKPOINTED:
            self._unkept_seconds = None
        self._events.emit(kind, **data)

    def note(self, words: str) -> None:
        """Write a line of the agent into the job's log."""
        with suppress(OSError):
            append_regular(self.run_dir.path / OUTPUT, f"everspot: {words}\n".encode())

    def ship(self) -> None:
        """Write the events in the outbox, then logs if they are due. Raises `StoreError`."""
        with self._ship_lock:
            if self._over or self._concluding:
                return
            self._read_steps()
            if self.lease_view() is not LeaseView.VALID:
                return
            self._beginning.tell_if_silent(self._lease.record.progress, restored=self.artifacts.restored)
            self._report_low_use()
            self._events.write()
            self._logs.ship_if_due()
            if self.process is not None:  # an order before the run directory exists would be lost
                self._profiles.look(is_followed=self._logs.is_followed, reports_steps=self._steps.step is not None)
            self._steps.write()
            if self._utilization is not None:
                self._utilization.write()
            if self._event_files is not None:
                self._event_files.ship()
            if self._stop_watch is not None:
                self._stop_watch.look(self._steps.total_steps)

    def _report_low_use(self) -> None:
        """Write an event and a line of the log when the GPUs compute less than the job's limit, and again after the
        limit's span while they do."""
        limits = self.submission.spec.limits
        share = self._utilization.low_gpu_share if self._utilization is not None else None
        now = self._clock.monotonic()
        if limits is None or share is None or (self._low_use_due is not None and now < self._low_use_due):
            return
        self._low_use_due = now + self._clock.to_real(limits.span)
        limit, span = limits.gpu_utilization_below, format_duration(limits.span)
        self.note(f"warning: its GPUs computed for {share:.0%} of the last {span}, and its limit is {limit:g} %")
        self.emit(
            EventKind.UNDERUSED,
            share=round(share, 4),
            limit=limit,
            span_seconds=limits.span.total_seconds(),
            then=limits.then.value,
        )

    def _read_steps(self, *, last: bool = False) -> None:
        """Read the steps that a program without the trainer library has reported. After an unexpected error in the
        program's output, which is logged, no further steps are read, so that events and logs still are written."""
        if self.process is None or self._steps_failed or not self._silent():
            return
        try:
            self._steps.look(last=last)
        except Exception:
            _log.exception("job %s, epoch %d: its steps are not read any further", *self.key)
            self._steps_failed = True
        for sentence in self._steps.take_warnings():
            self.note(f"warning: {sentence}")
        first_step = self._steps.first_step
        if first_step is not None:
            self._beginning.write_reported(first_step, restored=self.artifacts.restored)

    def ask_to_stop(self, stop: StopDemand) -> None:
        """Request that the trainer checkpoints and ends."""
        self._stopping = True
        self.artifacts.prefer_publications()
        self._mailbox.ask_to_stop(stop)

    def ask_for_checkpoint(self, seq: int) -> None:
        """Request that the trainer checkpoints and continues."""
        self._mailbox.ask_for_checkpoint(seq)

    def conclude(
        self, ending: Ending, stop: StopDemand | None, find_stop: Callable[[], StopDemand | None] = lambda: None
    ) -> bool:
        """Upload what is left, write the ending and release the lease. Return False if the lease was lost; then nothing
        is written.

        The lease is renewed until its release begins, because the uploads may take longer than it holds. The ending is
        written before the release, so that a reader of the job's new state finds its whole history. A failure to write
        events does not delay the release.

        A job has only succeeded once its outputs are uploaded. If the machine is taken before, the job is interrupted:
        its next attempt resumes from the last checkpoint and repeats the end of the program. Every other ending is
        written as soon as a deadline is known, and the uploads continue after the release.

        Args:
            ending: of the program.
            stop: the demand to stop that the program got.
            find_stop: returns the demand to stop at the moment, because a notice may arrive during the uploads.

        Raises:
            StoreError: if the last checkpoint could not be stored, or the lease could not be released. Call again while
                the lease holds.
        """
        if self.lease_view() is LeaseView.LOST:
            return False
        if self.lease_view() is LeaseView.SUSPENDED:
            raise StoreUnavailable("the lease is over and not renewed yet")
        self._concluding = True
        measured = self._utilization

        def deadline() -> timedelta | None:
            demands = (stop, find_stop())
            return min((demand.deadline for demand in demands if demand and demand.deadline is not None), default=None)

        is_folder_kept = True
        try:
            is_folder_kept = self._keep_last(ending, deadline)
        except StoreUnavailable:
            raise
        except Exception:  # after any error the lease must be released
            _log.exception("job %s, epoch %d: last files not written", *self.key)
        with self._ship_lock:
            self._quietly("steps", lambda: self._read_steps(last=True))
            self._note_unreported(ending)
            uploads = self._begin_uploads(ending, deadline)
            if self._decided is None:
                self._await_uploads(uploads, ending, deadline)
                self._decided = self._decide_ending(ending, stop, find_stop, is_folder_kept=is_folder_kept)
            ending = self._decided
            self._quietly("ending", lambda: self._write_ending(ending, stop))
            self._quietly("events", self._events.write)
            record = self._release(ending)
            if record is None:
                return False
            _log.info("job %s, epoch %d: %s, now %s", *self.key, ending.reason.value, record.state.value)
            self._quietly("events", self._events.write)
            self._quietly("metrics", lambda: self._steps.write(last=True))
            if measured is not None:
                self._quietly("utilization", lambda: measured.write(last=True))
            if not uploads.wait(lambda: (end := deadline()) is None or self._clock.monotonic() >= end):
                self.emit(EventKind.SKIPPED, folder="outputs", reason="the upload had not ended when no time was left")
            self._quietly("events", self._events.write)
        return True

    def _begin_uploads(self, ending: Ending, deadline: Callable[[], timedelta | None]) -> Background:
        """Upload what is left of the log, the profile, the TensorBoard files and the outputs in a thread. A second call
        returns the first call's thread."""
        is_cancelled = ending.reason is Reason.CANCEL

        def has_time() -> bool:
            end = deadline()
            # The rest of the time is for the event about the missing outputs.
            last = self._uploads_end if end is None else min(self._uploads_end, end - RELEASE_TIME / 2)
            return self._clock.monotonic() < last

        def note_progress() -> None:
            if not is_cancelled:
                self._uploads_end = self._clock.monotonic() + OUTPUT_TIME

        def keep_outputs() -> None:
            note_progress()
            self._missing_outputs = self.artifacts.keep_outputs(has_time, note_progress)

        def upload() -> None:
            self._quietly("logs", self._logs.ship_rest)
            self._quietly("profile", lambda: self._profiles.publish(self.artifacts.outputs, last=True))
            self._quietly("event files", self._ship_last_events)
            self._quietly("outputs", keep_outputs)

        if self._uploads is None:
            self._uploads_end = self._clock.monotonic() + (CANCEL_TIME if is_cancelled else OUTPUT_TIME)
            self._uploads = Background(upload)
        return self._uploads

    def _await_uploads(self, uploads: Background, ending: Ending, deadline: Callable[[], timedelta | None]) -> None:
        """Wait for the uploads, at most until their time is over.

        If the machine is taken, a finished job waits as long as its release allows, any other not at all."""

        def is_over() -> bool:
            end, now = deadline(), self._clock.monotonic()
            if end is not None and (ending.reason is not Reason.FINISHED or now >= end - RELEASE_TIME):
                return True
            return now >= self._uploads_end

        uploads.wait(is_over)

    def _decide_ending(
        self,
        ending: Ending,
        stop: StopDemand | None,
        find_stop: Callable[[], StopDemand | None],
        *,
        is_folder_kept: bool,
    ) -> Ending:
        """Return the ending; an interruption if the machine is taken before all files of a finished job are uploaded,
        or if its outputs cannot be uploaded."""
        current = find_stop() or stop
        has_outputs = self._missing_outputs == {}
        if ending.reason is not Reason.FINISHED or (has_outputs and is_folder_kept):
            return ending
        if current is None or current.deadline is None:
            return ending if has_outputs else self._lack_outputs(ending)
        if stop is None or stop.deadline is None:
            action_at = current.action_at.isoformat() if current.action_at else None
            self.emit(
                EventKind.STOP_DEMANDED, source=current.source, action_at=action_at, seen_at=current.seen_at.isoformat()
            )
        _log.warning("job %s, epoch %d has finished, and no time is left to upload its files", *self.key)
        return replace(ending, reason=current.reason if current.reason.preemption else Reason.NOTICE)

    def _lack_outputs(self, ending: Ending) -> Ending:
        """Return the ending of a finished job whose outputs could not be uploaded. The next attempt resumes from the
        last checkpoint, on another machine, until the job was incomplete INCOMPLETE_ENDS times."""
        missing = self._missing_outputs
        if missing is None:
            message = "the job has finished, and its outputs could not be uploaded"
            return replace(ending, reason=Reason.MACHINE, message=message, unstarted=True, incomplete=True)
        names = ", ".join(sorted(missing)[:MOST_NAMES]) + (", …" if len(missing) > MOST_NAMES else "")
        reasons = "; ".join(sorted(set(missing.values())))
        message = f"the job has finished, and {len(missing)} of its outputs are not uploaded: {names} ({reasons})"
        is_denied = not {DENIED, NO_BUCKET}.isdisjoint(missing.values())
        reason = Reason.DENIED if is_denied else Reason.MACHINE
        return replace(ending, reason=reason, message=message, unstarted=True, incomplete=True)

    def _note_unreported(self, ending: Ending) -> None:
        """Write a line into the log if the ended program never reported the metric of its `stop`."""
        watch = self._stop_watch
        silent = self._silent() and self._mailbox.stop_report() is None
        if ending.reason is Reason.FINISHED and watch is not None and silent and not watch.has_evaluations:
            self.note(f"warning: stop: the program has never reported {watch.rule.metric}")

    def _ship_last_events(self) -> None:
        if self._event_files is not None:
            self._event_files.ship(last=True)

    def _keep_last(self, ending: Ending, deadline: Callable[[], timedelta | None]) -> bool:
        """Publish the folder of checkpoints. Return False if the deadline came first."""
        is_kept = True
        if self.process is not None and not self._ending_told and self._silent():
            is_kept = self.artifacts.keep_last(ending, deadline, self.exit_code())
        if self.process is not None and not self._ending_told:
            with self._ship_lock:
                self._read_steps()
            scratch, made_steps = self.run_dir.path / "scratch", self._made_steps()
            self.artifacts.note_failed_load(
                ending, self.exit_code(), self.status(), scratch,
                made_steps=made_steps, processes=self.submission.spec.process_count,
            )  # fmt: skip
        return is_kept

    def _made_steps(self) -> bool:
        """Return whether a program without the trainer library has reported a step behind its first report, or behind
        the checkpoint that was restored."""
        first, last, durable = self._steps.first_step, self._steps.step, self.artifacts.durable_step
        return last is not None and any(step is not None and last > step for step in (first, durable))

    def fail(self, error: Exception) -> Ending:
        """Kill the program because the agent failed. Return the ending, which `conclude` writes."""
        self.unstarted = agent_failure(self._lease.owner, error)
        self.kill()
        return self.unstarted

    def give_back(self, ending: Ending) -> None:
        """Release the lease, and write nothing else. Raises `StoreError`."""
        self._over = True
        with self._lease_lock:
            self._releasing = True
            self._lease.release(ending.reason, detail=long_detail(ending, ""), unstarted=ending.unstarted)

    def abandon(self) -> None:
        """Kill the job, and write nothing more for it."""
        self._over = True
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the training process and all its children, and stop serving them credentials."""
        if self.grant is not None:
            self.grant.end()
        if self.process is not None:
            self.process.kill()

    def clean(self) -> None:
        """Remove the run directory, the working directory and the temporary directory."""
        remove_tree(self.run_dir.path)
        if self.work is not None:
            self.work.release()
        if self.temporary is not None:
            remove_tree(self.temporary)
        if self.image is not None:
            self.image.close()
        self.cleaned = True

    def _silent(self) -> bool:
        """Return whether the program has never reported, as a program without the trainer library."""
        return self.status() is None

    def _tell_reclaimed(self) -> None:
        """Write an event: the job, whose lease expired while the store did not answer, continues here."""
        status = self.status()
        _log.warning("job %s, epoch %d was given up meanwhile, and is taken back", *self.key)
        self.emit(
            EventKind.TRAINING, from_step=status.step if status else 0, restored=False, by="agent", reclaimed=True
        )

    def _progress(self) -> Progress:
        status, last = self.status(), self._lease.record.progress
        used = memory.most(last, self.process.memory_gib() if self.process is not None else None, status)
        used["unkept_seconds"] = self._unkept_seconds
        measured = self._utilization
        used["recent_use"] = measured.recent if measured is not None else None
        used["attempt_use"] = measured.total if measured is not None else None
        used["shard_traffic"] = self._shard_traffic()
        used["early_stop"] = self.early_stop()
        used["low_gpu_share"] = measured.low_gpu_share if measured is not None else None
        if status is None and self._stalled is not None and self._life is not None:
            since = self._stalled[1]
            used["stalled_seconds"] = (
                round((self._clock.monotonic() - since).total_seconds(), 1) if self._life.last <= since else None
            )
        if (new_checkpoints := self.artifacts.new_checkpoints) is not None:
            # An earlier agent of this attempt may have published checkpoints.
            used["new_checkpoints"] = max(new_checkpoints, last.new_checkpoints or 0)
        if status is None and self.artifacts.durable_step is not None:
            used["durable_step"] = self.artifacts.durable_step
        if status is None:
            return self._steps.add_to(self._beginning.progress(last) or last).model_copy(update=used)
        stalled = self._stalled
        silence = self._clock.monotonic() - stalled[1] if stalled and stalled[0] == status.step else None
        return report_progress(status, last, round(silence.total_seconds(), 1) if silence is not None else None, used)

    def _shard_traffic(self) -> ShardTraffic | None:
        """Return the bytes that this attempt has streamed; None if it streams nothing. Until the program is started
        they are those of an agent before, under the same epoch."""
        if self.process is None:
            return self._lease.record.progress.shard_traffic
        if not self._traffic_files:
            return None
        with self._traffic_lock:
            return sum_traffic(file.read() for file in self._traffic_files)

    def _write_ending(self, ending: Ending, stop: StopDemand | None) -> None:
        if not self._ending_told:
            self._beginning.write_training(self._lease.record.progress, restored=self.artifacts.restored)
            record = self._lease.record.model_copy(update={"progress": self._progress()})
            spec, status = self.submission.spec, self.status()
            started = self.process is not None
            if ending.step is None:
                ending = replace(ending, step=self._steps.step)
            if ending.durable_step is None and status is None:
                ending = replace(ending, durable_step=self.artifacts.durable_step)
            metrics = status.metrics if status is not None else self._steps.metrics
            write_outcome(
                self.emit, ending, stop, status, record, spec, self._tail(),
                started=started, metrics=metrics, use=self._utilization.total if self._utilization else None,
            )  # fmt: skip
            self._ending_told = True

    def _release(self, ending: Ending) -> JobRecord | None:
        detail = long_detail(ending, self._tail())
        early_stop = self.early_stop()
        if ending.reason is Reason.FINISHED and early_stop is not None:
            detail = early_stop.sentence
        with self._lease_lock:
            self._releasing = True
            record = self._lease.release(
                ending.reason,
                exit_code=ending.exit_code,
                detail=detail,
                unstarted=ending.unstarted,
                hopeless=ending.hopeless,
                incomplete=ending.incomplete,
                progress=self._progress(),
            )
            self._over = True
        return record

    def _tail(self) -> str:
        return self._logs.tail(TAIL_BYTES)

    def _quietly(self, subject: str, action: Callable[[], None]) -> None:
        try:
            action()
        except StoreError as error:
            _log.warning("job %s, epoch %d: %s not written: %s", *self.key, subject, error)
        except Exception:  # after any error the lease must be released
            _log.exception("job %s, epoch %d: %s not written", *self.key, subject)
