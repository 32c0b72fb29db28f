"""Measures changeovers when attempts have ended, keeps them in the ledger, and gives estimates to the plan.

Each ownership counts once, also after a change of schedulers: the document says up to which epoch of each job it
counts. If two schedulers write, the last one wins; both measure the same.
"""

import logging
from collections import deque
from datetime import timedelta

from everspot_core.jobs.changeover import Changeover, Changeovers, Experience, Measurement, added
from everspot_core.jobs.records import Event, JobRecord
from everspot_core.schedule import PoolKey
from everspot_core.schedule.changeover_samples import Arrival, measurements
from everspot_store import BadDocument, Store, StoreError

from everspot_scheduler.backoff import Backoff
from everspot_scheduler.elastic.manager import ElasticManager
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.observer import Observation

AT_ONCE = 8
"""The most jobs whose events are read in one tick."""
OWN = 16
"""The most measurements of each job that are remembered."""
WRITE_EVERY = timedelta(minutes=1)
"""Real time between two writes. If a scheduler dies, the next one measures again what was not written."""
_log = logging.getLogger(__name__)


class ChangeoverLog:
    """The measured changeovers of one cluster."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._samples = Changeovers(updated_at=store.clock.now())
        self._own: dict[str, deque[Measurement]] = {}
        self._backoff, self._changed = Backoff(WRITE_EVERY), False
        self._learn()

    def load(self) -> None:
        """Read the document of the last scheduler.

        Raises:
            StoreError: if the store could not be read.
        """
        try:
            changeovers = self._store.notes.changeovers.read()
        except BadDocument as error:
            _log.error("%s: changeovers are measured anew", error)
            return
        if changeovers is not None:
            self._samples = changeovers
            self._learn()

    def look(self, observation: Observation, ledger: Ledger, elastic_manager: ElasticManager) -> None:
        """Measure the attempts that have ended since the last look, and write the document if it is due.

        Raises:
            StoreError: if the events could not be read; the next look reads them again.
        """
        counted = {name: epoch for name, epoch in self._samples.counted.items() if name in observation.records}
        new = {
            name: document.value for name, document in observation.records.items() if _has_more(document.value, counted)
        }
        some = dict(sorted(new.items())[:AT_ONCE])
        if some:
            events = self._store.events_by_job(list(some))
            document = [
                m
                for name, r in some.items()
                for m in self._measure(r, events[name], counted, observation, ledger, elastic_manager)
            ]
            counted |= {name: _over(record) for name, record in some.items()}
            update = {"counted": counted, "times": added(self._samples.times, document)}
            self._samples, self._changed = self._samples.model_copy(update=update), True
            self._learn()
        self._own = {name: own for name, own in self._own.items() if name in observation.records}
        self._write()

    def for_job(self, job_id: str) -> Changeover | None:
        """Return the estimate of a changeover of this job; None if nothing has been measured yet."""
        own = self._own.get(job_id)
        return self._experience.whole(own=own) if own else self._usual

    @property
    def lasting_bound(self) -> timedelta | None:
        """The bound that deadlines are refused by; None if nothing has been measured yet."""
        return self._lasting

    def to(self, pool: PoolKey) -> Changeover | None:
        """Return the estimate of a changeover to this pool; None if nothing has been measured yet."""
        if self._usual is None:
            return None
        if pool not in self._by_pool:
            self._by_pool[pool] = self._experience.whole(*pool)
        return self._by_pool[pool]

    def _learn(self) -> None:
        self._by_pool: dict[PoolKey, Changeover] = {}
        self._experience = Experience(self._samples.times)
        measured = any(t.seconds for t in self._samples.times)
        self._usual = self._experience.whole() if measured else None
        self._lasting = self._experience.lasting_bound() if measured else None

    def _measure(
        self,
        record: JobRecord,
        events: list[Event],
        counted: dict[str, int],
        observation: Observation,
        ledger: Ledger,
        elastic_manager: ElasticManager,
    ) -> list[Measurement]:
        epochs = range(counted.get(record.job_id, 0) + 1, _over(record) + 1)
        names = {e.instance_id for e in events if e.instance_id is not None}
        arrivals = {name: _arrival(name, observation, ledger, elastic_manager) for name in names}
        day = timedelta(days=1)  # long enough that rounding does not matter
        samples = measurements(events, epochs, arrivals, self._store.clock.to_market(day) / day)
        if not record.state.final:
            self._own.setdefault(record.job_id, deque(maxlen=OWN)).extend(samples)
        return samples

    def _write(self) -> None:
        clock = self._store.clock
        if not self._changed or not self._backoff.due(clock.monotonic()):
            return
        self._backoff.called(clock.monotonic())
        try:
            self._store.notes.changeovers.write(self._samples.model_copy(update={"updated_at": clock.now()}))
            self._changed = False
        except StoreError as error:  # a note for the next scheduler: what is planned and recorded now comes first
            _log.error("what changeovers took is not written down, and is tried again later: %s", error)


def _over(record: JobRecord) -> int:
    """Return the job's last epoch that has ended."""
    return record.epoch - 1 if record.state.owned else record.epoch


def _has_more(record: JobRecord, counted: dict[str, int]) -> bool:
    return _over(record) > counted.get(record.job_id, 0)


def _arrival(name: str, observation: Observation, ledger: Ledger, elastic_manager: ElasticManager) -> Arrival:
    place, launch, instance = (
        elastic_manager.launched.get(name),
        ledger.launches.get(name),
        observation.instances.get(name),
    )
    return Arrival(
        job_id=place.job_id if place is not None else None,
        asked_at=place.made_at if place is not None else None,
        launched_at=launch.launched_at if launch is not None else None,
        booted_at=instance.value.booted_at if instance is not None else None,
    )
