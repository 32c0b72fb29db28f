"""Home clusters with equal job ids, recreated ones, and ones with false names: no job gets another job's documents."""

from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.experiments.sweep import trial_job
from everspot_core.federation import migration
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.jobs.visit_records import TripEnd, Visit
from everspot_store import ManualClock, Store
from federation_helpers import Member, Pair, memory_store

JOB = trial_job("lr", 0)  # without random content
SECOND = timedelta(seconds=1)


class Star:
    """Homes and one host."""

    def __init__(self, *homes: str) -> None:
        self.clock, self.stores, self.members = ManualClock(), dict[str, Store](), dict[str, Member]()
        for name in (*homes, "host"):
            self.stores[name] = memory_store(name, self.clock)
        for name in self.stores:
            self.members[name] = Member(self.stores[name], self.clock, name, self.stores, 30)
        self.host = self.members["host"]

    def run(self, turns: int, span: timedelta = SECOND) -> None:
        for _ in range(turns):
            for member in self.members.values():
                for scheduler in member.schedulers:
                    scheduler.tick()
                for agent in member.agents.values():
                    agent.turn()
                member.check()
            self.clock.advance(span)

    def offer(self, home: str) -> None:
        self.members[home].submit(JOB, clouds=["aws"])
        self.members[home].wishes[JOB] = "host"
        self.run(12)

    def train(self, visit: str, content: str, folder: Path) -> None:
        """Publish a checkpoint as the visit's trainer does."""
        path = folder / f"{content}.pt"
        path.write_bytes(content.encode())
        store = self.stores["host"]
        store.checkpoints(visit, store.records.get(visit).value.epoch).publish(7, {"rank-0.pt": path})

    def weights(self, home: str, folder: Path) -> bytes:
        self.stores[home].checkpoints(JOB).restore(folder / home)
        return (folder / home / "rank-0.pt").read_bytes()


def test_jobs_of_one_id_of_two_homes_are_two_visits(tmp_path: Path) -> None:
    star = Star("a", "b")
    visits = [star.members[name].visit(JOB) for name in ("a", "b") if not star.offer(name)]
    star.run(18)
    assert set(star.stores["host"].jobs.scan()) == set(visits) and len(set(visits)) == 2
    for n, (visit, content) in enumerate(zip(visits, ("of a", "of b"), strict=True)):
        star.host.agent(f"i-{n}")
        star.run(18)
        star.train(visit, content, tmp_path)
    for name in ("a", "b"):
        star.members[name].wishes.clear()
    star.run(90)
    assert [star.members[name].state(JOB) for name in ("a", "b")] == ["SUCCEEDED"] * 2
    assert [star.weights(name, tmp_path) for name in ("a", "b")] == [b"of a", b"of b"]


@pytest.mark.parametrize("days", [0, 2])
def test_a_home_that_is_made_again_meets_nothing_of_its_former_life(days: int, tmp_path: Path) -> None:
    star = Star("a")
    star.offer("a")
    first = star.members["a"].visit(JOB)
    star.host.agent("i-1")
    star.run(18)
    star.train(first, "old", tmp_path)
    star.members["a"].wishes.clear()
    star.run(90)
    assert star.members["a"].state(JOB) == "SUCCEEDED"
    star.clock.advance(timedelta(days=days))
    star.stores["a"] = memory_store("a", star.clock)
    star.members["a"] = Member(star.stores["a"], star.clock, "a", star.stores, 30)
    star.run(5, timedelta(hours=1) if days else SECOND)  # old offers are swept
    star.offer("a")
    visit = star.members["a"].visit(JOB)
    star.run(18)
    assert visit != first and star.stores["host"].checkpoints(visit).head() is None
    assert star.host.state(visit) != "SUCCEEDED" and star.members["a"].state(JOB) == "AWAY"


def test_an_offer_of_somebody_else_under_the_visits_name_sends_the_job_home() -> None:
    star = Star("a", "b")
    star.members["a"].submit(JOB, clouds=["aws"])
    visit = star.members["a"].visit(JOB)
    submission = star.stores["a"].jobs.get(JOB).value
    offered_at = star.clock.now() - timedelta(minutes=1)
    foreign_offer = VisitOffer(
        visit=visit, home="b", state=OfferState.ACCEPTED, submission=submission, at=offered_at, changed_at=offered_at
    )
    star.stores["host"].visits.create(visit, foreign_offer)
    star.members["a"].wishes[JOB] = "host"
    star.run(1)
    star.members["a"].wishes.clear()
    star.run(12)
    assert star.members["a"].state(JOB) == "PENDING"
    trip = star.stores["a"].records.get(JOB).value.trips[0]
    assert (trip.end, trip.usd) == (TripEnd.WITHDRAWN, None) and trip.why == f"its name {visit} is taken at host"
    over = star.stores["host"].visits.get(visit).value  # which the host took neither for a job of its own
    assert over.state is OfferState.ENDED and over.end is None and star.stores["host"].jobs.get(visit) is None


@pytest.fixture
def pair() -> Pair:
    return Pair(None, ManualClock())


def lie(pair: Pair, state: OfferState) -> None:
    """An offer of the host's own running job."""
    pair.host.submit("own")
    pair.host.agent("i-1")
    pair.run(4)
    assert pair.host.state("own") == "RUNNING"
    own, now = pair.host.store.jobs.get("own").value, pair.clock.now()
    spec = own.spec.model_copy(update={"clouds": ["aws"]})
    submission = own.model_copy(update={"visit": Visit(home="home", job_id="own", number=1), "spec": spec})
    offer = VisitOffer(visit="own", home="home", state=state, submission=submission, at=now, changed_at=now)
    pair.host.store.visits.create("own", offer)


def test_a_home_cannot_offer_a_job_of_the_host_to_the_host(pair: Pair) -> None:
    lie(pair, OfferState.OFFERED)
    pair.run(12)
    offer = pair.host.store.visits.get("own").value
    assert (
        offer.state is OfferState.REFUSED
        and offer.why == "the offer's id does not match its home, job and visit number"
    )


@pytest.mark.parametrize("state", [OfferState.ACCEPTED, OfferState.RECALLED])
def test_a_home_cannot_call_a_job_of_the_host_back(pair: Pair, state: OfferState) -> None:
    lie(pair, state)
    pair.run(14)
    assert pair.host.state("own") == "RUNNING"
    offer = pair.host.store.visits.get("own").value
    assert offer.state is OfferState.ENDED and offer.returned and offer.usd == 0


def test_a_visit_whose_name_is_taken_at_the_host_is_refused(pair: Pair) -> None:
    pair.home.submit("j", clouds=["aws"])
    visit = pair.home.visit("j")
    pair.host.submit(visit)
    pair.home.wishes["j"] = "host"
    pair.until("j", "AWAY")
    pair.home.wishes.clear()
    pair.until("j", "PENDING")
    trip = pair.home.store.records.get("j").value.trips[0]
    assert trip.end is TripEnd.REFUSED and trip.why == f"a job {visit} is in host already"


def test_a_visit_of_an_earlier_releases_name_goes_on_to_its_end(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "visit_id", lambda _origin, job, _at, number: f"{job}-v{number}")
    pair.home.submit("j", clouds=["aws"])
    pair.home.wishes["j"] = "host"
    monkeypatch.setattr("everspot_scheduler.federation.inbound.misnamed", lambda _visit, _offer: False)
    pair.run(18)
    assert pair.host.store.jobs.get("j-v1") is not None
    monkeypatch.undo()  # both sides are the new release now
    pair.host.agent("i-1")
    pair.until("j", "SUCCEEDED")
    assert pair.home.store.records.get("j").value.trips[0].visit == "j-v1"
