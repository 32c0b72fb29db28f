"""The reason for a job's wait, as the scheduler writes it and the command prints it."""

import re
from datetime import datetime, timedelta

import pytest
from everspot_clouds.folder import FolderCloud
from everspot_core.jobs.records import InstanceState, Market
from everspot_core.schedule.jobs import STARVATION_LIMIT
from everspot_scheduler.loop import Scheduler
from everspot_store import Wait, Waiting, WaitPool

NONE_YET = "no scheduler has reported yet, so nothing starts: it is booting, or there is none"


@pytest.mark.parametrize(
    "text", ["{", '{"scheduler_id":"x","updated_at":"2026-01-01T00:00:00Z","jobs":{"a":{"why":5}}}']
)
def test_reasons_that_cannot_be_read_hide_no_job(world, monkeypatch, text):
    monkeypatch.setattr("everspot_store.SystemClock.from_environment", lambda: world.clock)
    world.submit("a")
    Scheduler(world.store, world.store.manifest(), FolderCloud(world.store), "s").tick()
    world.store.control.put("waiting.json", text.encode())
    (row,) = world.run("--json", "jobs").json
    assert "cannot be read" in row["waits_because"]
    assert "waiting.json cannot be read" in world.run("job", "a").out.replace("\n", " ")


def test_a_waiting_job_says_what_the_scheduler_has_found_and_when(world, monkeypatch):
    monkeypatch.setattr("everspot_store.SystemClock.from_environment", lambda: world.clock)  # one clock that stands
    scheduler = Scheduler(world.store, world.store.manifest(), FolderCloud(world.store), "s")

    def read_reason(*, tick=True):
        if tick:
            world.clock.advance(timedelta(seconds=10))
            scheduler.tick()
        row = world.run("--json", "job", "a").json
        (listed,) = [r for r in world.run("--json", "jobs").json if r["job_id"] == "a"]
        assert (listed["waits_because"], listed["waits_since"]) == (row["waits_because"], row["waits_since"])
        return row["waits_because"], row["waits_since"]

    world.submit("a", resources={"vcpus": 2})
    assert read_reason(tick=False) == (NONE_YET, None)
    words, found_at = read_reason()
    assert words == "no instance has reported yet"
    assert read_reason() == (words, found_at), "the same reason keeps the moment at which it was found"
    assert datetime.fromisoformat(found_at) == world.clock.now() - timedelta(seconds=10)
    world.beat("i-base", job="other")
    world.beat("i-spot1", state=InstanceState.DRAINING)
    assert "none of 1 instances" in read_reason()[0]
    world.run("drain")
    assert read_reason()[0] == "the cluster is being drained"
    world.submit("b", resources={"gpus": 1})
    assert read_reason(tick=True)[0] == "the cluster is being drained"
    assert "gpus" in world.run("job", "b").out
    shown = world.run("jobs").out
    assert re.search(r"Waiting: a, because the cluster is being drained \(for \w+; submitted \w+ ago\)", shown)
    assert re.search(r"for this reason; submitted\s+\w+ ago", world.run("job", "a").out)
    world.clock.advance(timedelta(minutes=5))
    assert read_reason(tick=False) == ("the scheduler has been silent for 5m00s, so nothing starts", None)
    assert "silent" in world.run("jobs").out and "silent" in world.run("job", "b").out


def test_a_reason_costs_one_write_when_it_changes_and_none_while_it_stays(world, monkeypatch):
    scheduler = Scheduler(world.store, world.store.manifest(), FolderCloud(world.store), "s")
    writes = []
    write = world.store.notes.waiting.write
    monkeypatch.setattr(world.store.notes.waiting, "write", lambda doc: (writes.append(sorted(doc.jobs)), write(doc)))
    world.submit("a", resources={"vcpus": 2})
    for _ in range(4):
        world.clock.advance(timedelta(seconds=20))
        scheduler.tick()
    assert writes == [["a"]]
    world.submit("b", resources={"vcpus": 2})
    for _ in range(4):
        world.clock.advance(timedelta(seconds=20))
        scheduler.tick()
    assert writes == [["a"], ["a", "b"]]
    successor = Scheduler(world.store, world.store.manifest(), FolderCloud(world.store), "s2")
    before = world.store.notes.waiting.read().jobs
    successor.tick()
    assert (writes[2:], world.store.notes.waiting.read().jobs) == ([], before)


def test_a_waiting_job_shows_its_pool_and_when_on_demand_begins(world, monkeypatch):
    """The command uses only the scheduler's document."""
    monkeypatch.setattr("everspot_store.SystemClock.from_environment", lambda: world.clock)
    now = world.to(600)
    pool = WaitPool(instance_type="g5.xlarge", zone="us-east-1a", market=Market.SPOT)
    waits = {
        name: Wait(why="wait-for-spot", words="there is no spot", since=now, waits_for=pool, on_demand_at=at)
        for name, at in (("late", now + timedelta(hours=9)), ("soon", now + timedelta(hours=2)), ("never", None))
    }
    drained = Wait(why="drain", words="the cluster is being drained", since=now)
    for name in (*waits, "drained"):
        world.submit(name, 0, **({"deadline": "1d"} if name == "late" else {}))
    world.to(630)
    world.store.notes.waiting.write(Waiting(scheduler_id="s", updated_at=now, jobs={**waits, "drained": drained}))
    world.scheduler_beat()
    rows = {row["job_id"]: row for row in world.run("--json", "jobs").json}
    assert rows["soon"]["waits_for"] == {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": "spot"}
    assert rows["soon"]["on_demand_at"] == "2026-03-01T14:10:00Z"
    assert (rows["never"]["on_demand_at"], rows["drained"]["waits_for"]) == (None, None)
    for width in ("80", "200"):
        text = world.run("jobs", env={"COLUMNS": width}).out
        assert "…" not in text
        lines = text[text.index("WAITING") :].splitlines()
        listed = [line.split()[0] for line in lines if line.startswith(("soon", "late", "never", "drained"))]
        assert listed == ["soon", "late", "never"]
        assert "2026-03-01 14:10 UTC" in text
        assert text.count("after a day without spot") == 1, "of the one that has no deadline"
        assert "Waiting: drained, because the cluster is being drained" in text
    out = world.run("job", "soon").out
    assert "g5.xlarge us-east-1a spot" in out
    assert "at the latest, after a day without spot" in out
    late = world.run("job", "late").out
    assert "at the latest" in late and "without spot" not in late
    assert timedelta(days=1) == STARVATION_LIMIT
    assert re.search(r"^waits because {1,2}there is no spot *$", out, re.M)
    world.clock.advance(timedelta(minutes=5))
    silent = {row["job_id"]: row for row in world.run("--json", "jobs").json}
    assert (silent["soon"]["waits_for"], silent["soon"]["on_demand_at"]) == (None, None)
