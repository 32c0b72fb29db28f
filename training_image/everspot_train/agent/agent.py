"""The agent: runs one job that has the machine alone, or several jobs that share it.

If a job has the machine alone, only the main thread starts, signals and ends the training process. While a process
runs, the main thread never waits for the store, so that it can stop a process whose lease has expired even if the store
hangs. Four helper threads do the I/O: `beats` (lease and heartbeat), `feeds` (assignment, events, logs), `folders`
(checkpoints of programs that do not use the trainer library) and `notices` (metadata service). A fifth, `measurements`,
samples the job's utilization; no thread waits for it, because a broken GPU may block it for ever. Jobs that share the
machine have their own threads: see `shared_jobs`.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from everspot_core.capacity.instances import AGENT_FAULT
from everspot_core.clock import Clock
from everspot_core.cluster.manifest import Manifest
from everspot_core.costs.ledger import FaultKind
from everspot_core.jobs.records import InstanceState, Reason, Seat

from everspot_train.agent import actions as act
from everspot_train.agent.actions import JobKey
from everspot_train.agent.endings import Ending
from everspot_train.agent.fitness import Fitness
from everspot_train.agent.heartbeat import Heartbeat
from everspot_train.agent.own_log import OwnLog
from everspot_train.agent.runner import ExternalState, JobRunner
from everspot_train.agent.shared_jobs import SharedJobs, select_assignment
from everspot_train.agent.starter import Starter
from everspot_train.agent.threads import HELPER_EVERY, LOOK_EVERY, MEASURE_EVERY, DueTimer, Repeating
from everspot_train.agent.watch import NoticeWatcher
from everspot_train.agent.world import Memory

POLL_BUSY = 5
"""The factor on `poll_every` while the agent has a job. Fewer polls suffice, because notices also come from the
metadata service."""
POLL_FRESH = timedelta(milliseconds=500)
FRESH = timedelta(minutes=1)
"""The time after its start for which an agent without a job polls every POLL_FRESH, because it was most likely launched
for a waiting job."""
AGENT_FAILURES = 3
"""After this many consecutive attempts that ended by a failure of the agent, its machine takes no further jobs."""
JOIN_PATIENCE = timedelta(seconds=10)


class HelperDied(Exception):
    """A helper thread ended with an unexpected error."""


class Agent:
    """One agent. `step` observes and acts once; `run` steps until the agent has to end."""

    def __init__(
        self,
        *,
        manifest: Manifest,
        starter: Starter,
        watch: NoticeWatcher,
        heartbeat: Heartbeat,
        fitness: Fitness,
        own_log: OwnLog,
        clock: Clock,
    ) -> None:
        self._manifest = manifest
        self._starter = starter
        self._watch = watch
        self._heartbeat = heartbeat
        self._fitness = fitness
        self._own_log = own_log
        self._unfit = fitness.look()
        self._agent_failures = 0
        self._clock = clock
        self._shutdown_by: timedelta | None = None
        self._looked_at = clock.monotonic()
        self._fresh_until = clock.monotonic() + FRESH
        self._poll_fresh = DueTimer(min(POLL_FRESH, manifest.limits.poll_every), clock)
        self._poll = DueTimer(manifest.limits.poll_every, clock)
        self._poll_busy = DueTimer(manifest.limits.poll_every * POLL_BUSY, clock)
        self._alone = self._make_runner(None, self._ended)
        self._shared_jobs = SharedJobs(self._make_runner, self._external_state, clock)

    def _make_runner(self, seat: Seat | None, ended: Callable[[Ending | None], None]) -> JobRunner:
        key = JobKey(seat.job_id, seat.epoch) if seat is not None else None

        def external_state() -> ExternalState:
            outside = self._external_state()
            return replace(outside, assignment=select_assignment(outside.assignment, key))

        return JobRunner(
            manifest=self._manifest,
            starter=self._starter,
            contact=self._watch.store_contact,
            clock=self._clock,
            ended=ended,
            external_state=external_state,
            seat=seat,
        )

    def shut_down(self, within: timedelta) -> None:
        """Stop the job, give it back, and end, all `within` this time. Safe to call from a signal handler."""
        if self._shutdown_by is None:
            self._shutdown_by = self._clock.monotonic() + within

    def run(self) -> act.EndAgent:
        """Work until the agent has to end, and return the reason."""
        limits = self._manifest.limits
        helpers = [
            Repeating("beats", HELPER_EVERY, self.beats, self._clock),
            Repeating("feeds", HELPER_EVERY, self.feeds, self._clock),
            Repeating("folders", HELPER_EVERY, self.folders, self._clock),
            Repeating("measurements", MEASURE_EVERY, self._alone.measure, self._clock),
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
            self._alone.abandon()
            self._shared_jobs.abandon()
            self._starter.close()
        helpers[0].join(JOIN_PATIENCE)
        self._heartbeat.report_gone(self._watch.notice)
        return leave

    def step(self) -> act.EndAgent | None:
        """Observe once, decide, and act. Return the reason to end, or None."""
        self._looked_at = self._clock.monotonic()
        outside, alone = self._external_state(), self._alone
        self._settle_endings()
        if self._shutdown_by is None and alone.memory.job is None:
            self._shared_jobs.look(outside.assignment)
        elif self._shared_jobs:
            self._shared_jobs.look(None)
        if alone.session is None and not self._shared_jobs:
            self._unfit = self._fitness.look()
        own_assignment = select_assignment(outside.assignment, None)
        return alone.step(
            replace(outside, assignment=own_assignment, unfit=self._unfit, others=bool(self._shared_jobs))
        )

    @property
    def alive_at(self) -> timedelta:
        """The monotonic time of the main loop's last sign of life: its last iteration, or the last piece that was
        transferred while it waits for the files of its job. A large folder may take longer than the health checks
        allow."""
        return max(self._looked_at, self._starter.moved_at) if self._alone.transferring else self._looked_at

    def beats(self) -> None:
        """Renew the lease and write the heartbeat, each when it is due."""
        self._alone.renew()
        memory = self._alone.memory
        unfit = self._unfit if memory.job is None else None
        self._heartbeat.hardware = self._fitness.hardware
        residents = self._shared_jobs.residents
        state = _instance_state(memory, unfit, shared=bool(residents))
        self._heartbeat.beat(state, memory.job, self._watch.notice, unfit or "", residents)

    def feeds(self) -> None:
        """Poll the assignment, write waiting events and logs."""
        if self._poll_timer().due():
            self._watch.poll_assignment()
        self._own_log.ship_if_due()
        self._alone.ship()

    def _poll_timer(self) -> DueTimer:
        if self._alone.session is not None:
            return self._poll_busy
        fresh = not self._shared_jobs and self._clock.monotonic() < self._fresh_until
        return self._poll_fresh if fresh else self._poll

    def folders(self) -> None:
        """Upload the folder of a program that does not use the trainer library, which may take long."""
        self._alone.keep_folder()

    def _external_state(self) -> ExternalState:
        heard = self._watch.observe()
        return ExternalState(
            assignment=heard.assignment,
            interruption=heard.interruption,
            rebalance=heard.rebalance,
            shutdown_by=self._shutdown_by,
            unfit=self._unfit,
        )

    def _ended(self, ending: Ending | None) -> None:
        """Clean up after the last job, and check whether the machine is still fit."""
        self._record_machine_fault(ending)
        if ending is not None and (ending.reason.failure or ending.unstarted):
            self._fitness.remeasure()
        self._fitness.tidy()
        self._unfit = self._fitness.check_now()

    def _settle_endings(self) -> None:
        """Check after the endings of shared jobs whether the machine is fit. While a job remains, only the folders of
        ended jobs are removed, because other files could belong to it."""
        while self._shared_jobs.endings:
            ending = self._shared_jobs.endings.popleft()
            if not self._shared_jobs.residents:
                self._ended(ending)
            elif ending is not None and ending.fault is not None:
                self._record_machine_fault(ending)
                self._unfit = self._fitness.check_now()

    def _record_machine_fault(self, ending: Ending | None) -> None:
        if ending is None:
            return
        self._agent_failures = self._agent_failures + 1 if ending.reason is Reason.AGENT else 0
        if self._agent_failures >= AGENT_FAILURES:
            words = f"{AGENT_FAULT}failed {self._agent_failures} times in a row; the last time: {ending.message}"
            self._fitness.record_fault(FaultKind.AGENT, words)
        self._fitness.record_fault(ending.fault, ending.message)

    @staticmethod
    def _check(helpers: list[Repeating]) -> None:
        for helper in helpers:
            if helper.failure is not None:
                raise HelperDied(f"a helper thread ended: {helper.failure!r}") from helper.failure


def _instance_state(memory: Memory, unfit: str | None, *, shared: bool) -> InstanceState:
    if unfit is not None:
        return InstanceState.CORDONED
    if memory.cordoned is not None:
        return InstanceState.DRAINING
    return InstanceState.BUSY if shared or memory.job is not None else InstanceState.READY
