"""The scheduler's part in a federation: home to its own jobs, host to its peers' jobs.

A `Chooser` decides, as a pure function of the plan's view and the published figures of the peers. A waiting job that
should move is sent away before the next plan; a running one is ordered to stop first, as for any other move.
"""

import logging
from collections.abc import Callable, Collection, Container, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from everspot_core.federation import migration
from everspot_core.federation.decision import Move, describe_move
from everspot_core.jobs.records import JobState, Order, Reason
from everspot_core.schedule import ClusterView, Hold, JobView, Stop, Why
from everspot_core.schedule.actions import WITHHELD, Assign, CompleteAssignment
from everspot_store import PeerSight, Store, StoreDenied

from everspot_scheduler.actor import Actor
from everspot_scheduler.backoff import Backoff
from everspot_scheduler.event_writer import History
from everspot_scheduler.federation.background_calls import BackgroundCalls
from everspot_scheduler.federation.data_presence import DataPresence
from everspot_scheduler.federation.inbound import InboundVisits
from everspot_scheduler.federation.market_status import MarketStatusWriter
from everspot_scheduler.federation.offer_expiry import delete_ended_offers
from everspot_scheduler.federation.outbound import OutboundMoves
from everspot_scheduler.federation.peers import News, Opener, Peers
from everspot_scheduler.ledger import Ledger
from everspot_scheduler.manifest_watch import ManifestWatch
from everspot_scheduler.observer import Observation

LISTEN_EVERY = timedelta(seconds=20)
"""Real time between two looks at what peers publish."""
STEP_EVERY = timedelta(seconds=5)
"""Real time between two steps of moves."""
HOST_EVERY = timedelta(seconds=10)
"""Real time between two looks for offers of peers while no visit is here. With one there is a look before each plan,
since a visit that is called back must get no instance again."""
SWEEP_EVERY = timedelta(hours=1)
"""Real time between two looks for offers that are over for long."""
_log = logging.getLogger(__name__)

Chooser = Callable[[JobView, ClusterView, Mapping[str, News], str, datetime], Move | None]
"""Says whether a job should move now: by its view, the view of its home, the news of the peers, home's name and the
time. For a job that is away a move to any other cluster means that it is called back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAccess:
    """How a federation reaches its peers.

    Attributes:
        opener: Opens a peer's store.
        chooser: Decides whether a job moves.
        threads: The most concurrent calls of each kind: news, steps, copies to hosts, copies home. 0: the loop makes
            them all.
    """

    opener: Opener
    chooser: Chooser
    threads: int = 4


class Federation:
    """The moves and visits between this cluster and its peers."""

    def __init__(
        self,
        store: Store,
        manifest_watch: ManifestWatch,
        actor: Actor,
        history: History,
        ledger: Ledger,
        peer_access: PeerAccess,
        launched: Callable[[], Container[str]],
    ) -> None:
        """`launched`: the instances that were launched for jobs."""
        self._store, self._actor, self._choose = store, actor, peer_access.chooser
        self._data = DataPresence(store)
        self._peers = Peers(manifest_watch, peer_access.opener, store.clock, self._data)
        self._markets = MarketStatusWriter(store)
        # A copy takes hours: no cancel, no news of a peer and no result of an ended visit may wait for one to a host.
        news, steps, to_hosts, to_home = (BackgroundCalls(peer_access.threads) for _ in range(4))
        self._news_calls, self._step_calls = news, steps
        self._outbound = OutboundMoves(store, self._peers, history, self._peers.home, to_hosts, to_home)
        self._inbound = InboundVisits(store, manifest_watch, actor, ledger, launched)
        self._listen, self._steps, self._sweep = Backoff(LISTEN_EVERY), Backoff(STEP_EVERY), Backoff(SWEEP_EVERY)
        self._visits = Backoff(HOST_EVERY)
        self._moves: dict[str, Move] = {}
        self._withheld: dict[str, timedelta] = {}  # of the jobs in `_moves`, at the decision
        self._back: dict[str, str] = {}
        self._undecided: set[str] = set()

    def look(self, observation: Observation, spent: Mapping[str, tuple[float, float]]) -> None:
        """Serve visits, send away the jobs that should move, and go on with moves, before a plan. `spent`: the dollars
        and GPU-hours of jobs that have a budget in them.

        Raises:
            StoreError: if the own store failed.
        """
        away = [name for name, document in observation.records.items() if document.value.state is JobState.AWAY]
        if not self._peers.all and not away:
            return
        now = self._store.clock.monotonic()
        if self._visits.take(now) or any(job.value.visit is not None for job in observation.jobs.values()):
            self._serve_visits(observation)
        if observation.draining:
            self._moves, self._back = {}, dict.fromkeys(away, f"{self._peers.home} is being drained")
        self._begin_moves(observation)
        if self._listen.take(now):
            self._news_calls.begin("news of peers", self._poll_peers)
        if self._data.due(self._peers.readable()):
            self._news_calls.begin("data of peers", self._peers.look_for_data)
        if self._sweep.take(now):
            self._news_calls.begin("old offers", lambda: delete_ended_offers(self._store, self._peers))
        if away and self._steps.take(now):
            visits = {r.value.away.visit for r in observation.records.values() if r.value.away is not None}
            self._outbound.forget(visits)
            for name in away:
                used, back = spent.get(name, (0.0, 0.0)), self._back.pop(name, "")
                self._step_calls.begin(f"the move of {name}", self._continue_move(name, used, back))

    def choose(self, view: ClusterView, actions: Collection[object]) -> None:
        """Decide, after a plan, which jobs move. `actions`: the plan's. A job that the plan has just given an instance
        still waits in `view`, and stays. A job with datasets waits until the peers were asked which of them they
        have."""
        if not self._peers.news() or view.draining:
            return
        withheld = {a.job_id for a in actions if isinstance(a, Hold) and a.cause in WITHHELD}
        withheld |= {a.job_id for a in actions if isinstance(a, Assign | CompleteAssignment)}
        now = self._store.clock.now()
        begun = {name: move for name, move in self._moves.items() if self._stopping(view, name)}
        self._moves, self._withheld = {}, {}
        movable = {job.job_id: tuple(job.submission.datasets) for job in view.jobs if _is_movable(job)}
        self._data.want(movable.values())
        readable = self._peers.readable()
        decidable = {name for name, ids in movable.items() if self._data.is_known(ids, readable)} - withheld
        news = self._peers.news()  # after `decidable`, so that it contains the answers of which that speaks
        for job in view.jobs:
            if job.job_id in begun:
                self._moves[job.job_id] = begun[job.job_id]
            elif job.job_id in decidable and not job.cancel:
                move = self._chosen(job, view, news, now)
                if move is not None and job.state is JobState.AWAY:
                    self._back[job.job_id] = describe_move(move)
                elif move is not None:
                    self._moves[job.job_id], self._withheld[job.job_id] = move, job.withheld

    @property
    def leaving_jobs(self) -> Set[str]:
        """The jobs whose move to a peer was decided, and begins before the next plan."""
        return self._moves.keys()

    def _poll_peers(self) -> None:
        self._peers.listen()
        self._markets.write(self._peers.news())

    def sights(self) -> list[PeerSight]:
        """Return the peers as they were last seen, for the heartbeat."""
        return self._peers.sights()

    def _chosen(self, job: JobView, view: ClusterView, news: Mapping[str, News], now: datetime) -> Move | None:
        """Return the move of a job. Figures of peers may be any: a choice that fails leaves the job where it is, and
        stops nothing that comes after it."""
        try:
            move = self._choose(job, view, news, self._peers.home, now)
        except Exception as error:
            if job.job_id not in self._undecided:
                _log.exception("it cannot be decided whether %s moves: it stays: %s", job.job_id, error)
            self._undecided.add(job.job_id)
            return None
        self._undecided.discard(job.job_id)
        return move

    def _serve_visits(self, observation: Observation) -> None:
        """Serve visits. A role that may not answer offers is reported, and stops nothing else."""
        try:
            self._inbound.look(observation)
        except StoreDenied as error:
            _log.critical("offers of peers cannot be answered: this role must be allowed to: %s", error)

    def _stopping(self, view: ClusterView, name: str) -> bool:
        """Return whether a running job was ordered to stop for its move. The move is then carried out."""
        job = next((j for j in view.jobs if j.job_id == name), None)
        if job is None or job.record is None or not job.state.owned or job.cancel:
            return False
        owner = next((i for i in view.instances if i.instance_id == job.record.owner), None)
        return owner is not None and owner.stops(name)

    def _begin_moves(self, observation: Observation) -> None:
        for name, move in list(self._moves.items()):
            document = observation.records.get(name)
            record = document.value if document is not None else None
            if name in observation.cancels or name not in observation.jobs or self._peers.find(move.cluster) is None:
                del self._moves[name]
            elif record is None or record.state is JobState.PENDING:
                del self._moves[name]
                job, origin = observation.jobs[name].value, self._outbound.origin
                withheld = self._withheld.get(name, timedelta(0))
                departed = migration.depart(
                    record, job, origin, move.cluster, describe_move(move), self._store.clock.now(), withheld
                )
                if self._actor.write_record(departed, observation):
                    _log.info("%s", describe_move(move))
            elif record.state is JobState.RUNNING and record.owner is not None:
                assignment = (
                    observation.assignments[record.owner].value if record.owner in observation.assignments else None
                )
                seat = assignment.for_job(name) if assignment is not None else None
                if seat is not None and seat.epoch == record.epoch and seat.order is Order.RUN:
                    stop = Stop(
                        job_id=name, instance_id=record.owner, epoch=record.epoch, reason=Reason.MOVE,
                        cause=Why.TO_PEER, figures={"cluster": move.cluster},
                    )  # fmt: skip
                    self._actor.carry_out(stop, observation)

    def _continue_move(self, name: str, spent: tuple[float, float], back: str) -> Callable[[], None]:
        return lambda: self._outbound.go_on(name, spent=spent, back=back)


def _is_movable(job: JobView) -> bool:
    spec = job.submission.spec
    names_targets = bool(spec.clouds or spec.clusters) and job.submission.visit is None
    return names_targets and job.state in (JobState.PENDING, JobState.RUNNING, JobState.AWAY)
