import json
import os
from datetime import UTC, datetime

import pytest
from everspot_core.capacity.launching import LaunchedInstance, LaunchIntent, LaunchOutcome, LaunchPool
from everspot_core.cluster.manifest import Elastic
from everspot_core.jobs.records import EventKind, Market, Reason

from tests.cli.conftest import everspot


def test_interrupt_writes_a_drill_into_the_store(world):
    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    answer = world.run("--json", "interrupt", "a", "--note", "fire drill")
    assert answer.code == 0, answer.err
    (drill,) = world.store.drills.scan()
    assert drill == f"a/{answer.json['drill']}"
    assert world.store.drills.get(drill).value.note == "fire drill"
    assert world.store.events("a")[-1].kind is EventKind.DRILL


def test_a_job_without_an_instance_cannot_be_drilled(world):
    world.submit("a")
    answer = world.run("interrupt", "a")
    assert answer.code == 1
    assert "no instance" in answer.err
    assert world.store.drills.scan() == {}


def test_cancel_is_asked_once_and_asking_again_is_no_error(world):
    world.submit("a")
    assert world.run("--json", "cancel", "a").json["cancel"] == "requested"
    assert world.run("--json", "cancel", "a").json["cancel"] == "already requested"
    assert list(world.store.cancels.scan()) == ["a"]


@pytest.mark.parametrize("command", ["cancel", "interrupt"])
def test_what_has_ended_stays_ended(past, command):
    answer = past.run(command, "moved")
    assert answer.code == 1
    assert "already ended: SUCCEEDED" in answer.err


def test_drain_waits_until_no_job_has_an_instance_and_can_be_undone(world):
    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    late = world.run("drain", "--wait", "--timeout", "1s")
    assert late.code == 1
    assert "a still run" in late.err
    assert world.store.drain_request() is not None
    world.leave("a", 30, Reason.DRAIN)
    assert world.run("--json", "drain", "--wait").json == {"cluster": "test", "draining": True, "running": []}
    assert world.run("drain", "--undo").code == 0
    assert world.store.drain_request() is None


def test_drain_waits_until_what_was_launched_is_released(world):
    pool = LaunchPool(instance_type="c6i.large", zone="us-east-1b", market=Market.SPOT, place="subnet-1")
    brought = LaunchedInstance(
        instance_id="i-spot1", instance_type="c6i.large", zone="us-east-1b", market=Market.SPOT, job_id="a"
    )
    now = world.clock.now()
    intent = LaunchIntent(
        seq=1, token="0" * 32, jobs=("a",), pools=(pool,), ordered=False, whole=False, template="lt-1",
        template_version="1", usd_per_hour=1, made_at=now, scheduler_id="s",
        outcome=LaunchOutcome(instances=(brought,), settled_at=now),
    )  # fmt: skip
    world.store.launching.create(intent.name, intent)
    world.beat("i-spot1")
    late = world.run("drain", "--wait", "--timeout", "1s")
    assert (late.code, "not drained within 1s: i-spot1 still run" in late.err) == (1, True)
    world.store.instances.delete("i-spot1")
    world.launch("i-spot1", 0)  # as one that boots
    assert "i-spot1 still run" in world.run("drain", "--wait", "--timeout", "1s").err
    world.end("i-spot1", 30)
    assert world.run("drain", "--wait").code == 0


def test_instances_tell_who_lives_and_who_ended(past):
    past.clock.advance(datetime.now(UTC) - past.clock.now())
    past.beat("i-base", job="x")
    rows = {row["instance_id"]: row for row in past.run("--json", "instances").json}
    assert set(rows) == {"i-base", "i-brain"}
    assert rows["i-base"]["state"] == "BUSY" and rows["i-base"]["job_id"] == "x"
    assert rows["i-brain"]["state"] == "BOOTING"
    all_rows = {row["instance_id"]: row for row in past.run("--json", "instances", "--all").json}
    assert all_rows["i-spot1"]["interrupted"] and all_rows["i-spot1"]["state"] == "ENDED"
    assert "taken by the cloud" in past.run("instances", "-a").out


def test_doctor_misses_no_instance_where_they_are_launched_for_jobs_and_no_job_waits(world):
    elastic = Elastic(types=["c6i.large"], markets=[Market.SPOT], max_instances=8, template="lt-1",
                      template_version="1", places={})  # fmt: skip
    world.store.write_manifest(world.store.manifest().model_copy(update={"elastic": elastic}))

    def check() -> tuple[str, str, str]:
        (row,) = (c for c in world.run("--json", "doctor").json["checks"] if c["name"] == "instances")
        return row["verdict"], row["detail"], row["fix"]

    assert check() == ("ok", "none is alive, and no job waits for one", "")
    world.submit("a")
    assert check() == ("warn", "none is alive, and jobs wait: 1", "everspot job a says what it waits for")


def test_an_instance_that_jobs_share_is_shown_with_all_of_them(world):
    world.launch("i-base", 0)
    world.beat("i-base", residents=("left", "right"))
    (row,) = world.run("--json", "instances").json
    assert (row["job_id"], row["residents"]) == (None, ["left", "right"])
    assert "left, right" in world.run("instances").out


def test_an_instance_that_has_not_beaten_for_long_is_silent(past):
    past.beat("i-base")  # stamped with the past
    rows = {row["instance_id"]: row for row in past.run("--json", "instances").json}
    assert rows["i-base"]["state"] == "SILENT"


def test_doctor_is_content_with_a_living_cluster(world):
    world.clock.advance(datetime.now(UTC) - world.clock.now())
    world.scheduler_beat()
    world.beat("i-base")
    answer = world.run("--json", "doctor")
    assert answer.code == 0, answer.out
    assert answer.json["cluster"] == "test" and answer.json["ok"]
    assert {c["name"]: c["verdict"] for c in answer.json["checks"]} == {
        "store named": "ok",
        "cluster.json": "ok",
        "conditional writes": "ok",
        "scheduler": "ok",
        "instances": "ok",
        "faults": "ok",
        "queue": "ok",
        "peers": "ok",
        "prices": "warn",  # no price was read for this cluster
    }
    assert world.store.control.list("doctor/") == []


def test_doctor_finds_a_silent_scheduler(world):
    world.scheduler_beat()
    answer = world.run("doctor")
    assert answer.code == 1
    assert "silent" in answer.out


def test_a_drain_that_is_not_understood_drains_nothing(world):
    assert world.run("drain", "--wait", "--timeout", "banana").code == 2
    assert world.store.drain_request() is None


def test_doctor_names_who_must_act(past):
    past.beat("i-base")
    out = past.run("doctor", env={"COLUMNS": "80"}).out
    assert "→ cluster: running jobs run on, nothing new starts" in out


def test_doctor_and_everything_else_end_with_4_without_a_store(world, tmp_path):
    world.url = (tmp_path / "nowhere").as_uri()
    assert world.run("doctor").code == 4
    answer = world.run("jobs")
    assert answer.code == 4
    assert answer.err.startswith("error: the store")


def test_a_folder_that_is_no_control_bucket_is_named(world, tmp_path):
    (tmp_path / "empty").mkdir()
    world.url = str(tmp_path / "empty")  # a plain path is taken too
    answer = world.run("jobs")
    assert answer.code == 1
    assert "no cluster.json" in answer.err
    assert world.run("doctor").code == 4


def test_without_store_and_pulumi_the_ways_are_named():
    answer = everspot("jobs", env={"PATH": "/nowhere"})
    assert answer.code == 4
    for way in ("everspot cluster use", "--store", "EVERSPOT_STORE", "pulumi stack output controlUrl"):
        assert way in answer.err


def test_the_store_may_come_from_the_environment_or_from_pulumi(past, tmp_path):
    tool = tmp_path / "bin" / "pulumi"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\n[ "$1 $2 $3" = "stack output controlUrl" ] && echo {past.url}\n')
    tool.chmod(0o755)
    for env in ({"EVERSPOT_STORE": past.url}, {"PATH": f"{tool.parent}:{os.environ['PATH']}"}):
        answer = everspot("--json", "jobs", env=env)
        assert answer.code == 0, answer.err
        assert '"moved"' in answer.out


@pytest.mark.parametrize(
    ("listed", "message"),
    [('[{"name": "prod"}, {"name": "dev"}]', "there are: dev, prod"), ("[]", "project has none"), ("no JSON", "none")],
)
def test_a_stack_that_does_not_exist_is_said_with_those_that_do(tmp_path, listed, message):
    tool = tmp_path / "bin" / "pulumi"
    tool.parent.mkdir()
    tool.write_text(
        f"#!/bin/sh\nif [ \"$2\" = ls ]; then echo '{listed}'; exit 0; fi\n"
        "echo \"error: no stack named 'nostack' found\" >&2; exit 255\n"
    )
    tool.chmod(0o755)
    answer = everspot("--stack", "nostack", "jobs", env={"PATH": f"{tool.parent}:{os.environ['PATH']}"})
    assert answer.code == 3
    assert answer.err.startswith("error: there is no stack nostack; ")
    assert message in answer.err
    assert all(line.count("error:") <= 1 for line in answer.err.splitlines())
    tool.write_text("#!/bin/sh\necho 'error: no Pulumi.yaml project file found' >&2; exit 255\n")
    answer = everspot("--stack", "nostack", "jobs", env={"PATH": f"{tool.parent}:{os.environ['PATH']}"})
    assert (answer.code, answer.err.count("error:")) == (4, 1)
    assert "pulumi says: no Pulumi.yaml project file found" in answer.err


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("submit",), ("jobs", "--nonsense"), ("report", "--as-of", "noon")]
)
def test_usage_errors_end_with_2(world, arguments):
    assert world.run(*arguments).code == 2
    answer = world.run(*arguments, "--json")
    assert answer.code == 2
    error = json.loads(answer.err)
    assert error["error"]
    assert error["exit_code"] == 2
