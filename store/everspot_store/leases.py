"""The lease of a job by its owner: a part of the job's record, renewed by conditional writes."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from everspot_core.clock import Clock
from everspot_core.jobs import lease as transitions
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.records import JobRecord, JobState, Progress, Reason

from everspot_store.backend import Versioned
from everspot_store.errors import StoreUnavailable
from everspot_store.table import Table

_ROUNDS = 3


@dataclass(frozen=True)
class Claim:
    """An owner's claim to a job: see `Store.acquire`."""

    job_id: str
    epoch: int
    owner: str
    adopt: bool
    from_zero: bool


class Lease:
    """One ownership of a job: (job, epoch, owner). Thread-safe.

    The owner trusts itself for `ttl` after the last successful renewal *began*, by its own monotonic clock. An observer
    declares it dead when the record has not changed for `ttl` on the observer's clock, which starts no earlier than
    that renewal arrived. So the owner always stops first. No two machines' clocks are compared.

    An owner whose `ttl` has passed no longer publishes anything, but may still renew: the write is conditional, so it
    succeeds only if nobody has taken the job. If the scheduler has declared the owner dead meanwhile, the owner takes
    the job back in the same way, unless another owner has got it; `reclaimed` counts that.
    """

    def __init__(
        self,
        records: Table[JobRecord],
        clock: Clock,
        spec: JobSpec,
        record: Versioned[JobRecord],
        ttl: timedelta,
        began: timedelta,
    ) -> None:
        self._records = records
        self._clock = clock
        self._spec = spec
        self._record = record
        self._ttl = ttl
        self._began = began
        self._lost = False
        self.reclaimed = 0
        self._released = False
        self._lock = threading.Lock()
        self.job_id = record.value.job_id
        self.epoch = record.value.epoch
        self.owner = record.value.owner or ""
        self.incarnation = record.value.incarnation

    @property
    def record(self) -> JobRecord:
        """The job's record as this owner last wrote or read it."""
        return self._record.value

    @property
    def valid_until(self) -> timedelta:
        """The time on this machine's monotonic clock at which the lease ends unless it is renewed."""
        return self._began if self._lost or self._released else self._began + self._ttl

    def valid(self) -> bool:
        """Return whether the owner may still write as the owner."""
        return self._clock.monotonic() < self.valid_until

    def renew(self, progress: Progress | None = None) -> bool:
        """Renew the lease, with the progress. Return False if the lease is lost.

        Raises:
            StoreUnavailable: if the store did not answer. The lease holds until `valid_until`; try again.
        """
        with self._lock:
            if self._lost or self._released:
                return False
            began = self._clock.monotonic()
            shown = _finite(progress) if progress is not None else self._record.value.progress
            written = self._write(lambda record: transitions.renew(record, shown, self._clock.now()))
            if written is not None:
                self._began = began
            return written is not None

    def release(
        self,
        reason: Reason,
        *,
        exit_code: int | None = None,
        detail: str = "",
        unstarted: bool = False,
        hopeless: bool = False,
        incomplete: bool = False,
        progress: Progress | None = None,
    ) -> JobRecord | None:
        """Give the job back, or end it. Return the new record, or None if the lease was already lost.

        `progress`: the job's last progress; None: as in the last renewal. It is written together with the release, in
        one conditional write; an owner that has lost the lease writes neither. `unstarted`: this machine could not
        start the program, or broke it. `hopeless`: no retry can help. `incomplete`: the program had finished, and its
        outputs could not be uploaded.

        From the first call on the lease is no longer valid, even if the store cannot be reached.

        Raises:
            StoreUnavailable: if the store did not answer; try again.
        """
        with self._lock:
            if self._lost:
                return None
            self._released = True
            last = _finite(progress) if progress is not None else None
            written = self._write(
                lambda record: transitions.release(
                    record,
                    reason,
                    self._clock.now(),
                    self._spec,
                    exit_code,
                    detail,
                    unstarted,
                    hopeless,
                    incomplete,
                    last,
                )
            )
            self._lost = True
            if written is not None:
                return written.value
            current = self._records.get(self.job_id)
            return current.value if current is not None and self._left_by_us(current.value, reason) else None

    def _left_by_us(self, record: JobRecord, reason: Reason) -> bool:
        """Return whether an earlier call of `release` that got no answer was carried out."""
        same = record.epoch == self.epoch and record.last_owner == self.owner
        return same and not record.state.owned and record.last_reason is reason

    def _write(self, change: Callable[[JobRecord], JobRecord]) -> Versioned[JobRecord] | None:
        """Write a change of the record. A refused write does not prove that the lease is lost: an earlier renewal whose
        answer was lost may have been carried out. So the record is read and decides."""
        for _ in range(_ROUNDS):
            written = self._records.replace(self.job_id, self._record, change(self._record.value))
            if written is not None:
                self._record = written
                return written
            current = self._records.get(self.job_id)
            reclaimed = self._reclaimed(current) if current is not None else None
            if reclaimed is None:
                self._lost = True
                return None
            self._record = reclaimed
        raise StoreUnavailable(f"the record of job {self.job_id} changes faster than it can be renewed")

    def _reclaimed(self, current: Versioned[JobRecord]) -> Versioned[JobRecord] | None:
        """Return the record if it belongs to this owner or can be taken back; otherwise None."""
        for _ in range(_ROUNDS):
            record = current.value
            if record.incarnation != self.incarnation:
                return None
            if record.state is JobState.RUNNING and transitions.owns(record, self.epoch, self.owner):
                return current
            again = transitions.reclaim(record, self.epoch, self.owner, self._clock.now())
            if again is None:
                return None
            written = self._records.replace(self.job_id, current, again)
            if written is not None:
                self.reclaimed += 1
                return written
            reread = self._records.get(self.job_id)
            if reread is None:
                return None
            current = reread
        raise StoreUnavailable(f"the record of job {self.job_id} changes faster than it can be taken back")


def _finite(progress: Progress) -> Progress:
    """Return the progress without numbers that are not finite, because JSON has none."""
    metrics = {name: value for name, value in progress.metrics.items() if math.isfinite(value)}
    rate = progress.steps_per_second
    return progress.model_copy(
        update={"metrics": metrics, "steps_per_second": rate if rate is not None and math.isfinite(rate) else None}
    )


def take(records: Table[JobRecord], clock: Clock, spec: JobSpec, claim: Claim, ttl: timedelta) -> Lease | None:
    """Start the lease of an assigned job. Return None if the job is not assigned to this owner."""
    epoch, owner = claim.epoch, claim.owner
    for _ in range(_ROUNDS):
        began = clock.monotonic()
        old = records.get(claim.job_id)
        if old is None or not transitions.owns(old.value, epoch, owner):
            return None
        new = transitions.start(old.value, epoch, owner, clock.now(), claim.from_zero)
        if new is None and claim.adopt:
            new = transitions.adopt(old.value, epoch, owner, clock.now())
        if new is None:
            return None
        started = records.replace(claim.job_id, old, new)
        if started is not None:
            return Lease(records, clock, spec, started, ttl, began)
    return None
