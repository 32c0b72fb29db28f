"""`everspot jobs` and `everspot job`: the displayed fields of a job, and waiting for its end."""

import re
from datetime import UTC, datetime

import pytest
from everspot_core.jobs.records import EventKind, JobState, Progress, Reason

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)


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

    def record_status():
        words.append(world.run("--json", "jobs").json[0]["status"])

    world.assign("a", "i-base", 10)
    record_status()
    world.start("a", 20)
    record = world.record("a")
    world.save(record.model_copy(update={"progress": Progress(preparing=True)}))
    record_status()
    world.save(record.model_copy(update={"progress": Progress(step=30, total_steps=120)}))
    record_status()
    assert "30/120 25%" in world.run("jobs").out
    progress = Progress(step=30, total_steps=120, stalled_seconds=75.0)
    world.save(world.record("a").model_copy(update={"progress": progress}))
    record_status()
    world.leave("a", 30, Reason.NOTICE)
    record_status()
    assert world.run("cancel", "a").code == 0
    record_status()
    assert words == ["STARTING", "STARTING", "RUNNING", "STALLED", "RECOVERING", "CANCELLING"]


@pytest.mark.parametrize(
    ("step", "total", "per_epoch", "expected"),
    [
        (0, 12, 4.0, "0/12 0%, epoch 1 of 3"),
        (4, 12, 4.0, "4/12 33%, epoch 2 of 3"),
        (12, 12, 4.0, "12/12 100%, epoch 3 of 3"),
        (2, 4, 1.5, "2/4 50%, epoch 2 of 3"),
        (5, 6, 0.1, "5/6 83%, epoch 51 of 60"),
        (1, 2, 8.0, "1/2 50%, epoch 1 of 1"),
        (5, 12, None, "5/12 41%"),
    ],
)
def test_the_epoch_is_shown_where_the_steps_are(world, step, total, per_epoch, expected):
    world.launch("i-base", 0)
    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    progress = Progress(step=step, total_steps=total, steps_per_epoch=per_epoch)
    world.save(world.record("a").model_copy(update={"progress": progress}))
    shown = world.run("job", "a").out
    assert re.search(rf"steps +{re.escape(expected)} *\n", shown)
    assert world.run("--json", "jobs").json[0]["steps_per_epoch"] == per_epoch


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


def test_watch_prints_a_line_for_each_change_where_nobody_looks_at_a_terminal(world, monkeypatch):
    monkeypatch.setattr("everspot_store.SystemClock.from_environment", lambda: world.clock)
    world.submit("a")
    world.submit("b", 5)
    world.beat("i-base")

    def watched(command, *changes):
        """Each change is made while the command sleeps. Without a change the command prints nothing."""
        pending_changes = iter(changes)

        def go_on(_):
            change = next(pending_changes, "end")
            if change == "end":
                raise KeyboardInterrupt
            if change is not None:
                change()

        monkeypatch.setattr(world.clock, "on_sleep", go_on)
        answer = world.run(command, "--watch")
        assert answer.code == 130
        assert all(re.match(r"2026-03-01T12:\d\d:\d\dZ ", line) for line in answer.out.splitlines())
        return [line.partition(" ")[2] for line in answer.out.splitlines()]

    first = ["b: PENDING, 0 interruptions", "a: PENDING, 0 interruptions"]
    lines = watched("jobs", None, None, lambda: world.assign("a", "i-base", 600), None)
    assert lines == [*first, "a: STARTING on m6i.large us-east-1a on-demand, 0 interruptions"]
    world.beat("i-base")
    (ready, busy) = watched("instances", None, lambda: world.beat("i-base", job="a"))
    assert (ready, busy) == (
        "i-base (m6i.large us-east-1a on-demand): READY", "i-base (m6i.large us-east-1a on-demand): BUSY with a",
    )  # fmt: skip
    (pool, busier) = watched("fleet", None, lambda: world.beat("i-base"))
    assert pool.startswith("m6i.large us-east-1a on-demand: ") and "1 busy, 0 idle" in pool
    assert "0 busy, 1 idle" in busier


def test_the_queue_is_told_without_reading_what_trainers_wrote(past):
    writer = past.store.event_writer("moved", 3, "trainer-i-spot3", "i-spot3")
    writer.emit(EventKind.CHECKPOINTED, step=4000, trigger="final")
    brief = past.store.events("moved", brief=True)
    assert len(brief) == len(past.store.events("moved")) - 1
    before = past.run("--json", "jobs").json
    (past.root / "control" / "events" / "moved" / "000003-trainer-i-spot3-000000.json").write_text("not JSON")
    again = past.run("--json", "jobs")
    assert (again.json, again.err) == (before, "")


def test_a_job_that_ended_before_its_last_step_and_succeeded_finished_early(world):
    """Its program called `run.finish()`, so a display of 4 % would suggest that it is unfinished."""
    world.submit("brief", 0)
    world.assign("brief", "i-base", 10)
    world.start("brief", 20)
    world.finish("brief", 100, 200, 0.9)
    record = world.record("brief")
    world.save(record.model_copy(update={"progress": record.progress.model_copy(update={"total_steps": 5000})}))
    for arguments in (("jobs",), ("job", "brief")):
        shown = world.run(*arguments).out
        assert "200/5000 finished early" in shown and "4%" not in shown
    narrow = world.run("jobs", env={"COLUMNS": "80"}).out
    assert "200/5000" in narrow and "finished early" in narrow and max(map(len, narrow.splitlines())) <= 80


def test_times_and_durations_of_a_history_are_of_one_clock(world):
    """On a local cloud's market time runs faster; agents and trainers measure in real seconds."""
    world.store.write_manifest(world.store.manifest().model_copy(update={"cloud": "aws"}))
    world.submit("a", 0)
    world.assign("a", "i-base", 10)
    world.start("a", 20)  # its trainer was ready after 4 real seconds
    world.emit("a", EventKind.STALLED, step=7, seconds=5.0, restarted=False)
    progress = Progress(unkept_seconds=3.0, stalled_seconds=5.0)
    world.save(world.record("a").model_copy(update={"progress": progress}))
    fast = {"EVERSPOT_CLOCK": f"120@{world.clock.now().timestamp():.0f}"}
    shown = world.run("job", "a", env=fast).out
    assert "seconds 8m00s" in shown and "seconds 10m00s" in shown and "nothing for 6m00s" in shown
    (row,) = world.run("--json", "jobs", env=fast).json
    assert (row["unkept_seconds"], row["stalled_seconds"]) == (360.0, 600.0)
