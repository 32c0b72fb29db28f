import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from everspot_clouds.folder import FolderCloud
from everspot_core.records import EventKind, InstanceState, JobState, Market, Progress, Reason
from everspot_scheduler.loop import Scheduler
from everspot_store import Wait, Waiting, WaitPool

NONE_YET = "no scheduler has reported yet, so nothing starts: it is booting, or there is none"
T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD = """
name: fashion
recipe: image-classification
deadline: 6h
resources: {vcpus: 2, memory_gib: 4}
"""


def test_submit_creates_the_job_and_says_what_next_with_its_id(world, spec_file):
    answer = world.run("submit", str(spec_file(GOOD)))
    assert answer.code == 0, answer.err
    (job,) = world.store.jobs.scan()
    assert job.startswith("fashion-")
    assert "What next" in answer.out
    for command in ("logs -f", "job", "interrupt", "report", "cancel"):
        assert f"everspot {command} {job}" in answer.out
    submission = world.store.jobs.get(job).value
    assert submission.deadline_at - submission.submitted_at == timedelta(hours=6)
    assert [e.kind.value for e in world.store.events(job)] == ["submitted"]


def test_submit_answers_json_with_the_flag_at_either_place(world, spec_file):
    path = str(spec_file(GOOD))
    for arguments in (("--json", "submit", path), ("submit", path, "--json")):
        answer = world.run(*arguments)
        assert answer.json["job_id"] in world.store.jobs.scan()


def test_submit_uploads_the_code_folder_relative_to_the_file(world, spec_file, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')\n")
    path = spec_file("name: own\nentrypoint: [train.py, --fast]\ncode: src\n")
    answer = world.run("--json", "submit", str(path))
    assert answer.code == 0, answer.err
    world.store.fetch_code(world.store.jobs.get(answer.json["job_id"]).value, tmp_path / "there")
    assert (tmp_path / "there" / "train.py").read_text() == "print('hello')\n"


def test_every_bad_field_is_named_at_once_with_what_is_allowed(world, spec_file):
    path = spec_file(
        """
name: Bad Name
recipe: image-clasification
priority: urgent
deadline: soon
resource: {vcpus: 1}
resources: {vcpus: 0, gpus: two}
checkpoint: {every: 1s}
"""
    )
    answer = world.run("submit", str(path))
    assert answer.code == 1
    for words in (
        "name: 1 to 40 small letters",
        "recipe: 'image-clasification' is no recipe (did you mean image-classification?); allowed: image-",
        "priority: must be 'critical' or 'normal', not 'urgent'",
        "deadline:",
        "resource: unknown field (did you mean resources?); allowed: name, recipe",
        "resources.vcpus:",
        "resources.gpus: has to be a number, not 'two'\n",
        "checkpoint.every: must be at least 5s",
    ):
        assert words in answer.err
    assert world.store.jobs.scan() == {}


def test_errors_are_json_too(world, spec_file):
    answer = world.run("--json", "submit", str(spec_file("name: x\n")))
    assert answer.code == 1
    import json

    said = json.loads(answer.err)
    assert said["exit_code"] == 1
    assert "either recipe or entrypoint has to say what runs" in said["problems"][0]["problem"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n- b\n", "mapping"),
        ("a: [", "neither YAML nor JSON"),
        ("name: x\nentrypoint: [t.py]\ncode: nowhere\n", "not a folder"),
    ],
)
def test_a_file_that_is_no_job_is_refused(world, spec_file, text, words):
    answer = world.run("submit", str(spec_file(text)))
    assert answer.code == 1
    assert words in answer.err


def test_a_deadline_in_the_past_is_refused(world, spec_file):
    answer = world.run(
        "submit", str(spec_file("name: x\nrecipe: image-classification\ndeadline: 2020-01-01T00:00:00Z\n"))
    )
    assert answer.code == 1
    assert "passed already" in answer.err


def test_dry_run_prices_the_candidates_and_submits_nothing(world, spec_file):
    path = spec_file(GOOD + "expected_duration: 2h\n")
    world.beat("i-spot2")
    table = world.run("submit", str(path), "--dry-run")
    assert table.code == 0, table.err
    assert "m7i.large *" in table.out
    assert "Nothing was submitted" in table.out
    assert "months old" in table.out or "years old" in table.out
    answer = world.run("--json", "submit", str(path), "--dry-run").json
    found = {c["name"]: c for c in answer["candidates"]}
    assert found["m7i.large"]["in_cluster"]
    assert {c["region"] for c in answer["candidates"]} == {"us-east-1"}
    assert all(c["price_source"] and c["price_as_of"] for c in answer["candidates"])
    assert found["m6i.large"]["expected_on_demand_usd"] == pytest.approx(0.192)
    assert world.store.jobs.scan() == {}


def test_dry_run_marks_what_lives_and_not_what_has_lived(world, spec_file):
    path = str(spec_file(GOOD))
    world.launch("i-spot2", 0)
    world.beat("i-spot2")
    assert world.run("--json", "submit", path, "--dry-run").json["fits_now"] == ["m7i.large"]
    world.end("i-spot2", 100)
    assert world.run("--json", "submit", path, "--dry-run").json["fits_now"] == []
    narrow = world.run("submit", path, "--dry-run", env={"COLUMNS": "80"}).out
    assert "…" not in narrow
    assert "candidates in us-east-1" in narrow


def test_dry_run_needs_no_store(spec_file, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "everspot_cli.main", "--json", "submit", str(spec_file(GOOD)), "--dry-run"],
        capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env={"PATH": "/nowhere"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"us-central1"' in done.stdout


def test_a_job_that_nothing_can_hold_is_refused_with_the_nearest_types(world, spec_file):
    answer = world.run("submit", str(spec_file(GOOD.replace("vcpus: 2", "gpus: 99"))), "--dry-run")
    assert answer.code == 1
    assert "GPUs 8 of 99" in answer.err


def test_jobs_shows_state_words_both_durations_and_interruptions(past):
    past.submit("waiting", 9100)
    rows = {row["job_id"]: row for row in past.run("--json", "jobs").json}
    assert rows["moved"]["state"] == "SUCCEEDED"
    assert rows["moved"]["interruptions"] == 2
    assert rows["moved"]["total_duration_seconds"] == 7960
    assert rows["moved"]["job_duration_seconds"] == 3820 + 1270 + 2690
    assert rows["waiting"]["status"] == "PENDING"
    table = past.run("jobs").out
    assert "#INT." in table and "TOT. DURATION" in table and "JOB DURATION" in table


def test_state_words_tell_where_a_job_is(world):
    world.submit("a")
    words = []

    def word():
        words.append(world.run("--json", "jobs").json[0]["status"])

    world.assign("a", "i-base", 10)
    word()
    world.start("a", 20)
    record = world.record("a")
    world.save(record.model_copy(update={"progress": Progress(preparing=True)}))
    word()
    world.save(record.model_copy(update={"progress": Progress(step=30, total_steps=120)}))
    word()
    assert "30/120 25%" in world.run("jobs").out
    progress = Progress(step=30, total_steps=120, stalled_seconds=75.0)
    world.save(world.record("a").model_copy(update={"progress": progress}))
    word()
    world.leave("a", 30, Reason.NOTICE)
    word()
    assert world.run("cancel", "a").code == 0
    word()
    assert words == ["STARTING", "STARTING", "RUNNING", "STALLED", "RECOVERING", "CANCELLING"]


def test_the_exit_code_of_an_attempt_is_not_that_of_a_job_that_goes_on(world):
    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    world.leave("a", 30, Reason.NOTICE, exit_code=0)
    assert "exit code" not in world.run("job", "a").out
    world.assign("a", "i-base", 40)
    world.start("a", 50)
    world.leave("a", 60, Reason.FINISHED, exit_code=0)
    assert re.search(r"exit code +0", world.run("job", "a").out)


def test_active_hides_what_has_ended(past):
    past.submit("waiting", 9100)
    assert [row["job_id"] for row in past.run("--json", "jobs", "--active").json] == ["waiting"]


def test_job_tells_its_history(past):
    answer = past.run("--json", "job", "moved").json
    assert [e["kind"] for e in answer["events"]][:3] == ["submitted", "assigned", "training"]
    assert answer["spec"]["tags"] == {"Team": "research"}
    text = past.run("job", "mov").out  # the beginning is enough
    assert "interrupted" in text and "lost" in text


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

    def why(*, tick=True):
        if tick:
            world.clock.advance(timedelta(seconds=10))
            scheduler.tick()
        row = world.run("--json", "job", "a").json
        (listed,) = [r for r in world.run("--json", "jobs").json if r["job_id"] == "a"]
        assert (listed["waits_because"], listed["waits_since"]) == (row["waits_because"], row["waits_since"])
        return row["waits_because"], row["waits_since"]

    world.submit("a", resources={"vcpus": 2})
    assert why(tick=False) == (NONE_YET, None)
    words, found = why()
    assert words == "no instance has reported yet"
    assert why() == (words, found), "the same reason keeps the moment at which it was found"
    assert datetime.fromisoformat(found) == world.clock.now() - timedelta(seconds=10)
    world.beat("i-base", job="other")
    world.beat("i-spot1", state=InstanceState.DRAINING)
    assert "none of 1 instances" in why()[0]
    world.run("drain")
    assert why()[0] == "the cluster is being drained"
    world.submit("b", resources={"gpus": 1})
    assert why(tick=True)[0] == "the cluster is being drained"
    assert "gpus" in world.run("job", "b").out
    assert "Waiting: a, because the cluster is being drained (for" in world.run("jobs").out
    world.clock.advance(timedelta(minutes=5))
    assert why(tick=False) == ("the scheduler has been silent for 5m00s, so nothing starts", None)
    assert "silent" in world.run("jobs").out and "silent" in world.run("job", "b").out


def test_a_reason_costs_one_write_when_it_changes_and_none_while_it_stays(world, monkeypatch):
    scheduler = Scheduler(world.store, world.store.manifest(), FolderCloud(world.store), "s")
    writes = []
    write = world.store.notes.write_waiting
    monkeypatch.setattr(world.store.notes, "write_waiting", lambda doc: (writes.append(sorted(doc.jobs)), write(doc)))
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
    before = world.store.notes.waiting().jobs
    successor.tick()
    assert (writes[2:], world.store.notes.waiting().jobs) == ([], before)


def test_a_waiting_job_shows_its_pool_and_when_on_demand_begins(world, monkeypatch):
    """By what the scheduler has written, and no more."""
    monkeypatch.setattr("everspot_store.SystemClock.from_environment", lambda: world.clock)
    now = world.to(600)
    pool = WaitPool(instance_type="g5.xlarge", zone="us-east-1a", market=Market.SPOT)
    waits = {
        name: Wait(why="wait-for-spot", words="there is no spot", since=now, waits_for=pool, on_demand_at=at)
        for name, at in (("late", now + timedelta(hours=9)), ("soon", now + timedelta(hours=2)), ("never", None))
    }
    drained = Wait(why="drain", words="the cluster is being drained", since=now)
    for name in (*waits, "drained"):
        world.submit(name, 0)
    world.to(630)
    world.store.notes.write_waiting(Waiting(scheduler_id="s", updated_at=now, jobs={**waits, "drained": drained}))
    world.scheduler_beat()
    rows = {row["job_id"]: row for row in world.run("--json", "jobs").json}
    assert rows["soon"]["waits_for"] == {"instance_type": "g5.xlarge", "zone": "us-east-1a", "market": "spot"}
    assert rows["soon"]["on_demand_at"] == "2026-03-01T14:10:00Z"
    assert (rows["never"]["on_demand_at"], rows["drained"]["waits_for"]) == (None, None)
    for width in ("80", "200"):
        text = world.run("jobs", env={"COLUMNS": width}).out
        assert "…" not in text
        lines = text[text.index("WAITING") :].splitlines()
        told = [line.split()[0] for line in lines if line.startswith(("soon", "late", "never", "drained"))]
        assert told == ["soon", "late", "never"]
        assert "2026-03-01 14:10 UTC" in text
        assert "Waiting: drained, because the cluster is being drained" in text
    said = world.run("job", "soon").out
    assert "g5.xlarge us-east-1a spot" in said
    assert "at the latest" in said
    world.clock.advance(timedelta(minutes=5))
    silent = {row["job_id"]: row for row in world.run("--json", "jobs").json}
    assert (silent["soon"]["waits_for"], silent["soon"]["on_demand_at"]) == (None, None)


def test_an_unknown_job_is_not_found_and_an_ambiguous_one_says_so(past):
    past.submit("moved-too", 9100)
    assert past.run("job", "nothing").code == 3
    assert past.run("--json", "job", "mo").json["job_id"] == "moved-too"  # the only one that has not ended
    past.submit("moved-three", 9200)
    answer = past.run("job", "mo")
    assert answer.code == 3
    assert "moved, moved-three, moved-too" in answer.err


def test_wait_ends_with_5_when_the_job_failed_and_0_when_it_succeeded(past):
    assert past.run("job", "moved", "--wait").code == 0
    past.submit("bad", 9100)
    past.assign("bad", "i-base", 9110)
    past.start("bad", 9120)
    past.leave("bad", 9130, Reason.BUDGET, detail="budget spent")
    assert past.record("bad").state is JobState.FAILED
    answer = past.run("job", "bad", "--wait")
    assert answer.code == 5
    assert "budget spent" in answer.out


def test_wait_is_bounded(past):
    past.submit("waiting", 9100)
    answer = past.run("job", "waiting", "--wait", "--timeout", "1s")
    assert answer.code == 1
    assert "has not ended within 1s" in answer.err


def test_logs_are_the_bytes_that_were_printed(past):
    past.store.append_log("moved", 1, 0, b"first\n")
    letter = "é".encode()
    past.store.append_log("moved", 1, 1, letter[:1])  # a chunk ends where it has to
    past.store.append_log("moved", 1, 2, letter[1:] + b"\n")
    assert past.run("logs", "moved").out == "first\né\n"


def test_logs_go_on_over_attempts(past):
    past.store.append_log("moved", 1, 0, b"first\n")
    past.store.append_log("moved", 2, 0, b"second\n")
    assert past.run("logs", "moved").out == "first\nsecond\n"
    assert past.run("logs", "-f", "moved").out == "first\nsecond\n"
    lines = past.run("--json", "logs", "moved").out.splitlines()
    assert len(lines) == 2 and '"epoch": 2' in lines[1]


def test_the_last_lines_are_printed_over_pieces_that_end_anywhere(past):
    for seq, data in enumerate((b"one\ntw", b"o\nthree\n", b"fo", b"ur\n")):
        past.store.append_log("moved", 1, seq, data)
    said = ["one", "two", "three", "four"]
    for lines in range(1, 6):
        assert past.run("logs", "moved", "--tail", str(lines)).out.splitlines() == said[-lines:]
    assert past.run("logs", "moved", "--since", "1h").out.splitlines() == said
    assert past.run("logs", "moved", "--since", "soon").code == 2
    assert past.run("logs", "moved", "--tail", "0").code == 2


def test_what_an_agent_had_to_say_is_printed_for_its_instance(past):
    past.store.data.ensure("agents/i-spot1/000000.log", b"boot\n")
    past.store.data.ensure("agents/i-spot1/000001.log", b"end\n")
    assert past.run("logs", "--instance", "i-spot1").out == "boot\nend\n"
    assert past.run("logs", "--instance", "i-none").code == 3
    assert past.run("logs").code == past.run("logs", "moved", "--instance", "i-spot1").code == 2


def test_following_leaves_no_request_behind(past):
    past.store.append_log("moved", 1, 0, b"first\n")
    past.run("logs", "-f", "moved")
    assert not past.store.following.stands("moved")


def test_following_a_job_that_waits_says_so_once_and_prints_what_comes(past):
    past.submit("slow", 9100)
    command = [sys.executable, "-m", "everspot_cli.main", "--store", past.url, "logs", "-f", "slow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stderr.readline().startswith("cluster test: ")
        assert "has printed nothing yet (PENDING)" in following.stderr.readline()
        past.store.append_log("slow", 1, 0, b"first\n")
        assert following.stdout.readline() == "first\n"
        past.assign("slow", "i-base", 9110)
        past.start("slow", 9115)
        past.store.append_log("slow", 1, 1, b"last\n")
        past.leave("slow", 9120, Reason.FINISHED)
        assert following.communicate(timeout=300) == ("last\n", "")
    assert following.returncode == 0


def test_following_a_job_that_failed_ends_with_5(past):
    past.submit("gone", 9100)
    past.assign("gone", "i-base", 9110)
    past.start("gone", 9115)
    past.leave("gone", 9120, Reason.CANCEL)
    answer = past.run("logs", "--follow", "gone")
    assert answer.code == 5
    assert "has printed nothing yet" in answer.err


def test_the_queue_is_told_without_reading_what_trainers_wrote(past):
    writer = past.store.event_writer("moved", 3, "trainer-i-spot3", "i-spot3")
    writer.emit(EventKind.CHECKPOINTED, step=4000, trigger="final")
    brief = past.store.events("moved", brief=True)
    assert len(brief) == len(past.store.events("moved")) - 1
    before = past.run("--json", "jobs").json
    (past.root / "control" / "events" / "moved" / "000003-trainer-i-spot3-000000.json").write_text("not JSON")
    again = past.run("--json", "jobs")
    assert (again.json, again.err) == (before, "")
