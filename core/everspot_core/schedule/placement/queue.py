"""The order in which waiting jobs choose.

1. Jobs that have waited for STARVED, the longest wait first. Whatever others submit, no job that began to wait later
   is ahead of them. That bounds every wait.
2. Critical jobs.
3. Urgent jobs: those whose deadline leaves less than URGENT to spare, the least spare time first.
4. All others by fair share. Within a team those come first that have waited for STARVATION_LIMIT, the longest wait
   first; then the earlier deadline, then the longer wait.

By fair share the team that has used the least for its weight comes first; what it holds now, and what this plan gives
it, counts in advance.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.jobs.records import InstanceRecord, Market
from everspot_core.schedule.jobs import STARVATION_LIMIT, critical, job_outlook, waiting_since
from everspot_core.schedule.view import ClusterView, InstanceView, JobView, PoolKey, PoolView

STARVED = timedelta(days=7)
URGENT = timedelta(hours=1)
FORESIGHT = 1.0
"""Hours that a team is charged in advance for an instance that it holds or is given."""
USD_PER_GPU, USD_PER_VCPU = 1.0, 0.05
"""Assumed prices where none is known, so that shares are at least in proportion to what is used."""
SPOT_DISCOUNT = 1 / 3
"""The assumed spot price as a fraction of the on-demand price, where no spot price is known."""

_NEVER = datetime.max.replace(tzinfo=UTC)
_Order = tuple[int, datetime, datetime, str]
_Turn = tuple[float, _Order, JobView]


def queue_order(job: JobView) -> _Order:
    """Return the order within a team: priority, deadline, age, and the id so that there is never a tie."""
    deadline = job.submission.deadline_at or _NEVER
    return (0 if critical(job) else 1, deadline, job.submission.submitted_at, job.job_id)


def slack(job: JobView, now: datetime) -> timedelta | None:
    """Return the time that the job may still wait if everything takes as long as it can; None without deadline or
    outlook."""
    outlook, deadline = job_outlook(job), job.submission.deadline_at
    if outlook is None or deadline is None:
        return None
    return deadline - now - outlook.remaining_upper - outlook.changeover_upper


class Rates:
    """Hourly prices by pool; failing that by type; failing that by size."""

    def __init__(self, pools: Collection[PoolView], types: Iterable[InstanceType]) -> None:
        self._pools = {p.key: p.usd_per_hour for p in pools}
        priced_types = ((t.name, t.on_demand_usd_per_hour) for t in (*types, *(p.instance_type for p in pools)))
        self._types = {name: usd for name, usd in priced_types if usd is not None}

    def rate(self, record: InstanceRecord) -> float:
        """Return the US dollars an hour of this instance."""
        usd = self._pools.get(PoolKey(record.instance_type, record.zone, record.market))
        if usd is not None:
            return usd
        by_size = record.gpus * USD_PER_GPU + record.vcpus * USD_PER_VCPU
        usd = self._types.get(record.instance_type, by_size)
        return usd * SPOT_DISCOUNT if record.market is Market.SPOT else usd


class Queue:
    """The waiting jobs. Iterate over it once; `charge` the share of each job before asking for the next."""

    def __init__(self, jobs: Iterable[JobView], view: ClusterView, now: datetime, rates: Rates) -> None:
        self._shares = view.shares
        self._used: dict[str, float] = defaultdict(float, view.usage)
        self._charge_running(view, rates)
        self._ahead: list[tuple[int, float, _Order, JobView]] = []
        self._by_team: dict[str, list[_Turn]] = defaultdict(list)
        for job in jobs:
            tier = precedence(job, now)
            if tier is not None:
                self._ahead.append((*tier, queue_order(job), job))
            else:
                wait = (now - waiting_since(job)).total_seconds() if is_aged(job, now) else 0.0
                self._by_team[job.team].append((-wait, queue_order(job), job))

    def __iter__(self) -> Iterator[JobView]:
        for *_, job in sorted(self._ahead, key=lambda a: a[:3]):
            yield job
        yield from self._by_share()

    def _by_share(self) -> Iterator[JobView]:
        teams = self._by_team
        for waiting in teams.values():
            waiting.sort(key=lambda turn: turn[:2], reverse=True)
        heap = [self._turn(team, teams[team]) for team in teams]
        heapify(heap)
        while heap:
            team = heappop(heap)[-1]
            yield teams[team].pop()[-1]
            if teams[team]:
                heappush(heap, self._turn(team, teams[team]))

    def charge(self, job: JobView, usd_per_hour: float) -> None:
        """Note that the job was given capacity at this price."""
        self._used[job.team] += usd_per_hour * FORESIGHT

    def _turn(self, team: str, waiting: list[_Turn]) -> tuple[float, float, _Order, str]:
        weight = self._shares.get(team, 1.0)
        share = self._used[team] / weight if weight > 0 else float("inf")
        return share, *waiting[-1][:2], team

    def _charge_running(self, view: ClusterView, rates: Rates) -> None:
        """Charge the present holdings of teams, because recorded use lags behind: without this a team could take
        everything that becomes free for an hour."""
        jobs = {j.job_id: j for j in view.jobs}
        for instance in view.instances:
            record, holders = instance.record, [j for n in _holders(instance) if (j := jobs.get(n)) is not None]
            for job in holders if record is not None else ():
                assert record is not None  # noqa: S101 - as just seen
                self.charge(job, rates.rate(record) / len(holders))


def _holders(instance: InstanceView) -> tuple[str, ...]:
    assignment = instance.assignment
    return instance.residents or (assignment.jobs if assignment is not None else ())


def precedence(job: JobView, now: datetime) -> tuple[int, float] | None:
    """Return the group of the first three that the job belongs to (0 to 2), and its place there; None: fair share."""
    waited = now - waiting_since(job)
    if waited >= STARVED:
        return 0, -waited.total_seconds()
    if critical(job):
        return 1, 0.0
    spare = slack(job, now)
    if spare is not None and spare < URGENT and not hopeless(job, now):
        return 2, spare.total_seconds()
    return None


def is_aged(job: JobView, now: datetime) -> bool:
    """Return whether the job has waited for STARVATION_LIMIT."""
    return now - waiting_since(job) >= STARVATION_LIMIT


def hopeless(job: JobView, now: datetime) -> bool:
    """Return whether the job misses its deadline even if all goes as expected. It must not take the place of another
    job."""
    outlook, deadline = job_outlook(job), job.submission.deadline_at
    return outlook is not None and deadline is not None and now + outlook.remaining > deadline
