"""Remembers the refusals of pools. They come from the intents, so every scheduler of the cluster knows them.

- *Capacity*: the pool is left out, with exponential backoff. Price, throttling, permissions and errors of the cloud are
  treated alike.
- *Quota*: every pool that counts towards the quota is left out, with exponential backoff, or until an instance that
  counts towards it has ended. The next request then shows whether the quota was raised.
- *Request*: the pool is left out with this version of the template. A person has to correct something. If the request
  names a resource that the cloud does not know, the pool is first left out with exponential backoff, because clouds
  take a while to know a new resource everywhere.

A launch whose instance the cloud ended within minutes, before it reported, is a refusal too. Otherwise the pool would
be requested again and again, and each time return an instance that costs money.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.capacity.launching import LaunchError, LaunchIntent, LaunchTrouble
from everspot_core.capacity.market import Market
from everspot_core.schedule import PoolKey

from everspot_scheduler.elastic.intents import version_name

REST, REST_MOST = timedelta(minutes=1), timedelta(minutes=8)
"""Market time for which a pool is left out after its first refusal, and at most. It doubles with each consecutive
refusal."""
IN_A_ROW = timedelta(hours=1)
"""Market time within which refusals count as consecutive."""
QUOTA_REST, QUOTA_REST_MOST = timedelta(minutes=5), timedelta(hours=1)
"""The same for a quota. A successful launch of an instance that counts towards the quota resets it."""
UNRESOLVED_FOR = timedelta(minutes=10)
"""Market time after the first refusal of a version for an unknown resource, after which the next such refusal is for
good. It is longer than the minutes that clouds need at most to know a new resource everywhere."""


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """One refusal of a pool. `for_good`: the version of the template is not asked for again."""

    at: datetime
    kind: LaunchTrouble
    code: str
    message: str
    version: str
    for_good: bool


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """The end of a launched instance that never came up. `at`: when it ended, in market time."""

    at: datetime
    error: LaunchError


class Refusals:
    """The refusals of one cluster's pools. `quota_of`: the quota that a type counts towards in a market."""

    def __init__(self, quota_of: Callable[[str, Market], str]) -> None:
        self._quota_of = quota_of
        self._by_pool: dict[PoolKey, list[PoolRefusal]] = {}
        self._by_quota: dict[str, tuple[PoolRefusal, int]] = {}
        self._succeeded: dict[PoolKey, datetime] = {}
        self.by_job: dict[str, PoolRefusal] = {}
        self.dry: dict[PoolKey, tuple[datetime, ...]] = {}

    def learn(self, intents: Iterable[LaunchIntent], failures: Mapping[str, LaunchFailure]) -> None:
        """Replace all knowledge by the outcomes of these settled intents, oldest first. `failures`: by instance.

        `dry` then has, by pool, the times of its capacity refusals, oldest first. `by_job` has the last refusal of each
        job whose last launch provided no instance.
        """
        by_pool: dict[PoolKey, list[PoolRefusal]] = defaultdict(list)
        unresolved_since: dict[tuple[str, str], datetime] = {}
        self._by_quota, self._succeeded, self.by_job = {}, {}, {}
        for intent in intents:
            outcome = intent.outcome
            if outcome is None:
                continue
            version = version_name(intent.template, intent.template_version)
            came_up = [instance for instance in outcome.instances if instance.instance_id not in failures]
            served_jobs = {instance.job_id for instance in came_up}
            for instance in came_up:
                pool = PoolKey(instance.instance_type, instance.zone, instance.market)
                self._succeeded[pool] = outcome.settled_at
                self._by_quota.pop(self._quota(pool), None)
                self.by_job.pop(instance.job_id, None)
            full_quotas: dict[str, PoolRefusal] = {}
            errors = [(outcome.settled_at, error) for error in outcome.errors]
            ends = [failures[i.instance_id] for i in outcome.instances if i.instance_id in failures]
            errors += [(end.at, end.error) for end in ends]
            for at, error in errors:
                for_good = error.kind.for_good
                if error.unresolved:
                    for_good &= at - unresolved_since.setdefault((version, error.code), at) >= UNRESOLVED_FOR
                refusal = PoolRefusal(at, error.kind, error.code, error.message, version, for_good)
                for pool in _pools(intent, error.instance_type, error.zone):
                    by_pool[pool].append(refusal)
                    if error.kind is LaunchTrouble.QUOTA:
                        full_quotas[self._quota(pool)] = refusal
                self.by_job |= dict.fromkeys(set(intent.jobs) - served_jobs, refusal)
            for name, refusal in full_quotas.items():
                _, consecutive = self._by_quota.get(name, (None, 0))
                self._by_quota[name] = refusal, consecutive + 1
        self._by_pool = {pool: sorted(refusals, key=lambda r: r.at) for pool, refusals in by_pool.items()}
        dry = {p: tuple(r.at for r in refusals if r.kind is LaunchTrouble.CAPACITY) for p, refusals in by_pool.items()}
        self.dry = {pool: at for pool, at in dry.items() if at}

    def active_refusal(
        self, pool: PoolKey, now: datetime, version: str, quota_was_freed: Callable[[str, datetime], bool]
    ) -> PoolRefusal | None:
        """Return the refusal for which the pool is left out now; None if the pool may be asked.

        `quota_was_freed`: whether an instance that counts towards a quota has ended since a moment.
        """
        quota_refusal = self._quota_refusal(self._quota(pool), now, quota_was_freed)
        if quota_refusal is not None:
            return quota_refusal
        refusals = self._by_pool.get(pool, [])
        permanent = next((r for r in refusals if r.for_good and r.version == version), None)
        if permanent is not None:
            return permanent
        since = self._succeeded.get(pool)
        transient = [r for r in refusals if not r.for_good and r.kind is not LaunchTrouble.QUOTA]
        consecutive = [r for r in transient if (since is None or r.at >= since) and now - r.at < IN_A_ROW]
        if not consecutive or now - consecutive[-1].at >= _backoff(REST, len(consecutive), REST_MOST):
            return None
        return consecutive[-1]

    def for_good(self, pools: Iterable[PoolKey], version: str) -> PoolRefusal | None:
        """Return the newest refusal if each of these pools refuses this version of the template for good, for example
        because its image is gone; otherwise None."""
        newest: list[PoolRefusal] = []
        for pool in pools:
            permanent = [r for r in self._by_pool.get(pool, []) if r.for_good and r.version == version]
            if not permanent:
                return None
            newest.append(permanent[-1])
        return max(newest, key=lambda refusal: refusal.at, default=None)

    def _quota_refusal(
        self, quota: str, now: datetime, was_freed: Callable[[str, datetime], bool]
    ) -> PoolRefusal | None:
        """Return the refusal for which all pools under the quota are left out now; None if they are not."""
        last, consecutive = self._by_quota.get(quota, (None, 0))
        if last is None or was_freed(quota, last.at):
            return None
        return last if now - last.at < _backoff(QUOTA_REST, consecutive, QUOTA_REST_MOST) else None

    def _quota(self, pool: PoolKey) -> str:
        return self._quota_of(pool.instance_type, pool.market)


def _backoff(first: timedelta, consecutive: int, most: timedelta) -> timedelta:
    """Return the pause after so many consecutive refusals: `first`, doubled with each, but no longer than `most`."""
    return min(first * (1 << min(consecutive - 1, 16)), most)


def _pools(intent: LaunchIntent, instance_type: str, zone: str) -> set[PoolKey]:
    """Return the pools of an intent that a refusal is about. An empty type or zone means all of them."""
    return {
        PoolKey(p.instance_type, p.zone, p.market)
        for p in intent.pools
        if instance_type in ("", p.instance_type) and zone in ("", p.zone)
    }
