"""Finds spot pools that do worse than usual: they take more instances, or cost more, than before."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from everspot_core.capacity.market import PoolKey
from everspot_core.costs.ledger import EndRecord, LaunchRecord, PricePoint
from everspot_core.jobs.records import Market, Role

RECENT = timedelta(hours=1)
"""Interruptions within this time are compared with earlier ones."""
MIN_INTERRUPTIONS = 2
"""The least number of interruptions within RECENT that may exceed a pool's norm, and by INTERRUPTION_FACTOR."""
INTERRUPTION_FACTOR = 3.0
"""The factor over the expected number of interruptions, by the pool's own past."""
WEEK = timedelta(days=7)
MIN_PRICE_HISTORY = timedelta(days=1)
"""The least span of known prices for a price norm."""
PRICE_FACTOR = 1.5
"""The factor over its mean of the last week above which a price is not usual."""
_HOUR = timedelta(hours=1)


class Norm(StrEnum):
    """The ways in which a pool can do worse than usual."""

    INTERRUPTIONS = "interruptions"
    PRICE = "price"


def over_norm(
    launches: Mapping[str, LaunchRecord],
    ends: Mapping[str, EndRecord],
    prices: Iterable[PricePoint],
    now: datetime,
) -> dict[PoolKey, tuple[Norm, ...]]:
    """Return the spot pools that do worse than usual, each with the norms that it exceeds.

    Only pools count that are in use, or were within RECENT (see `in_use`). `prices`: at least those of these pools."""
    used = in_use(launches, ends, now)
    points: dict[PoolKey, list[PricePoint]] = {pool: [] for pool in used}
    for point in prices:
        pool = PoolKey(point.instance_type, point.zone, point.market)
        if pool in points:
            points[pool].append(point)
    exceeded = {
        pool: (
            *([Norm.INTERRUPTIONS] if _takes_more(pool_launches, ends, now) else []),
            *([Norm.PRICE] if _costs_more(points[pool], now) else []),
        )
        for pool, pool_launches in used.items()
    }
    return {pool: norms for pool, norms in exceeded.items() if norms}


def in_use(
    launches: Mapping[str, LaunchRecord], ends: Mapping[str, EndRecord], now: datetime
) -> dict[PoolKey, list[LaunchRecord]]:
    """Return the spot pools whose norms count now, each with all launches of agents in it."""
    pools: dict[PoolKey, list[LaunchRecord]] = {}
    for launch in launches.values():
        if launch.market is Market.SPOT and launch.role is Role.AGENT:
            pools.setdefault(PoolKey(launch.instance_type, launch.zone, launch.market), []).append(launch)
    return {
        pool: pool_launches
        for pool, pool_launches in pools.items()
        if any(_used(launch, ends, now) for launch in pool_launches)
    }


def _used(launch: LaunchRecord, ends: Mapping[str, EndRecord], now: datetime) -> bool:
    end = ends.get(launch.instance_id)
    return end is None or now - end.ended_at < RECENT


def _takes_more(launches: Iterable[LaunchRecord], ends: Mapping[str, EndRecord], now: datetime) -> bool:
    """Return whether it took many more instances lately, per hour of running ones, than before."""
    begin, interruptions, hours, taken_before, hours_before = now - RECENT, 0, 0.0, 0, 0.0
    for launch in launches:
        end = ends.get(launch.instance_id)
        until = end.ended_at if end is not None else now
        hours += max(timedelta(0), until - max(begin, launch.launched_at)) / _HOUR
        hours_before += max(timedelta(0), min(begin, until) - launch.launched_at) / _HOUR
        if end is not None and end.interrupted:
            interruptions, taken_before = interruptions + (until >= begin), taken_before + (until < begin)
    if interruptions < MIN_INTERRUPTIONS:
        return False
    # The prior is one interruption in ten hours, because a rate of zero is never certain.
    usual = (taken_before + 1) / (hours_before + 10)
    return interruptions > INTERRUPTION_FACTOR * usual * hours


def _costs_more(points: list[PricePoint], now: datetime) -> bool:
    """Return whether its price is far above its mean of the last week."""
    price_and_usual = price_and_mean(points, now, WEEK, MIN_PRICE_HISTORY)
    return price_and_usual is not None and price_and_usual[0] > PRICE_FACTOR * price_and_usual[1]


def price_and_mean(
    points: Iterable[PricePoint], now: datetime, span: timedelta, least: timedelta
) -> tuple[float, float] | None:
    """Return the present price of a pool and its mean over the last `span`, USD an hour. None if less than `least` of
    its past is known."""
    ordered = sorted((point for point in points if point.at <= now), key=lambda point: point.at)
    if not ordered or now - ordered[0].at < least:
        return None
    begin, spent, held_in_all = now - span, 0.0, timedelta(0)
    for n, point in enumerate(ordered):
        until = ordered[n + 1].at if n + 1 < len(ordered) else now
        span_length = max(timedelta(0), until - max(begin, point.at))
        spent, held_in_all = spent + point.usd_per_hour * (span_length / _HOUR), held_in_all + span_length
    return (ordered[-1].usd_per_hour, spent / (held_in_all / _HOUR)) if held_in_all > timedelta(0) else None
