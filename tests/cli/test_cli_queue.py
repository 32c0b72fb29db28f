"""`everspot jobs`: the selection of jobs, and the number of reads."""

from datetime import UTC, datetime, timedelta

import pytest
from everspot_core.capacity.launching import LaunchedInstance, LaunchIntent, LaunchOutcome, LaunchPool
from everspot_core.capacity.market import Market
from everspot_core.cluster.manifest import Standing
from everspot_core.jobs import lease
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.records import JobRecord, JobState, Reason
from everspot_store import SchedulerBeat
from everspot_store.bucket import Bucket

from tests.cli.conftest import T0


@pytest.fixture
def reads(monkeypatch):
    """The requests that reach the control bucket, as (operation, key)."""
    requests = []
    for name in ("get", "list"):
        real = getattr(Bucket, name)

        def counted(self, key="", real=real, name=name):
            requests.append((name, key))
            return real(self, key)

        monkeypatch.setattr(Bucket, name, counted)
    return requests


def ids(answer):
    return [row["job_id"] for row in answer.json]


def test_jobs_are_chosen_by_name_user_tag_and_state(past):
    past.submit("other-run", 9100, tags={"Team": "vision", "Env": "dev"})
    past.submit("other-two", 9110, tags={"Team": "vision"})
    past.assign("other-two", "i-base", 9120)
    jobs = ("--json", "jobs")
    assert ids(past.run(*jobs)) == ["other-two", "other-run", "moved", "steady"]
    assert ids(past.run(*jobs, "--name", "other-*")) == ["other-two", "other-run"]
    assert ids(past.run(*jobs, "--name", "moved", "--name", "*-two")) == ["other-two", "moved"]
    assert ids(past.run(*jobs, "--tag", "Team=vision", "--tag", "Env=dev")) == ["other-run"]
    assert ids(past.run(*jobs, "--state", "starting")) == ["other-two"]
    assert ids(past.run(*jobs, "--state", "SUCCEEDED", "--state", "PENDING")) == ["other-run", "moved", "steady"]
    assert ids(past.run(*jobs, "--user", "nobody")) == []
    assert ids(past.run(*jobs, "--limit", "2")) == ["other-two", "other-run"]
    assert ids(past.run(*jobs, "--active")) == ["other-two", "other-run"]
    assert "The newest 1 of 4" in past.run("jobs", "--limit", "1").out
    assert past.run("jobs", "--name", "nothing").out.strip() == "No such jobs."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--state", "BUSY"), "--state: BUSY is none of PENDING"),
        (("--tag", "Team"), "--tag: Team is not KEY=VALUE"),
        (("--since", "yesterday"), "neither a duration"),
        (("--since", "2026-01-01T00:00:00"), "with a zone"),
    ],
)
def test_a_filter_that_means_nothing_is_refused_with_what_would(world, arguments, words):
    answer = world.run("jobs", *arguments)
    assert answer.code == 2
    assert words in answer.err


def test_every_wrong_option_of_jobs_is_told_at_once(past):
    answer = past.run("jobs", "--state", "FOO", "--since", "yesterday", "--tag", "Team")
    assert answer.code == 2
    for words in ("--since: 'yesterday' is neither", "--state: FOO is none of", "--tag: Team is not KEY=VALUE"):
        assert words in answer.err


def test_since_leaves_out_what_had_ended_and_the_archive_is_found(past):
    past.submit("waiting", 9100)
    past.store.archive.move(past.store.jobs.get("moved").value, past.record("moved"), past.to(20_000))
    after = (T0 + timedelta(seconds=8500)).isoformat()
    assert ids(past.run("--json", "jobs", "--since", after)) == ["waiting", "steady"]
    assert ids(past.run("--json", "jobs")) == ["waiting", "steady"]  # archived, and longer ago than a day
    assert ids(past.run("--json", "jobs", "--all")) == ["waiting", "moved", "steady"]
    before = (T0 + timedelta(seconds=7000)).isoformat()
    assert ids(past.run("--json", "jobs", "--since", before)) == ["waiting", "moved", "steady"]
    assert past.run("job", "mov").code == 0


def test_the_queue_is_one_listing_of_each_kind_and_no_events(past, reads):
    for n in range(20):
        past.submit(f"w{n}", 9100 + n)
    past.assign("w3", "i-base", 9200)
    past.beat("i-base", job="w3")
    now = datetime.now(UTC)
    past.store.schedulers.put("s", SchedulerBeat(scheduler_id="s", started_at=now, updated_at=now))
    reads.clear()
    assert len(ids(past.run("--json", "jobs", "--active"))) == 21 - 1
    assert sorted(key for name, key in reads if name == "list") == ["cancels/", "jobs/", "records/", "schedulers/"]
    assert [key for name, key in reads if name == "get"].count("waiting.json") == 1
    assert not [key for _, key in reads if key.startswith("events/")]
    assert [key for _, key in reads if key.startswith("instances/")] == ["instances/i-base.json"]


def test_the_record_tells_how_long_a_job_had_an_instance():
    spec = JobSpec(name="j", recipe="image-classification")

    def at(seconds):
        return T0 + timedelta(seconds=seconds)

    record = lease.assign(None, "j", "i-1", at(10))
    assert record.held_time(at(25)) == timedelta(seconds=15)
    record = lease.start(record, 1, "i-1", at(30))
    record = lease.release(record, Reason.NOTICE, at(100), spec)
    assert record.held_time(at(1000)) == timedelta(seconds=90)
    record = lease.assign(record, "j", "i-2", at(200))
    assert record.held_time(at(150)) == timedelta(seconds=90)  # another clock, which is behind
    record = lease.expire(record, at(260))
    assert record.held_time(at(1000)) == timedelta(seconds=150)
    assert lease.pending("j", at(0)).held_time(at(50)) == timedelta(0)
    older = JobRecord(job_id="j", state=JobState.RUNNING, epoch=2, changed_at=at(0))
    assert older.held_time(at(50)) is None
    assert lease.expire(older.model_copy(update={"owner": "i-1"}), at(60)).held_time(at(70)) is None


def test_records_of_an_older_release_are_told_from_the_events(past):
    before = past.run("--json", "jobs").json
    for job in ("moved", "steady"):
        past.save(past.record(job).model_copy(update={"held_seconds": None, "assigned_at": None}))
    assert past.run("--json", "jobs").json == before


def test_ids_types_and_zones_are_whole_at_80_columns(world):
    now = datetime.now(UTC)
    world.clock.advance(now - world.clock.now())
    name = "a-name-of-thirty-characters-it"
    world.submit(name, (world.clock.now() - T0).total_seconds())
    world.beat("i-base", job=name)
    world.assign(name, "i-base", (world.clock.now() - T0).total_seconds())
    out = world.run("jobs", env={"COLUMNS": "80"}).out
    assert name in out and "m6i.large" in out and "us-east-1a on-demand" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    out = world.run("instances", env={"COLUMNS": "80"}).out
    assert "i-base" in out and "m6i.large" in out and "us-east-1a on-demand" in out and "…" not in out


@pytest.mark.parametrize("width", [None, "20", "40", "52", "60", "80", "200"])
def test_ids_are_whole_at_each_width_and_in_a_pipe(world, width):
    name = "llama3-8b-sft-lr3e-4-b64-0a1b2c3d"
    world.submit(name)
    world.assign(name, "i-base", 10)
    world.start(name, 20)
    answer = world.run("jobs", env={"COLUMNS": width or ""})
    (line,) = [line for line in answer.out.splitlines() if name in line]
    assert "RUNNING" in answer.out
    if width is None:
        assert "RUNNING" in line and "i-base" in line


@pytest.mark.parametrize("width", ["200", "80"])
def test_a_job_that_missed_its_deadline_is_shown_as_late(world, width):
    for job in ("punctual", "tardy", "failed"):
        world.submit(job, deadline="10m", retries={"errors": 0})
        world.assign(job, "i-base", 10)
        world.start(job, 20)
    world.finish("punctual", 500, 100, 0.9)
    world.submit("waiting", 510, deadline="1m")  # the command's own clock is months ahead
    world.finish("tardy", 700, 100, 0.9)
    world.leave("failed", 710, Reason.ERROR)
    shown = world.run("jobs", "--all", env={"COLUMNS": width}).out
    rows = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert "SUCCEEDED, late" in rows["tardy"]
    assert "PENDING, late" in rows["waiting"]
    assert ", late" not in rows["punctual"] + rows["failed"]


def test_an_empty_queue_is_told_in_sentences_of_their_own(world):
    assert world.run("jobs").out.splitlines() == [
        "No jobs. Submit one: everspot submit FILE",
        "Those that ended more than a day ago: everspot jobs --all",
    ]


def test_instances_beyond_the_target_say_what_becomes_of_them_and_when(world, monkeypatch):
    monkeypatch.setattr("everspot_store.SystemClock.from_environment", lambda: world.clock)

    def list_instances(on_demand, spot):
        standing = Standing(on_demand_units=on_demand, spot_units=spot, weights={"m7i.large": 2})
        world.store.write_manifest(world.store.manifest().model_copy(update={"standing": standing}))
        return "".join(world.run("instances").out.splitlines(True)[-2:])

    world.launch("i-base", 0)
    for iid in ("i-spot1", "i-spot2", "i-spot3"):
        world.launch(iid, 60)
    world.to(120)
    for iid in ("i-base", "i-spot1", "i-spot2"):
        world.beat(iid)
    world.beat("i-spot3", job="a")
    assert "declared" not in list_instances(1, 4)
    assert list_instances(1, 3).endswith(
        "spot: 4 units held, 3 declared. Idle ones beyond that are let go once they are 5m old, the first in 4m00s; "
        "busy ones when their job has left them.\n"
    )
    assert "on-demand: 1 unit held, 0 declared. Idle ones beyond that" in list_instances(0, 4)
    world.to(400)
    for iid in ("i-base", "i-spot1", "i-spot2"):
        world.beat(iid)
    world.beat("i-spot3", job="a")
    assert "the first at the scheduler's next tick;" in list_instances(1, 3)
    world.beat("i-base", job="b")
    assert "All of them are busy: one beyond that is let go when its job has left it." in list_instances(0, 4)
    launched(world, "i-base")
    assert "declared" not in list_instances(0, 4), "what was launched for a job is no fleet's"


def launched(world, name):
    """Record a launch that created this instance."""
    place = {"instance_type": "m7i.large", "zone": "us-east-1c", "market": Market.ON_DEMAND}
    brought = LaunchedInstance(instance_id=name, job_id="b", **place)
    intent = LaunchIntent(
        seq=1, token="0" * 32, jobs=("b",), pools=(LaunchPool(**place, place="subnet-1"),), ordered=False, whole=False,
        template="lt-1", template_version="1", usd_per_hour=1, made_at=T0, scheduler_id="s",
        outcome=LaunchOutcome(instances=(brought,), settled_at=T0),
    )  # fmt: skip
    world.store.launching.create(intent.name, intent)
