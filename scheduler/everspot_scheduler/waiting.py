"""Writes why each job waits to `waiting.json`, for people and for the command line, when it changes."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from everspot_core.schedule import NO_WAIT, Hold, Launch, Why, describe_action
from everspot_core.schedule.messages import because
from everspot_store import BadDocument, Store, StoreError, Wait, Waiting, WaitPool

from everspot_scheduler.backoff import Backoff

WRITE_EVERY = timedelta(seconds=10)
"""Real time between two writes at the least; what changes meanwhile is written with the next one."""
_log = logging.getLogger(__name__)


class Waits:
    """The reasons of waiting jobs. They cost nothing while nothing changes, and one write when something does."""

    def __init__(self, store: Store, scheduler_id: str) -> None:
        self._store, self._id = store, scheduler_id
        self._now: dict[str, Wait] = {}
        self._written: dict[str, Wait] | None = None
        self._backoff = Backoff(WRITE_EVERY)

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return len(self._now)

    def load(self) -> None:
        """Read the document of the last scheduler. A reason that still holds keeps the moment at which it was found.

        Raises:
            StoreError: if the store could not be read.
        """
        try:
            waiting = self._store.notes.waiting.read()
        except BadDocument as error:
            _log.error("%s: it is written anew", error)
            waiting = None
        self._now = dict(waiting.jobs) if waiting is not None else {}
        self._written = dict(self._now) if waiting is not None else None

    def withheld(self, job: str, waits_since: datetime) -> timedelta:
        """Return how long the job might not run in its present wait. An entry of an earlier wait is dropped: the
        document still has it if the job began to run, and was preempted, while no scheduler looked."""
        wait, now = self._now.get(job), self._store.clock.now()
        if wait is not None and wait.since < waits_since <= now:
            del self._now[job]
            return timedelta(0)
        return _withheld(wait, now)

    def update(self, waiting: Iterable[Hold | Launch], extra_sentence: Callable[[str], str] = lambda job: "") -> None:
        """Set the jobs that wait now. Changes are logged and written; a failed write is tried again later.

        `extra_sentence`: a further sentence about a waiting job, such as on its last launch, or nothing.
        """
        before, now = self._now, self._store.clock.now()
        self._now = {}
        for hold in waiting:
            wait, words = before.get(hold.job_id), _words(hold, extra_sentence(hold.job_id))
            if wait is None or wait.why != hold.cause.value:
                _log.info("%s", describe_action(hold))
            self._now[hold.job_id] = _wait(wait, hold, words, now)
        self._write()

    def _write(self) -> None:
        written = self._written
        # A job that no longer waits need not be removed: its record shows it.
        news = written is None or any(written.get(job) != wait for job, wait in self._now.items())
        monotonic = self._store.clock.monotonic()
        if not news or not self._backoff.due(monotonic):
            return
        self._backoff.called(monotonic)
        try:
            self._store.notes.waiting.write(
                Waiting(scheduler_id=self._id, updated_at=self._store.clock.now(), jobs=self._now)
            )
        except StoreError as error:  # a note for people: what the tick has yet to record comes first
            _log.error("why jobs wait is not written down, and is tried again later: %s", error)
            return
        self._written = dict(self._now)


def _wait(before: Wait | None, hold: Hold | Launch, words: str, now: datetime) -> Wait:
    """Return the entry of a waiting job. `since` stays as long as the reason is the same, even if its figures change.
    The entry of a back-off does not change, because its seconds only run down."""
    earlier = before if before is not None and before.why == hold.cause.value else None
    if earlier is not None and hold.cause is Why.BACK_OFF:
        return earlier
    pool = hold.ranked[0] if isinstance(hold, Launch) else hold.waits_for
    begins = None if isinstance(hold, Launch) else hold.on_demand_at
    return Wait(
        why=hold.cause.value,
        words=words,
        withheld_seconds=earlier.withheld_seconds if earlier is not None else _withheld(before, now).total_seconds(),
        since=earlier.since if earlier is not None else now,
        waits_for=WaitPool(instance_type=pool.instance_type, zone=pool.zone, market=pool.market) if pool else None,
        on_demand_at=begins.replace(microsecond=0) if begins is not None else None,
    )


def _withheld(wait: Wait | None, now: datetime) -> timedelta:
    """Return how long a job might not run up to now, in the wait of this entry."""
    if wait is None:
        return timedelta(0)
    earlier = timedelta(seconds=wait.withheld_seconds)
    return earlier + max(now - wait.since, timedelta(0)) if wait.why in NO_WAIT else earlier


def _words(hold: Hold | Launch, more: str) -> str:
    """Return the sentence about why the job waits. A job with a launch waits for that."""
    words = because(hold)
    if isinstance(hold, Launch):
        kind = f"{hold.instance_type}, {hold.zone}, {hold.market.value}"
        words = f"{hold.count} instance(s) are being launched for it ({kind}): {words}"
    return f"{words}; {more}" if more else words
