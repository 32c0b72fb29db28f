"""The market of another cluster, from its scheduler's document `pools.json`.

This module imports numpy. Commands that only read the document import `fleet_state` instead.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.federation.market import ClusterMarket, Headroom
from everspot_core.federation.standing import Idle
from everspot_core.jobs.changeover import Changeover
from everspot_core.jobs.fit import Shape
from everspot_core.schedule import Behaviour, PoolView

from everspot_store.fleet_state import ElasticUse, FleetState, IdleState, PoolState


def build_market(state: FleetState, cluster: str, types: Mapping[str, InstanceType], *, more: int = 0) -> ClusterMarket:
    """Return the market of a cluster for jobs of others.

    Args:
        state: What the cluster's scheduler has published.
        cluster: The cluster's name.
        types: The instance types by name; pools of other types are left out.
        more: Instances for jobs that were offered to the cluster since then.
    """
    launches = state.pools if state.elastic is not None else []  # without elastic capacity nothing is launched
    pools = tuple(_pool(p, types[p.instance_type]) for p in launches if p.instance_type in types)
    changeovers = [p.changeover for p in pools if p.changeover is not None]
    quickest = (
        Changeover(min(c.expected for c in changeovers), min(c.upper for c in changeovers)) if changeovers else None
    )
    return ClusterMarket(
        cluster=cluster,
        pools=pools,
        unions={},
        tick=timedelta(seconds=state.tick_seconds),
        changeover=quickest,
        headroom=_headroom(state.elastic) if state.elastic is not None else None,
        promised=state.promised + more,
        idle=tuple(_idle(i, types[i.instance_type]) for i in state.idle if i.instance_type in types),
    )


def _idle(idle: IdleState, kind: InstanceType) -> Idle:
    shape = replace(Shape.from_machine(kind), memory_gib=min(kind.memory_gib, idle.memory_gib))
    return Idle(instance_type=kind.name, market=idle.market, shape=shape, count=idle.count)


def _pool(pool: PoolState, kind: InstanceType) -> PoolView:
    """Return the pool as an input of a plan. The document has no number of instances, only whether the pool may be
    asked."""
    return PoolView(
        instance_type=kind,
        zone=pool.zone,
        market=pool.market,
        usd_per_hour=pool.usd_per_hour,
        available=None if pool.open else 0,
        reserved=False,
        behaviour=Behaviour(
            up=pool.up, since=pool.since, first=pool.since, ups=tuple(pool.ups), downs=tuple(pool.downs)
        ),
        placement_score=pool.placement_score,
        refused_at=tuple(pool.refused_at),
        noticed_at=pool.noticed_at,
        changeover=_changeover(pool),
    )


def _changeover(pool: PoolState) -> Changeover | None:
    if pool.changeover_seconds is None or pool.changeover_upper_seconds is None:
        return None
    expected, upper = (timedelta(seconds=s) for s in (pool.changeover_seconds, pool.changeover_upper_seconds))
    return Changeover(expected, upper)


def _headroom(elastic: ElasticUse) -> Headroom:
    """Return the headroom below the cap."""
    return Headroom.under(
        elastic.max_instances,
        elastic.max_usd_per_hour,
        launched=elastic.instances,
        launched_usd=elastic.usd_per_hour,
    )
