"""What the command prints about a cluster's peers, jobs on visits elsewhere, and visiting jobs."""

import re
from datetime import timedelta

import pytest
from cli_peers import T0, met, note, publish
from everspot_cli import job_log
from everspot_cli.client import Client
from everspot_core.federation import migration
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.visit_records import Origin, Trip, TripEnd, Visit, visit_id
from everspot_store import PeerMarket
from everspot_store.job_transfer import copy_home


@pytest.fixture
def peer(world, tmp_path_factory):
    """A second cluster that names the first one as its peer, and is named by it."""
    return met(world, tmp_path_factory.mktemp("peer"))


def test_a_visit_whose_host_told_no_bill_is_not_told_to_have_cost_nothing(past):
    trip = Trip(cluster="there", visit="moved-v1", number=1, since=T0, until=T0, end=TripEnd.RETURNED)
    past.save(past.record("moved").model_copy(update={"trips": [trip]}))
    assert "≥ $0.00 at other clusters (1 visit without a known bill)" in " ".join(past.run("report").out.split())


def leave(world, job: str, status: str = "") -> str:
    doc = world.store.records.get(job)
    submitted, origin = world.store.jobs.get(job).value, Origin(cluster="test", control_url=world.url)
    departed = migration.depart(
        doc.value if doc else None, submitted, origin, "there", "no capacity", world.clock.now()
    )
    world.save(migration.note_progress(departed, status, None, 0, world.clock.now()) if status else departed)
    return departed.away.visit


def test_federation_shows_peers_and_what_is_wrong_with_them(world, peer):
    row = world.run("--json", "federation").json["peers"][0]
    assert (row["name"], row["cloud"], row["problem"]) == ("there", "folder", None)
    assert row["scheduler_beat_at"] is not None
    peer.write_manifest(peer.manifest().model_copy(update={"federation": ()}))
    assert "does not name test as its peer" in world.run("federation").out
    (world.root / "control" / "cluster.json").write_bytes(
        world.store.manifest().model_copy(update={"federation": ()}).to_json()
    )
    assert "No peers" in world.run("federation").out


def test_a_job_that_is_away_is_told_of_everywhere(world, peer):
    world.submit("a")
    visit = leave(world, "a", "RUNNING")
    row = world.run("--json", "jobs").json[0]
    assert row["status"] == "AWAY" and row["away"]["visit"] == visit
    assert f"at there as {visit}: RUNNING" in world.run("jobs").out
    sheet = world.run("job", "a").out
    assert f"at there as {visit}: RUNNING, since" in sheet and "no capacity" in sheet
    away = world.run("--json", "federation").json["away"][0]
    assert away["job_id"] == "a" and away["away"]["cluster"] == "there"


def test_the_log_of_a_job_that_is_away_goes_on_at_its_host(world, peer):
    world.submit("a")
    world.store.logs.append("a", 0, 0, b"at home\n")
    visit = leave(world, "a", "RUNNING")
    peer.logs.append(visit, 1, 0, b"abroad\n")
    answer = world.run("logs", "a")
    assert (answer.code, answer.out) == (0, "at home\nabroad\n")
    assert f"logs {visit} -f" in answer.err


@pytest.mark.parametrize("tail", [None, 2])
def test_a_log_is_followed_to_another_cluster_and_back_until_the_job_has_ended(world, peer, monkeypatch, tail):
    """Given a job that moves, when its log is followed, then each line comes once, and the end is the job's. An attempt
    that was killed within a line ends the line."""
    monkeypatch.setattr(job_log, "POLL", timedelta(milliseconds=1))
    world.submit("a")
    world.launch("i-base", 0)
    world.store.logs.append("a", 0, 0, b"at home\nto the peer, uncut")
    visit = leave(world, "a", "RUNNING")
    for seq, data in enumerate((b"zero\n", b"one\n", b"two\ncut o")):
        peer.logs.append(visit, 1, seq, data)
    lines = Client(store=world.url).logs("a", follow=True, tail=tail)
    expected = ["at home", "to the peer, uncut", *(["zero", "one"] if tail is None else []), "two"]
    assert [next(lines) for _ in expected] == expected
    peer.logs.append(visit, 2, 0, b"again\n")
    assert [next(lines), next(lines)] == ["cut o", "again"]
    peer.logs.append(visit, 2, 1, b"last abroad\n")
    home = world.record("a")
    copy_home(world.store, peer, world.store.jobs.get("a").value, visit, home.epoch)
    assert next(lines) == "last abroad"
    trip = Trip(cluster="there", visit=visit, number=1, since=T0, until=T0, end=TripEnd.RETURNED)
    world.save(migration.come_back(home, trip, world.clock.now()))
    epoch = world.assign("a", "i-base", 100).epoch
    world.start("a", 110)
    world.store.logs.append("a", epoch, 0, b"home again\n")
    assert next(lines) == "home again"
    world.finish("a", 200, 50, 0.9)
    assert list(lines) == []


def test_visits_are_listed_with_their_offer(world, peer):
    spec = JobSpec(name="b", recipe="image_classification", clouds=["folder"])
    visit = JobSubmission(job_id="b-v1", spec=spec, submitted_at=T0, visit=Visit(home="there", job_id="b", number=1))
    offer = VisitOffer(
        visit="b-v1", home="there", state=OfferState.REFUSED, submission=visit, at=T0, changed_at=T0, why="drained"
    )
    world.store.visits.create("b-v1", offer)
    row = world.run("--json", "federation").json["visiting"][0]
    assert (row["visit"], row["home"], row["offer"], row["why"]) == ("b-v1", "there", "REFUSED", "drained")
    assert row["job_id"] == "b"
    shown = world.run("federation").out
    assert "b-v1" in shown and "b of there" in shown


def test_a_visit_says_whose_job_it_is(world, peer):
    spec = JobSpec(name="b", recipe="image_classification", clouds=["folder"])
    visit = visit_id(Origin(cluster="there", control_url="file:///there"), "lr-t0000", T0, 2)
    visit_origin = Visit(home="there", control_url="file:///there", job_id="lr-t0000", number=2)
    world.store.submit(JobSubmission(job_id=visit, spec=spec, submitted_at=T0, visit=visit_origin))
    world.submit("own")
    rows = {row["job_id"]: row["visit_of"] for row in world.run("--json", "jobs").json}
    assert rows == {visit: {"home": "there", "job_id": "lr-t0000", "number": 2}, "own": None}
    listed = world.run("jobs").out
    assert visit in listed and listed.count("lr-t0000 of there") == 1
    assert "lr-t0000 of there" in world.run("job", visit).out


def test_the_report_tells_what_visits_cost_beside_the_clusters_own_bill(past):
    record = past.record("moved")
    trip = Trip(
        cluster="there", visit="moved-v1", number=1, since=T0, until=T0, end=TripEnd.ENDED, usd=1.25, egress_usd=0.09
    )
    before = past.run("--json", "report", "moved").json
    past.save(record.model_copy(update={"trips": [trip]}))
    report = past.run("--json", "report").json
    assert (report["abroad_usd"], report["egress_usd"]) == (1.25, 0.09)
    assert past.run("--json", "report", "moved").json["cost_usd"] == before["cost_usd"]  # the cluster's own bill
    assert "$1.25 at other clusters, about $0.09" in past.run("report").out
    assert "there as moved-v1, ended at step 0, $1.25, about $0.09 for the way" in past.run("job", "moved").out


def submit(world, folder, **more):
    lines = ["name: b", "recipe: image-classification", *(f"{name}: {value}" for name, value in more.items())]
    (folder / "job.yaml").write_text("\n".join(lines) + "\n")
    return world.run("submit", str(folder / "job.yaml"))


def test_a_job_is_refused_for_every_place_that_there_is_not(world, peer, tmp_path):
    answer = submit(world, tmp_path, clouds="[aws]", clusters="[their]")
    assert answer.code == 1
    assert "clouds: aws is the cloud of neither this cluster nor a peer; allowed: folder" in answer.err
    assert "clouds: lacks folder, where the job is submitted and begins" in answer.err
    assert "clusters: their is no peer of this cluster" in answer.err and "allowed: there" in answer.err
    assert submit(world, tmp_path, clouds="[folder]", clusters="[there]").code == 0


def test_a_job_that_may_move_says_so_where_it_cannot(world, tmp_path):
    answer = submit(world, tmp_path, clouds="[folder]")
    assert answer.code == 0 and "clouds does nothing here: the cluster test has no peers" in answer.err


def test_what_a_job_needs_of_its_own_cluster_keeps_it_there(world, peer, tmp_path):
    answer = submit(world, tmp_path, clouds="[folder]", after="[a]", nonsense="1")
    assert "after: the outputs of earlier jobs are in one cluster" in answer.err and "nonsense" in answer.err


def test_a_folder_cluster_gets_peers_and_loses_them_by_the_command(world, peer):
    assert world.run("federation", "--remove", "there").code == 0
    assert world.run("--json", "federation").json["peers"] == []
    answer = world.run("--json", "federation", "--add", str(peer.control.url), "--egress", "0.12").json
    (row,) = answer["peers"]
    assert (row["name"], row["cloud"], row["egress_usd_per_gb"], row["problem"]) == ("there", "folder", 0.12, None)
    peer.write_manifest(peer.manifest().model_copy(update={"federation": ()}))
    (row,) = world.run("--json", "federation", "--add", str(peer.control.url), "--egress", "0.12").json["peers"]
    assert row["problem"] is None
    (back,) = peer.read_manifest().value.federation
    assert (back.name, back.control_url, back.egress_usd_per_gb) == ("test", world.url, 0.12)
    assert world.run("federation", "--add", str(peer.control.url)).code == 0
    assert len(world.run("--json", "federation").json["peers"]) == 1
    refused = world.run("federation", "--remove", "elsewhere")
    assert (refused.code, "no peer is called elsewhere: there is there" in refused.err) == (3, True)
    assert "is this cluster itself" in world.run("federation", "--add", world.url).err
    world.submit("a")
    leave(world, "a", "RUNNING")
    refused = world.run("federation", "--remove", "there")
    assert refused.code == 1 and "a would be lost sight of: away at there" in refused.err


def test_peers_of_a_cluster_on_a_cloud_are_its_stacks(world, peer):
    own = world.store.manifest().model_copy(update={"cloud": "aws", "region": "eu-west-1"})
    world.store.write_manifest(own)
    refused = world.run("federation", "--add", str(peer.control.url))
    assert refused.code == 1 and "are declared in its stack" in refused.err
    world.store.write_manifest(own.model_copy(update={"cloud": "folder"}))
    peer.write_manifest(peer.manifest().model_copy(update={"cloud": "aws", "region": "eu-west-1"}))
    refused = world.run("federation", "--add", str(peer.control.url))
    assert (refused.code, "there, a cluster on aws, are declared in its stack" in refused.err) == (1, True)


def doctor(world) -> dict[str, str]:
    return next(c for c in world.run("--json", "doctor").json["checks"] if c["name"] == "peers")


def test_what_the_scheduler_sees_counts_and_not_what_this_user_reaches(world, peer):
    assert world.run("--json", "federation").json["peers"][0]["seen_by"] == "user"
    assert doctor(world)["verdict"] == "warn" and "not looked at" in doctor(world)["detail"]
    note(world, "it cannot be read: AccessDenied", minutes=3)
    row = world.run("--json", "federation").json["peers"][0]
    assert (row["seen_by"], row["problem"]) == ("scheduler", "it cannot be read: AccessDenied")
    shown = world.run("federation").out
    assert "AccessDenied" in shown and re.search(r"scheduler, \w+ ago", shown)
    check = doctor(world)
    assert check["verdict"] == "fail" and "there: it cannot be read" in check["detail"] and " ago)" in check["detail"]
    note(world, "")
    assert doctor(world)["verdict"] == "ok"


def test_a_peer_that_was_taken_down_fails_doctor_only_while_it_has_jobs(world, peer):
    publish(peer, 0.02)
    for down, has_note, verdict in ((True, False, "fail"), (False, True, "fail"), (True, True, "warn")):
        if has_note:
            world.store.notes.peers.put("there", PeerMarket(fleet=peer.notes.fleet.read()))
        note(world, "its scheduler has been silent since yesterday", down=down)
        assert doctor(world)["verdict"] == verdict, (down, has_note)
    world.submit("a")
    leave(world, "a", "RUNNING")
    check = doctor(world)
    assert check["verdict"] == "fail" and "it has a of this cluster" in check["detail"]


def test_eighty_columns_show_peers_and_visits_in_full(world, peer):
    note(world, "its clock is 3h ahead of this cluster's: deadlines and the ages of offers mean other moments there")
    world.submit("a")
    visit = leave(world, "a", "RUNNING")
    origin = Origin(cluster="there", control_url="file:///there")
    guest = visit_id(origin, "lr-t0000", T0, 2)
    spec = JobSpec(name="b", recipe="image_classification", clouds=["folder"])
    visit_origin = Visit(home="there", control_url="file:///there", job_id="lr-t0000", number=2)
    submission = JobSubmission(job_id=guest, spec=spec, submitted_at=T0, visit=visit_origin)
    offer = VisitOffer(
        visit=guest, home="there", state=OfferState.ACCEPTED, submission=submission, at=T0, changed_at=T0, why="late"
    )
    world.store.visits.create(guest, offer)
    shown = world.run("federation", env={"COLUMNS": "80"}).out
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown
    for text in ("there", "HEARTBEAT", "EGRESS $/GB", "ACCEPTED", guest, "lr-t0000 of there", visit, "no capacity"):
        assert text in shown, text
