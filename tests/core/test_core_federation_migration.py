"""The transitions of a migrating job, in any order, by any actor with an old view: the job has one owner and is never
lost."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.cluster.peers import Peer, reachable
from everspot_core.federation import migration
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.federation.offer_id import is_own_offer, misnamed
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.job_parts import Retries
from everspot_core.jobs.lease import IllegalTransition
from everspot_core.jobs.records import JobRecord, JobState, Reason
from everspot_core.jobs.visit_records import Origin, Trip, TripEnd, visit_id, visit_prefix
from hypothesis import given, settings
from hypothesis import strategies as st

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PEER = Peer(name="host", cloud="aws", control_url="file:///host", egress_usd_per_gb=0.1)
JOB = JobSubmission(job_id="j", spec=JobSpec(name="j", recipe="image_classification", clouds=["aws"]), submitted_at=T0)
HERE = Origin(cluster="home", control_url="file:///home")
HOME = ("depart", "sent", "offer", "withdraw", "back", "settle")
HOST = ("accept", "refuse", "recall", "finish", "give back")


class World:
    """Home's record, the host's offers and the visits' records; each write is conditional on what its writer saw."""

    def __init__(self) -> None:
        self.record = lease.pending("j", T0)
        self.offers: dict[str, VisitOffer] = {}
        self.visits: dict[str, JobRecord] = {}

    def check(self) -> None:
        hosted = [name for name, offer in self.offers.items() if offer.state.hosted]
        assert len(hosted) <= 1
        assert not hosted or (self.record.away is not None and self.record.away.visit == hosted[0])
        assert (self.record.state is JobState.AWAY) == (self.record.away is not None)


class Actor:
    """Somebody who acts on what he saw last, however long ago that was."""

    def __init__(self, world: World, *, hosts: bool = False) -> None:
        self.world, self.hosts = world, hosts
        self.look()

    def look(self) -> None:
        """Home looks for the offer of its record; a host sees all offers, and takes up one that is not over."""
        self.record, away = self.world.record, self.world.record.away
        open_ones = [name for name, offer in self.world.offers.items() if not offer.state.over]
        name = (open_ones[-1] if open_ones else "") if self.hosts else away.visit if away is not None else ""
        self.offer, self.visit = self.world.offers.get(name), self.world.visits.get(name)

    def write(self, record: JobRecord) -> bool:
        if self.world.record is not self.record:
            return False
        self.world.record = self.record = record
        return True

    def put(self, visit: str, offer: VisitOffer | None) -> bool:
        if offer is None or self.world.offers.get(visit) is not self.offer:
            return False
        self.world.offers[visit] = self.offer = offer
        return True

    def home(self, move: str) -> None:
        record, away = self.record, self.record.away
        if move == "depart" and record.state is JobState.PENDING:
            self.write(migration.depart(record, JOB, HERE, "host", "no capacity", T0))
        elif away is None:
            return
        elif move == "sent" and not away.reported_state:
            self.write(migration.note_sent(record, "SENT", 10, T0))
        elif move == "offer" and away.reported_state and self.offer is None:
            self.put(away.visit, self._offer(OfferState.OFFERED))
        elif move == "withdraw" and away.reported_state and self.offer is None:
            self.put(away.visit, self._offer(OfferState.WITHDRAWN))
        elif move == "withdraw" and self.offer is not None:
            self.put(away.visit, migration.change_state(self.offer, OfferState.WITHDRAWN, "", T0))
        elif move == "back" and (not away.reported_state or self._refused()):
            self.write(migration.come_back(record, self._trip(TripEnd.REFUSED), T0))
        elif move == "settle" and self.offer is not None and self.offer.state is OfferState.ENDED:
            assert self.visit is not None
            if self.offer.returned:
                self.write(migration.come_back(record, self._trip(TripEnd.RETURNED), T0))
            else:
                self.write(migration.arrive(record, self.visit, self._trip(TripEnd.ENDED), T0))

    def host(self, move: str) -> None:
        if self.offer is None:
            return
        visit, states = self.offer.visit, {"accept": OfferState.ACCEPTED, "refuse": OfferState.REFUSED}
        if move in states or move == "recall":
            self.put(visit, migration.change_state(self.offer, states.get(move, OfferState.RECALLED), "", T0))
        elif self.offer.state.hosted:
            over = Reason.RETURNED if move == "give back" else Reason.CANCEL
            record = lease.close(None, visit, over, T0)
            if self.put(visit, migration.end_offer(self.offer, record, 1.0, 0.5, T0)):
                self.world.visits[visit] = self.visit = record

    def _refused(self) -> bool:
        return self.offer is not None and self.offer.state in (OfferState.REFUSED, OfferState.WITHDRAWN)

    def _trip(self, end: TripEnd) -> Trip:
        return migration.close_trip(self.record, end, "", T0, self.offer, PEER)

    def _offer(self, state: OfferState) -> VisitOffer:
        submission = migration.for_visit(JOB, self.record, HERE, 0.0, 0.0)
        return VisitOffer(
            visit=submission.job_id, home="home", state=state, submission=submission, at=T0, changed_at=T0
        )


AT_HOME = st.tuples(st.integers(0, 1), st.sampled_from(("look", "look", *HOME)))
AT_HOST = st.tuples(st.integers(2, 3), st.sampled_from(("look", "look", "accept", *HOST)))
MOVES = st.lists(st.one_of(AT_HOME, AT_HOST), min_size=60, max_size=80)  # short ones meet too seldom


@settings(max_examples=settings.default.max_examples * 4, deadline=None)
@given(MOVES)
def test_nobody_can_make_two_owners_and_the_job_always_comes_home(moves: list[tuple[int, str]]) -> None:
    world = World()
    actors, epochs = [Actor(world, hosts=n >= 2) for n in range(4)], [0]
    for number, move in moves:
        actor = actors[number]
        if move == "look":
            actor.look()
        elif actor.hosts:
            actor.host(move)
        else:
            actor.home(move)
        world.check()
        epochs.append(world.record.epoch)
    assert epochs == sorted(epochs)
    last = Actor(world)
    for move in ("withdraw", "back", "finish", "settle"):  # whatever was begun can be ended
        last.look()
        (last.host if move in HOST else last.home)(move)
        world.check()
    if world.record.away is not None and not world.record.away.reported_state:
        last.look()
        last.home("back")
    assert world.record.state in (JobState.PENDING, JobState.CANCELLED), world.record
    numbers = [trip.number for trip in world.record.trips]
    assert numbers == sorted(set(numbers))


def test_no_dollar_of_a_trip_is_forgotten_however_many_there_are() -> None:
    record = lease.pending("j", T0)
    for n in range(migration.TRIPS_KEPT * 2):
        away = migration.note_progress(
            migration.depart(record, JOB, HERE, "host", "", T0 + timedelta(hours=n)), "SENT", None, 10**9, T0
        )
        trip = migration.close_trip(away, TripEnd.RETURNED, "", T0, None, PEER, 10**9)
        record = migration.come_back(away, trip.model_copy(update={"usd": 1.0, "gpu_hours": 0.5}), T0)
    assert len(record.trips) == migration.TRIPS_KEPT and record.epoch == migration.TRIPS_KEPT * 2
    assert migration.sum_trips(record.trips) == pytest.approx((record.epoch * 1.2, record.epoch * 0.5))
    assert [t.number for t in record.trips][-1] == record.epoch


@pytest.mark.parametrize(
    ("reason", "returned"),
    [
        (Reason.SHUTDOWN, True), (Reason.MACHINE, True), (Reason.AGENT, True), (Reason.DENIED, True),
        (Reason.NO_PROGRESS, True), (Reason.ERROR, False), (Reason.BUDGET, False), (Reason.UNDERUSED, False),
    ],
)  # fmt: skip
def test_a_visit_that_its_hosts_instances_could_not_run_goes_home(reason: Reason, *, returned: bool) -> None:
    away = migration.depart(None, JOB, HERE, "host", "", T0)
    visit = away.away.visit
    submission = migration.for_visit(JOB, away, HERE, 0.0, 0.0)
    offer = VisitOffer(
        visit=visit, home="home", state=OfferState.ACCEPTED, submission=submission, at=T0, changed_at=T0, why="dry"
    )
    record = lease.close(None, visit, reason, T0, detail="no space left", state=JobState.FAILED)
    offer = migration.end_offer(offer, record, 1.0, 0.5, T0)
    assert (offer.end, offer.returned) == (JobState.FAILED, returned)
    assert offer.why == ("its instances could not run it: no space left" if returned else "dry")


@pytest.mark.parametrize(("withheld_days", "waited"), [(0, 9), (8, 1), (12, 0)])
def test_time_in_which_a_job_might_not_run_is_no_wait_after_a_trip(withheld_days: int, waited: int) -> None:
    now = T0 + timedelta(days=9)
    away = migration.depart(None, JOB, HERE, "host", "", now, timedelta(days=withheld_days))
    home = migration.come_back(away, migration.close_trip(away, TripEnd.REFUSED, "", now, None, PEER), now)
    for begin in (away.away.waits_since, lease.waits_since(home, JOB)):
        assert now - begin == timedelta(days=waited)


def test_failures_of_a_host_count_until_it_runs_a_job_again() -> None:
    def record(job: str, *hours_and_failures: tuple[int, bool]) -> JobRecord:
        trips = [
            Trip(cluster="host", visit=job, number=h, since=T0, until=T0 + timedelta(hours=h), end=TripEnd.RETURNED,
                 usd=0.1, host_failed=failure)
            for h, failure in hours_and_failures
        ]  # fmt: skip
        return lease.pending(job, T0).model_copy(update={"trips": trips})

    first, second = record("a", (1, True), (4, True)), record("b", (3, True))
    assert [trip.number for trip in migration.failures_of_hosts([first, second])["host"]] == [1, 3, 4]
    assert [trip.number for trip in migration.failures_of_hosts([first, record("b", (2, False))])["host"]] == [4]
    assert migration.failures_of_hosts([first, record("b", (5, False))]) == {}
    assert migration.fruitless_visits(first.trips) == {"host": 2}


def test_a_visit_has_what_is_left_of_the_budget_and_no_series_of_its_own() -> None:
    spec = JobSpec(name="j", recipe="image_classification", every="1h", budget={"dollars": 5, "gpu_hours": 2})
    job = JobSubmission(job_id="j", spec=spec, submitted_at=T0, deadline_at=T0)
    away = migration.depart(None, JOB, HERE, "host", "", T0)
    visit = migration.for_visit(job, away, HERE, 3.5, 9.0)
    assert visit.job_id == visit_id(HERE, "j", T0, 1) and visit.visit is not None and visit.visit.job_id == "j"
    assert visit.spec.budget.dollars == 1.5 and visit.spec.budget.gpu_hours is not None
    assert 0 < visit.spec.budget.gpu_hours < 1e-5 and visit.spec.every is None
    assert visit.deadline_at == job.deadline_at and visit.submitted_at == job.submitted_at


def test_errors_and_their_back_off_count_in_every_cluster() -> None:
    job = JOB.model_copy(update={"spec": JOB.spec.model_copy(update={"retries": Retries(errors=3)})})
    away = migration.depart(lease.pending("j", T0).model_copy(update={"errors": 2}), job, HERE, "host", "", T0)
    assert migration.for_visit(job, away, HERE, 0.0, 0.0).spec.retries == Retries(errors=1)
    late = away.model_copy(update={"errors": 5})  # of a job whose retries an earlier release did not count together
    assert migration.for_visit(job, late, HERE, 0.0, 0.0).spec.retries == Retries(errors=0)
    visit = lease.pending("v", T0).model_copy(update={"errors": 1, "not_before": T0 + timedelta(hours=1)})
    visit = lease.close(visit, "v", Reason.RETURNED, T0)
    trip = migration.close_trip(away, TripEnd.RETURNED, "", T0, None, PEER)
    record = migration.come_back(away, trip, T0, visit)
    assert (record.errors, record.not_before) == (3, T0 + timedelta(hours=1))


def test_only_a_waiting_job_departs_and_only_one_that_is_away_comes_back() -> None:
    assigned_record = lease.assign(None, "j", "i-1", T0)
    away = migration.depart(None, JOB, HERE, "host", "", T0)
    trip = migration.close_trip(away, TripEnd.REFUSED, "", T0, None, PEER)
    with pytest.raises(IllegalTransition, match="cannot send it away"):
        migration.depart(assigned_record, JOB, HERE, "host", "", T0)
    with pytest.raises(IllegalTransition, match="cannot send it away"):
        migration.depart(away, JOB, HERE, "host", "", T0)
    with pytest.raises(IllegalTransition, match="cannot bring it back"):
        migration.come_back(assigned_record, trip, T0)
    with pytest.raises(IllegalTransition, match="cannot assign it"):
        lease.assign(away, "j", "i-1", T0)
    with pytest.raises(IllegalTransition, match="cannot close it"):
        lease.close(away, "j", Reason.CANCEL, T0)


@pytest.mark.parametrize(
    ("clouds", "clusters", "may"),
    [([], [], False), (["aws"], [], True), (["gcp"], [], False), ([], ["host"], True), (["aws"], ["other"], False)],
)
def test_a_job_visits_the_peers_that_it_names(clouds: list[str], clusters: list[str], may: bool) -> None:
    assert reachable(PEER, clouds, clusters) is may


def test_the_name_of_a_visit_is_of_its_home_its_bucket_its_submission_and_its_number_and_a_valid_one() -> None:
    name = visit_id(HERE, "j", T0, 1)
    others = [
        visit_id(Origin(cluster="other", control_url=HERE.control_url), "j", T0, 1),
        visit_id(Origin(cluster="home", control_url="file:///again"), "j", T0, 1),
        visit_id(HERE, "k", T0, 1),
        visit_id(HERE, "j", T0 + timedelta(microseconds=1), 1),
        visit_id(HERE, "j", T0, 2),
    ]
    assert name == visit_id(HERE, "j", T0, 1) and len({name, *others}) == 6
    assert all(re.fullmatch(r"[a-z][a-z0-9-]{0,61}[a-z0-9]", n) for n in (*others, visit_id(HERE, "j", T0, 10**9)))
    assert [n for n in others if not n.startswith(visit_prefix("home"))] == [others[0]]
    assert (
        JobSubmission.model_validate_json(JOB.to_json()).submitted_at == JOB.submitted_at
    )  # the reader knows its own name


def test_an_offer_is_told_from_one_of_another_home_job_visit_or_time() -> None:
    away = migration.note_sent(migration.depart(None, JOB, HERE, "host", "", T0), "SENT", 0, T0 + timedelta(hours=9))
    submission = migration.for_visit(JOB, away, HERE, 0.0, 0.0)
    visit = away.away.visit
    offer = VisitOffer(
        visit=visit,
        home="home",
        state=OfferState.OFFERED,
        submission=submission,
        at=away.away.offered_at,
        changed_at=T0,
    )
    assert is_own_offer(offer, away.away, JOB, "home") and not misnamed(visit, offer)
    assert offer.at == T0 + timedelta(hours=9)  # not the time at which it left, which a long way would make old
    later = submission.model_copy(update={"submitted_at": T0 + timedelta(seconds=1)})
    second = submission.model_copy(update={"visit": submission.visit.model_copy(update={"number": 2})})
    own = submission.model_copy(update={"visit": None})
    for change in ({"home": "b"}, {"at": T0}, {"submission": second}, {"submission": own}):
        assert not is_own_offer(offer.model_copy(update=change), away.away, JOB, "home"), change
    for change in ({"home": "b"}, {"visit": "own"}, {"submission": later}, {"submission": second}, {"submission": own}):
        assert misnamed(visit, offer.model_copy(update=change)), change
    assert misnamed("own", offer)


@pytest.mark.parametrize("lie", [-1000.0, float("nan"), float("inf"), 1e308, "Infinity"])
def test_a_hosts_bill_that_cannot_be_one_is_not_known(lie: object) -> None:
    away = migration.depart(None, JOB, HERE, "host", "", T0)
    offer = VisitOffer(
        visit=away.away.visit,
        home="home",
        state=OfferState.ENDED,
        submission=migration.for_visit(JOB, away, HERE, 0.0, 0.0),
        at=T0,
        changed_at=T0,
    )
    for document in (offer, migration.close_trip(away, TripEnd.RETURNED, "", T0, offer, PEER)):
        parse = type(document).read if isinstance(document, VisitOffer) else type(document).model_validate_json
        text = document.model_dump(mode="json")
        for amount, expected in ((lie, None), (1.5, 1.5)):
            read_back = parse(json.dumps(text | {"usd": amount, "gpu_hours": amount}))
            assert (read_back.usd, read_back.gpu_hours) == (expected, expected)
