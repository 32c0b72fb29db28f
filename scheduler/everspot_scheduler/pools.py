"""The observed behaviour of the pools from which the standing fleets take their instances.

Nobody can look into a pool. What is known follows from the instances that came from it: a pool has capacity from a
launch on, and has none from the moment at which it took its last instance away until the next launch. Instances that
were ended by us say nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from everspot_core.ledger import LaunchRecord
from everspot_core.records import Role
from everspot_core.schedule import Behaviour, PoolKey, PoolView

from everspot_scheduler.facts import Facts
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.scores import Scores

REMEMBERED = timedelta(days=1)
"""A pool without instances of ours is forgotten so long after the last thing that was seen of it (market time)."""


@dataclass(slots=True)
class _Pool:
    """What is known of one pool. `live`: instances that are neither ended nor about to be taken."""

    launches: list[LaunchRecord] = field(default_factory=list)
    behaviour: Behaviour = field(default_factory=Behaviour)
    noticed_at: datetime | None = None
    last: datetime | None = None
    live: int = 0


class Pools:
    """The pools of one cluster, by its ledger and by the cloud's messages and scores."""

    def __init__(self, scores: Scores) -> None:
        self._scores = scores
        self._pools: dict[PoolKey, _Pool] = {}
        self._launched: set[str] = set()
        self._ended: set[str] = set()
        self._warned: set[str] = set()

    def look(self, facts: Facts, ledger: Ledger, now: datetime) -> tuple[PoolView, ...]:
        """The pools of which something was seen lately and whose price is known.

        Only pools of which something new is known are reckoned anew.
        """
        for key in self._changed(facts, ledger):
            self._reckon(self._pools[key], facts, ledger)
        return tuple(self._views(ledger, now))

    def _changed(self, facts: Facts, ledger: Ledger) -> set[PoolKey]:
        """The pools of which something new is known: a launch, a warning or an end."""
        launched = ledger.launches.keys() - self._launched
        for launch in (ledger.launches[name] for name in launched):
            if launch.role is Role.AGENT:
                self._pools.setdefault(_key(launch), _Pool()).launches.append(launch)
        news = launched | (ledger.ends.keys() - self._ended) | (facts.warned_at.keys() - self._warned)
        self._launched |= launched
        self._ended, self._warned = set(ledger.ends), set(facts.warned_at)
        found = (ledger.launches[name] for name in news if name in ledger.launches)
        return {_key(launch) for launch in found if launch.role is Role.AGENT}

    def _reckon(self, pool: _Pool, facts: Facts, ledger: Ledger) -> None:
        events = sorted(_events(pool.launches, facts, ledger), key=lambda e: (e[0], -e[1]))
        pool.behaviour, pool.noticed_at, pool.live = Behaviour(), None, 0
        for at, change, taken in events:
            pool.live += change
            if change > 0:
                pool.behaviour = pool.behaviour.seen(True, at)
            if taken:
                pool.noticed_at = at
                if not pool.live:
                    pool.behaviour = pool.behaviour.seen(False, at)
        pool.last = events[-1][0] if events else None

    def _views(self, ledger: Ledger, now: datetime) -> Iterator[PoolView]:
        for key, pool in sorted(self._pools.items()):
            kind, usd = ledger.catalogue.types.get(key.instance_type), ledger.usd_per_hour(key)
            seen = pool.live or (pool.last is not None and now - pool.last < REMEMBERED)
            if kind is None or usd is None or not seen:
                continue
            yield PoolView(
                instance_type=kind,
                zone=key.zone,
                market=key.market,
                usd_per_hour=usd,
                available=None,
                reserved=False,
                behaviour=pool.behaviour,
                placement_score=self._scores.of(key),
                refused_at=(),  # the fleets ask, and their errors name no pool
                noticed_at=pool.noticed_at,
            )


def _events(launches: Iterable[LaunchRecord], facts: Facts, ledger: Ledger) -> Iterator[tuple[datetime, int, bool]]:
    """What happened to the pool's instances: when, how the number of live ones changed, and whether one was taken."""
    for launch in launches:
        name = launch.instance_id
        yield launch.launched_at, 1, False
        end, warned = ledger.ends.get(name), facts.warned_at.get(name)
        if end is not None:
            early = warned is not None and end.interrupted
            yield min(warned or end.ended_at, end.ended_at) if early else end.ended_at, -1, end.interrupted
        elif warned is not None:
            yield warned, -1, True


def _key(launch: LaunchRecord) -> PoolKey:
    return PoolKey(launch.instance_type, launch.zone, launch.market)
