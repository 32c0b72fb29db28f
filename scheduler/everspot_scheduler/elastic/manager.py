"""The loop's interface to elastic capacity: launches, releases, limits and refusals."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from everspot_clouds.base import Cloud
from everspot_clouds.registry import provider
from everspot_core.capacity.launching import LaunchIntent, LaunchTrouble
from everspot_core.cluster.manifest import Elastic
from everspot_core.costs.ledger import LaunchRecord
from everspot_core.costs.nodes import list_emptied
from everspot_core.schedule import Cap, Launch, PoolKey, Tariff
from everspot_store import Store

from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.elastic.groups import launchable_pools
from everspot_scheduler.elastic.intents import Intents, Place, version_name
from everspot_scheduler.elastic.launch_cap import RemainingCap
from everspot_scheduler.elastic.launcher import Launcher
from everspot_scheduler.elastic.refusals import IN_A_ROW, LaunchFailure, PoolRefusal, Refusals
from everspot_scheduler.elastic.releaser import Releaser, is_ours, is_unclaimed
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observation

UNSEEN = timedelta(minutes=5)
"""Real time after which a launched instance counts as gone if the cloud never described it and it never reported."""
STARTED_AFTER = timedelta(minutes=10)
"""An instance that the cloud ends for an error later than this after its launch, in market time, counts as started."""
LATELY = timedelta(minutes=1)
"""Real time for which an instance's absence from the cloud's description counts."""
_PASSING = (LaunchTrouble.CAPACITY, LaunchTrouble.TRANSIENT)
_log = logging.getLogger(__name__)


class ElasticManager:
    """The elastic capacity of one cluster. All methods raise the store's errors."""

    def __init__(
        self, store: Store, cloud: Cloud, manifest_watch: ManifestWatch, facts: Facts, ledger: Ledger, scheduler_id: str
    ) -> None:
        self._store, self._manifest_watch, self._facts, self._ledger = store, manifest_watch, facts, ledger
        self._by_hand = provider(manifest_watch.manifest.cloud).by_hand
        self._intents = Intents(store)
        self._launcher = Launcher(store, cloud, self._intents, scheduler_id, manifest_watch.limits.tick_every)
        self._releaser = Releaser(cloud, self._intents, store.clock)
        self.refusals = Refusals(cloud.quota_name)
        self._quota_of = cloud.quota_name
        self._failures: dict[str, LaunchFailure] = {}
        self._reported: set[str] = set()
        self._emptied: list[LaunchRecord] = []
        self._warned_by_hand, self._learnt, self._unpriced = False, (0, 0), False

    @property
    def by_hand(self) -> bool:
        """Whether people start the instances, so that the cloud describes none."""
        return self._by_hand

    @property
    def declared(self) -> Elastic | None:
        """The declared elastic capacity; None if nothing may be launched."""
        elastic = self._manifest_watch.manifest.elastic
        if elastic is not None and self._by_hand:
            if not self._warned_by_hand:
                _log.error("cluster.json declares elastic capacity, and this cluster's cloud has none to launch")
            self._warned_by_hand = True
            return None
        return elastic

    @property
    def active(self) -> bool:
        """Whether anything is launched or may be. False in a cluster of standing fleets alone."""
        return self.declared is not None or bool(self._intents)

    @property
    def launched(self) -> Mapping[str, Place]:
        """Every launched instance by its id, with its place in its intent."""
        return self._intents.launched

    def settled(self) -> Iterator[LaunchIntent]:
        """Return the intents whose outcome is known, oldest first."""
        return self._intents.settled()

    @property
    def cap(self) -> Cap | None:
        """The cap on launched instances; None if nothing may be launched. Nodes without agents that do not end use up
        a part of it."""
        elastic = self.declared
        if elastic is None:
            return None
        pools = [PoolKey(machine.instance_type, machine.zone, machine.market) for machine in self._emptied]
        usd = elastic.max_usd_per_hour
        if usd is not None:
            usd = max(0.0, usd - sum(self._ledger.usd_per_hour(pool) or 0.0 for pool in pools))
        return Cap(instances=max(0, elastic.max_instances - len(pools)), usd_per_hour=usd)

    @property
    def idle_limit(self) -> timedelta:
        """How long a launched instance without work is kept."""
        elastic = self.declared
        return timedelta(0) if elastic is None else elastic.idle_limit

    def look(self, observation: Observation) -> None:
        """Read the intents, and settle those without an outcome."""
        self._unpriced = self._knows_no_price()
        if not self.active and not any(i.launch for i in self._facts.described.values()):
            return
        self._intents.look()
        repeat_requests = self.declared is not None and not observation.draining
        self._launcher.settle_intents(self._facts.described.values(), repeat_requests=repeat_requests)
        self._reported = (self._reported | observation.instances.keys()) & self.launched.keys()
        self._find_failures()
        self._find_emptied()
        self._learn()

    def launch(self, launches: list[Launch], tariff: Tariff) -> None:
        """Launch the instances of the plan, under the cap and by the plan's own prices."""
        elastic, cap = self.declared, self.cap
        if elastic is None or cap is None or not launches:
            return
        living = list(self._living())
        usd = tariff.total(living)
        if usd is None and cap.usd_per_hour is not None:
            _log.error("nothing is launched: no price is known to hold the %d that run to the cap", len(living))
            return
        self._launcher.launch(launches, elastic, RemainingCap(cap, len(living), usd or 0.0), tariff.pool_price)
        self._learn()

    def _living(self) -> Iterator[PoolKey]:
        """Yield the pool of each instance that counts towards the cap: those launched, those of intents that cannot be
        read, and unclaimed ones, which cost money until they have ended."""
        yield from (place.pool for name, place in self.launched.items() if not self.is_gone(name))
        for instance in self._facts.described.values():
            if is_ours(instance, self._intents) and instance.instance_id not in self.launched:
                yield PoolKey(instance.instance_type, instance.zone, instance.market)

    def _learn(self) -> None:
        learnable = self._intents.edition, len(self._failures)
        if self._learnt != learnable:
            self.refusals.learn(self._intents.settled(), self._failures)
            self._learnt = learnable

    def _find_emptied(self) -> None:
        """Find the nodes that something else than an agent keeps, and warn of new ones."""
        earlier = {machine.instance_id for machine in self._emptied}
        self._emptied = list_emptied(self._ledger.launches, self._ledger.ends, self._store.clock.now())
        for name in sorted({machine.instance_id for machine in self._emptied} - earlier):
            _log.warning("%s has no agent any more and does not end: it costs money, and counts towards the cap", name)

    def _find_failures(self) -> None:
        """Note the launched instances that the cloud ended for an error before they reported. What is known of one
        stays while its intent does: the cloud describes an ended instance for a while only."""
        self._failures = {name: failure for name, failure in self._failures.items() if name in self.launched}
        for name, instance in self._facts.described.items():
            if instance.failure is None or name in {*self._failures, *self._reported} or name not in self.launched:
                continue
            end = self._ledger.ends.get(name)
            at = instance.ended_at or (end.ended_at if end is not None else self._store.clock.now())
            if at - instance.launched_at > STARTED_AFTER:
                continue
            self._failures[name] = LaunchFailure(at, instance.failure)
            level = logging.WARNING if instance.failure.kind in _PASSING else logging.ERROR
            _log.log(
                level, "%s (%s in %s) was ended at its launch (%s): %s %s", name, instance.instance_type, instance.zone,
                instance.failure.kind.value, instance.failure.code, instance.failure.message,
            )  # fmt: skip

    def release(self, observation: Observation, end: Callable[[list[str]], None]) -> None:
        """End the instances that are due, through `end`. Then delete the intents that are not needed any more."""
        if not self.active:
            return
        restarted = [name for name, i in self._facts.described.items() if self._ledger.is_restarted(i)]
        names = self._releaser.due(observation, self._facts, self._ledger.ends, restarted)
        if names:
            end(names)
        ended = [name for name in self.launched if name in self._ledger.ends]
        self._intents.forget(ended, self._store.clock.now(), self.version)

    def end(self, names: list[str]) -> None:
        """Ask the cloud to end these instances. Raises the cloud's errors."""
        self._releaser.end(names)

    @property
    def version(self) -> str:
        """The template and its version that launches use now; empty where nothing may be launched."""
        elastic = self.declared
        return "" if elastic is None else version_name(elastic.template, elastic.template_version)

    def is_gone(self, name: str) -> bool:
        """Return whether a launched instance has ended, as far as is known."""
        return name in self._ledger.ends or self._facts.is_gone(name) or self._unseen(name)

    def unclaimed_instances(self) -> set[str]:
        """Return the instances that no intent names: they get no job, and will be ended."""
        return {i.instance_id for i in self._facts.described.values() if is_unclaimed(i, self._intents)}

    def active_refusal(self, pool: PoolKey, now: datetime) -> PoolRefusal | None:
        """Return the refusal for which the pool is left out now; None if it may be asked."""
        return self.refusals.active_refusal(pool, now, self.version, self._freed)

    def note(self, job_id: str) -> str:
        """Return a sentence on the last launch for a job that still waits, or on why nothing is launched; empty without
        either."""
        if self._launcher.trouble:
            return self._launcher.trouble
        if self._unpriced:
            return "no price is known of any pool, so nothing is launched"
        elastic = self.declared
        wrong = self.refusals.for_good(launchable_pools(elastic), self.version) if elastic is not None else None
        if wrong is not None:
            return f"every launch is refused until the stack is corrected: {wrong.code} {wrong.message}".strip()
        last = self.refusals.by_job.get(job_id)
        if last is None or not (last.for_good or self._store.clock.now() - last.at < IN_A_ROW):
            return ""
        return f"its last launch was refused ({last.kind.value}): {last.code} {last.message}".strip()

    def _knows_no_price(self) -> bool:
        """Return whether something may be launched, and no pool has a known price."""
        elastic, price = self.declared, self._ledger.usd_per_hour
        return elastic is not None and all(price(pool) is None for pool in launchable_pools(elastic))

    def coming(self, reported: Iterable[str]) -> bool:
        """Return whether a launched instance has not reported yet."""
        reported_names = set(reported)
        return any(name not in reported_names and not self.is_gone(name) for name in self.launched)

    def _unseen(self, name: str) -> bool:
        """Return whether the cloud said that it launched the instance, and has not described it since."""
        place = self.launched.get(name)
        described = name in self._facts.described or name in self._ledger.launches
        clock, described_at = self._store.clock, self._facts.described_at
        if place is None or described or described_at is None or clock.monotonic() - described_at > LATELY:
            return False
        return clock.to_real(clock.now() - place.settled_at) >= UNSEEN

    def _freed(self, quota: str, since: datetime) -> bool:
        """Return whether an instance that counts towards a quota has ended since."""
        for name, end in self._ledger.ends.items():
            launch = self._ledger.launches.get(name) if end.ended_at > since else None
            if launch is not None and self._quota_of(launch.instance_type, launch.market) == quota:
                return True
        return False
