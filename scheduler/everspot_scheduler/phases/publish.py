"""Publish: write the status for users, for peers and for the next tick."""

import logging
from collections.abc import Sequence
from datetime import timedelta

from everspot_clouds.base import Phase
from everspot_core.jobs.records import Role
from everspot_store import SchedulerBeat, StoreError

from everspot_scheduler.backoff import IDLE_TICKS, Backoff
from everspot_scheduler.early_tick import EarlyTick
from everspot_scheduler.fleet_status import FleetStatusWriter
from everspot_scheduler.phases.part import Tick, TickPart, TickPhase
from everspot_scheduler.phases.services import SchedulerServices
from everspot_scheduler.watch.gauge_publisher import GaugePublisher
from everspot_scheduler.watch.watch import Watch, Watcher

BEAT = timedelta(seconds=20)
"""Real time between two heartbeats of the scheduler."""
IDLE_BEAT = timedelta(seconds=40)
"""The same between ticks that are far apart. After a minute without one a scheduler counts as silent."""
_log = logging.getLogger(__name__)


class PublishPhase(TickPhase):
    """The last phase of a tick.

    Attributes:
        watch: Passes this scheduler's figures to their readers.
        early_tick: Detects the reasons for a tick before it is due.
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
        self._beat_at: timedelta | None = None
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
        self._services.waits.update([*tick.waiting_jobs, *tick.launches], self._services.elastic.note)

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
            self._beat_at = clock.monotonic()
            described = services.facts.described.values()
            alive = sum(1 for i in described if i.phase is Phase.ALIVE and i.role is not Role.NODE)
            detail = f"{alive} instances, {len(services.waits)} jobs waiting"
            beat = self._beat.model_copy(update={"detail": detail, "peers": services.federation.sights()})
            self._beat = beat
            services.store.schedulers.put(beat.scheduler_id, beat)

    def beat_between_ticks(self) -> None:
        """Write the heartbeat if the next tick comes too late for it. If the store does not answer, the next tick
        reports that."""
        clock = self._services.store.clock
        if self._beat_at is None or clock.monotonic() - self._beat_at < IDLE_BEAT:
            return
        self._beat_at = clock.monotonic()
        beat = self._beat.model_copy(update={"updated_at": clock.now()})
        try:
            self._services.store.schedulers.put(beat.scheduler_id, beat)
        except StoreError as error:
            _log.info("no heartbeat between two ticks: %s", error)

    def _prepare_next_tick(self, tick: Tick) -> None:
        coming = self._services.elastic.coming(tick.observation.instances)
        digest = tick.observation.digest()
        quiet = digest == self._digest and not coming
        self.quiet_ticks, self._digest = self.quiet_ticks + 1 if quiet else 0, digest
        idle = self.quiet_ticks >= IDLE_TICKS and self._has_nothing_to_do(tick)
        self.early_tick.record_observation(tick.observation, coming=coming, idle=idle)

    def _has_nothing_to_do(self, tick: Tick) -> bool:
        """Return whether only a new job can create work: there is no unfinished job, no agent and no request.

        Peers and the cloud's alarms expect to hear of a scheduler every minute, so that with them it is never idle.
        """
        manifest, observation = self._services.manifest_watch.manifest, tick.observation
        agents = any(i.phase is Phase.ALIVE and i.role is Role.AGENT for i in self._services.facts.described.values())
        waiting = any(
            name not in observation.records or not observation.records[name].value.state.final
            for name in observation.jobs
        )
        expected = bool(manifest.federation) or manifest.monitoring is not None
        return not (expected or agents or waiting or observation.draining or observation.instances)
