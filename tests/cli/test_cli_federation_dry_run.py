"""What a dry run and a submission print about the peers that a job may visit."""

import contextlib
import socket
import threading
import time
from datetime import timedelta

import pytest
from cli_peers import met, note, publish
from everspot_cli import peers
from everspot_core.cluster.manifest import FleetOffer
from everspot_core.cluster.peers import Peer
from everspot_core.jobs.records import Market
from everspot_store import IdleState, PeerMarket


@pytest.fixture
def peer(world, tmp_path_factory):
    """A second cluster that names the first one as its peer, and is named by it."""
    return met(world, tmp_path_factory.mktemp("peer"))


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
    home, peer_row = run("--json").json["clusters"]
    assert (home["cluster"], peer_row["cluster"], peer_row["cloud"], peer_row["problem"]) == (
        "test",
        "there",
        "folder",
        None,
    )
    assert home["egress_usd"] == 0 and peer_row["egress_usd"] == pytest.approx(0.09 * 0.001, rel=0.01)
    assert peer_row["usd_per_hour"] == 0.02 and peer_row["changeover_seconds"] == 360
    assert 0.02 * 10.1 + peer_row["egress_usd"] <= peer_row["expected_usd"] < 0.06 * 10.1
    assert 5 * peer_row["expected_usd"] == pytest.approx(home["expected_usd"], rel=0.05)
    shown = run().out
    assert f"{peer_row['expected_usd']:.4f}" in shown and "FOR 10h" in shown and "360 s" in shown


def test_a_dry_run_says_why_a_peer_has_no_price(world, peer, tmp_path):
    run = dry_run(world, tmp_path)
    _, peer_row = run("--json").json["clusters"]
    assert peer_row["expected_usd"] is None and "noted no pools" in peer_row["problem"]
    publish(peer, 0.02, elastic=False)
    _, peer_row = run("--json").json["clusters"]
    assert (peer_row["problem"], peer_row["why"]) == (None, "none of its instances is free for it")
    assert (peer_row["capacity_now"], peer_row["expected_usd"]) == (False, None)
    publish(peer, 0.02)
    note(world, "its clock is 3h ahead of this cluster's")
    _, peer_row = run("--json").json["clusters"]
    assert (peer_row["problem"], peer_row["usd_per_hour"]) == ("its clock is 3h ahead of this cluster's", 0.02)
    assert "Without expected_duration nobody knows" in run().out
    (tmp_path / "job.yaml").write_text("name: b\nrecipe: image-classification\n")
    assert world.run("--json", "submit", str(tmp_path / "job.yaml"), "--dry-run").json["clusters"] == []


def test_a_dry_run_counts_the_way_alone_to_an_idle_instance_of_a_standing_fleet(world, peer, tmp_path):
    publish(peer, 0.02, elastic=False)
    idle = [IdleState(instance_type="m6i.large", market=Market.ON_DEMAND, count=1, memory_gib=7.7)]
    peer.notes.fleet.write(peer.notes.fleet.read().model_copy(update={"idle": idle}))
    note(world, "")
    run = dry_run(world, tmp_path, expected_duration="10h")
    _, peer_row = run("--json").json["clusters"]
    assert (peer_row["capacity_now"], peer_row["expected_usd"], peer_row["egress_usd"]) == (True, 0.0, 0.0)
    assert "an idle standing instance would run it" in " ".join(run().out.split())


def test_a_job_that_only_a_peer_can_hold_is_accepted_with_a_warning(world, peer, tmp_path):
    own = FleetOffer(types=["m6i.large"], markets=[Market.SPOT])
    world.store.write_manifest(world.store.manifest().model_copy(update={"fleet": own}))
    note(world, "")
    run = dry_run(world, tmp_path, resources="{vcpus: 8}")
    assert "nothing that the cluster test has can hold this job" in run().err
    publish(peer, 0.02, kind="m6i.2xlarge")
    answer = run()
    assert answer.code == 0 and "no instance type of test can hold the job: it waits for there" in answer.err
    alone = dry_run(world, tmp_path, resources="{vcpus: 8}", clusters="[other]")()
    assert alone.code != 0


def test_a_dry_run_takes_the_schedulers_note_of_a_peer_that_this_user_cannot_read(world, peer, tmp_path):
    publish(peer, 0.02)
    world.store.notes.peers.put("there", PeerMarket(fleet=peer.notes.fleet.read()))
    publish(world.store, 0.1)
    note(world, "")
    unreadable_peer = world.store.manifest().federation[0].model_copy(update={"control_url": "file:///nowhere/at/all"})
    world.store.write_manifest(world.store.manifest().model_copy(update={"federation": (unreadable_peer,)}))
    _, peer_row = dry_run(world, tmp_path, expected_duration="10h")("--json").json["clusters"]
    assert peer_row["problem"] is None and peer_row["usd_per_hour"] == 0.02


def images(folder, *names):
    for name in names:
        (folder / f"{name}.bin").write_bytes(name.encode() * 1_000_000)
    return folder


def test_a_dry_run_counts_only_the_data_that_a_peer_lacks(world, peer, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    assert world.run("data", "put", str(images(folder, "a")), "images").code == 0
    peer.datasets.take_over(world.store.datasets.find("images"), world.store.datasets, visit="visit-1")
    assert world.run("data", "put", str(images(folder, "b", "c")), "images").code == 0
    for store in (world.store, peer):
        publish(store, 0.1)
    note(world, "")
    run = dry_run(world, tmp_path, expected_duration="10h", datasets="[images]", stream="[images]")
    answer = run("--json").json
    home, row = answer["clusters"]
    assert (row["sent_bytes"], row["present_bytes"]) == (2_000_000, 1_000_000)
    assert row["egress_usd"] == pytest.approx(0.09 * 0.002) and home["egress_usd"] == 0
    assert row["expected_usd"] > home["expected_usd"], "the same prices, and the way there"
    assert answer["data"] == {"bytes": 3_000_000, "region": "us-east-1", "output_bytes": 0, "egress_usd": 0.0}
    shown = " ".join(run().out.split())
    assert "there: 2 MB are sent there for less than $0.01; 1 MB of its data are there already" in shown
    assert "Data: 3 MB in the cluster's own bucket in us-east-1, which costs no egress." in shown


def test_all_data_counts_for_a_peer_that_this_user_cannot_read(world, peer, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    assert world.run("data", "put", str(images(folder, "a")), "images").code == 0
    publish(peer, 0.02)
    world.store.notes.peers.put("there", PeerMarket(fleet=peer.notes.fleet.read()))
    note(world, "")
    unreadable_peer = world.store.manifest().federation[0].model_copy(update={"control_url": "file:///nowhere/at/all"})
    world.store.write_manifest(world.store.manifest().model_copy(update={"federation": (unreadable_peer,)}))
    run = dry_run(world, tmp_path, expected_duration="10h", datasets="[images]")
    _, row = run("--json").json["clusters"]
    assert (row["sent_bytes"], row["present_bytes"]) == (1_000_000, None)
    assert "cannot be read, so all of it counts" in " ".join(run().out.split())


@pytest.fixture
def silent_endpoint(monkeypatch):
    """An endpoint of S3 that accepts connections and says nothing. The fixture is the list of the requests' lines."""
    requests, connections = [], []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connections.append(connection)
                    requests.append(connection.recv(1000).decode().partition("\r\n")[0])

        threading.Thread(target=accept, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*listener.getsockname()))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield requests
        listener.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()


def silent_peers(world, *names):
    bucket_urls = {name: f"s3://{name}-control?region=eu-west-1" for name in names}
    own = [Peer(name=name, cloud="folder", control_url=url) for name, url in bucket_urls.items()]
    world.store.write_manifest(world.store.manifest().model_copy(update={"federation": tuple(own)}))


def test_a_dry_run_waits_once_for_all_peers_that_do_not_answer(world, silent_endpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "ANSWER_TIME", timedelta(seconds=2))
    silent_peers(world, "near", "far", "there")
    publish(world.store, 0.1)
    run, began = dry_run(world, tmp_path, expected_duration="10h"), time.monotonic()
    answer = run()
    assert time.monotonic() - began < 10, "the first request to the first peer alone ends after 10 s"
    words = " ".join(answer.out.split())
    assert [f"{name}: it did not answer within 2 s" in words for name in ("near", "far", "there")] == [True] * 3
    buckets = {bucket for request in silent_endpoint for bucket in ("near", "far", "there") if bucket in request}
    assert buckets == {"near", "far", "there"}


def test_a_peer_that_does_not_answer_keeps_the_prices_that_its_scheduler_noted(
    world, peer, silent_endpoint, tmp_path, monkeypatch
):
    monkeypatch.setattr(peers, "ANSWER_TIME", timedelta(seconds=2))
    silent_peers(world, "there")
    publish(peer, 0.02)
    world.store.notes.peers.put("there", PeerMarket(fleet=peer.notes.fleet.read()))
    note(world, "")
    folder = tmp_path / "images"
    folder.mkdir()
    assert world.run("data", "put", str(images(folder, "a")), "images").code == 0
    run = dry_run(world, tmp_path, expected_duration="10h", datasets="[images]")
    _, row = run("--json").json["clusters"]
    assert (row["problem"], row["usd_per_hour"]) == ("it did not answer within 2 s", 0.02)
    assert (row["sent_bytes"], row["present_bytes"]) == (1_000_000, None)
    assert silent_endpoint


def test_a_job_that_no_type_can_hold_does_not_wait_again_for_a_peer_that_does_not_answer(
    world, silent_endpoint, tmp_path, monkeypatch
):
    monkeypatch.setattr(peers, "ANSWER_TIME", timedelta(seconds=2))
    own = FleetOffer(types=["m6i.large"], markets=[Market.SPOT])
    world.store.write_manifest(world.store.manifest().model_copy(update={"fleet": own}))
    silent_peers(world, "once")
    answer = dry_run(world, tmp_path, resources="{vcpus: 8}")()
    assert answer.code != 0 and "can hold this job" in answer.err
    assert len([request for request in silent_endpoint if "once" in request]) == 1
