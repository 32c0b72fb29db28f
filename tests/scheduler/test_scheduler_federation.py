"""Jobs that move between two clusters, with only schedulers and stores."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from everspot_core.federation.offer import OfferState
from everspot_core.jobs.lease import START_INSTANCES
from everspot_core.jobs.records import EventKind, JobState, Market, Reason, Request
from everspot_core.jobs.visit_records import TripEnd
from everspot_scheduler.federation.inbound import OFFER_LIFE
from everspot_store import Lease, ManualClock, job_transfer
from everspot_store.testing import Fault, FaultScript, MemoryBackend, faulty_store
from federation_helpers import PATIENCE, Pair
from scheduler_helpers import Agent

TRAVELS = {"clouds": ["aws"]}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path, ManualClock())


def save(pair: Pair, where: str, job: str, step: int, folder: Path) -> None:
    """Publish a checkpoint as the job's trainer does."""
    member = pair.home if where == "home" else pair.host
    epoch = member.store.records.get(job).value.epoch
    path = folder / f"{job}-{step}.pt"
    path.write_bytes(f"state of {step}".encode())
    member.store.checkpoints(job, epoch).publish(step, {"rank-0.pt": path})


def test_a_job_that_finds_nothing_at_home_ends_at_a_peer(pair: Pair) -> None:
    pair.home.submit("j", **TRAVELS)
    pair.host.agent("i-1")
    pair.home.wishes["j"] = "host"
    pair.until("j", "AWAY")
    pair.until("j", "SUCCEEDED")
    record = pair.home.store.records.get("j").value
    trip = record.trips[0]
    assert (trip.cluster, trip.visit, trip.end) == ("host", pair.home.visit("j"), TripEnd.ENDED)
    assert record.away is None and record.last_reason is Reason.FINISHED and trip.usd is not None
    assert [len(pair.home.events_of_kind("j", kind)) for kind in (EventKind.DEPARTED, EventKind.RETURNED)] == [1, 1]
    visit = pair.host.store.jobs.get(pair.home.visit("j")).value
    assert visit.visit.home == "home" and visit.visit.job_id == "j"
    assert pair.host.store.visits.get(pair.home.visit("j")).value.end is JobState.SUCCEEDED


def test_a_running_job_moves_with_its_checkpoint_and_comes_home_with_a_newer_one(pair: Pair, tmp_path: Path) -> None:
    pair.home.submit("j", **TRAVELS)
    here = pair.home.agent("i-1")
    pair.run(3)
    save(pair, "home", "j", 3, tmp_path)
    pair.home.store.logs.append("j", 1, 0, b"at home\n")
    pair.home.wishes["j"] = "host"
    pair.run(8)
    assert pair.home.state("j") == "AWAY" and here.lease is None
    pair.host.agent("i-2")
    pair.run(8)
    head = pair.host.store.checkpoints(pair.home.visit("j")).head()
    assert [c.step for c in head.checkpoints] == [3] and head.checkpoints[0].epoch == 0
    assert pair.host.store.checkpoints(pair.home.visit("j")).restore(tmp_path / "there").step == 3
    assert (tmp_path / "there/rank-0.pt").read_bytes() == b"state of 3"
    save(pair, "host", pair.home.visit("j"), 9, tmp_path)
    pair.host.store.logs.append(pair.home.visit("j"), 1, 0, b"abroad\n")
    pair.home.wishes["j"] = "home"
    pair.until("j", "RUNNING")
    assert [c.step for c in pair.home.store.checkpoints("j").head().checkpoints] == [9, 3]
    assert pair.home.store.checkpoints("j").restore(tmp_path / "back").step == 9
    assert (tmp_path / "back/rank-0.pt").read_bytes() == b"state of 9"
    assert b"".join(c.data for c in pair.home.store.read_logs("j")) == b"at home\nabroad\n"
    visit = pair.host.store.records.get(pair.home.visit("j")).value
    assert visit.state is JobState.CANCELLED and visit.last_reason is Reason.RETURNED
    trip = pair.home.store.records.get("j").value.trips[0]
    assert trip.end is TripEnd.RETURNED and trip.sent_bytes == 10 and trip.brought_bytes == 10 + 7
    assert trip.egress_usd == pytest.approx(27 / 1e9 * 0.1)


def test_what_a_host_refuses_is_home_again(pair: Pair) -> None:
    pair.host.store.request_drain(Request(at=pair.clock.now()))
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.until("j", "AWAY")
    pair.home.wishes.clear()
    pair.until("j", "PENDING")
    trip = pair.home.store.records.get("j").value.trips[0]
    assert trip.end is TripEnd.REFUSED and trip.why == "host is being drained"
    pair.home.agent("i-1")
    pair.until("j", "SUCCEEDED")


def test_an_offer_that_nobody_answers_is_withdrawn_and_cannot_be_accepted_later(pair: Pair) -> None:
    schedulers, pair.host.schedulers = pair.host.schedulers, []
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.until("j", "AWAY")
    pair.home.wishes.clear()
    pair.until("j", "PENDING")
    pair.host.schedulers = schedulers
    pair.host.agent("i-9")
    pair.run(5)
    assert pair.host.store.visits.get(pair.home.visit("j")).value.state is OfferState.WITHDRAWN
    assert pair.host.store.jobs.get(pair.home.visit("j")) is None
    trip = pair.home.store.records.get("j").value.trips[0]
    assert trip.end is TripEnd.WITHDRAWN and trip.why == "host did not answer"


def test_a_peer_that_cannot_be_reached_gets_nothing_and_the_job_is_home_again(pair: Pair) -> None:
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.home.cut = True
    pair.until("j", "AWAY")
    pair.home.wishes.clear()
    pair.until("j", "PENDING")
    assert "cannot be reached" in pair.home.store.records.get("j").value.trips[0].why


def test_a_cancelled_job_ends_wherever_it_is(pair: Pair) -> None:
    pair.home.submit("j", **TRAVELS)
    pair.host.agent("i-1")
    pair.home.wishes["j"] = "host"
    pair.run(18)
    assert pair.host.state(pair.home.visit("j")) == "RUNNING"
    pair.home.store.cancels.create("j", Request(at=pair.clock.now()))
    pair.until("j", "CANCELLED")
    assert pair.host.state(pair.home.visit("j")) == "CANCELLED"
    assert len(pair.home.events_of_kind("j", EventKind.CANCELLED)) == 1


def test_a_drained_host_gives_its_visits_back(pair: Pair) -> None:
    pair.home.submit("j", **TRAVELS)
    pair.host.agent("i-1")
    pair.home.wishes["j"] = "host"
    pair.run(18)
    pair.home.wishes.clear()
    pair.host.store.request_drain(Request(at=pair.clock.now()))
    pair.until("j", "PENDING")
    assert pair.home.store.records.get("j").value.trips[0].end is TripEnd.RETURNED
    assert pair.home.store.records.get("j").value.progress.step > 0


def test_a_job_that_no_instance_of_the_host_can_start_goes_on_at_home(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(agent: Agent, lease: Lease) -> None:
        lease.release(Reason.SHUTDOWN, unstarted=True, detail="exec /usr/bin/python3: no such file")
        agent.lease = None

    for number in range(START_INSTANCES):
        agent = pair.host.agent(f"i-{number}", Market.ON_DEMAND)
        monkeypatch.setattr(agent, "_work", partial(refuse, agent))
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.until("j", "AWAY")
    pair.home.wishes.clear()
    for _ in range(40):
        pair.clock.advance(timedelta(seconds=20))
        pair.run(1)
    record = pair.home.store.records.get("j").value
    assert record.state is JobState.PENDING, record
    (trip,) = record.trips
    assert (trip.end, trip.host_failed) == (TripEnd.RETURNED, True) and "could not be started 4 times" in trip.why
    pair.home.agent("home-1", Market.ON_DEMAND)
    pair.until("j", "SUCCEEDED")


def test_a_visit_stays_at_its_host_outside_its_hours(pair: Pair) -> None:
    """The clock starts at midnight, and the window closes at one o'clock."""
    pair.host.agent("i-1", Market.ON_DEMAND)
    pair.home.submit("j", **TRAVELS, window="00:00-01:00")
    pair.home.wishes["j"] = "host"
    pair.until("j", "AWAY")
    visit = pair.home.visit("j")
    for _ in range(30):
        if pair.host.state(visit) == "RUNNING":
            break
        pair.run(1)
    pair.clock.advance(timedelta(hours=1))
    pair.run(5)
    assert pair.host.state(visit) == "PENDING"
    for _ in range(20):
        pair.clock.advance(timedelta(minutes=5))
        pair.run(1)
    assert (pair.home.state("j"), pair.host.state(visit)) == ("AWAY", "PENDING")
    pair.clock.advance(timedelta(hours=21, minutes=20))
    pair.until("j", "SUCCEEDED")


def test_a_drain_at_home_calls_its_jobs_back(pair: Pair) -> None:
    pair.home.submit("j", **TRAVELS)
    pair.host.agent("i-1")
    pair.home.wishes["j"] = "host"
    pair.run(18)
    pair.home.store.request_drain(Request(at=pair.clock.now()))
    pair.until("j", "PENDING")
    assert pair.home.store.records.get("j").value.trips[0].why == "home is being drained"
    pair.run(10)
    assert pair.home.state("j") == "PENDING"  # no job leaves a draining cluster


def test_a_host_that_may_not_answer_goes_on_with_its_own_jobs(pair: Pair) -> None:
    faults = FaultScript().on("replace", key="visits/*", fault=Fault.DENIED)
    pair.stores["host"] = pair.host.store = faulty_store(MemoryBackend(), MemoryBackend(), pair.clock, faults)
    pair.host.declare()
    pair.host.schedulers = [pair.host.scheduler()]
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.until("j", "AWAY")
    pair.host.submit("own")
    pair.host.agent("i-1")
    pair.run(12)
    assert faults.spent and pair.host.state("own") != "PENDING"


def test_offers_are_looked_for_now_and_then_and_before_each_plan_while_visits_are_here(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, visits = list[None](), pair.host.store.visits
    scan = visits.scan
    monkeypatch.setattr(visits, "scan", lambda: looks.append(None) or scan())
    pair.run(30)
    assert 3 <= len(looks) - 30 <= 4  # the pair's own check looks once a second
    looks.clear()
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.run(15)
    looks.clear()
    pair.run(10)
    assert len(looks) == 10 + 10 and pair.host.store.jobs.get(pair.home.visit("j")) is not None


def test_a_strangers_offer_is_refused(pair: Pair) -> None:
    pair.host.declare(federation=())
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.run(12)
    pair.host.declare(federation=pair.home.manifest.federation)
    pair.run(12)
    assert pair.host.store.visits.get(pair.home.visit("j")).value.why == "host knows no peer home"


def test_a_jobs_budget_abroad_is_what_is_left_of_it(pair: Pair) -> None:
    pair.home.submit("j", budget={"dollars": 5, "wall_clock": "2h"}, **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.until("j", "AWAY")
    pair.run(2)
    visit = pair.host.store.visits.get(pair.home.visit("j")).value.submission
    assert visit.spec.budget.dollars == 5 and visit.submitted_at == pair.home.store.jobs.get("j").value.submitted_at


def test_an_output_that_cannot_be_copied_keeps_no_job_away(pair: Pair, tmp_path: Path) -> None:
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.run(18)
    pair.host.agent("i-1")
    visit, epoch = pair.home.visit("j"), pair.home.store.records.get("j").value.epoch
    for name, content in (("model.bin", b"of the visit"), ("sound.bin", b"sound")):
        (tmp_path / name).write_bytes(content)
        pair.host.store.data.upload(f"jobs/{visit}/outputs/000001/{name}", tmp_path / name)
    (tmp_path / "other").write_bytes(b"copied before a crash, and other bytes")
    pair.home.store.data.upload(f"jobs/j/outputs/{epoch:06d}/model.bin", tmp_path / "other")
    pair.until("j", "SUCCEEDED")
    (trip,) = pair.home.store.records.get("j").value.trips
    assert trip.end is TripEnd.ENDED and trip.brought_bytes >= len(b"sound")
    assert trip.why.startswith("1 of its files could not be copied home, such as output model.bin: ")
    assert {output.path for output in pair.home.store.outputs("j").list()} == {"model.bin", "sound.bin"}


def test_results_that_cannot_be_read_keep_no_job_away(pair: Pair) -> None:
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.run(18)
    pair.host.store.control.put(f"heads/{pair.home.visit('j')}.json", b"no document")
    pair.host.agent("i-1")
    pair.until("j", "SUCCEEDED")
    (trip,) = pair.home.store.records.get("j").value.trips
    assert trip.end is TripEnd.ENDED and "its results: BadDocument" in trip.why


def test_a_visit_that_ended_and_left_no_record_keeps_no_job_away(pair: Pair) -> None:
    """As when the host's tables were restored from an older state."""
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    visit, schedulers = pair.home.visit("j"), pair.home.schedulers
    pair.until("j", "AWAY")
    pair.run(15)
    pair.home.schedulers = []
    pair.host.agent("i-1")
    for _ in range(60):
        pair.run(1)
        if pair.host.store.visits.get(visit).value.state is OfferState.ENDED:
            break
    for table in (pair.host.store.jobs, pair.host.store.records):
        table.delete(visit)
    pair.home.schedulers, pair.home.wishes = schedulers, {}
    pair.run(int(PATIENCE.total_seconds()) - 5)
    assert pair.home.state("j") == "AWAY"
    pair.run(20)
    (trip,) = pair.home.store.records.get("j").value.trips
    assert (trip.end, trip.why) == (TripEnd.WITHDRAWN, f"host has no record of how {visit} ended")


def test_an_offer_whose_copying_took_long_is_as_old_as_its_arrival(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    send = job_transfer.copy_to_host

    def slow(*args: Any) -> int:
        pair.clock.advance(OFFER_LIFE + timedelta(hours=1))
        return send(*args)

    monkeypatch.setattr(job_transfer, "copy_to_host", slow)
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    pair.host.agent("i-1")
    pair.until("j", "AWAY")
    pair.until("j", "SUCCEEDED")
    (trip,) = pair.home.store.records.get("j").value.trips
    assert trip.end is TripEnd.ENDED and pair.host.store.visits.get(trip.visit).value.at > trip.since + OFFER_LIFE


def test_an_offer_that_is_written_long_after_the_copying_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.home.submit("j", **TRAVELS)
    pair.home.wishes["j"] = "host"
    schedulers, create = pair.home.schedulers, pair.host.store.visits.create
    late: list[Any] = []
    monkeypatch.setattr(pair.host.store.visits, "create", lambda *args: late.append(args))
    pair.until("j", "AWAY")
    pair.run(6)
    pair.home.schedulers = []  # it was stopped before that write, and goes on with it after half a day
    pair.clock.advance(2 * OFFER_LIFE)
    create(*late[0])
    pair.run(12)
    assert pair.host.store.visits.get(late[0][0]).value.state is OfferState.REFUSED
    pair.home.schedulers = schedulers
    pair.home.wishes.clear()
    pair.until("j", "PENDING")
