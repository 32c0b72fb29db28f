"""The scheduler's loop: observe, decide, act, record, publish. It holds no state that another scheduler would need.

Between ticks it keeps only caches, the time at which it first saw each ETag, and unhandled messages. After a crash, the
next tick of any scheduler completes half-done writes.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from everspot_clouds.base import Cloud
from everspot_core.cluster.manifest import QUIET_FACTOR, Manifest
from everspot_store import Store, StoreDenied, StoreMissing, StoreUnavailable

from everspot_scheduler.backoff import IDLE_FACTOR, QUIET_TICKS
from everspot_scheduler.federation.manager import PeerAccess
from everspot_scheduler.phases import (
    ActPhase,
    DecidePhase,
    ObservePhase,
    PublishPhase,
    RecordPhase,
    SchedulerServices,
    Tick,
)
from everspot_scheduler.phases.part import TickPhase
from everspot_scheduler.watch.watch import Watcher

WAKEUP_POLL = timedelta(milliseconds=250)
"""How soon a message or a request to stop ends the wait for the next tick."""
_MOST_FAILURES = 4
"""The failures in a row after which the pause is not doubled any more."""
_log = logging.getLogger(__name__)


class Scheduler:
    """One scheduler of a cluster. Other schedulers of the cluster may run at the same time.

    Attributes:
        services: The objects that several phases share.
        observe: The first phase.
        publish: The last phase.
        phases: All phases of a tick, in their order.
    """

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
        self._store = store
        self.services = SchedulerServices.build(store, manifest, cloud, scheduler_id, peer_access)
        self.observe, decide = ObservePhase(self.services), DecidePhase(self.services)
        self.publish = PublishPhase(self.services, watchers, instance_id)
        self.phases: tuple[TickPhase, ...] = (
            self.observe,
            decide,
            ActPhase(self.services, decide),
            RecordPhase(self.services),
            self.publish,
        )

    def run(self, stopped: Callable[[], bool]) -> None:
        """Tick until `stopped` returns True. Errors are logged, and the next tick starts again."""
        clock, failures = self._store.clock, 0
        while not stopped():
            began = clock.monotonic()
            try:
                self.tick()
                failures = 0
            except Exception as error:
                failures, self.publish.quiet_ticks = min(failures + 1, _MOST_FAILURES), 0
                self._report(error)
            self.publish.watch.ticked(clock.monotonic() - began, failed=failures > 0)
            quiet = self.publish.quiet_ticks >= QUIET_TICKS
            idle = self.publish.early_tick.idle
            slower = 2**failures if failures else IDLE_FACTOR if idle else QUIET_FACTOR if quiet else 1
            tick_every = self.services.manifest_watch.limits.tick_every
            try:
                self._wait(began + slower * tick_every, stopped)
            except Exception as error:
                self._report(error)
                clock.sleep(tick_every)

    def _wait(self, until: timedelta, stopped: Callable[[], bool]) -> None:
        clock = self._store.clock
        while not stopped() and (remaining := until - clock.monotonic()) > timedelta(0):
            clock.sleep(min(remaining, WAKEUP_POLL))
            self.publish.beat_between_ticks()
            if self.services.receive_messages() or self.publish.early_tick.detect():
                return

    def tick(self) -> None:
        """Do each phase, once.

        Raises:
            StoreError: if the store failed. Documents written until then remain, and the next tick continues from them.
        """
        tick = Tick()
        for phase in self.phases:
            phase.run(tick)

    def _report(self, error: Exception) -> None:
        if isinstance(error, StoreDenied):
            _log.critical("the store refuses this scheduler: check its credentials and role: %s", error)
        elif isinstance(error, StoreUnavailable | StoreMissing):
            _log.error("the tick was aborted: %s", error)
        else:
            _log.exception("the tick was aborted")
