"""What the command prints about a job's checkpoints: their interval with its reason, and the cost of a notice."""

import pytest
from everspot_core.cluster.manifest import FleetOffer, Manifest
from everspot_core.jobs.records import EventKind, Market

REASON = "a checkpoint of 1 GB stalls training for 2 s, and an interruption comes about every 8 h"
LOSS = "a checkpoint of 150 GB takes 240 s to be durable, longer than a notice of 120 s leaves: an interruption costs"


def begin(world) -> None:
    world.submit("a")
    world.assign("a", "i-spot1", 10)
    world.start("a", 20)


def test_job_says_how_often_it_checkpoints_and_why(world):
    begin(world)
    row = world.run("--json", "job", "a").json
    assert (row["checkpoint_interval"], row["notice_loss"]) == (None, None)
    assert row["spec"]["checkpoint"]["every"] == "auto"
    world.emit("a", EventKind.CHECKPOINT_INTERVAL, seconds=60.0, cause="shortest", reason="the shortest")
    world.emit("a", EventKind.CHECKPOINT_INTERVAL, seconds=339.4, cause="balanced", reason=REASON)
    row = world.run("--json", "job", "a").json
    assert (row["checkpoint_interval"], row["notice_loss"]) == (f"every 5m39s: {REASON}", None)
    shown = " ".join(world.run("job", "a").out.split())
    assert shown.count(f"every 5m39s: {REASON}") == 2, "among the facts and in the history"
    assert "checkpoint_interval" in shown and "every 1m00s: the shortest" in shown
    assert "at a notice" not in shown


def test_job_says_what_a_notice_costs_a_job_whose_state_is_too_large(world):
    begin(world)
    sentence = f"{LOSS} up to 1,200 steps (10 min)"
    world.emit(
        "a", EventKind.CHECKPOINT_INTERVAL, seconds=360.0, cause="notice", reason="bounded", notice=sentence,
        lost_steps=1200,
    )  # fmt: skip
    row = world.run("--json", "job", "a").json
    assert row["notice_loss"] == sentence
    shown = " ".join(world.run("job", "a").out.split())
    assert f"at a notice {sentence}" in shown
    assert f"every 6m00s: bounded; {sentence}" in shown


def test_a_job_that_counts_in_steps_says_only_what_a_notice_costs(world):
    begin(world)
    world.emit("a", EventKind.CHECKPOINT_INTERVAL, cause="chosen", reason="as the job says", notice=f"{LOSS} a lot")
    row = world.run("--json", "job", "a").json
    assert (row["checkpoint_interval"], row["notice_loss"]) == ("as the job says", f"{LOSS} a lot")


def test_an_event_that_makes_no_sense_is_not_shown(world):
    begin(world)
    world.emit("a", EventKind.CHECKPOINT_INTERVAL, seconds=True, reason=5, notice=[1])
    answer = world.run("--json", "job", "a")
    assert (answer.code, answer.json["checkpoint_interval"], answer.json["notice_loss"]) == (0, None, None)


JOB = "name: big\nrecipe: image-classification\nresources: {{gpus: 1, gpu: A10G}}\ncheckpoint: {{state_gib: {gib}}}\n"
FIELDS = {"state_gib", "notice_seconds", "fits_notice", "message", "types"}


def declare_fleet(world, *types: str, **manifest: object) -> None:
    fleet = FleetOffer(types=list(types), zones=["us-east-1a"], markets=[Market.SPOT])
    declared = {**world.store.manifest().model_dump(), "region": "us-east-1", "fleet": fleet, **manifest}
    world.store.write_manifest(Manifest.model_validate(declared))


@pytest.mark.parametrize("where", [(), ("--dry-run",)])
def test_submit_says_what_a_notice_costs_a_job_whose_declared_state_is_too_large(world, spec_file, where):
    declare_fleet(world, "g5.xlarge", "g5.12xlarge")
    answer = world.run("submit", str(spec_file(JOB.format(gib=150))), *where)
    assert answer.code == 0, answer.err
    shown = " ".join((answer.err + answer.out).split())
    assert (
        "a checkpoint of 150 GiB takes at least 515 s from g5.xlarge (2.5 Gbit/s), longer than a notice of 120 s "
        "leaves: an interruption costs up to 17.2 min of work; it fits on g5.12xlarge"
    ) in shown


def test_a_dry_run_says_that_a_declared_state_fits(world, spec_file):
    declare_fleet(world, "g5.xlarge", "g5.12xlarge")
    path = str(spec_file(JOB.format(gib=10)))
    shown = " ".join(world.run("submit", path, "--dry-run").out.split())
    assert "A checkpoint of 10 GiB takes at least 34 s from g5.xlarge (2.5 Gbit/s), within a notice of 120 s" in shown
    answer = world.run("--json", "submit", path, "--dry-run").json
    row = answer["checkpoint"]
    assert (set(row), row["fits_notice"], answer["warnings"]) == (FIELDS, True, [])
    assert row["types"][1] == {
        "name": "g5.xlarge", "network_gbps": 2.5, "network_is_assumed": False, "durable_seconds": 34.4,
        "fits_notice": True, "loss_seconds": None,
    }  # fmt: skip
    assert "checkpoint of" not in world.run("submit", path).out


def test_a_dry_run_without_a_declared_state_says_nothing_of_it(world, spec_file):
    path = str(spec_file("name: small\nrecipe: image-classification\n"))
    assert world.run("--json", "submit", path, "--dry-run").json["checkpoint"] is None
    assert "notice" not in world.run("submit", path, "--dry-run").out


def test_the_notice_is_the_clouds_and_an_unknown_network_an_assumption(world, spec_file):
    text = JOB.replace("A10G", "L4").format(gib=30)
    declared = {**world.store.manifest().model_dump(), "cloud": "gcp", "region": "us-central1"}
    fleet = FleetOffer(types=["g2-standard-4"], zones=["us-central1-a"], markets=[Market.SPOT])
    world.store.write_manifest(Manifest.model_validate({**declared, "fleet": fleet}))
    answer = world.run("submit", str(spec_file(text)))
    assert answer.code == 0, answer.err
    assert (
        "a checkpoint of 30 GiB takes at least 26 s from g2-standard-4 (10 Gbit/s, an assumption), longer than a "
        "notice of 25 s leaves: an interruption costs up to 10 min of work"
    ) in " ".join((answer.err + answer.out).split())
