"""The scheduler's loop: observe, plan, act, record. It holds no state that the next scheduler could miss.

Between ticks it remembers only caches and spans of its own time: since when it has seen each ETag, and which messages
it has not handled yet. If it crashes, the next tick of any scheduler repairs the half-done writes.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from everspot_clouds.base import Cloud, CloudInstance, Message, MessageKind, Phase
from everspot_core.manifest import Manifest
from everspot_core.schedule import (
    Action,
    Clear,
    ClusterView,
    Complete,
    Expire,
    Finish,
    Hold,
    Launch,
    Restore,
    StandingAction,
    Tariff,
    Void,
    plan,
    plan_standing,
)
from everspot_store import SchedulerBeat, Store, StoreDenied, StoreMissing, StoreUnavailable

from everspot_scheduler.accounts import Accounts
from everspot_scheduler.act import ActionResult, Actor
from everspot_scheduler.anomalies import AnomalyWatch
from everspot_scheduler.backoff import QUIET_FACTOR, QUIET_TICKS, Backoff
from everspot_scheduler.best_effort import BestEffort
from everspot_scheduler.chains import Chains
from everspot_scheduler.changeovers import ChangeoverLog
from everspot_scheduler.cloud_calls import CloudCalls
from everspot_scheduler.early_tick import EarlyTick
from everspot_scheduler.elastic.manager import ElasticManager
from everspot_scheduler.facts import Facts
from everspot_scheduler.faults import Faults
from everspot_scheduler.federation.manager import Federation, PeerAccess
from everspot_scheduler.federation.peer_access import default_peer_access
from everspot_scheduler.fleet_status import FleetStatusWriter
from everspot_scheduler.heads import Heads
from everspot_scheduler.history import History
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.missed_instances import note_unseen
from everspot_scheduler.notifier import Notifier
from everspot_scheduler.observe import Observation, Observer
from everspot_scheduler.pools import Pools, choices
from everspot_scheduler.preemptions import Preemptions
from everspot_scheduler.recurring import RecurringJobs
from everspot_scheduler.retire import Retirement
from everspot_scheduler.scores import Scores
from everspot_scheduler.spent import SpentMeter
from everspot_scheduler.usage import UsageMeter
from everspot_scheduler.view import PlanInputs, Viewer, notices
from everspot_scheduler.waiting import Waits
from everspot_scheduler.watch.gauge_publisher import GaugePublisher
from everspot_scheduler.watch.watch import Watch, Watcher

BEAT = timedelta(seconds=20)
NAP = timedelta(milliseconds=250)  # how soon a message or a request to stop ends the wait for the next tick
_ROUNDS = 4  # plans per tick: clearing an instance and using it again need not wait for each other
_FREEING = (Clear, Complete, Expire, Finish, Restore, Void)
"""Actions after which a new plan may decide more: they free instances, or settle doubts."""
_log = logging.getLogger(__name__)


class Scheduler:
    """One scheduler of a cluster. There may be others at the same time."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        cloud: Cloud,
        scheduler_id: str,
        instance_id: str | None = None,
        watchers: Sequence[Watcher] = (),
        peer_access: PeerAccess | None = None,
    ) -> None:
        self._store, self._cloud = store, cloud
        self._manifest_watch = ManifestWatch(store, manifest)
        self._observer = Observer(store, self._manifest_watch)
        self._viewer = Viewer(self._manifest_watch, store.clock)
        self._history = History(store)
        self._preemptions, self._faults = Preemptions(store), Faults(store)
        self._notifier = Notifier(store, self._manifest_watch, cloud)
        self._retirement = Retirement(store, self._manifest_watch)
        self._facts, self._ledger = Facts(), Ledger(store, manifest)
        self._actor = Actor(store, self._history, self._faults, self._ledger)
        tick = manifest.limits.tick_every
        self._cloud_calls, self._recurring = CloudCalls(cloud, store.clock, tick), RecurringJobs(store, scheduler_id)
        self._heads = Heads(store)
        self._elastic = ElasticManager(store, cloud, self._manifest_watch, self._facts, self._ledger, scheduler_id)
        peer_access = peer_access or default_peer_access(store, manifest)
        self._federation = Federation(
            store,
            self._manifest_watch,
            self._actor,
            self._history,
            self._ledger,
            peer_access,
            lambda: self._elastic.launched,
        )
        self._scores, self._usage = Scores(store.clock), UsageMeter(store)
        self._accounts, self._changeovers, self._chains = Accounts(store), ChangeoverLog(store), Chains(store)
        self._anomalies = AnomalyWatch(store, scheduler_id, self._accounts, self._manifest_watch)
        self._pools = Pools(self._scores, self._changeovers)
        self._waits, self._fleet_status = Waits(store, scheduler_id), FleetStatusWriter(store, scheduler_id)
        self._watch = Watch(store.clock, [*watchers, GaugePublisher(cloud, self._manifest_watch, store.clock)])
        self._spent, self._beat = SpentMeter(store.clock, self._ledger, tick), Backoff(BEAT)
        self._early_tick, self._best_effort = EarlyTick(store, tick), BestEffort()
        self._digest, self._quiet, self._loaded = 0, 0, False
        now = store.clock.now()
        self._me = SchedulerBeat(scheduler_id=scheduler_id, instance_id=instance_id, started_at=now, updated_at=now)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Tick until `stopped` says so. Errors are logged and the loop goes on; the next tick starts afresh."""
        clock, failures = self._store.clock, 0
        while not stopped():
            began = clock.monotonic()
            try:
                self.tick()
                failures = 0
            except Exception as error:
                failures, self._quiet = min(failures + 1, 4), 0
                self._report(error)
            self._watch.ticked(clock.monotonic() - began, failed=failures > 0)
            slower = 2**failures if failures else QUIET_FACTOR if self._quiet >= QUIET_TICKS else 1
            self._wait(began + slower * self._manifest_watch.limits.tick_every, stopped)

    def _wait(self, until: timedelta, stopped: Callable[[], bool]) -> None:
        clock = self._store.clock
        while not stopped() and (remaining := until - clock.monotonic()) > timedelta(0):
            clock.sleep(min(remaining, NAP))
            if self._receive() or self._early_tick.come():
                return

    def _receive(self) -> bool:
        """Receive the cloud's messages, and return whether one of them requires a tick immediately."""
        received = self._cloud.messages()
        self._facts.receive(received, self._store.clock.monotonic())
        return any(m.kind in (MessageKind.WARNING, MessageKind.ENDED) for m in received)

    def tick(self) -> None:
        """Observe, plan, act and record, once.

        Raises:
            StoreError: if the store failed. The documents written until then remain, and the next tick goes on from
                them.
        """
        self._load()
        self._receive()
        if self._manifest_watch.refresh():
            elastic = self._elastic.declared
            self._ledger.declare(self._manifest_watch.types, elastic.types if elastic is not None else ())
        observation = self._observer.look()
        self._actor.forget_dropped(observation)
        self._ledger.histories.forget(observation.records)

        def is_known(name: str) -> bool:
            launched = name in self._ledger.launches or name in self._elastic.launched
            return launched or name in self._facts.described or name in observation.instances

        urgent = self._facts.wants_newcomers(observation.instances) or self._facts.wants_description(is_known)
        self._cloud_calls.instances(self._facts, urgent=urgent)
        self._facts.understand(is_known)
        self._facts.record_notices(notices(observation))
        self._elastic.look(observation)
        self._decide(observation)
        self._ledger.note_instances(self._facts)
        note_unseen(self._ledger, self._store.clock, self._facts, observation.instances, self._elastic.launched)
        self._faults.look_for_silent(self._facts, observation.instances, self._late)
        self._cloud_calls.prices(self._ledger, self._elastic)
        score_request = self._scores.score_request(
            self._elastic.declared, len(self._waits), observation.owned(), self._ledger.catalogue
        )
        self._cloud_calls.scores(self._scores, score_request)
        self._acknowledge(observation, is_known)
        self._best_effort.do("notifications", lambda: self._notifier.look(observation, self._anomalies.unusual.open))
        self._changeovers.look(observation, self._ledger, self._elastic)
        self._recurring.go_on(observation)  # before the runs that have ended leave the tables
        self._retirement.retire(observation, self._facts, self._ledger)
        self._heartbeat()
        coming = self._elastic.coming(observation.instances)
        self._early_tick.record_observation(observation, coming=coming)
        quiet = observation.digest() == self._digest and not coming
        self._quiet, self._digest = self._quiet + 1 if quiet else 0, observation.digest()

    def _load(self) -> None:
        """Read the documents of earlier schedulers, once, and the price table when it is due."""
        self._ledger.load()
        if not self._loaded:
            self._faults.load()
            self._usage.load()
            self._changeovers.load()
            self._waits.load()
            self._anomalies.load()
            self._loaded = True

    def _late(self, instance: CloudInstance) -> bool:
        """Return whether an instance has lived for longer than it may take to report."""
        lived = (instance.ended_at or self._store.clock.now()) - instance.launched_at
        return self._store.clock.to_real(lived) >= self._manifest_watch.limits.boot_deadline

    def _decide(self, observation: Observation) -> None:
        """Plan and act until nothing changes, a race is lost, or the rounds are used up."""
        self._history.make_up(observation)
        self._spent.look(observation)
        self._federation.look(observation, {job: (s.dollars, s.gpu_hours) for job, s in self._spent.jobs.items()})
        inputs = self._plan_inputs(observation)
        waiting, launches = list[Hold](), list[Launch]()
        for _ in range(_ROUNDS):
            view = self._viewer.view(observation, inputs)
            actions = self._plan(view)
            waiting = [a for a in actions if isinstance(a, Hold)]
            launches = [a for a in actions if isinstance(a, Launch)]
            acting = [a for a in actions if not isinstance(a, Hold | Launch)]
            outcomes = self._actor.carry_out_all(acting, observation)
            done = [a for a, outcome in zip(acting, outcomes, strict=True) if outcome is ActionResult.DONE]
            if ActionResult.LOST in outcomes or not any(isinstance(action, _FREEING) for action in done):
                break
        self._elastic.launch(launches, Tariff(view))
        self._elastic.release(observation, lambda names: self._cloud_calls.end(self._elastic, names))
        self._federation.choose(view, actions)
        best_effort = self._best_effort.do
        best_effort("why jobs wait", lambda: self._waits.note([*waiting, *launches], self._elastic.note))
        best_effort("the state of pools", lambda: self._fleet_status.write(view))
        best_effort("the figures", lambda: self._count(view, waiting))
        best_effort("what is not as usual", lambda: self._look_for_anomalies(view, observation))
        self._watch.launches(self._elastic.settled())

    def _look_for_anomalies(self, view: ClusterView, observation: Observation) -> None:
        self._anomalies.look(view, observation, self._ledger, self._facts.described.values())

    def _count(self, view: ClusterView, waiting: Sequence[Hold]) -> None:
        self._watch.look(view, waiting, self._facts, self._ledger, self._anomalies.unusual)

    def _plan(self, view: ClusterView) -> Sequence[Action | StandingAction]:
        """Return the actions of `plan` if anything is or may be launched, otherwise the actions of `plan_standing`."""
        now = self._store.clock.now()
        return plan(view, now) if self._elastic.active else plan_standing(view, now)

    def _plan_inputs(self, observation: Observation) -> PlanInputs:
        """Return the plan's input beside the documents that were just read."""
        pools = self._pools.look(self._facts, self._ledger, self._elastic, self._store.clock.now())
        waiting = (job.value for name, job in observation.jobs.items() if not _is_final(observation, name))
        return PlanInputs(
            facts=self._facts,
            ledger=self._ledger,
            faults=self._faults.records,
            spent=self._spent.jobs,
            losses=self._preemptions.preemption_times(observation.records),
            usage=self._usage.count(observation, self._ledger, pools),
            pools=pools,
            purses=self._accounts.look(observation, self._ledger),
            unions=self._pools.unions(choices(waiting, pools), pools) if self._elastic.active else {},
            elastic_manager=self._elastic,
            changeovers=self._changeovers,
            head_epochs=self._heads.ahead(observation),
            after=self._chains.predecessor_states(observation),
        )

    def _acknowledge(self, observation: Observation, is_known: Callable[[str], bool]) -> None:
        """Delete the messages whose meaning is in the store from the queue."""
        owned = observation.owned()

        def written(message: Message) -> bool:
            name = message.instance_id
            ended = name in self._ledger.ends and name not in owned
            if message.kind is MessageKind.WARNING:
                assignment = observation.assignments.get(name)
                return ended or self._facts.is_gone(name) or (assignment is not None and assignment.value.cordoned)
            return ended if message.kind in (MessageKind.ENDING, MessageKind.ENDED) else True

        done = self._facts.acknowledgeable(is_known, written)
        if done:
            self._cloud_calls.acknowledge(done)

    def _report(self, error: Exception) -> None:
        if isinstance(error, StoreDenied):
            _log.critical("the store refuses this scheduler: check its credentials and role: %s", error)
        elif isinstance(error, StoreUnavailable | StoreMissing):
            _log.error("the tick was given up: %s", error)
        else:
            _log.exception("the tick was given up")

    def _heartbeat(self) -> None:
        clock = self._store.clock
        self._me = self._me.model_copy(update={"ticks": self._me.ticks + 1, "updated_at": clock.now()})
        if self._beat.take(clock.monotonic()):
            alive = sum(1 for i in self._facts.described.values() if i.phase is Phase.ALIVE)
            detail = f"{alive} instances, {len(self._waits)} jobs waiting"
            beat = self._me.model_copy(update={"detail": detail, "peers": self._federation.sights()})
            self._store.schedulers.put(beat.scheduler_id, beat)


def _is_final(observation: Observation, job: str) -> bool:
    return job in observation.records and observation.records[job].value.state.final
