"""The agent: looks, lets `decide` decide, and does it.

The main thread alone starts, signals and ends training processes, and it waits for the store only while none runs;
so a store that hangs cannot keep it from stopping a process whose lease is over. Four helper threads keep in touch:
`beats` (lease and heartbeat), `feeds` (assignment, events, logs), `folders` (checkpoints of programs that do not use
the trainer library), `notices` (metadata service).
"""

import logging
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.manifest import Manifest
from everspot_core.records import EventKind, InstanceState, Reason
from everspot_store import StoreError

from everspot_train.agent import actions as act
from everspot_train.agent.actions import Action, JobKey, Stop
from everspot_train.agent.decide import concluded, decide, offered_again, postponed
from everspot_train.agent.desk import Desk
from everspot_train.agent.endings import Ending
from everspot_train.agent.fitness import Fitness
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.own_log import OwnLog
from everspot_train.agent.session import JobSession
from everspot_train.agent.threads import DueTimer, Repeating
from everspot_train.agent.watch import Watch
from everspot_train.agent.world import LeaseView, Memory, World

LOOK_EVERY = timedelta(milliseconds=100)
HELPER_EVERY = timedelta(milliseconds=250)
POLL_BUSY = 5
"""An agent that has a job looks for its orders that much more seldom: notices come by the metadata service too."""
JOIN_PATIENCE = timedelta(seconds=10)

_log = logging.getLogger(__name__)


class HelperDied(Exception):
    """A helper thread ended by an error that nobody expected."""


class Agent:
    """One agent. `step` is one look; `run` looks until the agent is to end."""

    def __init__(
        self,
        *,
        manifest: Manifest,
        desk: Desk,
        watch: Watch,
        heartbeat: Heartbeat,
        fitness: Fitness,
        own_log: OwnLog,
        clock: Clock,
    ) -> None:
        self._manifest = manifest
        self._desk = desk
        self._watch = watch
        self._heartbeat = heartbeat
        self._fitness = fitness
        self._own_log = own_log
        self._unfit = fitness.look()
        self._clock = clock
        self._memory = Memory(idle_since=clock.monotonic())
        self._session: JobSession | None = None
        self._shutdown_by: timedelta | None = None
        self._leaving: act.Leave | None = None
        self._retry_at = timedelta()
        self._poll = DueTimer(manifest.limits.poll_every, clock)
        self._poll_busy = DueTimer(manifest.limits.poll_every * POLL_BUSY, clock)

    def shut_down(self, within: timedelta) -> None:
        """Stop the job, give it back, and end, all `within` this time. Safe to call from a signal handler."""
        if self._shutdown_by is None:
            self._shutdown_by = self._clock.monotonic() + within

    def run(self) -> act.Leave:
        """Work until the agent is to end; why it does.

        Raises:
            HelperDied: if a helper thread failed; what runs has been killed then.
        """
        limits = self._manifest.limits
        helpers = [
            Repeating("beats", HELPER_EVERY, self.beats, self._clock),
            Repeating("feeds", HELPER_EVERY, self.feeds, self._clock),
            Repeating("folders", HELPER_EVERY, self.folders, self._clock),
            Repeating("notices", limits.notice_poll, self._watch.poll_notices, self._clock),
        ]
        for helper in helpers:
            helper.start()
        try:
            while (leave := self.step()) is None:
                self._check(helpers)
                self._clock.sleep(LOOK_EVERY)
        finally:
            for helper in helpers:
                helper.stop()
            if self._session is not None:
                self._session.abandon()
        helpers[0].join(JOIN_PATIENCE)
        self._heartbeat.last_word(self._watch.notice)
        return leave

    def step(self) -> act.Leave | None:
        """Look once, decide, and act. The reason to end, if there is one."""
        world = self._look()
        self._memory, actions = decide(self._memory, world, self._manifest.limits)
        for action in actions:
            self._act(action)
        return self._leaving

    def beats(self) -> None:
        """Renew the lease and put the heartbeat, each when it is due."""
        session = self._session
        if session is not None:
            try:
                if session.renew_if_due():
                    self._watch.store_contact.reached()
            except StoreError as error:
                self._watch.store_contact.failed(error)
        memory = self._memory
        unfit = self._unfit if memory.job is None else None
        self._heartbeat.hardware = self._fitness.hardware
        self._heartbeat.beat(_state_of(memory, unfit), memory.job, self._watch.notice, unfit or "")

    def feeds(self) -> None:
        """Poll the assignment, write waiting events and logs."""
        if (self._poll if self._session is None else self._poll_busy).due():
            self._watch.poll_assignment()
        self._own_log.ship_if_due()
        session = self._session
        if session is not None:
            try:
                session.ship()
            except StoreError as error:
                self._watch.store_contact.failed(error)

    def folders(self) -> None:
        """Keep the folder of a program that does not use the trainer library, which may take long."""
        session = self._session
        if session is not None:
            try:
                session.keep_folder()
            except StoreError as error:
                self._watch.store_contact.failed(error)

    def _look(self) -> World:
        sighting = self._watch.sighting()
        session = self._session
        if session is None:
            self._unfit = self._fitness.look()
        exit_code = session.exit_code() if session else None
        return World(
            now=self._clock.monotonic(),
            market=self._clock.now(),
            real_per_market=self._clock.to_real(timedelta(seconds=1)).total_seconds(),
            assignment=sighting.assignment,
            interruption=sighting.interruption,
            rebalance=sighting.rebalance,
            shutdown_by=self._shutdown_by,
            lease=session.lease_view() if session else LeaseView.NONE,
            lease_until=session.lease_until if session else timedelta(),
            running=session is not None and session.unstarted is None and exit_code is None,
            exit_code=exit_code,
            status=session.status() if session else None,
            store_seen=self._watch.store_contact.seen,
            failure=session.failure() if session and exit_code is not None else None,
            unfit=self._unfit if session is None else None,
            upload=session.leavings.upload() if session else timedelta(),
            restart_stalled=session is not None and session.submission.spec.retries.stalled,
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
            case act.Leave():
                self._leaving = action
            case _:
                self._tell_process(action)

    def _tell_process(self, action: Action) -> None:
        session = self._session
        if session is None or session.process is None:
            raise AssertionError(f"{action} without a process: the decision does not fit the agent")
        match action:
            case act.AskToStop(stop, first):
                _log.warning("job %s: stop (%s)", session.key.job_id, stop.reason.value)
                session.ask_to_stop(stop)
                if first:
                    action_at = stop.action_at.isoformat() if stop.action_at else None
                    seen_at = stop.seen_at.isoformat()
                    session.say(EventKind.NOTICE, source=stop.source, action_at=action_at, seen_at=seen_at)
            case act.AskForCheckpoint(seq, notice):
                session.ask_for_checkpoint(seq)
                session.say(EventKind.REBALANCE, source=notice.source)
            case act.Stalled(step, seconds, restart):
                _log.warning("job %s: no step for %.0f s after step %d", session.key.job_id, seconds, step)
                session.stalled(step, seconds, restart=restart)
            case act.Terminate():
                session.process.terminate()
            case act.Kill():
                session.kill()

    def _take(self, job: JobKey) -> None:
        now = self._clock.monotonic()
        if now < self._retry_at:
            self._memory = postponed(self._memory)
            return
        try:
            session = self._desk.take(job)
            early = session is None and self._desk.is_early(job)
        except StoreError as error:
            # Whatever was written stands still from now on: the next try adopts it, or the scheduler lets it expire.
            self._watch.store_contact.failed(error)
            self._postpone(now)
            return
        if early:
            self._postpone(now)
            return
        if session is None:
            _log.warning("job %s, epoch %d is not this instance's to take", *job)
            self._memory = concluded(self._memory, now)
            return
        self._session = session  # from here on the lease is renewed
        self._desk.start(session)

    def _postpone(self, now: timedelta) -> None:
        self._retry_at = now + self._manifest.limits.poll_every
        self._memory = postponed(self._memory)

    def _decline(self, job: JobKey, reason: Reason) -> None:
        now = self._clock.monotonic()
        if now < self._retry_at:
            self._memory = offered_again(self._memory, job)
            return
        _log.warning("job %s, epoch %d is given back unstarted: %s", *job, reason.value)
        try:
            again = not self._desk.decline(job, reason) and self._desk.is_early(job)
        except StoreError as error:
            self._watch.store_contact.failed(error)
            again = True
        if again:
            self._retry_at = now + self._manifest.limits.poll_every
            self._memory = offered_again(self._memory, job)

    def _conclude(self, ending: Ending, stop: Stop | None) -> None:
        session = self._session
        assert session is not None  # noqa: S101  a conclusion is about a session
        session.kill()
        ending = session.unstarted or ending
        try:
            if not session.conclude(ending, stop):
                _log.warning("job %s, epoch %d was lost before it could be given back", *session.key)
        except StoreError as error:
            self._watch.store_contact.failed(error)
            return  # the job stays in memory and the session as it is: the next look concludes again
        self._memory = concluded(self._memory, self._clock.monotonic())
        self._fitness.blame(ending.fault, ending.message)
        if ending.reason.failure or ending.unstarted:
            self._fitness.remeasure()
        self._end_session()

    def _abandon(self, why: str) -> None:
        session = self._session
        assert session is not None  # noqa: S101  only a held job can be lost
        _log.error("job %s, epoch %d is abandoned: %s", *session.key, why)
        session.abandon()
        self._end_session()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.clean()
            self._fitness.tidy()
            self._unfit = self._fitness.look_again()

    @staticmethod
    def _check(helpers: list[Repeating]) -> None:
        for helper in helpers:
            if helper.failure is not None:
                raise HelperDied(f"a helper thread ended: {helper.failure!r}") from helper.failure


def _state_of(memory: Memory, unfit: str | None) -> InstanceState:
    if unfit is not None:
        return InstanceState.CORDONED
    if memory.cordoned is not None:
        return InstanceState.DRAINING
    return InstanceState.BUSY if memory.job is not None else InstanceState.READY
