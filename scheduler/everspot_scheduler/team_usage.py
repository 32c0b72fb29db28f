"""Each team's recent use in dollars. The plan compares it with the teams' shares when jobs wait for their turn."""

import logging
from collections.abc import Mapping
from datetime import timedelta

from everspot_core.jobs.records import JobRecord
from everspot_core.schedule import PoolView
from everspot_core.schedule.placement.queue import Rates
from everspot_store import BadDocument, Store, StoreError, TeamUsage

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.observer import Observation

HALF_LIFE = timedelta(days=7)
"""Market time after which a dollar counts half."""
WRITE_EVERY = timedelta(minutes=5)
"""Real time between two writes. If a scheduler dies, at most this much use is not counted."""
MOST = 1e12
"""Dollars. A stored sum above it is an error."""
_log = logging.getLogger(__name__)


class UsageMeter:
    """Adds up, tick by tick, the cost of the instances of running jobs, and stores it when due."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dollars: dict[str, float] = {}
        self._at = store.clock.now()
        self._backoff, self._written = Backoff(WRITE_EVERY), self._at

    def load(self) -> None:
        """Read the document of the last scheduler.

        Raises:
            StoreError: if the store could not be read.
        """
        try:
            usage = self._store.notes.usage.read()
        except BadDocument as error:
            _log.error("%s: it is added up anew", error)
            return
        if usage is not None:
            self._dollars = {team: used for team, used in usage.dollars.items() if 0 <= used <= MOST}
            self._at = usage.at
            if ignored := sorted(set(usage.dollars) - set(self._dollars)):
                _log.error("usage.json has sums of dollars that cannot be, of %s: added up anew", ", ".join(ignored))

    def count(self, observation: Observation, ledger: Ledger, pools: tuple[PoolView, ...]) -> Mapping[str, float]:
        """Return the dollars by team, with all use until now. They are stored when it is due."""
        now, rates = self._store.clock.now(), Rates(pools, ledger.types())
        begin, span = self._at, max(now - self._at, timedelta(0))
        keep = 0.5 ** (span / HALF_LIFE)
        dollars = {team: used * keep for team, used in self._dollars.items()}
        for name, document in observation.records.items():
            record, job = document.value, observation.jobs.get(name)
            instance = observation.instances.get(record.owner or "")
            if not record.state.owned or job is None or instance is None:
                continue
            until = ledger.costs_until(instance.value.instance_id)
            held_for = max(until - max(begin, record.assigned_at or now), timedelta(0))
            team = job.value.team
            used = rates.rate(instance.value) * (held_for / timedelta(hours=1)) * _share(record, observation)
            dollars[team] = dollars.get(team, 0.0) + used
        self._dollars, self._at = dollars, now
        self._write()
        return dict(dollars)

    def _write(self) -> None:
        if not self._dollars or not self._backoff.take(self._store.clock.monotonic()):
            return
        try:
            self._store.notes.usage.write(TeamUsage(at=self._at, dollars=self._dollars))
        except StoreError as error:  # a note for the next scheduler: what is planned and recorded now comes first
            _log.error("what teams have used is not written down, and is tried again later: %s", error)


def _share(record: JobRecord, observation: Observation) -> float:
    """Return the job's share of its instance: 1, or the share of its seat."""
    assignment = observation.assignments.get(record.owner or "")
    return assignment.value.share(record.job_id) if assignment is not None else 1.0
