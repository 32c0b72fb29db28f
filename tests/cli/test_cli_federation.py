"""What the command says of a cluster's peers, of jobs that are away, and of visits."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.federation import journey
from everspot_core.federation.offer import OfferState, VisitOffer
from everspot_core.job import JobSpec, JobSubmission
from everspot_core.manifest import FleetOffer, Manifest
from everspot_core.peers import Peer
from everspot_core.records import Market
from everspot_core.visits import Origin, Trip, TripEnd, Visit, visit_id
from everspot_store import ElasticUse, FleetState, IdleState, PeerMarket, PeerSight, PoolState, SchedulerBeat, Store

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def peer(world, tmp_path_factory):
    """A second cluster that names the first one as its peer, and is named by it."""
    root = tmp_path_factory.mktemp("peer")
    for part in ("control", "data"):
        (root / part).mkdir()
    urls = {"control_url": (root / "control").as_uri(), "data_url": (root / "data").as_uri()}
    store = Store.open(*urls.values(), clock=world.clock)
    back = Peer(name="test", cloud="folder", control_url=world.url)
    store.write_manifest(Manifest(cluster="there", cloud="folder", federation=(back,), **urls))
    store.schedulers.put("s1", SchedulerBeat(scheduler_id="s1", started_at=T0, updated_at=world.clock.now()))
    there = Peer(name="there", cloud="folder", control_url=urls["control_url"], egress_usd_per_gb=0.09)
    world.store.write_manifest(world.store.manifest().model_copy(update={"federation": (there,)}))
    return store


def leave(world, job: str, told: str = "") -> str:
    found = world.store.records.get(job)
    submitted, origin = world.store.jobs.get(job).value, Origin(cluster="test", control_url=world.url)
    gone = journey.depart(found.value if found else None, submitted, origin, "there", "no capacity", world.clock.now())
    world.save(journey.told(gone, told, None, 0, world.clock.now()) if told else gone)
    return gone.away.visit


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
    world.store.append_log("a", 1, 0, b"at home\n")
    visit = leave(world, "a", "RUNNING")
    peer.append_log(visit, 1, 0, b"abroad\n")
    answer = world.run("logs", "a", "-f")
    assert (answer.code, answer.out) == (0, "at home\nabroad\n")
    assert f"logs {visit} -f" in answer.err


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
    whose = Visit(home="there", control_url="file:///there", job_id="lr-t0000", number=2)
    world.store.submit(JobSubmission(job_id=visit, spec=spec, submitted_at=T0, visit=whose))
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
    assert "at other clusters" in past.run("report").out
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


def note(world, problem: str, minutes: int = 0) -> None:
    """What the scheduler sees of the peer."""
    at = world.clock.now() - timedelta(minutes=minutes)
    seen = PeerSight(name="there", seen_at=at, beat_at=at, alive=not problem, problem=problem)
    beat = SchedulerBeat(scheduler_id="s1", started_at=T0, updated_at=at, peers=[seen])
    world.store.schedulers.put("s1", beat)


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


def test_eighty_columns_show_peers_and_visits_in_full(world, peer):
    note(world, "its clock is 3h ahead of this cluster's: deadlines and the ages of offers mean other moments there")
    world.submit("a")
    visit = leave(world, "a", "RUNNING")
    origin = Origin(cluster="there", control_url="file:///there")
    guest = visit_id(origin, "lr-t0000", T0, 2)
    spec = JobSpec(name="b", recipe="image_classification", clouds=["folder"])
    whose = Visit(home="there", control_url="file:///there", job_id="lr-t0000", number=2)
    submission = JobSubmission(job_id=guest, spec=spec, submitted_at=T0, visit=whose)
    offer = VisitOffer(
        visit=guest, home="there", state=OfferState.ACCEPTED, submission=submission, at=T0, changed_at=T0, why="late"
    )
    world.store.visits.create(guest, offer)
    shown = world.run("federation", env={"COLUMNS": "80"}).out
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown
    for word in ("there", "HEARTBEAT", "EGRESS $/GB", "ACCEPTED", guest, "lr-t0000 of there", visit, "no capacity"):
        assert word in shown, word


def publish(store, usd: float, *, elastic: bool = True, kind: str = "m6i.large") -> None:
    """What a scheduler notes of its pools: one of Spot that was never taken, and on-demand at three times the price."""
    shape = {"instance_type": kind, "changeover_seconds": 360.0, "changeover_upper_seconds": 900.0}
    behaved = {"up": True, "since": T0 - timedelta(days=30)}
    pools = [
        PoolState(**shape, zone="us-east-1a", market=Market.SPOT, usd_per_hour=usd, **behaved),
        PoolState(**shape, zone="us-east-1a", market=Market.ON_DEMAND, usd_per_hour=3 * usd),
    ]
    use = ElasticUse(instances=0, max_instances=4, usd_per_hour=0.0) if elastic else None
    store.notes.write_fleet(FleetState(scheduler_id="s1", updated_at=T0, pools=pools, elastic=use))


def dry_run(world, folder, **more):
    job = {"name": "b", "recipe": "image-classification", "resources": "{vcpus: 2}", "clouds": "[folder]", **more}
    (folder / "job.yaml").write_text("".join(f"{name}: {value}\n" for name, value in job.items()))
    return lambda *how: world.run(*how, "submit", str(folder / "job.yaml"), "--dry-run")


def test_a_dry_run_says_what_the_job_costs_at_each_peer_with_the_way_there(world, peer, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "all.bin").write_bytes(b"x" * 1_000_000)
    assert world.run("data", "put", str(tmp_path / "images"), "images").code == 0
    publish(world.store, 0.1)
    publish(peer, 0.02)
    note(world, "")
    run = dry_run(world, tmp_path, expected_duration="10h", datasets="[images]")
    home, there = run("--json").json["clusters"]
    assert (home["cluster"], there["cluster"], there["cloud"], there["problem"]) == ("test", "there", "folder", None)
    assert home["egress_usd"] == 0 and there["egress_usd"] == pytest.approx(0.09 * 0.001, rel=0.01)
    assert there["usd_per_hour"] == 0.02 and there["changeover_seconds"] == 360
    assert 0.02 * 10.1 + there["egress_usd"] <= there["expected_usd"] < 0.06 * 10.1
    assert 5 * there["expected_usd"] == pytest.approx(home["expected_usd"], rel=0.05)
    shown = run().out
    assert f"{there['expected_usd']:.4f}" in shown and "FOR 10h" in shown and "360 s" in shown


def test_a_dry_run_says_why_a_peer_has_no_price(world, peer, tmp_path):
    run = dry_run(world, tmp_path)
    _, there = run("--json").json["clusters"]
    assert there["expected_usd"] is None and "noted no pools" in there["problem"]
    publish(peer, 0.02, elastic=False)
    _, there = run("--json").json["clusters"]
    assert (there["problem"], there["why"]) == (None, "none of its instances is free for it")
    assert (there["capacity_now"], there["expected_usd"]) == (False, None)
    publish(peer, 0.02)
    note(world, "its clock is 3h ahead of this cluster's")
    _, there = run("--json").json["clusters"]
    assert (there["problem"], there["usd_per_hour"]) == ("its clock is 3h ahead of this cluster's", 0.02)
    assert "Without expected_duration nobody knows" in run().out
    (tmp_path / "job.yaml").write_text("name: b\nrecipe: image-classification\n")
    assert world.run("--json", "submit", str(tmp_path / "job.yaml"), "--dry-run").json["clusters"] == []


def test_a_dry_run_counts_the_way_alone_to_an_idle_instance_of_a_standing_fleet(world, peer, tmp_path):
    publish(peer, 0.02, elastic=False)
    idle = [IdleState(instance_type="m6i.large", market=Market.ON_DEMAND, count=1, memory_gib=7.7)]
    peer.notes.write_fleet(peer.notes.fleet().model_copy(update={"idle": idle}))
    note(world, "")
    run = dry_run(world, tmp_path, expected_duration="10h")
    _, there = run("--json").json["clusters"]
    assert (there["capacity_now"], there["expected_usd"], there["egress_usd"]) == (True, 0.0, 0.0)
    assert "is idle, and paid for anyway" in " ".join(run().out.split())


def test_a_job_that_only_a_peer_can_hold_is_accepted_with_a_warning(world, peer, tmp_path):
    own = FleetOffer(types=["m6i.large"], markets=[Market.SPOT])
    world.store.write_manifest(world.store.manifest().model_copy(update={"fleet": own}))
    note(world, "")
    run = dry_run(world, tmp_path, resources="{vcpus: 8}")
    assert "nothing that the cluster test has can hold this job" in run().err
    publish(peer, 0.02, kind="m6i.2xlarge")
    found = run()
    assert found.code == 0 and "no instance type of test can hold the job: it waits for there" in found.err
    alone = dry_run(world, tmp_path, resources="{vcpus: 8}", clusters="[other]")()
    assert alone.code != 0


def test_a_dry_run_takes_the_schedulers_note_of_a_peer_that_this_user_cannot_read(world, peer, tmp_path):
    publish(peer, 0.02)
    world.store.notes.peers.put("there", PeerMarket(fleet=peer.notes.fleet()))
    publish(world.store, 0.1)
    note(world, "")
    gone = world.store.manifest().federation[0].model_copy(update={"control_url": "file:///nowhere/at/all"})
    world.store.write_manifest(world.store.manifest().model_copy(update={"federation": (gone,)}))
    _, there = dry_run(world, tmp_path, expected_duration="10h")("--json").json["clusters"]
    assert there["problem"] is None and there["usd_per_hour"] == 0.02
