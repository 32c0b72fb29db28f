"""Publish: tell people, peers and the next tick how things stand."""

from collections.abc import Sequence
from datetime import timedelta

from everspot_clouds.base import Phase
from everspot_store import SchedulerBeat

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.early_tick import EarlyTick
from everspot_scheduler.fleet_status import FleetStatusWriter
from everspot_scheduler.phases.part import Tick, TickPart, TickPhase
from everspot_scheduler.phases.services import SchedulerServices
from everspot_scheduler.watch.gauge_publisher import GaugePublisher
from everspot_scheduler.watch.watch import Watch, Watcher

BEAT = timedelta(seconds=20)
"""Real time between two heartbeats of the scheduler."""


class PublishPhase(TickPhase):
    """The last phase of a tick.

    Attributes:
        watch: Those who watch this scheduler's figures.
        early_tick: Detects what calls for the next tick before it is due.
        quiet_ticks: How many ticks in a row changed nothing but heartbeats.
    """

    def __init__(self, services: SchedulerServices, watchers: Sequence[Watcher], instance_id: str | None) -> None:
        store, clock = services.store, services.store.clock
        self._services = services
        self._fleet_status = FleetStatusWriter(store, services.scheduler_id)
        self.watch = Watch(clock, [*watchers, GaugePublisher(services.cloud, services.manifest_watch, clock)])
        self.early_tick = EarlyTick(store, services.manifest_watch.limits.tick_every)
        self.quiet_ticks, self._digest = 0, 0
        now = clock.now()
        self._beat = SchedulerBeat(
            scheduler_id=services.scheduler_id, instance_id=instance_id, started_at=now, updated_at=now
        )
        self._beat_backoff = Backoff(BEAT)
        super().__init__(
            "publish",
            (
                TickPart("why jobs wait", self._write_reasons, best_effort=True),
                TickPart("the state of pools", self._write_pools, best_effort=True),
                TickPart("the figures", self._count, best_effort=True),
                TickPart("outcomes of launches", self._report_launches),
                TickPart("heartbeat", self._write_heartbeat),
                TickPart("next tick", self._prepare_next_tick),
            ),
        )

    def _write_reasons(self, tick: Tick) -> None:
        self._services.waits.note([*tick.waiting_jobs, *tick.launches], self._services.elastic.note)

    def _write_pools(self, tick: Tick) -> None:
        self._fleet_status.write(tick.view)

    def _count(self, tick: Tick) -> None:
        services = self._services
        self.watch.look(tick.view, tick.waiting_jobs, services.facts, services.ledger, services.anomalies.unusual)

    def _report_launches(self, tick: Tick) -> None:
        self.watch.launches(self._services.elastic.settled())

    def _write_heartbeat(self, tick: Tick) -> None:
        services, clock = self._services, self._services.store.clock
        self._beat = self._beat.model_copy(update={"ticks": self._beat.ticks + 1, "updated_at": clock.now()})
        if self._beat_backoff.take(clock.monotonic()):
            alive = sum(1 for i in services.facts.described.values() if i.phase is Phase.ALIVE)
            detail = f"{alive} instances, {len(services.waits)} jobs waiting"
            beat = self._beat.model_copy(update={"detail": detail, "peers": services.federation.sights()})
            services.store.schedulers.put(beat.scheduler_id, beat)

    def _prepare_next_tick(self, tick: Tick) -> None:
        coming = self._services.elastic.coming(tick.observation.instances)
        self.early_tick.record_observation(tick.observation, coming=coming)
        digest = tick.observation.digest()
        quiet = digest == self._digest and not coming
        self.quiet_ticks, self._digest = self.quiet_ticks + 1 if quiet else 0, digest
