"""Runs one job on this machine: observes it, lets `decide_actions` decide, and acts.

Only the thread that steps a runner starts, signals and ends its training process. This thread must live as long as the
process.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.jobs.records import Assignment, EventKind, Notice, Order, Reason, Seat
from everspot_store import StoreError

from everspot_train.agent import actions as act
from everspot_train.agent.actions import Action, JobKey, StopDemand
from everspot_train.agent.decide import decide_actions, forget_job, offer_again, retry_later
from everspot_train.agent.endings import Ending
from everspot_train.agent.session import JobSession
from everspot_train.agent.starter import Starter
from everspot_train.agent.stop_demand import next_demand
from everspot_train.agent.watch import Contact
from everspot_train.agent.world import LeaseView, Memory, World

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExternalState:
    """The orders and notices for a runner at one moment.

    `assignment`: the orders for its own job only. `others`: whether other jobs share the machine; the agent leaves the
    machine after they have ended.
    """

    assignment: Assignment | None = None
    interruption: Notice | None = None
    rebalance: Notice | None = None
    shutdown_by: timedelta | None = None
    unfit: str | None = None
    others: bool = False


class JobRunner:
    """Runs the jobs that it is assigned, one at a time.

    Args:
        external_state: returns the orders and notices at the moment, for a job that is being started or concluded.
        seat: the part of a shared machine that its job may use; None for the whole machine.
        ended: called when a job has ended here, with its ending, or with None if it was abandoned.

    Attributes:
        transferring: whether the thread that steps it waits for the files of a job that begins or ends.
    """

    def __init__(
        self,
        *,
        manifest: Manifest,
        starter: Starter,
        contact: Contact,
        clock: Clock,
        ended: Callable[[Ending | None], None],
        external_state: Callable[[], ExternalState],
        seat: Seat | None = None,
    ) -> None:
        self._limits = manifest.limits
        self._starter = starter
        self._contact = contact
        self._clock = clock
        self._ended = ended
        self._external_state = external_state
        self._seat = seat
        self.memory = Memory(idle_since=clock.monotonic())
        self.session: JobSession | None = None
        self.transferring = False
        self._leaving: act.EndAgent | None = None
        self._retry_at = timedelta()
        self._helper_failure: Exception | None = None
        self._failed = False
        self._late_stop: StopDemand | None = None
        self._noted: set[str] = set()
        self._hours_between_interruptions: float | None = None

    def step(self, outside: ExternalState) -> act.EndAgent | None:
        """Observe once, decide, and act. Return the order to leave the machine, or None.

        An unexpected exception ends only the attempt, because a restarted agent would raise it again.
        """
        try:
            self._step(outside)
        except Exception as error:
            _log.exception("the agent failed")
            self._end_attempt(error)
        return self._leaving

    def _step(self, outside: ExternalState) -> None:
        if outside.assignment is not None:
            self._hours_between_interruptions = outside.assignment.hours_between_interruptions
        if outside.others:
            self.memory = replace(self.memory, idle_since=self._clock.monotonic())
        failure, self._helper_failure = self._helper_failure, None
        if failure is not None and self.session is not None:
            raise failure
        self.memory, actions = decide_actions(self.memory, self._look(outside), self._limits)
        for action in actions:
            self._act(action)

    def _end_attempt(self, error: Exception) -> None:
        """End the attempt with the agent's failure. If that fails, only release the lease."""
        session = self.session
        if session is None:  # no job was taken: the assignment expires
            self.memory = forget_job(self.memory, self._clock.monotonic())
            return
        first, self._failed = not self._failed, True
        try:
            ending = session.fail(error)
            if first:
                return  # the next step finds no process and concludes
            session.give_back(ending)
        except Exception:
            _log.exception("job %s, epoch %d could not be given back", *session.key)
            session.abandon()
            ending = None
        self.memory = forget_job(self.memory, self._clock.monotonic())
        self._end_session(ending)

    def renew(self) -> None:
        """Renew the lease if it is due."""
        session = self.session
        if session is not None:
            try:
                if session.renew_if_due():
                    self._contact.reached()
            except StoreError as error:
                self._contact.failed(error)
            except Exception as error:
                self._helper_failure = error

    def ship(self) -> None:
        """Write waiting events and logs."""
        session = self.session
        if session is not None:
            try:
                session.ship()
            except StoreError as error:
                self._contact.failed(error)
            except Exception as error:
                self._note("events and logs", error)

    def keep_folder(self) -> None:
        """Upload the folder of a program that does not use the trainer library, if it is due. This may take long."""
        session = self.session
        if session is not None:
            try:
                session.keep_folder()
            except StoreError as error:
                self._contact.failed(error)
            except Exception as error:
                self._note("the folder of checkpoints", error)

    def measure(self) -> None:
        """Sample the job's utilization, if it is due. A broken GPU may block this for ever."""
        session = self.session
        if session is not None:
            session.measure()

    def _note(self, subject: str, error: Exception) -> None:
        """Log an unexpected exception, once. Training continues."""
        words = f"{subject}: {type(error).__name__}: {error}"
        if words not in self._noted:
            self._noted.add(words)
            _log.exception("%s not written; the next call tries again", subject)

    def abandon(self) -> None:
        """Kill the job, and write nothing more for it."""
        if self.session is not None:
            self.session.abandon()

    def _look(self, outside: ExternalState) -> World:
        session = self.session
        exit_code = session.exit_code() if session else None
        return World(
            now=self._clock.monotonic(),
            market=self._clock.now(),
            real_per_market=self._real_per_market(),
            assignment=outside.assignment,
            interruption=outside.interruption,
            rebalance=outside.rebalance,
            shutdown_by=outside.shutdown_by,
            lease=session.lease_view() if session else LeaseView.NONE,
            lease_until=session.lease_until if session else timedelta(),
            running=session is not None and session.unstarted is None and exit_code is None,
            exit_code=exit_code,
            status=session.status() if session else None,
            store_seen=self._contact.last_success,
            failure=session.failure() if session and exit_code is not None else None,
            unfit=outside.unfit if session is None else None,
            upload=session.artifacts.upload() if session else timedelta(),
            restart_stalled=session is not None and session.submission.spec.retries.stalled,
            alive_at=session.alive_at() if session else None,
            has_to_stop=session is not None and session.has_to_stop(),
            others=outside.others,
        )

    def _act(self, action: Action) -> None:
        match action:
            case act.Take(job):
                self._take(job)
            case act.Decline(job, reason):
                self._decline(job, reason)
            case act.Conclude(ending, stop):
                self._conclude(ending, stop)
            case act.Abandon(why):
                self._abandon(why)
            case act.EndAgent():
                self._leaving = action
            case _:
                self._tell_process(action)

    def _tell_process(self, action: Action) -> None:
        session = self.session
        if session is None or session.process is None:
            raise AssertionError(f"{action} without a process: the decision does not fit the agent")
        match action:
            case act.AskToStop(stop, first):
                _log.warning("job %s: stop (%s)", session.key.job_id, stop.reason.value)
                session.ask_to_stop(stop)
                if first and stop.reason is not Reason.FINISHED:
                    action_at = stop.action_at.isoformat() if stop.action_at else None
                    seen_at = stop.seen_at.isoformat()
                    session.emit(EventKind.STOP_DEMANDED, source=stop.source, action_at=action_at, seen_at=seen_at)
            case act.AskForCheckpoint(seq, notice):
                session.ask_for_checkpoint(seq)
                session.emit(EventKind.REBALANCE, source=notice.source)
            case act.Stalled(step, seconds, restart) as stall:
                _log.warning("job %s: %s", session.key.job_id, stall.words)
                session.stalled(step, seconds, restart=restart)
            case act.Terminate(final):
                session.process.terminate(final=final)
            case act.Kill():
                session.kill()

    def _take(self, job: JobKey) -> None:
        now = self._clock.monotonic()
        if now < self._retry_at:
            self.memory = retry_later(self.memory)
            return
        try:
            session = self._starter.take(job)
            early = session is None and self._starter.is_early(job)
        except StoreError as error:
            # The written record stays: the next try adopts the job, or the lease expires.
            self._contact.failed(error)
            self._postpone(now)
            return
        if early:
            self._postpone(now)
            return
        if session is None:
            _log.warning("job %s, epoch %d is not assigned to this instance", *job)
            self.memory = forget_job(self.memory, now)
            return
        self.session = session  # the lease is renewed from now on
        with self._while_transferring():
            stopped = partial(self._is_stopped, session)
            self._starter.start(session, self._seat, self._hours_between_interruptions, stopped)

    def _is_stopped(self, session: JobSession) -> bool:
        """Return whether a job that is being started has to stop: `decide_actions` is called once it has started."""
        outside = self._external_state()
        orders = outside.assignment.for_job(session.key.job_id) if outside.assignment is not None else None
        return (
            outside.interruption is not None
            or outside.shutdown_by is not None
            or session.lease_view() is LeaseView.LOST
            or orders is None
            or orders.order is not Order.RUN
            or orders.epoch != session.key.epoch
        )

    def _postpone(self, now: timedelta) -> None:
        self._retry_at = now + self._limits.poll_every
        self.memory = retry_later(self.memory)

    def _decline(self, job: JobKey, reason: Reason) -> None:
        now = self._clock.monotonic()
        if now < self._retry_at:
            self.memory = offer_again(self.memory, job)
            return
        _log.warning("job %s, epoch %d is given back unstarted: %s", *job, reason.value)
        try:
            again = not self._starter.decline(job, reason) and self._starter.is_early(job)
        except StoreError as error:
            self._contact.failed(error)
            again = True
        if again:
            self._retry_at = now + self._limits.poll_every
            self.memory = offer_again(self.memory, job)

    def _conclude(self, ending: Ending, stop: StopDemand | None) -> None:
        session = self.session
        assert session is not None  # noqa: S101  a conclusion is about a session
        session.kill()
        ending = session.unstarted or ending
        try:
            with self._while_transferring():
                if not session.conclude(ending, stop, self._find_stop):
                    _log.warning("job %s, epoch %d was lost before it could be given back", *session.key)
        except StoreError as error:
            self._contact.failed(error)
            return  # memory and session stay unchanged, and the next step concludes again
        self.memory = forget_job(self.memory, self._clock.monotonic())
        self._end_session(ending)

    def _find_stop(self) -> StopDemand | None:
        """Return the demand to stop that has arrived since the program's end, or before. Safe to call from any
        thread."""
        outside = self._external_state()
        world = World(
            now=self._clock.monotonic(),
            market=self._clock.now(),
            real_per_market=self._real_per_market(),
            assignment=outside.assignment,
            interruption=outside.interruption,
            shutdown_by=outside.shutdown_by,
        )
        memory = replace(self.memory, stop=self._late_stop)
        self._late_stop = next_demand(memory, world, self._limits) or self._late_stop
        return self._late_stop

    def _real_per_market(self) -> float:
        return self._clock.to_real(timedelta(seconds=1)).total_seconds()

    @contextmanager
    def _while_transferring(self) -> Iterator[None]:
        self.transferring = True
        try:
            yield
        finally:
            self.transferring = False

    def _abandon(self, reason: str) -> None:
        session = self.session
        assert session is not None  # noqa: S101  only a job with a session can be abandoned
        _log.error("job %s, epoch %d is abandoned: %s", *session.key, reason)
        session.abandon()
        self._end_session(None)

    def _end_session(self, ending: Ending | None) -> None:
        session, self.session = self.session, None
        self._failed, self._late_stop = False, None
        self._noted.clear()
        if session is not None:
            try:
                session.clean()
                self._ended(ending)
            except Exception:  # the job has ended, and the agent continues
                _log.exception("job %s, epoch %d: not all that it left was cleaned up", *session.key)
