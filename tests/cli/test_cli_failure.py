"""The display of a failed job: its own exception first, then its last lines, then a shortened history."""

import unicodedata
from datetime import timedelta

import pytest
from everspot_cli.failure import last_exception, own_lines
from everspot_core.jobs.records import EventKind, JobState, Progress, Reason

from tests.cli.conftest import T0

OWN = """epoch 1 of 3
[rank0]: Traceback (most recent call last):
[rank0]:   File "/var/lib/everspot/run/j/code/train.py", line 12, in <module>
[rank0]:     main()
[rank0]:   File "/var/lib/everspot/run/j/code/train.py", line 9, in main
[rank0]:     raise ValueError("the learning rate is negative")
[rank0]: ValueError: the learning rate is negative
"""
# As torch 2.x prints it when a worker has failed (torch/distributed/elastic/multiprocessing/errors, and run.py).
LAUNCHER = """E0301 12:00:02.123000 4711 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1)
Traceback (most recent call last):
  File "/opt/everspot/lib/python3.11/site-packages/torch/distributed/run.py", line 892, in main
    run(args)
  File "/opt/everspot/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 264, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/var/lib/everspot/run/j/code/train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_12:00:02
  exitcode  : 1 (pid: 4711)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
W = "W0301 12:00:01.000000 4711 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable\n"


@pytest.mark.parametrize("text", [OWN, OWN + LAUNCHER, W + OWN + LAUNCHER])
def test_the_launchers_words_are_left_out_and_the_own_exception_is_found(text):
    lines = own_lines(text)
    assert last_exception(lines) == lines[-1] == "ValueError: the learning rate is negative"
    assert lines[0] == "epoch 1 of 3"
    assert not any("torch" in line for line in lines)


def test_what_is_printed_behind_the_launchers_summary_stays():
    assert own_lines(OWN + LAUNCHER + "and then?\n")[-1] == "and then?"


@pytest.mark.parametrize("line", ["KeyError: 'x'", "my.module.BadError", "torch.OutOfMemoryError: CUDA out of memory",
                                  "everspot_store.errors.CheckpointCorrupt: part 3", "SystemExit: 3"])  # fmt: skip
def test_exceptions_are_recognised(line):
    assert last_exception(["before", line, "some words behind it"]) == line


def fail(world, job, *, message="", traceback="", detail=OWN + LAUNCHER, checkpoints=0, attempts=3):
    at = 10
    for number in range(attempts):
        world.assign(job, "i-base", at)
        world.start(job, at + 5)
        for n in range(checkpoints):
            world.checkpoint(job, at + 10 + n, 100 * (n + 1))
        at += 10 + checkpoints
        data = {"message": message or OWN + LAUNCHER, "traceback": traceback} if traceback or not message else {
            "message": message
        }  # fmt: skip
        world.emit(job, EventKind.ERROR, exit_code=1, attempt=number + 1, **data)
        world.leave(job, at, Reason.ERROR, exit_code=1, detail=detail)
        at += 60
    return at


def test_a_failed_job_begins_with_its_exception_and_is_short_at_80_columns(world):
    world.submit("a-job-3f9a1c", retries={"errors": 2})
    fail(world, "a-job-3f9a1c", checkpoints=40)
    lines = world.run("job", "a-job", env={"COLUMNS": "80"}).out.splitlines()
    assert lines[0].strip() == "ValueError: the learning rate is negative"
    assert "exit code 1" in lines[1]
    assert len(lines) < 60 and max(map(len, lines)) <= 80
    out = "\n".join(lines)
    assert "raise ValueError(" in out and "torch" not in out
    assert "everspot logs a-job-3f9a1c" in out
    assert out.index("raise ValueError(") < out.index("status") < out.index("checkpointed x40")
    assert out.count("checkpointed") == 3 and "steps 100 to 4000" in out
    whole = world.run("job", "a-job", "--events").out
    assert whole.count("checkpointed") == 120 and "ATT." in whole and "EPOCH" not in whole


def test_what_a_job_prints_does_not_command_the_terminal_of_a_reader(world):
    evil = "\x1b]0;title\x07\x1b[2J\x1b]52;c;cm0gLXJmIH4=\x07\x9b2J\x08"
    world.submit("j", retries={"errors": 0})
    fail(world, "j", message=f"ValueError: {evil}", traceback=f"boom {evil}", detail=f"ValueError: {evil}", attempts=1)
    for command in (("job", "j"), ("job", "j", "--events"), ("jobs", "--all"), ("report",)):
        shown = world.run(*command).out
        assert not [char for char in shown if unicodedata.category(char) == "Cc" and char not in "\n\t"], command
    assert "ValueError: \N{REPLACEMENT CHARACTER}]0;title" in world.run("job", "j").out


def test_what_the_agent_knows_of_the_exception_goes_first(world):
    world.submit("j", retries={"errors": 0})
    fail(world, "j", message="ValueError: bad", traceback=OWN, detail="ValueError: bad\nmore", attempts=1)
    lines = world.run("job", "j", env={"COLUMNS": "80"}).out.splitlines()
    assert lines[0].strip() == "ValueError: bad"
    assert any("raise ValueError(" in line for line in lines)
    (error,) = [line for line in lines if " error " in line and "i-base" in line]
    assert "Traceback" not in error


def test_only_the_last_twenty_lines_are_shown(world):
    world.submit("j", retries={"errors": 0})
    text = "\n".join(f"line {n}" for n in range(100)) + "\nKeyError: 'x'"
    fail(world, "j", detail=text, attempts=1, message=text)
    out = world.run("job", "j").out
    assert out.startswith("KeyError: 'x'")
    assert "line 99" in out and "line 82" in out and "line 70\n" not in out


def test_a_job_whose_budget_ended_says_that_and_no_exception(world):
    world.submit("j")
    world.assign("j", "i-base", 10)
    world.start("j", 20)
    world.leave("j", 30, Reason.BUDGET, detail="the budget of 5 dollars is spent")
    out = world.run("job", "j").out
    assert out.startswith("the budget of 5 dollars is spent")


def test_a_job_that_runs_or_waits_has_no_such_head(past):
    past.submit("waiting", 9100)
    for job in ("moved", "waiting"):
        assert past.run("job", job).out.startswith("job ")


def test_deadlines_are_open_kept_or_missed(world):
    def read_deadline(job):
        line = next(line for line in world.run("job", job).out.splitlines() if line.startswith("deadline"))
        return line.split(maxsplit=1)[1].strip(), world.run("--json", "job", job).json["deadline"]

    for job in ("kept", "late", "failed", "gone", "waits"):
        world.submit(job, deadline="1h", retries={"errors": 0})
    world.submit("open", deadline=(T0 + timedelta(days=20_000)).isoformat())
    for job, end, reason in (("kept", 1800, Reason.FINISHED), ("failed", 1900, Reason.ERROR),
                             ("gone", 2000, Reason.CANCEL), ("late", 7200, Reason.FINISHED)):  # fmt: skip
        world.assign(job, "i-base", 10)
        world.start(job, 20)
        world.leave(job, end, reason)
    assert read_deadline("kept") == ("kept with 30m00s to spare (2026-03-01 13:00 UTC)", "kept")
    assert read_deadline("late") == ("missed by 1h00m (2026-03-01 13:00 UTC)", "missed")
    assert read_deadline("failed") == ("missed: the job failed (2026-03-01 13:00 UTC)", "missed")
    assert read_deadline("gone") == ("2026-03-01 13:00 UTC", None)
    words, state = read_deadline("waits")  # asked months later
    assert state == "missed" and words.startswith("missed by ") and "so far" in words
    words, state = read_deadline("open")
    assert state == "open" and words.startswith("in ")


def test_a_report_never_waits_for_a_job_that_has_ended(world):
    for iid in ("i-base", "i-spot1"):
        world.launch(iid, 0)
    world.submit("j")
    world.assign("j", "i-spot1", 10)
    world.start("j", 20)
    world.save(world.record("j").model_copy(update={"progress": Progress(step=5)}))
    world.to(30)
    world.emit("j", EventKind.INTERRUPTED, reason="notice", step=5, durable_step=5)
    world.leave("j", 30, Reason.NOTICE)
    as_of = ("--as-of", (T0 + timedelta(seconds=100)).isoformat())
    assert "not yet" in world.run("report", *as_of).out
    world.to(50)
    world.emit("j", EventKind.CANCELLED)
    world.save(world.record("j").model_copy(update={"state": JobState.CANCELLED, "changed_at": world.clock.now()}))
    out = world.run("report", *as_of).out
    assert "never" in out and "not yet" not in out
