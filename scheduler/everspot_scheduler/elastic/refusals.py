"""The refusals of pools, from the outcomes of launches, so that every scheduler of the cluster knows them. They fade.

- *Capacity* (and, for as long, price, throttling, permissions and the cloud's own trouble): the pool rests, longer with
  each refusal in a row.
- *Quota*: every pool that counts towards the quota rests for an hour, or until an instance that counts towards it has
  ended. The next request then shows whether the quota was raised.
- *Request*: the pool is not asked again with this version of the template. A person has to correct something.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.launching import LaunchIntent, LaunchTrouble
from everspot_core.market import Market
from everspot_core.schedule import PoolKey

from everspot_scheduler.elastic.intents import version_of

REST, REST_MOST = timedelta(minutes=1), timedelta(minutes=8)
"""Market time for which a pool rests after its first refusal, and at most; it doubles with each refusal in a row."""
IN_A_ROW = timedelta(hours=1)
"""Market time within which refusals count as in a row."""
QUOTA_REST = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal of a pool."""

    at: datetime
    kind: LaunchTrouble
    code: str
    message: str
    version: str


class Refusals:
    """The refusals of one cluster's pools. `quota_of`: the quota that a type counts towards in a market."""

    def __init__(self, quota_of: Callable[[str, Market], str]) -> None:
        self._quota_of = quota_of
        self._by_pool: dict[PoolKey, list[Refusal]] = {}
        self._by_quota: dict[str, Refusal] = {}
        self._succeeded: dict[PoolKey, datetime] = {}
        self.by_job: dict[str, Refusal] = {}
        self.dry: dict[PoolKey, tuple[datetime, ...]] = {}

    def learn(self, intents: Iterable[LaunchIntent]) -> None:
        """Replace all that is known by the outcomes of these settled intents, oldest first.

        `dry` then has, by pool, the times of its capacity refusals, oldest first. `by_job` has the last refusal of each
        job whose last launch brought it no instance.
        """
        found: dict[PoolKey, list[Refusal]] = defaultdict(list)
        self._by_quota, self._succeeded, self.by_job = {}, {}, {}
        for intent in intents:
            outcome = intent.outcome
            if outcome is None:
                continue
            served = [one.job_id for one in outcome.instances]
            for one in outcome.instances:
                self._succeeded[PoolKey(one.instance_type, one.zone, one.market)] = outcome.settled_at
                self.by_job.pop(one.job_id, None)
            for error in outcome.errors:
                version = version_of(intent.template, intent.template_version)
                refusal = Refusal(outcome.settled_at, error.kind, error.code, error.message, version)
                for pool in _pools(intent, error.instance_type, error.zone):
                    found[pool].append(refusal)
                    if error.kind is LaunchTrouble.QUOTA:
                        self._by_quota[self._quota(pool)] = refusal
                self.by_job |= dict.fromkeys(set(intent.jobs) - set(served), refusal)
        self._by_pool = dict(found)
        dry = {p: tuple(r.at for r in told if r.kind is LaunchTrouble.CAPACITY) for p, told in found.items()}
        self.dry = {pool: at for pool, at in dry.items() if at}

    def resting(
        self, pool: PoolKey, now: datetime, version: str, freed: Callable[[str, datetime], bool]
    ) -> Refusal | None:
        """The refusal for which the pool is not to be asked now; None if it may be asked. `freed`: whether an instance
        that counts towards a quota has ended since a moment."""
        quota = self._by_quota.get(self._quota(pool))
        if quota is not None and now - quota.at < QUOTA_REST and not freed(self._quota(pool), quota.at):
            return quota
        mine = self._by_pool.get(pool, [])
        wrong = next((r for r in mine if r.kind.for_good and r.version == version), None)
        if wrong is not None:
            return wrong
        since = self._succeeded.get(pool)
        passing = [r for r in mine if not r.kind.for_good and r.kind is not LaunchTrouble.QUOTA]
        row = [r for r in passing if (since is None or r.at >= since) and now - r.at < IN_A_ROW]
        if row and now - row[-1].at < min(REST * 2 ** (len(row) - 1), REST_MOST):
            return row[-1]
        return None

    def _quota(self, pool: PoolKey) -> str:
        return self._quota_of(pool.instance_type, pool.market)


def _pools(intent: LaunchIntent, instance_type: str, zone: str) -> set[PoolKey]:
    """The pools of an intent that a refusal is about. An empty type or zone stands for all."""
    return {
        PoolKey(p.instance_type, p.zone, p.market)
        for p in intent.pools
        if instance_type in ("", p.instance_type) and zone in ("", p.zone)
    }
