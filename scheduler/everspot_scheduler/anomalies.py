"""Follows anomalies, tick by tick, and writes them to `ledger/anomalies.json` when they change.

An anomaly that was open when the last scheduler ended stays open, so nothing is reported twice.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from everspot_clouds.base import CloudInstance, Phase
from everspot_core.capacity.market import PoolKey
from everspot_core.costs.baselines import in_use
from everspot_core.governance.anomalies import (
    Anomalies,
    Anomaly,
    DailySpending,
    Finding,
    IdleInstance,
    StandingInstance,
    expensive_pools,
    expensive_teams,
    idle_fleet,
    long_jobs,
    orphaned_capacity,
    suspensions,
)
from everspot_core.governance.thresholds import USUAL, Thresholds
from everspot_core.jobs.records import Role
from everspot_core.schedule import ClusterView, InstanceView
from everspot_core.schedule.provisioning.suspension import suspensions_in
from everspot_store import BadDocument, Store, StoreError

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.budget_spending import BudgetSpending
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observation

LOOK_EVERY = timedelta(minutes=5)
"""Market time between two looks, but at least LEAST of real time."""
SPENT_EVERY = timedelta(minutes=15)
"""The same for adding up what teams have spent."""
LEAST = timedelta(seconds=10)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unusual:
    """The anomalies. `beyond`: the thresholds; `open`: the anomalies that were found last."""

    beyond: Thresholds
    open: Sequence[Anomaly]


AS_USUAL = Unusual(USUAL, ())


class AnomalyWatch:
    """The anomalies of one cluster. An error of the store never stops a tick: the next look tries again."""

    def __init__(
        self, store: Store, scheduler_id: str, budget_spending: BudgetSpending, manifest_watch: ManifestWatch
    ) -> None:
        self._store, self._budget_spending, self._manifest_watch = store, budget_spending, manifest_watch
        clock, now = store.clock, store.clock.now()
        self._backoff, self._spent_backoff = (
            Backoff(max(LEAST, clock.to_real(interval))) for interval in (LOOK_EVERY, SPENT_EVERY)
        )
        self._spent_backoff.called(clock.monotonic())  # a scheduler that starts has more urgent things to read
        self._anomalies = Anomalies(scheduler_id=scheduler_id, updated_at=now)
        self._written = self._anomalies
        self._spending = DailySpending(updated_at=now)

    @property
    def unusual(self) -> Unusual:
        """The anomalies now, by the thresholds that are declared now."""
        return Unusual(self._manifest_watch.manifest.anomalies or USUAL, self._anomalies.open)

    def load(self) -> None:
        """Read the documents of the last scheduler.

        Raises:
            StoreError: if the store could not be read.
        """
        try:
            anomalies, spending = self._store.notes.anomalies.read(), self._store.notes.spending.read()
        except BadDocument as error:
            _log.error("%s: it is written anew", error)
            return
        if anomalies is not None:
            self._anomalies = self._written = anomalies.model_copy(
                update={"scheduler_id": self._anomalies.scheduler_id}
            )
        self._spending = spending or self._spending

    def look(
        self, view: ClusterView, observation: Observation, ledger: Ledger, described: Iterable[CloudInstance] = ()
    ) -> None:
        """Look for anomalies if it is due. `view`: of the last plan of the tick; `described`: the cluster's instances
        as the cloud describes them."""
        monotonic = self._store.clock.monotonic()
        if not self._backoff.take(monotonic):
            return
        try:
            if self._spent_backoff.take(monotonic):
                self._add_up(observation, ledger)
            self._follow([*self._find_anomalies(view, ledger), *self._orphaned(described, ledger)])
        except StoreError as error:  # notes for people: what the tick has yet to record comes first
            _log.error("the anomalies could not be stored; the next look tries again: %s", error)

    def _add_up(self, observation: Observation, ledger: Ledger) -> None:
        days: dict[date, dict[str, float]] = defaultdict(dict)
        for (day, team), amount in self._budget_spending.days(observation, ledger).items():
            days[day][team] = round(amount.dollars, 6)
        before = self._spending
        self._spending = before.with_days(days, self._store.clock.now())
        if self._spending.days != before.days:
            self._store.notes.spending.write(self._spending)

    def _find_anomalies(self, view: ClusterView, ledger: Ledger) -> list[Finding]:
        now, beyond = self._store.clock.now(), self.unusual.beyond
        agents = [i for i in view.instances if not i.is_gone and i.record is not None and i.record.role is Role.AGENT]
        return [
            *long_jobs(((job.submission, job.record) for job in view.jobs), now, beyond),
            *expensive_teams(self._spending.days, now.date(), beyond),
            *idle_fleet([_idling(i, ledger) for i in agents], now, beyond),
            *suspensions(self._suspended_types(view, now)),
            *expensive_pools(in_use(ledger.launches, ledger.ends, now), ledger.points(), now, beyond),
        ]

    def _suspended_types(self, view: ClusterView, now: datetime) -> dict[str, str]:
        elastic = self._manifest_watch.manifest.elastic
        if elastic is None:  # the cluster launches no instances
            return {}
        suspended = suspensions_in(view, now)
        return {name: suspension.message for name, suspension in suspended.items() if name in elastic.types}

    def _orphaned(self, described: Iterable[CloudInstance], ledger: Ledger) -> list[Finding]:
        """Return the fleets and groups that the stack does not declare; none if the stack has not said what it
        declares."""
        try:
            declared = self._store.declared_capacity()
        except BadDocument as error:
            _log.error("%s: what belongs to no stack is not looked for", error)
            return []
        if declared is None:
            return []
        standing = [
            _standing(instance, ledger)
            for instance in described
            if instance.phase is Phase.ALIVE and not instance.launch and instance.role is not Role.NODE
        ]
        return orphaned_capacity(standing, declared.capacity, self._store.clock.now())

    def _follow(self, findings: list[Finding]) -> None:
        now = self._store.clock.now()
        before = {(a.kind, a.subject, a.since) for a in self._anomalies.open}
        self._anomalies = self._anomalies.followed(findings, now)
        for anomaly in self._anomalies.open:
            if (anomaly.kind, anomaly.subject, anomaly.since) not in before:
                _log.warning("%s: %s", anomaly.kind, anomaly.words)
        if (self._anomalies.open, self._anomalies.over) != (self._written.open, self._written.over):
            self._anomalies = self._anomalies.model_copy(update={"updated_at": now})
            self._store.notes.anomalies.write(self._anomalies)
            self._written = self._anomalies


def _standing(instance: CloudInstance, ledger: Ledger) -> StandingInstance:
    usd = ledger.usd_per_hour(PoolKey(instance.instance_type, instance.zone, instance.market))
    return StandingInstance(instance.instance_id, instance.part_of, instance.role.value, instance.launched_at, usd)


def _idling(instance: InstanceView, ledger: Ledger) -> IdleInstance:
    record = instance.record
    assert record is not None  # noqa: S101 - as the caller has seen
    usd = ledger.usd_per_hour(PoolKey(record.instance_type, record.zone, record.market))
    return IdleInstance(usd, instance.idle_since if instance.idle else None)
