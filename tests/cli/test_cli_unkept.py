"""A job without checkpoints: the warnings at submission, while it runs, and in the report."""

import pytest
from everspot_core.jobs import lease
from everspot_core.jobs.records import EventKind, Progress, Reason
from everspot_core.jobs.records import JobState as State

SPEC = """name: plain
entrypoint: [train.py{argument}]
code: src
resources: {{vcpus: 1, memory_gib: 1}}
"""


@pytest.mark.parametrize("where", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("files", "argument", "warned"),
    [
        ({"train.py": "for epoch in range(100): print(epoch)"}, "", True),
        ({"train.py": "save('my_checkpoints_old/x')"}, "", True),
        ({"train.py": "torch.save(state, 'checkpoints/last.pt')"}, "", False),
        ({"train.py": "main()", "lib/loop.py": "root = Path('checkpoints')"}, "", False),
        ({"train.py": "main()", "conf/run.yaml": "output_dir: checkpoints"}, "", False),
        ({"train.py": "save(os.environ['EVERSPOT_CHECKPOINT_DIR'])"}, "", False),
        ({"train.py": "from everspot_train.trainer import track"}, "", False),
        ({"train.py": "main()"}, ", --output_dir=checkpoints", False),
    ],
)
def test_submit_warns_if_nothing_in_the_code_mentions_what_is_kept(
    world, spec_file, tmp_path, files, argument, warned, where
):
    for name, text in files.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    answer = world.run("submit", str(spec_file(SPEC.format(argument=argument))), *where)
    assert answer.code == 0, answer.err
    shown = " ".join((answer.err + answer.out).split())
    words = "the program restarts from zero, 3 times at most (retries.from_zero). Write its state into checkpoints/"
    assert (words in shown) is warned


def test_submit_says_that_a_job_which_may_never_begin_again_fails(world, spec_file, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("main()")
    spec = SPEC.format(argument="") + "retries: {from_zero: 0}\n"
    answer = world.run("submit", str(spec_file(spec)))
    assert "after an interruption the job fails (retries.from_zero)" in " ".join((answer.err + answer.out).split())


def test_a_drill_says_that_the_job_will_begin_from_zero(world):
    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    assert "from zero" not in world.run("interrupt", "a").out
    world.save(world.record("a").model_copy(update={"progress": Progress(unkept_seconds=61.0)}))
    assert "so it will begin from zero" in " ".join(world.run("interrupt", "a").out.split())


def test_a_long_status_leaves_the_id_whole_at_80_columns(world):
    world.submit("nothing-95c55731")
    world.assign("nothing-95c55731", "i-base", 10)
    world.start("nothing-95c55731", 20)
    record = world.record("nothing-95c55731")
    world.save(record.model_copy(update={"from_zero": 2, "progress": Progress(unkept_seconds=1260.0)}))
    lines = world.run("jobs", env={"COLUMNS": "80"}).out.splitlines()
    assert any(line.startswith("nothing-95c55731 ") for line in lines) and max(map(len, lines)) <= 80


def test_the_history_of_a_plain_program_names_no_step(world):
    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    events = world.store.event_writer("a", world.record("a").epoch, "i-base")
    events.emit(EventKind.TRAINING, from_step=0, restored=True, by="agent")
    for files in (3, 4):
        events.emit(EventKind.CHECKPOINTED, files=files, bytes=2120, seconds=0.1, trigger="interval")
    shown = " ".join(world.run("job", "a").out.split())
    assert "restored yes, by agent" in shown and "files 4, trigger interval, 0.1 s each" in shown
    assert shown.count("from step 0") == 1 and "None" not in shown  # of the trainer's own event


def test_jobs_and_job_say_how_often_a_job_was_restarted_from_zero(world):
    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    record = world.record("a")
    world.save(record.model_copy(update={"from_zero": 2, "progress": Progress(unkept_seconds=1260.0)}))
    row = world.run("--json", "jobs").json[0]
    assert (row["from_zero"], row["unkept_seconds"]) == (2, 1260.0)
    assert "RUNNING, restarted from zero (2), nothing kept for 21m00s" in world.run("jobs").out
    shown = world.run("job", "a").out
    assert "restarted from zero (2); retries.from_zero allows 3" in shown
    assert "nothing for 21m00s" in shown


@pytest.mark.parametrize(("allowed", "restarts"), [(0, None), (3, 3)])
def test_a_restart_that_the_limit_refused_is_not_counted_as_one(world, allowed, restarts):
    world.launch("i-base", 0)
    world.submit("a", retries={"from_zero": allowed})
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    world.save(world.record("a").model_copy(update={"from_zero": allowed + 1}))  # as the agent that refuses begins
    world.leave("a", 30, Reason.ERROR, hopeless=True)
    shown = " ".join(world.run("job", "a").out.split()) + world.run("jobs").out
    assert world.record("a").state is State.FAILED
    assert shown.count(f"restarted from zero ({restarts})") == (2 if restarts else 0)
    assert "restarted from zero" in shown or not restarts
    assert world.run("--json", "report").json["jobs"][0]["from_zero"] == allowed


def test_the_pages_reasons_name_it(world):
    from everspot_cli.ui.panels.jobs import list_reasons

    world.submit("a")
    world.assign("a", "i-base", 10)
    world.start("a", 20)
    world.save(world.record("a").model_copy(update={"from_zero": 2}))
    row = {**world.run("--json", "jobs").json[0], "waits_because": None, "away": None, "last_reason": None}
    assert "Restarted from zero (2)" in list_reasons(row, world.clock.now())


def test_a_job_that_succeeded_is_not_reproached(world):
    from everspot_cli.tables import checkpoint_warnings

    assert checkpoint_warnings({"status": State.SUCCEEDED.value, "from_zero": 2, "unkept_seconds": None}) == []


def begin(world, job, seconds):
    """A program that does not use the trainer library begins: its agent says so."""
    now, record = world.to(seconds), world.record(job)
    world.save(lease.start(record, record.epoch, record.owner, now, from_zero=record.epoch > 1))
    world.emit(job, EventKind.TRAINING, from_step=0, restored=False, by="agent")


def test_the_report_counts_the_time_of_a_program_that_kept_nothing_as_redone(world):
    world.submit("a")
    world.assign("a", "i-spot1", 100)
    begin(world, "a", 110)
    world.lose("a", 1295, 0)
    world.assign("a", "i-spot2", 1400)
    begin(world, "a", 1410)
    report = world.run("--json", "report").json
    (stroke,) = report["interruptions"]
    assert (stroke["steps_redone"], stroke["redone_seconds"]) == (None, 1185.0)
    assert report["redone_seconds"] == report["jobs"][0]["redone_seconds"] == 1185.0
    assert report["jobs"][0]["from_zero"] == 1
    text = world.run("report").out
    assert "time redone" in text
    assert text.count("19m45s") >= 2
