"""Jobs move between clusters that launch instances, by the default decision."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from elastic_helpers import ElasticCluster
from everspot_core.capacity.launching import LaunchTrouble
from everspot_core.cluster.peers import Peer
from everspot_core.federation import migration
from everspot_core.federation.decision import Forecast, MovableJob, Move, decide_move
from everspot_core.federation.forecast import forecast_job
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.jobs.lease import pending, waits_since
from everspot_core.jobs.records import Market
from everspot_core.jobs.visit_records import Origin, Trip, TripEnd
from everspot_core.schedule import JobView, PoolKey
from everspot_scheduler.federation.choosing import MoveChooser
from everspot_scheduler.federation.manager import PeerAccess
from everspot_scheduler.loop import Scheduler
from everspot_store import ManualClock, Store
from federation_helpers import Pair, memory_store, move

POOLS = [PoolKey("c6i.large", "us-east-1a", market) for market in (Market.SPOT, Market.ON_DEMAND)]


class ElasticMember(ElasticCluster):
    """A cluster of a federation that launches what it needs."""

    stores: Mapping[str, Store] = {}

    def opener(self, peer: Peer) -> Store:
        return self.stores[peer.name]

    def scheduler(
        self, name: str = "s1", store: Store | None = None, peer_access: PeerAccess | None = None
    ) -> Scheduler:
        own = peer_access or PeerAccess(opener=self.opener, chooser=MoveChooser(self.store), threads=0)
        return Scheduler(store or self.store, self.manifest, self.cloud, name, peer_access=own)

    def join(self, name: str, stores: Mapping[str, Store]) -> None:
        others = (other for other in stores if other != name)
        peers = tuple(
            Peer(name=n, cloud="aws", control_url=stores[n].control.url, egress_usd_per_gb=0.09) for n in others
        )
        self.stores = stores
        self.declare(cluster=name, federation=peers)
        self.schedulers = [self.scheduler()]

    def dry(self) -> None:
        """Remove all capacity of this cluster from now on."""
        self.cloud.refuses = dict.fromkeys(POOLS, LaunchTrouble.CAPACITY)


class Two:
    def __init__(self) -> None:
        self.clock = ManualClock()
        stores = {name: memory_store(name, self.clock) for name in ("home", "host")}
        self.home, self.host = (ElasticMember(store, self.clock) for store in stores.values())
        for name, member in zip(stores, (self.home, self.host), strict=True):
            member.join(name, stores)
            member.length = 10_000

    def live(self, span: timedelta, step: timedelta = timedelta(minutes=2)) -> None:
        """Advance the time in steps, with heartbeats of the agents."""
        for _ in range(int(span / step)):
            for member in (self.home, self.host):
                for scheduler in member.schedulers:
                    scheduler.tick()
                for agent in member.agents.values():
                    agent.turn()
                member.boot()
            self.clock.advance(step)


@pytest.fixture
def two() -> Two:
    return Two()


def test_nothing_is_launched_at_home_for_a_job_that_moves(two: Two) -> None:
    def choose(job: JobView, *_: object) -> Move:
        return move(job.job_id, "home", "host")

    access = PeerAccess(opener=two.home.opener, chooser=choose, threads=0)
    two.home.schedulers = [two.home.scheduler(peer_access=access)]
    two.live(timedelta(minutes=4))  # until the peers are known
    two.home.submit("moves", clouds=["aws"])
    two.home.submit("stays")
    two.live(timedelta(minutes=10))
    assert (two.home.state("moves"), two.home.state("stays")) == ("AWAY", "RUNNING")
    assert [intent.jobs for intent in two.home.cloud.intents] == [("stays",)]


def test_a_job_leaves_a_drought_after_a_while_and_runs_where_there_is_capacity(two: Two) -> None:
    two.home.dry()
    due = {"expected_duration": "2h", "deadline": "4h"}
    two.home.submit("stays", **due)
    two.home.submit("moves", clouds=["aws"], **due)
    two.live(timedelta(minutes=20))
    assert two.home.state("moves") == "PENDING"  # a drought of minutes is waited out
    two.live(timedelta(hours=2))
    assert two.home.state("moves") == "AWAY" and two.home.state("stays") == "PENDING"
    assert two.host.state(two.home.store.records.get("moves").value.away.visit) in ("ASSIGNED", "RUNNING")
    assert two.home.store.records.get("moves").value.away.why.startswith("offer moves to host: home ")


def test_a_job_without_a_deadline_leaves_a_drought_too_although_home_would_have_it_wait_for_spot(two: Two) -> None:
    """Home does not ask for on-demand for it before a day has passed: so nobody there knows that it has run dry too."""
    two.home.dry()
    two.home.submit("known", clouds=["aws"], expected_duration="2h")
    two.home.submit("unknown", clouds=["aws"])
    two.live(timedelta(minutes=20))
    assert {two.home.state("known"), two.home.state("unknown")} == {"PENDING"}
    two.live(timedelta(minutes=40))
    for name in ("known", "unknown"):
        away = two.home.store.records.get(name).value.away
        assert two.host.state(away.visit) in ("ASSIGNED", "RUNNING")
        assert away.why.endswith("none of 1 spot pools has capacity for it, and on-demand is not its turn yet")
        assert away.waits_since == two.home.store.jobs.get(name).value.submitted_at


def test_a_host_that_gives_a_job_back_again_and_again_is_asked_ever_later(two: Two) -> None:
    two.home.dry()
    two.host.dry()  # no launch is requested there, so its pools are assumed to have capacity until a visit requests one
    two.home.submit("j", clouds=["aws"], expected_duration="2h")
    two.live(timedelta(hours=16), step=timedelta(minutes=4))
    record = two.home.store.records.get("j").value
    begun = [trip.since for trip in record.trips] + ([record.away.since] if record.away is not None else [])
    pauses = [
        (departed_at - trip.until) / timedelta(minutes=1)
        for trip, departed_at in zip(record.trips, begun[1:], strict=False)
    ]
    assert len(pauses) >= 3 and all(later >= 1.5 * sooner for sooner, later in pairwise(pauses[1:])), pauses
    assert waits_since(record, two.home.store.jobs.get("j").value) == two.home.store.jobs.get("j").value.submitted_at


def test_a_host_that_could_run_no_instance_of_one_job_is_offered_no_other_job_for_a_while(two: Two) -> None:
    now = two.clock.now()
    trips = [
        Trip(cluster="host", visit=f"v{n}", number=n, since=now, until=now, end=TripEnd.RETURNED, usd=0.1,
             host_failed=True)
        for n in range(1, 6)
    ]  # fmt: skip
    two.home.dry()
    two.home.submit("first", clouds=["aws"])
    two.home.store.records.create("first", pending("first", now).model_copy(update={"trips": trips}))
    two.home.submit("second", clouds=["aws"])
    two.live(timedelta(hours=2))
    assert two.home.state("second") == "PENDING"
    two.live(timedelta(hours=3))
    assert two.home.state("second") == "AWAY"


def test_home_knows_what_a_visit_has_cost_so_far_and_reckons_with_the_instance_that_it_has(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_pools = list[PoolKey | None]()

    def noted(*args: Any, **kwargs: Any) -> Forecast:
        held_pools.append(kwargs.get("held_pool"))
        return forecast_job(*args, **kwargs)

    def noted_decision(job: MovableJob, here: Forecast, *args: Any) -> Move | None:
        present_forecasts.append(here)
        return decide_move(job, here, *args)

    present_forecasts = list[Forecast]()
    monkeypatch.setattr("everspot_scheduler.federation.choosing.forecast_job", noted)
    monkeypatch.setattr("everspot_scheduler.federation.choosing.decide_move", noted_decision)
    two.home.dry()
    two.home.submit("moves", clouds=["aws"], expected_duration="2h", deadline="4h")
    two.live(timedelta(hours=2.2))
    first = two.home.store.records.get("moves").value.away
    offer = two.host.store.visits.get(two.home.store.records.get("moves").value.away.visit).value
    assert first.instance == offer.instance and first.instance.pool in POOLS and first.usd > 0
    two.live(timedelta(minutes=40))
    later = two.home.store.records.get("moves").value.away
    assert later.usd > 1.2 * first.usd
    assert first.instance.pool in held_pools  # else staying would count with a changeover that nobody needs
    away = [here for here in present_forecasts if here.cluster == first.cluster]
    assert away and all(here.restart_by is None for here in away)  # it would go home first, so it leaves in good time


class Walked(tuple[Any, ...]):
    """A tuple that counts how often somebody goes through it."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


def test_what_home_has_is_counted_once_for_all_jobs_of_a_tick(two: Two) -> None:
    calls: dict[str, tuple[Any, ...]] = {}
    choosing = MoveChooser(two.home.store)

    def noted(job: JobView, *args: Any) -> Any:
        calls[job.job_id] = (job, *args)
        return choosing(job, *args)

    two.home.dry()
    opener = two.home.opener
    two.home.schedulers = [two.home.scheduler(peer_access=PeerAccess(opener=opener, chooser=noted, threads=0))]
    for number in range(8):
        two.home.submit(f"j-{number}", clouds=["aws"], expected_duration="2h", deadline="4h")
    two.live(timedelta(minutes=6))
    assert len(calls) == 8
    walks = []
    for count in (2, 8):
        chooser, view = MoveChooser(two.home.store), next(iter(calls.values()))[1]
        view = replace(view, jobs=Walked(view.jobs))
        for job, _, *further in list(calls.values())[:count]:
            chooser(job, view, *further)
        walks.append(view.jobs.walks)
    assert walks[0] == walks[1] > 0


def test_a_job_that_runs_stays_where_nothing_is_to_be_gained(two: Two) -> None:
    two.home.submit("j", expected_duration="2h", clouds=["aws"])
    two.live(timedelta(hours=2))
    assert two.home.state("j") == "RUNNING" and not two.home.store.records.get("j").value.trips


def test_a_job_goes_to_no_cluster_that_it_does_not_name(two: Two) -> None:
    two.home.dry()
    two.home.submit("j", expected_duration="2h", clusters=["elsewhere"])
    two.live(timedelta(hours=1.5))
    assert two.home.state("j") == "PENDING"


def test_no_job_goes_where_nothing_is_to_be_had_either(two: Two) -> None:
    two.home.dry()
    two.host.dry()
    two.host.submit("own", expected_duration="1h")
    two.live(timedelta(minutes=10))
    two.home.submit("j", expected_duration="2h", clouds=["aws"])
    two.live(timedelta(hours=1))
    assert two.home.state("j") == "PENDING" and not two.host.store.visits.scan()


@pytest.mark.parametrize("field", ["waits_since", "submitted_at"])
def test_a_job_that_is_said_to_wait_since_the_end_of_time_is_refused_and_stops_no_host(two: Two, field: str) -> None:
    two.host.cloud.refuses = {POOLS[0]: LaunchTrouble.CAPACITY}
    end_of_time, origin = (
        datetime(9999, 12, 31, tzinfo=UTC),
        Origin(cluster="home", control_url=two.home.store.control.url),
    )
    job = two.home.submit("j", clouds=["aws"])
    job = job.model_copy(update={"submitted_at": end_of_time}) if field == "submitted_at" else job
    away = migration.depart(None, job, origin, "host", "", two.clock.now())
    sent = migration.for_visit(job, away, origin, 0.0, 0.0)
    if field == "waits_since":
        sent = sent.model_copy(update={"visit": sent.visit.model_copy(update={"waits_since": end_of_time})})
    now = {"at": two.clock.now(), "changed_at": two.clock.now()}
    offer = VisitOffer(visit=sent.job_id, home="home", state=OfferState.OFFERED, submission=sent, **now)
    two.host.store.visits.create(offer.visit, offer)
    two.host.submit("own", priority="critical")
    two.live(timedelta(minutes=20))
    assert two.host.state("own") == "RUNNING"
    assert two.host.store.visits.get(offer.visit).value.state is OfferState.REFUSED


POOL = {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": "spot", "usd_per_hour": 0.04}
LIES = [
    ({"changeover_seconds": 1e300, "changeover_upper_seconds": 1e300}, {}),
    ({"ups": [float("nan")]}, {}),
    ({"ups": [1e5] * 1000, "downs": [1e5] * 1000, "since": "2026-01-01T00:00:00Z", "up": True}, {}),
    ({"since": "0001-01-01T00:00:00Z", "ups": [1.0], "downs": [1.0]}, {}),
    ({"usd_per_hour": -5.0}, {}),
    ({"usd_per_hour": float("nan")}, {}),
    ({"placement_score": 10**9}, {}),
    ({}, {"tick_seconds": 1e300}),
    ({}, {"idle": [{"instance_type": "g5.xlarge", "market": "spot", "count": 10**400, "memory_gib": 1.0}]}),
    ({}, {"elastic": {"instances": -1, "max_instances": 10**400, "usd_per_hour": 0.0}}),
]


@pytest.mark.parametrize(("pool", "whole"), [({}, {}), *LIES])
def test_whatever_a_peer_publishes_home_goes_on_with_its_own_work(pool: dict[str, Any], whole: dict[str, Any]) -> None:
    pair = Pair(None, ManualClock(), length=10_000)
    peer_access = PeerAccess(opener=pair.home.open, chooser=MoveChooser(pair.home.store), threads=0)
    home = Scheduler(pair.home.store, pair.home.manifest, pair.home.cloud, "s1", peer_access=peer_access)
    pair.home.agent("i-own")
    elastic = {"instances": 0, "max_instances": 9, "usd_per_hour": 0.0}
    document = {"version": 1, "scheduler_id": "s1", "pools": [POOL | pool], "elastic": elastic, **whole}
    for turn in range(16):
        pair.host.schedulers[0].tick()
        now = pair.clock.now().isoformat()
        pair.host.store.control.put("pools.json", json.dumps({"updated_at": now, **document}).encode())
        home.tick()
        for agent in pair.home.agents.values():
            agent.turn()
        if turn < 2:
            pair.home.submit(("mine", "j")[turn], clouds=["aws"] if turn else [])
        pair.clock.advance(timedelta(minutes=4))
    assert pair.home.state("mine") == "RUNNING"
    assert pair.home.state("j") == ("PENDING" if pool or whole else "AWAY")
