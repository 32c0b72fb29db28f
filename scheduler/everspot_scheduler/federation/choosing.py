"""Decides whether a job should move, by the plan's view of its home and the published figures of the peers.

The decision itself is `everspot_core.federation.decision.decide_move`. This module collects its figures: the market of
the own cluster from the plan's view, the markets of the peers from their `pools.json`, and the way there from the bytes
that would be copied.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from everspot_core.capacity.catalogue import InstanceType, builtin
from everspot_core.cluster.peers import reachable
from everspot_core.federation.data_locality import NO_INPUTS, Inputs
from everspot_core.federation.decision import DEFAULT, Forecast, MovableJob, Move, decide_move, needs_no_move
from everspot_core.federation.forecast import STAYING, MoveCost, forecast_job, may_move, move_cost_to
from everspot_core.federation.market import ClusterMarket, waited_for
from everspot_core.federation.migration import failures_of_hosts, fruitless_visits
from everspot_core.federation.standing import Idle, idle_in, on_standing, standing_home
from everspot_core.jobs.records import JobState
from everspot_core.jobs.visit_records import Trip
from everspot_core.schedule import ClusterView, JobView, PoolKey
from everspot_core.schedule.jobs import critical
from everspot_core.schedule.view import InstanceView, instance_pool
from everspot_store import Store, StoreError
from everspot_store.peer_market import build_market

from everspot_scheduler.federation.outbound import SENT
from everspot_scheduler.federation.peers import News

CHECKPOINT_SIZE_TTL = timedelta(minutes=10)
"""Market time for which the size of a job's newest checkpoint counts as known."""
_log = logging.getLogger(__name__)
_OWNED_STATES = (JobState.RUNNING.value, JobState.ASSIGNED.value)


class MoveChooser:
    """The choice for the jobs of one cluster. It is a function of its arguments and of the sizes in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._checkpoint_sizes: dict[str, tuple[datetime, int]] = {}
        self._data: dict[str, int] = {}
        self._view: ClusterView | None = None
        self._home: _Home | None = None
        self._markets: dict[str, ClusterMarket] = {}
        self._reduced_markets: dict[tuple[str, int], ClusterMarket] = {}
        self._reservations: dict[str, _Reservation] = {}
        self._reported_errors: dict[str, str] = {}

    def __call__(
        self, job: JobView, view: ClusterView, news: Mapping[str, News], home: str, now: datetime
    ) -> Move | None:
        """Return the move that the job should make now; None: it stays. For a job that is away, a move means that it is
        to leave where it is."""
        if not may_move(job, now):
            return None
        if view is not self._view:
            self._view, self._reduced_markets = view, {}
            jobs = {j.job_id: j for j in view.jobs if j.job_id in self._reservations}
            self._reservations = {n: b for n, b in self._reservations.items() if _under_way(b, jobs.get(n), home, now)}
            self._markets = dict(self._peer_markets(view, news))
        if self._home is None or not self._home.is_current(view, home, now):
            self._home = _Home(view, home, now)
        own = self._home
        away = job.record.away if job.record is not None else None
        at = away.cluster if away is not None else home
        here, movable_job = self._here(job, own, now), _movable_job(job, own.host_failures)
        if needs_no_move(movable_job, here, DEFAULT):
            return None
        places = [n for n in self._markets if n != at and reachable(news[n].peer, *_allowed_targets(job))]
        forecasts = [self._at(n, job, now, move_cost=self._move_cost(job, n, news, home, now)) for n in places]
        others = [candidate for candidate in forecasts if candidate is not None]
        if away is not None:
            back = self._move_cost(job, home, news, home, now)
            others.append(_at_home(job, own, back, self._reserved_for(home, job)))
        move = decide_move(movable_job, here, others, DEFAULT, now)
        if move is not None:  # reserve the capacity there, so that the next job does not count on it
            self._reservations[job.job_id] = _Reservation(
                job_id=job.job_id, cluster=move.cluster, nodes=job.nodes, at=now
            )
        elif away is None:  # one that is away may have been called back already
            self._reservations.pop(job.job_id, None)
        return move

    def _here(self, job: JobView, own: "_Home", now: datetime) -> Forecast:
        """Return the forecast where the job is."""
        away = job.record.away if job.record is not None else None
        if away is None:
            return _at_home(job, own, STAYING)
        runs = away.reported_state in _OWNED_STATES
        pool = away.instance.pool if runs and away.instance is not None else None
        peer_forecast = self._at(away.cluster, job, now, held_pool=pool, waits=not runs)
        if peer_forecast is None:  # without facts about the peer, its running job stays
            return Forecast(cluster=away.cluster, feasible=True, usd=None, done_by=job.submission.deadline_at)
        if away.instance is not None and runs and away.instance.standing:
            return on_standing(peer_forecast)
        # A job that leaves a host returns home first, so `restart_by` of the host does not apply.
        peer_forecast = replace(peer_forecast, restart_by=None)
        return replace(peer_forecast, feasible=True, placed=True) if runs else peer_forecast

    def _at(
        self,
        name: str,
        job: JobView,
        now: datetime,
        *,
        held_pool: PoolKey | None = None,
        move_cost: MoveCost = STAYING,
        waits: bool = False,
    ) -> Forecast | None:
        """Return the forecast at a peer; None if nothing is known of it.

        `waits`: the job waits there or is on its way there, so that some of the promised instances are its own. A peer
        whose published figures make no forecast possible is left out of this view's choices. It stops neither the
        choice among others nor home's own work.
        """
        if name not in self._markets:
            return None
        try:
            more = self._reserved_for(name, job) - (job.nodes if waits else 0)
            return forecast_job(job, self._with_promised(name, more), now, held_pool=held_pool, move_cost=move_cost)
        except Exception as error:  # published figures are not trusted: an error leaves out the peer
            del self._markets[name]
            self._report_bad_figures(name, error)
            return None

    def _with_promised(self, name: str, more: int) -> ClusterMarket:
        """Return the market of a peer where so many more instances are promised."""
        if not more:
            return self._markets[name]
        if (name, more) not in self._reduced_markets:
            market = self._markets[name]
            self._reduced_markets[name, more] = replace(market, promised=max(0, market.promised + more))
        return self._reduced_markets[name, more]

    def _reserved_for(self, cluster: str, job: JobView) -> int:
        """Return how many instances other jobs were sent for to a cluster that have yet to leave where they are."""
        return sum(b.nodes for b in self._reservations.values() if b.cluster == cluster and b.job_id != job.job_id)

    def _peer_markets(self, view: ClusterView, news: Mapping[str, News]) -> Iterator[tuple[str, ClusterMarket]]:
        """Yield the markets of the peers that can be read and whose scheduler is alive."""
        for name, status in news.items():
            if status.error or not status.alive or status.manifest is None or status.fleet is None:
                continue
            coming = sum(_coming(job, name) for job in view.jobs)
            try:
                types: Mapping[str, InstanceType] = builtin().with_types(status.manifest.instance_types).types
                yield name, build_market(status.fleet, name, types, more=coming)
            except Exception as error:  # not trusted, as in `_at`
                self._report_bad_figures(name, error)

    def _report_bad_figures(self, name: str, error: Exception) -> None:
        """Report once that the published figures of a peer make no sense."""
        message = f"{type(error).__name__}: {error}"
        if self._reported_errors.get(name) != message:
            self._reported_errors[name] = message
            _log.error("peer %s publishes figures of which no decision can be made: %s", name, message)

    def _move_cost(self, job: JobView, goal: str, news: Mapping[str, News], home: str, now: datetime) -> MoveCost:
        """Return the cost of a job's move to another cluster. A move between two hosts leads through home, which alone
        has access to both. Home has the job's data already, so that only the checkpoint is sent there."""
        away = job.record.away if job.record is not None else None
        checkpoint, legs = self._checkpoint(job, now), list[MoveCost]()
        if away is not None and away.cluster in news:
            legs.append(move_cost_to(Inputs(checkpoint_bytes=checkpoint), news[away.cluster].peer))
        if goal != home:
            inputs = replace(self._data_there(job, news[goal]), checkpoint_bytes=checkpoint)
            legs.append(move_cost_to(inputs, news[goal].peer))
        return sum(legs, start=STAYING)

    def _data_there(self, job: JobView, status: News) -> Inputs:
        """Return the data of a job, and how much of it a peer has. A peer of which that is not known has none, unless
        the job has been there."""
        ids = tuple(job.submission.datasets)
        if not ids:
            return NO_INPUTS
        if ids in status.data:
            return status.data[ids]
        size = sum(self._dataset(dataset) for dataset in ids)
        been = job.record is not None and any(t.cluster == status.peer.name and t.sent_bytes for t in job.record.trips)
        return Inputs(data_bytes=size, present_bytes=size if been else 0)

    def _checkpoint(self, job: JobView, now: datetime) -> int:
        """Return the bytes of the newest checkpoint; the last known size if it cannot be read."""
        at, size = self._checkpoint_sizes.get(job.job_id, (None, 0))
        if job.epoch == 0 or (at is not None and now - at < CHECKPOINT_SIZE_TTL):
            return size
        try:
            head = self._store.heads.get(job.job_id)
        except StoreError:
            return size
        newest = head.value.checkpoints[:1] if head is not None else []
        size = sum(part.size for checkpoint in newest for part in checkpoint.parts)
        self._checkpoint_sizes[job.job_id] = (now, size)
        return size

    def _dataset(self, reference: str) -> int:
        if reference not in self._data:
            try:
                self._data[reference] = self._store.datasets.find_reference(reference).size
            except StoreError:  # it is asked again, and a job without its data goes nowhere
                return 0
        return self._data[reference]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reservation:
    """A job that is to go to a cluster, home or a peer, as was decided `at`."""

    job_id: str
    cluster: str
    nodes: int
    at: datetime


def _under_way(reservation: _Reservation, job: JobView | None, home: str, now: datetime) -> bool:
    """Return whether the job still has to leave its present cluster. Once it is at the other cluster, or on its way,
    its own record says so."""
    if job is None or job.state.final or now - reservation.at >= DEFAULT.patience:
        return False
    away = job.record.away if job.record is not None else None
    return reservation.cluster != (home if away is None else away.cluster)


def _coming(job: JobView, cluster: str) -> int:
    """Return how many instances a job will need that is on its way to a cluster, which does not know of it yet."""
    away = job.record.away if job.record is not None else None
    return job.nodes if away is not None and away.cluster == cluster and away.reported_state in ("", SENT) else 0


class _Home:
    """The facts about home that are the same for all jobs of one tick. Each is counted once, on first use."""

    def __init__(self, view: ClusterView, name: str, now: datetime) -> None:
        self.view, self.name, self.now = view, name, now

    def is_current(self, view: ClusterView, name: str, now: datetime) -> bool:
        """Return whether it is that of this view and moment."""
        return self.view is view and (self.name, self.now) == (name, now)

    @cached_property
    def waiting(self) -> int:
        """How many instances its jobs wait for."""
        return waited_for(self.view, self.now)

    @cached_property
    def host_failures(self) -> dict[str, list[Trip]]:
        """The trips that peers' instances could not run, by peer."""
        return failures_of_hosts(job.record for job in self.view.jobs if job.record is not None)

    @cached_property
    def idle(self) -> tuple[Idle, ...]:
        """The idle instances at home."""
        return idle_in(self.view)

    @cached_property
    def market(self) -> ClusterMarket:
        """Its market, with nothing promised and nothing idle."""
        return ClusterMarket.from_view(self.name, self.view)


def _at_home(job: JobView, own: _Home, move_cost: MoveCost, reserved: int = 0) -> Forecast:
    """Return the forecast at home.

    Idle instances there are for jobs that come back: the plan has just decided that a waiting job gets none of them.
    `reserved`: how many instances there are reserved for other jobs that were called back.
    """
    view, now = own.view, own.now
    if (view.cap is None or not view.pools) and job.state is not JobState.AWAY:
        return standing_home(job, view, own.name, now)
    idle = own.idle if job.state is JobState.AWAY else ()
    waits = job.nodes if job.state is JobState.PENDING else 0
    market = replace(own.market, promised=max(0, own.waiting - waits) + reserved, idle=idle)
    if view.cap is None or not view.pools:
        return forecast_job(job, replace(market, pools=()), now, move_cost=move_cost)
    instance = _instance_of_job(job, view)
    home_forecast = forecast_job(
        job, market, now, held_pool=instance_pool(instance) if instance is not None else None, move_cost=move_cost
    )
    return on_standing(home_forecast) if instance is not None and instance.launched_for is None else home_forecast


def _instance_of_job(job: JobView, view: ClusterView) -> InstanceView | None:
    """Return the instance that the job has, or that is on its way to it."""
    owner = job.record.owner if job.record is not None else None
    for instance in view.instances:
        holds_job = instance.instance_id == owner if owner is not None else instance.launched_for == job.job_id
        if holds_job and not (instance.is_gone or instance.ending):
            return instance
    return None


def _movable_job(job: JobView, host_failures: Mapping[str, list[Trip]]) -> MovableJob:
    """Return the job's facts. `host_failures`: the trips of all jobs that peers' instances could not run. They count as
    the job's own, so that not every job tries the same broken peer."""
    record = job.record
    trips = record.trips if record is not None else []
    away = record.away if record is not None else None
    arrived = [trip.until for trip in trips if trip.sent_bytes] + ([away.offered_at] if away is not None else [])
    budget = job.submission.spec.budget
    last_visits, fruitless = {trip.cluster: trip.until for trip in trips}, fruitless_visits(trips)
    for cluster, failures in host_failures.items():
        last_visits[cluster] = max(last_visits.get(cluster, failures[-1].until), failures[-1].until)
        fruitless[cluster] = max(fruitless.get(cluster, 0), len(failures))
    return MovableJob(
        job_id=job.job_id,
        deadline_at=job.submission.deadline_at,
        has_instance=job.state.owned or (away is not None and away.reported_state in _OWNED_STATES),
        critical=critical(job),
        budgeted=budget.dollars is not None or budget.gpu_hours is not None,
        moved_at=max(arrived, default=None),
        declined=last_visits,
        fruitless_visits=fruitless,
    )


def _allowed_targets(job: JobView) -> tuple[list[str], list[str]]:
    return job.submission.spec.clouds, job.submission.spec.clusters
