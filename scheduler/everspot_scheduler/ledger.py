"""The ledger: when each instance began and stopped costing money, and the prices of its pool in between.

Every figure is written once, by a create-if-absent write, with the times that the cloud states. So it does not
matter how many schedulers write, nor how often one starts again.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, time, timedelta

from everspot_clouds.base import Cloud, CloudInstance, Phase
from everspot_clouds.registry import provider
from everspot_core.capacity.catalogue import Catalogue, InstanceType, builtin
from everspot_core.capacity.price_table import PriceTable, newest_last, priced
from everspot_core.cluster.manifest import Manifest
from everspot_core.costs.job_budget import spent as spent_by
from everspot_core.costs.ledger import UNKNOWN, EndRecord, LaunchRecord, PricePoint
from everspot_core.costs.pool_history import PoolHistory, histories
from everspot_core.costs.prices import PriceBook
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import InstanceRecord, JobRecord, Market, Role
from everspot_core.schedule import PoolKey, Spent
from everspot_core.schedule.placement.queue import SPOT_DISCOUNT
from everspot_store import BadDocument, Store, Versioned

from everspot_scheduler.cloud_facts import Facts
from everspot_scheduler.event_reader import Histories
from everspot_scheduler.parallel import run_parallel

GRACE = timedelta(seconds=90)
"""Real time to wait for the cloud's report of an instance's end. Then the scheduler's own observation is recorded."""
SETTLED = timedelta(hours=2)
"""Market time after which a cost is final. Before, late prices may come, and an instance that the cloud takes in its
first hour becomes free."""
TABLE_EVERY = timedelta(hours=1)
"""Real time between two reads of the price table."""
OVERLAP = timedelta(minutes=30)
"""Market time for which prices are asked for again, since the cloud states some late."""
_log = logging.getLogger(__name__)


class Ledger:
    """Launches, ends and prices of one cluster, including the entries that earlier schedulers wrote."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store, self._region = store, manifest.region
        self.billing = provider(manifest.cloud).billing
        self.declare(manifest.instance_types, prices=manifest.list_prices)
        self.launches: dict[str, LaunchRecord] = {}
        self.ends: dict[str, EndRecord] = {}
        self._points: dict[tuple[str, str, Market, datetime], PricePoint] = {}
        self._latest: dict[tuple[str, str, Market], PricePoint] = {}
        self._priced: dict[tuple[str, str], datetime] = {}
        self._first_missed: dict[str, tuple[timedelta, datetime]] = {}
        self._last_beats: dict[str, str] = {}  # ETags of heartbeats of instances that the cloud no longer describes
        self._last_signs: dict[str, datetime] = {}  # of life, of instances without an end
        self.histories = Histories(store)
        self._loaded = False

    def declare(
        self, types: Iterable[InstanceType], launched: Iterable[str] = (), prices: PriceTable | None = None
    ) -> None:
        """Set the types declared in the settings, the names of the types that may be `launched`, and the prices that
        the cluster was declared with."""
        self._types, self._declared_prices = list(types), prices
        self._table_read: timedelta | None = None  # the price table is applied again on top
        self._declared = {t.name for t in self._types} | set(launched)
        self.catalogue: Catalogue = self._build_catalogue(None)
        self._book: PriceBook | None = None

    def load(self) -> None:
        """Read the stored ledger, once, and the price table every hour."""
        self._load_table()
        if self._loaded:
            return
        self.launches = {n: d.value for n, d in self._store.launches.scan().items()}
        self.ends = {n: d.value for n, d in self._store.ends.scan().items()}
        for point in self._store.prices():
            self._keep_price(point)
        self._loaded = True

    def _load_table(self) -> None:
        """Read the price table again if it is due, because somebody may have written a newer one."""
        now = self._store.clock.monotonic()
        if self._table_read is not None and now - self._table_read < TABLE_EVERY:
            return
        self._table_read = now
        try:
            table = self._store.price_table()
        except BadDocument as error:
            _log.error("%s: the catalogue's own prices are used", error)
            return
        self.catalogue, self._book = self._build_catalogue(table), None

    def _build_catalogue(self, table: PriceTable | None) -> Catalogue:
        """Return the catalogue with the declared prices and a table of the store; the newer price wins."""
        catalogue = builtin()
        for prices in newest_last(table, self._declared_prices):
            catalogue = priced(catalogue, prices)
        return catalogue.with_types(self._types)

    def types(self) -> tuple[InstanceType, ...]:
        """Return the types that this cluster may launch: the declared ones, and the types of all instances so far."""
        names = self._declared | {launch.instance_type for launch in self.launches.values()}
        return tuple(self.catalogue.types[n] for n in sorted(names) if n in self.catalogue.types)

    def note_instances(self, facts: Facts, reports: Iterable[tuple[str, datetime]] = ()) -> None:
        """Write the launches and ends that are in the last description and in the events so far. `reports`: instances
        that reported, and when."""
        new = [i for n, i in facts.described.items() if n not in self.launches]
        run_parallel(self._note_launch, new)
        first = {(i.instance_type, i.zone): i for i in sorted(new, key=lambda i: i.launched_at, reverse=True)}
        for instance in first.values():
            self.note_catalogue_price(self.launches[instance.instance_id])
        for instance in facts.described.values():
            if instance.phase is not Phase.ALIVE and instance.instance_id not in self.ends:
                self._note_end(instance, facts)
        for name in sorted(set(self.launches) - set(self.ends) - set(facts.described)):
            self._note_vanished(name, facts)
        self._note_signs_of_life(facts, reports)

    def _note_signs_of_life(self, facts: Facts, reports: Iterable[tuple[str, datetime]]) -> None:
        """Remember when each instance without an end last lived: by the cloud's description, and by its own reports."""
        clock, signs = self._store.clock, list(reports)
        now = clock.now()
        if facts.described_at is not None:
            described_at = now - clock.to_market(clock.monotonic() - facts.described_at)
            signs += [(n, described_at) for n, i in facts.described.items() if i.phase is not Phase.ENDED]
        for name, at in signs:
            launch = self.launches.get(name)
            for machine in (name, launch.node) if launch is not None and launch.node else (name,):
                earlier = self._last_signs.get(machine)
                self._last_signs[machine] = min(at, now) if earlier is None else max(earlier, min(at, now))
        for name in self.ends.keys() & self._last_signs.keys():
            del self._last_signs[name]

    def costs_until(self, name: str) -> datetime:
        """Return the moment up to which an instance is known to cost money: its end, or now if it lived within GRACE.
        Otherwise this is its last sign of life, because it may have ended while nobody looked."""
        clock, ended = self._store.clock, self.ends.get(name)
        now = clock.now()
        if ended is not None:
            return min(ended.ended_at, now)
        last = self._last_sign(name, now)
        return now if clock.to_real(now - last) <= GRACE else last

    def final_until(self, name: str) -> datetime:
        """Return the moment up to which the cost of an instance is final: no price and no end before it is to come."""
        now, launch, ended = self._store.clock.now(), self.launches[name], self.ends.get(name)
        known_until = now if ended is not None else self._last_sign(name, now)
        if launch.market is Market.SPOT:
            priced_at = self._priced.get((launch.instance_type, launch.zone), launch.launched_at)
            if ended is None or ended.ended_at >= priced_at - OVERLAP:
                known_until = min(known_until, priced_at)
        return known_until - SETTLED

    def _last_sign(self, name: str, now: datetime) -> datetime:
        launch = self.launches.get(name)
        return self._last_signs.get(name, launch.launched_at if launch is not None else now)

    def _note_launch(self, instance: CloudInstance) -> None:
        name = instance.instance_id
        launch = LaunchRecord(
            instance_id=name,
            instance_type=instance.instance_type,
            zone=instance.zone,
            market=instance.market,
            role=instance.role,
            image=instance.image,
            launched_at=instance.launched_at,
            node=instance.node,
            node_share=instance.node_share,
        )
        self.write_launch(launch)

    def write_launch(self, launch: LaunchRecord) -> None:
        """Write a launch; another scheduler may have written the same."""
        self._store.launches.create(launch.instance_id, launch)
        self.launches[launch.instance_id] = launch

    def _note_end(self, instance: CloudInstance, facts: Facts) -> None:
        """Write the end once it is known when and by whom, or when the grace for that has passed."""
        name, cloud_end = instance.instance_id, facts.ends.get(instance.instance_id)
        if cloud_end is not None and instance.phase is Phase.ENDED:
            moment = instance.ended_at or cloud_end.ended_at
            self.write_end(name, moment, interrupted=cloud_end.interrupted, source="describe")
            return
        ended_at, source = instance.ended_at, "describe"
        if ended_at is None and name in facts.ended_at:
            ended_at, source = facts.ended_at[name], "event"
        if ended_at is None or (instance.interrupted is None and instance.phase is not Phase.ENDED):
            waited, first = self._missing(name)
            if instance.phase is not Phase.ENDED or waited < GRACE:
                return
            ended_at, source = ended_at or first, source if ended_at else "observed"
        self.write_end(name, ended_at, interrupted=bool(instance.interrupted), source=source)

    def is_restarted(self, instance: CloudInstance | None) -> bool:
        """Return whether somebody has started an instance again whose end is written. It gets no job: the ledger has
        one end of an instance, so what it costs from then on would be on no bill."""
        end = self.ends.get(instance.instance_id) if instance is not None else None
        if instance is None or end is None:
            return False
        return instance.phase is Phase.ALIVE and instance.launched_at > end.ended_at

    def _note_vanished(self, name: str, facts: Facts) -> None:
        """Write the end of an instance that the cloud no longer describes: as the cloud reports it, otherwise by the
        last heartbeat.

        Without the cloud's report this waits for a grace, since a description may lag behind a launch that another
        scheduler wrote. It also waits while heartbeats come: an instance that lost its tag, or was left out of an
        answer, lives and costs money.
        """
        if (cloud_end := facts.ends.get(name)) is not None:
            self.write_end(name, cloud_end.ended_at, interrupted=cloud_end.interrupted, source="describe")
            return
        heartbeat = self._last_heartbeat(name)
        if not self.is_forgotten(name, heartbeat.etag if heartbeat is not None else "", facts):
            return
        if name in facts.ended_at:
            self.write_end(name, facts.ended_at[name], interrupted=False, source="observed")
            return
        launched_at, (_, missed_at) = self.launches[name].launched_at, self._missing(name)
        # At the latest when the instance was first missed, so that a clock that is ahead adds no hours to the bill.
        last_at = min(heartbeat.value.updated_at, missed_at) if heartbeat is not None else None
        if last_at is None or last_at < launched_at:  # how long it cost money is known to nobody
            self.write_end(name, launched_at, interrupted=False, source=UNKNOWN)
            return
        self.write_end(name, last_at, interrupted=False, source="observed")

    def _last_heartbeat(self, name: str) -> Versioned[InstanceRecord] | None:
        """Return the last report of an instance; of a node, that of the agents on it."""
        agents = [name]
        if self.launches[name].role is Role.NODE:
            agents = [pod for pod, launch in self.launches.items() if launch.node == name]
        beats = self._store.instances.read(agents).values()
        return max(beats, key=lambda beat: beat.value.updated_at, default=None)

    def is_forgotten(self, name: str, beat: str, facts: Facts) -> bool:
        """Return whether it is not described and has been silent, for the grace. `beat`: the ETag of its heartbeat."""
        if beat and self._last_beats.get(name) != beat:
            self._last_beats[name] = beat
            self._first_missed.pop(name, None)
        return self._missing(name)[0] >= GRACE and bool(facts.described)

    def _missing(self, name: str) -> tuple[timedelta, datetime]:
        """Return how long a fact about the instance's end has been missing (real time), and since when (market
        time)."""
        clock = self._store.clock
        since, first = self._first_missed.setdefault(name, (clock.monotonic(), clock.now()))
        return clock.monotonic() - since, first

    def write_end(self, name: str, ended_at: datetime, *, interrupted: bool, source: str) -> None:
        """Write an end; the first that was written counts."""
        end = EndRecord(instance_id=name, ended_at=ended_at, interrupted=interrupted, source=source)
        if self._store.ends.create(name, end) is None:
            try:
                earlier = self._store.ends.get(name)
                end = earlier.value if earlier is not None else end
            except BadDocument as error:  # it stays for people to look at; scheduling goes on with what is known here
                _log.error("%s", error)
        self.ends[name] = end
        self._first_missed.pop(name, None)
        _log.info("%s ended at %s (%s)%s", name, end.ended_at.isoformat(), end.source, ", interrupted" * interrupted)

    def note_prices(self, cloud: Cloud, watched: Iterable[tuple[str, str]] = ()) -> None:
        """Write the spot prices of the pools that the cluster uses or used, from the first launch there on. `watched`:
        pools beside those, whose present price is only kept in memory."""
        now = self._store.clock.now()
        since: dict[tuple[str, str], datetime] = {}
        for launch in self.launches.values():
            pool = (launch.instance_type, launch.zone)
            if launch.market is not Market.SPOT:
                continue
            end = self.ends.get(launch.instance_id)
            priced_at = self._priced.get(pool)
            if end is not None and priced_at is not None and end.ended_at < priced_at - OVERLAP:
                continue
            begin = launch.launched_at if priced_at is None else max(launch.launched_at, priced_at - OVERLAP)
            since[pool] = min(begin, since.get(pool, begin))
        if other_pools := sorted(set(watched) - set(since)):
            for point in cloud.spot_prices(other_pools, now - OVERLAP):
                self._keep_latest(point)
        if not since:
            return
        for point in cloud.spot_prices(sorted(since), min(since.values())):
            self._write_price(point)
        self._priced.update(dict.fromkeys(since, now))

    def note_catalogue_price(self, launch: LaunchRecord) -> None:
        """Write the catalogue's on-demand price of the instance's type, unless it is the newest price of its zone. A
        price without a date, or with one before the newest price, counts from the launch on."""
        pool = PoolKey(launch.instance_type, launch.zone, Market.ON_DEMAND)
        price, newest = self.catalogue.on_demand(launch.instance_type, self._region), self._latest.get(pool)
        if price is None or (newest is not None and newest.usd_per_hour == price.usd_per_hour):
            return
        at = launch.launched_at
        if price.as_of is not None:
            dated = datetime.combine(price.as_of, time(), UTC)
            at = at if newest is not None and dated <= newest.at else min(dated, at)
        if newest is not None and at <= newest.at:  # a launch that was seen late: that price is the newer one
            return
        point = PricePoint(
            instance_type=launch.instance_type,
            zone=launch.zone,
            market=Market.ON_DEMAND,
            at=at,
            usd_per_hour=price.usd_per_hour,
            source=price.source,
        )
        self._write_price(point)

    def _write_price(self, point: PricePoint) -> None:
        if _key(point) not in self._points:
            self._store.add_price(point)
            self._keep_price(point)

    def _keep_price(self, point: PricePoint) -> None:
        self._points[_key(point)] = point
        self._book = None
        self._keep_latest(point)

    def _keep_latest(self, point: PricePoint) -> None:
        pool = point.instance_type, point.zone, point.market
        if pool not in self._latest or self._latest[pool].at <= point.at:
            self._latest[pool] = point

    def prices(self) -> PriceBook:
        """Return the prices of every moment, as far as they are known."""
        if self._book is None:
            self._book = PriceBook(self._points.values(), self.catalogue)
        return self._book

    def points(self) -> list[PricePoint]:
        """Return all written prices, in no order."""
        return list(self._points.values())

    def usd_per_hour(self, pool: PoolKey) -> float | None:
        """Return the present price of an hour in a pool: the newest one, otherwise the catalogue's; None if both are
        unknown."""
        if (point := self._latest.get(pool)) is not None:
            return point.usd_per_hour
        price = self.catalogue.on_demand(pool.instance_type, self._region)
        if price is None:
            return None
        return price.usd_per_hour * (SPOT_DISCOUNT if pool.market is Market.SPOT else 1)

    def pool_history(self, pool: PoolKey, now: datetime) -> PoolHistory:
        """Return the history of one pool until `now`."""
        launches = [n for n in self.launches.values() if (n.instance_type, n.zone, n.market) == pool]
        return histories(launches, self.ends, now).get(pool, PoolHistory())

    def spent(self, jobs: Iterable[tuple[JobSubmission, JobRecord | None]]) -> dict[str, Spent]:
        """Return the amounts that these jobs have used of their budgets so far, by the rules of the bill.

        Jobs that never had an owner are left out.
        """
        prices, now = self.prices(), self._store.clock.now()
        begun = {s.job_id: (s, r) for s, r in jobs if r is not None and r.epoch > 0}
        histories = self.histories.read(r for _, r in begun.values())
        alive_at = {n: self.costs_until(n) for n in (self.launches.keys() | self._last_signs) - self.ends.keys()}
        spent_by_job = {}
        for job, (submission, record) in begun.items():
            used = spent_by(
                histories[job],
                submitted_at=submission.submitted_at,
                now=now,
                launches=self.launches,
                ends=self.ends,
                prices=prices,
                catalogue=self.catalogue,
                rules=self.billing,
                alive_at=alive_at,
                record=record,
            )
            spent_by_job[job] = Spent(dollars=used.dollars, gpu_hours=used.gpu_hours)
        return spent_by_job


def _key(point: PricePoint) -> tuple[str, str, Market, datetime]:
    return (point.instance_type, point.zone, point.market, point.at.replace(microsecond=0))
