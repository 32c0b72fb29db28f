"""Two clusters in folders that exchange jobs, each with its store, its scheduler and its agents, on one clock."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from everspot_core.cluster.peers import Peer
from everspot_core.federation.decision import Forecast, Move, MoveWhy
from everspot_core.federation.offer import OfferState
from everspot_core.jobs.records import JobState
from everspot_core.jobs.visit_records import Origin, visit_id
from everspot_core.schedule import ClusterView, JobView
from everspot_scheduler.federation.manager import PeerAccess
from everspot_scheduler.federation.peers import News
from everspot_scheduler.loop import Scheduler
from everspot_store import Bucket, ManualClock, Store, StoreUnavailable
from everspot_store.testing import MemoryBackend
from scheduler_helpers import Cluster, folder_store

PATIENCE = timedelta(seconds=20)
NAMES = ("home", "host")


def move(job: str, here: str, target: str) -> Move:
    """A decision to move, whatever its figures."""
    forecasts = [Forecast(cluster=name, feasible=True, usd=1.0, done_by=None) for name in (here, target)]
    return Move(job_id=job, reason=MoveWhy.NO_CAPACITY, here=forecasts[0], target=forecasts[1])


def memory_store(name: str, clock: ManualClock) -> Store:
    """A store in memory, which is much quicker than a folder."""
    control, data = (Bucket(f"memory:///{name}/{part}", MemoryBackend(), clock) for part in ("control", "data"))
    return Store(control, data, clock)


class Member(Cluster):
    """A cluster of a federation. `wishes`: where the test wants its jobs to be, by job. `cut`: no peer is reachable."""

    def __init__(self, store: Store, clock: ManualClock, name: str, stores: Mapping[str, Store], length: int) -> None:
        self.name, self.wishes, self.stores, self.cut = name, dict[str, str](), stores, False
        super().__init__(store, clock, length=length)
        peers = tuple(
            Peer(name=other, cloud="aws", control_url=peer_store.control.url, egress_usd_per_gb=0.1, patience=PATIENCE)
            for other, peer_store in stores.items()
            if other != name
        )
        self.declare(cluster=name, federation=peers)
        self.schedulers = [self.scheduler()]

    def scheduler(self, name: str = "s1", store: Store | None = None) -> Scheduler:
        peer_access = PeerAccess(opener=self.open, chooser=self.choose, threads=0)
        return Scheduler(store or self.store, self.manifest, self.cloud, name, peer_access=peer_access)

    def visit(self, job: str, number: int = 1) -> str:
        """The id of a visit of one of its jobs."""
        origin = Origin(cluster=self.name, control_url=self.store.control.url)
        return visit_id(origin, job, self.store.jobs.get(job).value.submitted_at, number)

    def open(self, peer: Peer) -> Store:
        """The peer's store, if it can be reached."""
        if self.cut:
            raise StoreUnavailable("no route to it")
        return self.stores[peer.name]

    def choose(
        self, job: JobView, view: ClusterView, news: Mapping[str, News], home: str, now: datetime
    ) -> Move | None:
        """Return the move that the test has set."""
        wish = self.wishes.get(job.job_id)
        at = job.record.away.cluster if job.record is not None and job.record.away is not None else home
        return move(job.job_id, at, wish) if wish is not None and wish != at else None


class Pair:
    """Two clusters."""

    def __init__(self, root: Path | None, clock: ManualClock, *, length: int = 30) -> None:
        """`root`: None: the stores are in memory."""
        self.clock = clock
        self.stores = {n: memory_store(n, clock) if root is None else folder_store(root / n, clock) for n in NAMES}
        members = {n: Member(s, clock, n, self.stores, length) for n, s in self.stores.items()}
        self.home, self.host = members["home"], members["host"]
        self.members, self.second = tuple(members.values()), timedelta(seconds=1)

    def run(self, seconds: int) -> None:
        """Run all actors once per second, and check that no job ever has two owners."""
        for _ in range(seconds):
            for member in self.members:
                for scheduler in member.schedulers:
                    scheduler.tick()
                for agent in member.agents.values():
                    agent.turn()
                member.check()
            self.check()
            self.clock.advance(timedelta(seconds=1))

    def check(self) -> None:
        """A job is in one queue at most: home's, or that of the one host whose offer it has accepted."""
        hosted = {
            offer.value.submission.visit.job_id: name
            for name, offer in self.host.store.visits.scan().items()
            if offer.value.state.hosted and offer.value.submission.visit is not None
        }
        for job in self.home.store.jobs.scan():
            home_record = self.home.store.records.get(job)
            at_home = home_record is None or home_record.value.state is not JobState.AWAY
            assert not (at_home and job in hosted), (job, home_record)
        for name, job in self.host.store.jobs.scan().items():
            record, offer = self.host.store.records.get(name), self.host.store.visits.get(name)
            if job.value.visit is not None and record is not None and record.value.state.owned:
                assert offer is not None and offer.value.state in (OfferState.ACCEPTED, OfferState.RECALLED), name

    def until(self, job: str, state: str, most: int = 120) -> None:
        """Go on until home's record says this."""
        for _ in range(most):
            if self.home.state(job) == state:
                return
            self.run(1)
        raise AssertionError(f"{job} is {self.home.state(job)} after {most} s, not {state}")
