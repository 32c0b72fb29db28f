"""Computes the spending of teams and of the environment, by the rules of the bill, per instance.

Without any cap nothing is computed at a tick. Only the daily spending of teams, which the norms need, is computed from
time to time. Costs older than SETTLED are computed once and kept, so the effort depends on recent instances only. A
scheduler that starts reads the archived jobs of this month. Yesterday counts too, if it was of the month before.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from everspot_core.costs.attempts import attempts
from everspot_core.costs.nodes import is_billed, pods_by_node, tenures_by_machine
from everspot_core.costs.occupancy import Tenure, in_order
from everspot_core.costs.team_budgets import Amount, Budgets, CapUse, Period, add, cap_uses, spending
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Event, JobRecord
from everspot_store import BadDocument, Store

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.ledger import SETTLED, Ledger
from everspot_scheduler.observer import Observation

READ_EVERY = timedelta(seconds=10)
"""Real time between two reads of `budgets.json`."""
_OPEN = datetime.max.replace(tzinfo=UTC)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _InstanceCost:
    """The settled cost of an instance, from `since` to `until`."""

    spent: dict[tuple[date, str], Amount]
    since: datetime
    until: datetime


class BudgetSpending:
    """The spending of one cluster's teams and environment, tick by tick."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._backoff, self._budgets = Backoff(READ_EVERY), Budgets()
        self._loaded = False
        self._read_events: dict[str, Sequence[Event]] = {}
        self._claims: dict[str, dict[str, list[Tenure]]] = defaultdict(dict)
        self._costs: dict[str, _InstanceCost] = {}
        self._over: dict[tuple[date, str], Amount] = {}  # of the instances below, together
        self._done: set[str] = set()

    def look(self, observation: Observation, ledger: Ledger) -> tuple[CapUse, ...]:
        """Return every cap with the amount spent of it until now.

        Raises:
            StoreError: if a document could not be read.
        """
        self._read()
        if not any(self._budgets.limits()):
            return ()
        return cap_uses(self._budgets, self.days(observation, ledger), self._store.clock.now())

    def days(self, observation: Observation, ledger: Ledger) -> dict[tuple[date, str], Amount]:
        """Return the spending of each team on each day of this month until now, and on the day before today.

        Raises:
            StoreError: if a document could not be read.
        """
        now = self._store.clock.now()
        since = min(Period.MONTH.begin(now), Period.DAY.begin(now) - timedelta(days=1))
        if any(self._is_past_end(name, ledger) for name in self._costs):
            self._forget()
        self._hear(observation, ledger, since, now)
        total = dict(self._over)
        pods = pods_by_node(ledger.launches.values())
        for name in ledger.launches.keys() - self._done:
            if is_billed(ledger.launches[name], ledger.launches):
                add(total, self._instance_spending(name, pods.get(name, ()), ledger, since))
        self._over = {key: amount for key, amount in self._over.items() if key[0] >= since.date()}
        return {key: amount for key, amount in total.items() if key[0] >= since.date()}

    def _read(self) -> None:
        if not self._backoff.take(self._store.clock.monotonic()):
            return
        try:
            self._budgets = self._store.budgets()
        except BadDocument as error:  # the last known caps apply; an unreadable cap must not allow more spending
            _log.error("%s: the budgets that were read last count", error)

    def _hear(self, observation: Observation, ledger: Ledger, since: datetime, now: datetime) -> None:
        """Learn from the jobs' events who held which instance."""
        if not self._loaded:
            for dossier in self._store.archive.scan(since, now).values():
                self._claim(dossier.submission, dossier.record, dossier.events)
            self._loaded = True
        begun = [d.value for name, d in observation.records.items() if d.value.epoch > 0 and name in observation.jobs]
        histories = ledger.histories.read(begun)
        for record in begun:
            events = histories[record.job_id]
            if self._read_events.get(record.job_id) is not events:
                self._claim(observation.jobs[record.job_id].value, record, events)
        self._read_events = dict(histories)

    def _claim(self, submission: JobSubmission, record: JobRecord | None, events: Iterable[Event]) -> None:
        """Note which instances the job has held. Its record may know the end of the last tenure before its events
        do."""
        job, team = submission.job_id, submission.team
        tenures_by_instance: dict[str, list[Tenure]] = defaultdict(list)
        for attempt in attempts(events, record=record):
            if attempt.instance_id is not None:
                tenures_by_instance[attempt.instance_id].append(
                    Tenure(team, attempt.start, attempt.end or _OPEN, attempt.share, attempt.gpus)
                )
        for instance, tenures in tenures_by_instance.items():
            if instance not in self._done:
                self._claims[instance][job] = tenures

    def _instance_spending(
        self, name: str, pods: Sequence[str], ledger: Ledger, since: datetime
    ) -> dict[tuple[date, str], Amount]:
        """Return the cost of an instance since a midnight. `pods`: of a node, the agents on it."""
        launch, ended = ledger.launches[name], ledger.ends.get(name)
        agents = (name, *pods)
        if ended is not None and ended.ended_at < since:
            self._close(agents)
            return {}
        begin = max(since, launch.launched_at)
        cost = self._costs.setdefault(name, _InstanceCost({}, begin, begin))
        claims = {agent: [t for own in self._claims.get(agent, {}).values() for t in own] for agent in agents}
        tenures = in_order(tenures_by_machine(claims, ledger.launches, ledger.ends)[name])
        kind = ledger.catalogue.types.get(launch.instance_type)
        gpus = kind.gpus if kind is not None else 0
        book, rules, settled = ledger.prices(), ledger.billing, ledger.final_until(name)
        if settled - cost.until >= SETTLED or (ended is not None and ended.ended_at < settled):
            until = max(cost.until, settled)
            before = spending(launch, ended, tenures, gpus=gpus, book=book, rules=rules, since=cost.until, now=until)
            add(cost.spent, before)
            cost.until = until
            for agent in agents:
                self._thin_out(agent, until)
        if ended is not None and ended.ended_at < cost.until:
            self._close(agents)
            add(self._over, cost.spent)
            return cost.spent
        total, until = dict(cost.spent), ledger.costs_until(name)
        add(total, spending(launch, ended, tenures, gpus=gpus, book=book, rules=rules, since=cost.until, now=until))
        return total

    def _is_past_end(self, name: str, ledger: Ledger) -> bool:
        """Return whether a settled cost has time after the end of its instance, which became known later."""
        cost, ended = self._costs[name], ledger.ends.get(name)
        return ended is not None and cost.since < cost.until and ended.ended_at < cost.until

    def _forget(self) -> None:
        """Begin anew, as a scheduler that starts: settled costs were wrong."""
        self._loaded = False
        for memory in (self._read_events, self._claims, self._costs, self._over, self._done):
            memory.clear()

    def _close(self, names: Iterable[str]) -> None:
        for name in names:
            self._done.add(name)
            self._costs.pop(name, None)
            self._claims.pop(name, None)

    def _thin_out(self, name: str, until: datetime) -> None:
        """Forget tenures that had ended by then: the computed cost has them."""
        tenures_by_job = self._claims.get(name, {})
        for job in list(tenures_by_job):
            tenures_by_job[job] = [hold for hold in tenures_by_job[job] if hold.end > until]
            if not tenures_by_job[job]:
                del tenures_by_job[job]
