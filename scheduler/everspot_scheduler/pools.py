"""Builds the plan's view of pools: their price, their free capacity, and their past behaviour.

A pool cannot be observed directly. Its capacity is derived from its instances and from refused launches. A pool is up
after a successful launch. It is down from a refusal, or from the moment at which the cloud took its last instance,
until the next launch. The end of an instance that the scheduler terminates says nothing about capacity.

A pool that nobody asks shows nothing new. So a pool that may be asked, and has refused nothing for a while, is presumed
to be up. A wrong presumption costs nothing: a job that would move there launches first and leaves its instance
afterwards. The presumption goes into the plan's view and is stored nowhere: if the next launch is refused, the pool
counts as down for the whole time.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from everspot_core.costs.ledger import LaunchRecord
from everspot_core.jobs.fit import Shape, fits
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Market, Role
from everspot_core.schedule import Behaviour, PoolKey, PoolView

from everspot_scheduler.changeovers import ChangeoverLog
from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.elastic.groups import launchable_pools
from everspot_scheduler.elastic.manager import ElasticManager
from everspot_scheduler.elastic.refusals import REST_MOST
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.scores import Scores

REMEMBERED = timedelta(days=1)
"""Market time after its last event at which a pool without our instances is forgotten."""
PRESUMED = REST_MOST
"""Market time after a pool's last event from which it is presumed to be up."""
_log = logging.getLogger(__name__)


class _Event(NamedTuple):
    """An event of a pool.

    Attributes:
        at: When it happened.
        change: The change of the number of living instances.
        interrupted: Whether the cloud took an instance.
        refused: Whether the pool had no capacity.
    """

    at: datetime
    change: int
    interrupted: bool
    refused: bool


@dataclass(slots=True)
class _Pool:
    """The known facts of one pool. `live`: the number of instances that have neither ended nor got notice. `events`: in
    order of time."""

    launches: list[LaunchRecord] = field(default_factory=list)
    refusals: tuple[datetime, ...] = ()
    events: list[_Event] = field(default_factory=list)
    behaviour: Behaviour = field(default_factory=Behaviour)
    noticed_at: datetime | None = None
    last: datetime | None = None
    live: int = 0


class Pools:
    """The pools of one cluster, by its ledger, the cloud's messages, and the outcomes of launches."""

    def __init__(self, scores: Scores, changeovers: ChangeoverLog) -> None:
        self._scores, self._changeovers = scores, changeovers
        self._pools: dict[PoolKey, _Pool] = {}
        self._launched: set[str] = set()
        self._ended: set[str] = set()
        self._warned: set[str] = set()
        self._unions: dict[frozenset[PoolKey], Behaviour] = {}
        self._unpriced: set[PoolKey] = set()
        self._first: dict[PoolKey, datetime] = {}

    def look(
        self, facts: Facts, ledger: Ledger, elastic_manager: ElasticManager, now: datetime
    ) -> tuple[PoolView, ...]:
        """Return the plan's views of the pools with a known price.

        With elastic capacity these are all pools that may be launched in, otherwise those with recent events. Only
        pools with new events are computed again.
        """
        changed = self._changed(facts, ledger) | self._refused(elastic_manager)
        for key in changed:
            self._recompute(self._pools[key], facts, ledger)
        if changed:
            self._unions.clear()
        elastic = elastic_manager.declared
        if elastic is None:
            return tuple(self._standing(ledger, now))
        return tuple(self._elastic(launchable_pools(elastic), elastic.max_prices, ledger, elastic_manager, now))

    def unions(
        self, choices: Iterable[frozenset[PoolKey]], views: Iterable[PoolView]
    ) -> Mapping[frozenset[PoolKey], Behaviour]:
        """Return how each of these sets of pools has behaved as one, which is up while any of its pools is.

        `views`: the plan's views of all pools.
        """
        up = {v.key: v.behaviour.since for v in views if v.behaviour.up}
        behaviours = {}
        for choice in choices:
            if choice not in self._unions:
                self._unions[choice] = self._merge_behaviour(choice)
            behaviour = self._unions[choice]
            since = min((at for key in choice if (at := up.get(key)) is not None), default=None)
            if not behaviour.up and since is not None:
                behaviour = behaviour.presumed(max(since, behaviour.since or since))
            behaviours[choice] = behaviour
        return behaviours

    def _changed(self, facts: Facts, ledger: Ledger) -> set[PoolKey]:
        """Return the pools with a new launch, warning or end."""
        launched = ledger.launches.keys() - self._launched
        for launch in (ledger.launches[name] for name in launched):
            if launch.role is Role.AGENT:
                self._pools.setdefault(_key(launch), _Pool()).launches.append(launch)
        news = launched | (ledger.ends.keys() - self._ended) | (facts.warned_at.keys() - self._warned)
        self._launched |= launched
        self._ended, self._warned = set(ledger.ends), set(facts.warned_at)
        launches = (ledger.launches[name] for name in news if name in ledger.launches)
        return {_key(launch) for launch in launches if launch.role is Role.AGENT}

    def _refused(self, elastic_manager: ElasticManager) -> set[PoolKey]:
        """Return the pools with new refusals. Old ones stay here after their intents are deleted."""
        news = set()
        for key, at in elastic_manager.refusals.dry.items():
            pool = self._pools.setdefault(key, _Pool())
            if not set(at) <= set(pool.refusals):
                pool.refusals = tuple(sorted({*pool.refusals, *at}))
                news.add(key)
        return news

    def _recompute(self, pool: _Pool, facts: Facts, ledger: Ledger) -> None:
        events = chain(_lives(pool.launches, facts, ledger), (_Event(at, 0, False, True) for at in pool.refusals))
        pool.events = sorted(events, key=lambda e: (e.at, -e.change))
        pool.behaviour, pool.noticed_at, pool.live = Behaviour(), None, 0
        for event in pool.events:
            pool.live += event.change
            up = _availability_after(event, pool.live)
            if up is not None:
                pool.behaviour = pool.behaviour.observe(up, event.at)
            if event.interrupted:
                pool.noticed_at = event.at
        pool.last = pool.events[-1].at if pool.events else None

    def _merge_behaviour(self, choice: Collection[PoolKey]) -> Behaviour:
        events = sorted(
            ((event, key) for key in choice if key in self._pools for event in self._pools[key].events),
            key=lambda e: (e[0].at, -e[0].change),
        )
        behaviour, live, up = Behaviour(), dict.fromkeys(choice, 0), dict.fromkeys(choice, False)
        for event, key in events:
            live[key] += event.change
            is_up = _availability_after(event, live[key])
            if is_up is not None:
                up[key] = is_up
                behaviour = behaviour.observe(any(up.values()), event.at)
        return behaviour

    def _standing(self, ledger: Ledger, now: datetime) -> Iterator[PoolView]:
        for key, pool in sorted(self._pools.items()):
            if pool.live or (pool.last is not None and now - pool.last < REMEMBERED):
                yield from self._view(key, pool, None, (), ledger)

    def _elastic(
        self,
        keys: Iterable[PoolKey],
        max_prices: Mapping[str, float],
        ledger: Ledger,
        elastic_manager: ElasticManager,
        now: datetime,
    ) -> Iterator[PoolView]:
        for key in keys:
            usd, most = ledger.usd_per_hour(key), max_prices.get(key.instance_type)
            if usd is None and key not in self._unpriced:
                _log.error("%s in %s (%s) has no known price: nothing is launched there", *key)
                self._unpriced.add(key)
            is_too_expensive = key.market is Market.SPOT and most is not None and usd is not None and usd > most
            available = not is_too_expensive and elastic_manager.active_refusal(key, now) is None
            pool = self._pools.get(key) or _Pool()
            if available:
                pool = replace(pool, behaviour=self._presumed(key, pool, now))
            yield from self._view(
                key, pool, None if available else 0, elastic_manager.refusals.dry.get(key, ()), ledger
            )

    def _presumed(self, key: PoolKey, pool: _Pool, now: datetime) -> Behaviour:
        """Return the pool's behaviour with the presumption. A pool without any event is up since the first look at
        it."""
        first, behaviour = self._first.setdefault(key, now), pool.behaviour
        since = first if pool.last is None else pool.last + PRESUMED
        return behaviour if since > now else behaviour.presumed(since)

    def _view(
        self, key: PoolKey, pool: _Pool, available: int | None, refused_at: tuple[datetime, ...], ledger: Ledger
    ) -> Iterator[PoolView]:
        kind, usd = ledger.catalogue.types.get(key.instance_type), ledger.usd_per_hour(key)
        if kind is None or usd is None:
            return
        yield PoolView(
            instance_type=kind,
            zone=key.zone,
            market=key.market,
            usd_per_hour=usd,
            available=available,
            reserved=False,
            behaviour=pool.behaviour,
            placement_score=self._scores.score(key),
            refused_at=refused_at,
            noticed_at=pool.noticed_at,
            changeover=self._changeovers.to(key),
        )


def choices(jobs: Iterable[JobSubmission], pools: Iterable[PoolView]) -> set[frozenset[PoolKey]]:
    """Return the set of spot pools that can hold the job, for every kind of job."""
    spot = [p for p in pools if p.market is Market.SPOT]
    return {
        frozenset(p.key for p in spot if fits(need, Shape.from_machine(p.instance_type)))
        for need in {job.spec.resources for job in jobs}
    }


def _availability_after(event: _Event, live: int) -> bool | None:
    """Return whether the pool is up or down from an event on, after which `live` instances run; None: it does not
    show."""
    if event.refused:
        return False
    if event.change > 0:
        return True
    return False if event.interrupted and not live else None


def _lives(launches: Iterable[LaunchRecord], facts: Facts, ledger: Ledger) -> Iterator[_Event]:
    """Yield the events of the pool's instances: their launches and ends."""
    for launch in launches:
        name = launch.instance_id
        yield _Event(launch.launched_at, 1, False, False)
        end, warned = ledger.ends.get(name), facts.warned_at.get(name)
        if end is not None:
            # The cloud's notice counts, no matter who ended the instance.
            at = min(warned, end.ended_at) if warned is not None else end.ended_at
            yield _Event(at, -1, end.interrupted or warned is not None, False)
        elif warned is not None:
            yield _Event(warned, -1, True, False)


def _key(launch: LaunchRecord) -> PoolKey:
    return PoolKey(launch.instance_type, launch.zone, launch.market)
