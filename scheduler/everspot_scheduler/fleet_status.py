"""Writes the scheduler's knowledge of pools and launches to `pools.json` when it changes: for people, and for the other
clusters of its federation."""

import logging
from datetime import timedelta

from everspot_core.federation.market import waited_for
from everspot_core.federation.standing import idle_in
from everspot_core.schedule import ClusterView, Tariff
from everspot_store import ElasticUse, FleetState, IdleState, PoolState, Store, StoreError

from everspot_scheduler.backoff import Backoff

WRITE_EVERY = timedelta(seconds=10)
"""Real time between two writes at the least; what changes meanwhile is written with the next one."""
REFUSALS = 20
"""The most refusals of a pool that are written, the newest ones."""
SPELLS = 16
"""The most past spells of each kind that are written of a pool, the newest ones."""
_log = logging.getLogger(__name__)


class FleetStatusWriter:
    """Writes the status of the fleet. A tick costs nothing while nothing changes, and one write when something does."""

    def __init__(self, store: Store, scheduler_id: str) -> None:
        self._store, self._id = store, scheduler_id
        self._written: FleetState | None = None
        self._backoff = Backoff(WRITE_EVERY)

    def write(self, view: ClusterView) -> None:
        """Write the status if it has changed and is due. A failed write is tried again later."""
        clock = self._store.clock
        if not self._backoff.due(clock.monotonic()):
            return
        now = FleetState(
            scheduler_id=self._id,
            updated_at=clock.now(),
            pools=_pools(view),
            elastic=elastic_use(view),
            idle=_idle(view),
            tick_seconds=view.tick.total_seconds(),
            promised=waited_for(view, clock.now()),
        )
        before = self._written or now.model_copy(update={"pools": [], "elastic": None, "idle": [], "promised": 0})
        if before.model_copy(update={"updated_at": now.updated_at}) == now:
            return
        self._backoff.called(clock.monotonic())
        try:
            self._store.notes.fleet.write(now)
        except StoreError as error:  # a note for people: what the tick has yet to record comes first
            _log.error("what is known of the pools is not written down, and is tried again later: %s", error)
            return
        self._written = now


def _pools(view: ClusterView) -> list[PoolState]:
    return [
        PoolState(
            instance_type=pool.key.instance_type,
            zone=pool.zone,
            market=pool.market,
            usd_per_hour=pool.usd_per_hour,
            placement_score=pool.placement_score,
            refused_at=list(pool.refused_at[-REFUSALS:]),
            noticed_at=pool.noticed_at,
            open=pool.available != 0,
            up=pool.behaviour.up,
            since=pool.behaviour.since,
            ups=[round(hours, 4) for hours in pool.behaviour.ups[-SPELLS:]],
            downs=[round(hours, 4) for hours in pool.behaviour.downs[-SPELLS:]],
            changeover_seconds=pool.changeover.expected.total_seconds() if pool.changeover is not None else None,
            changeover_upper_seconds=pool.changeover.upper.total_seconds() if pool.changeover is not None else None,
        )
        for pool in sorted(view.pools, key=lambda pool: pool.key)
    ]


def _idle(view: ClusterView) -> list[IdleState]:
    return [
        IdleState(instance_type=i.instance_type, market=i.market, count=i.count, memory_gib=i.shape.memory_gib)
        for i in idle_in(view)
    ]


def elastic_use(view: ClusterView) -> ElasticUse | None:
    """Return the number and the cost of launched instances; None if nothing may be launched."""
    if view.cap is None:
        return None
    instances, usd = Tariff(view).launched()
    return ElasticUse(
        instances=instances,
        max_instances=view.cap.instances,
        usd_per_hour=round(usd, 6) if usd is not None else None,
        max_usd_per_hour=view.cap.usd_per_hour,
    )
