"""`everspot retry`: the new job resumes from the newest checkpoint of the ended one; and files that are not packed."""

import pytest
from everspot_core.jobs.records import JobState, Reason
from everspot_store import Store, StoreDenied, StoreUnavailable, code
from everspot_store.events import EventWriter
from everspot_store.table import Table


def fail(world, job="old", *, steps=(100, 200), **spec):
    """A job that published checkpoints under two epochs and then failed."""
    world.submit(job, retries={"errors": 0}, **spec)
    for epoch, step in enumerate(steps, start=1):
        world.assign(job, "i-base", 10 * epoch)
        world.start(job, 10 * epoch + 1)
        world.store.checkpoints(job, epoch).publish(step, {"model.pt": part(world, f"{job} at {step}")}, {"world": 1})
        if epoch < len(steps):
            world.leave(job, 10 * epoch + 5, Reason.NOTICE)
    world.leave(job, 90, Reason.ERROR, detail="ValueError: bad")
    assert world.record(job).state is JobState.FAILED


@pytest.mark.parametrize("has_own", [True, False])
def test_a_retry_of_a_promoted_trial_is_a_warm_start_only_without_a_checkpoint_of_its_own(world, has_own):
    fail(world, "small")
    small = world.store.jobs.get("small").value
    large = small.model_copy(update={"job_id": "large", "retry_of": "small", "warm_start": True})
    world.store.retry(large, "small")
    world.assign("large", "i-base", 100)
    world.start("large", 101)
    if has_own:
        world.store.checkpoints("large", 1).publish(300, {"model.pt": part(world, "large")}, {"world": 1})
    world.leave("large", 110, Reason.ERROR, detail="ValueError: bad")
    answer = world.run("--json", "retry", "large")
    assert answer.code == 0, answer.err
    again = world.store.jobs.get(answer.json["job_id"]).value
    assert (again.retry_of, again.warm_start) == ("large", not has_own)


def part(world, text):
    path = world.root / f"part-{abs(hash(text))}"
    path.write_text(text)
    return path


def test_a_retry_goes_on_from_the_newest_checkpoint_and_touches_nothing_of_the_old_job(world, tmp_path):
    fail(world, parameters={"epochs": 3}, tags={"Team": "research"}, deadline="30d")
    answer = world.run("--json", "retry", "old", "--set", "retries.errors=1", "--name", "new")
    assert answer.code == 0, answer.err
    new = answer.json["job_id"]
    submission = world.store.jobs.get(new).value
    assert (submission.retry_of, submission.spec.retries.errors) == ("old", 1)
    assert (submission.spec.parameters, submission.spec.tags) == ({"epochs": 3}, {"Team": "research"})
    assert (submission.deadline_at - submission.submitted_at).days == 30
    assert new.startswith("new-")
    owner = world.store.checkpoints(new, 1)
    restored = owner.restore(tmp_path / "restored")
    assert restored.step == 200
    assert (tmp_path / "restored" / "model.pt").read_text() == "old at 200"
    before = world.store.heads.get("old").value
    for step in (250, 300, 350):
        owner.publish(step, {"model.pt": part(world, f"new at {step}")})
        owner.retire()
    assert [c.step for c in owner.head().checkpoints] == [350, 300]
    assert world.store.heads.get("old").value == before
    assert world.store.checkpoints("old").restore(tmp_path / "again").step == 200
    assert "retry of" in world.run("job", new).out
    assert world.record("old").state is JobState.FAILED


def test_a_step_that_was_broken_in_the_old_job_is_published_anew(world, tmp_path):
    fail(world, steps=(100, 200))
    for entry in world.store.data.list("jobs/old/checkpoints/000002/"):
        world.store.data.delete(entry.key)
    new = world.run("--json", "retry", "old").json["job_id"]
    owner = world.store.checkpoints(new, 2)
    assert owner.restore(tmp_path / "restored").step == 100
    for step in (200, 300):
        owner.publish(step, {"model.pt": part(world, f"new at {step}")})
    assert [c.step for c in owner.head().checkpoints] == [300, 200]


def test_an_archived_job_can_be_retried_and_from_scratch_there_is_no_checkpoint(world, tmp_path):
    fail(world)
    world.store.archive.move(world.store.jobs.get("old").value, world.record("old"), world.to(9000))
    new = world.run("--json", "retry", "ol").json["job_id"]
    assert world.store.checkpoints(new, 1).restore(tmp_path / "r").step == 200
    scratch = world.run("--json", "retry", "old", "--from-scratch").json["job_id"]
    assert world.store.checkpoints(scratch, 1).restore(tmp_path / "s") is None
    assert world.store.jobs.get(scratch).value.retry_of is None


@pytest.mark.parametrize("options", [(), ("--from-scratch",)])
def test_a_retry_has_the_code_of_a_job_that_has_its_own_copy(world, tmp_path, options):
    fail(world)
    (tmp_path / "train.py").write_text("print(1)")
    digest = code.pack(tmp_path, tmp_path / "own.tar.gz")
    world.store.data.upload(f"code/own/old/{digest}.tar.gz", tmp_path / "own.tar.gz")
    old = world.store.jobs.get("old")
    world.store.jobs.replace("old", old, old.value.model_copy(update={"code_digest": digest}))
    new = world.run("--json", "retry", "old", *options).json["job_id"]
    world.store.fetch_code(world.store.jobs.get(new).value, tmp_path / "out")
    assert (tmp_path / "out" / "train.py").read_text() == "print(1)"


def test_a_retry_whose_history_cannot_be_noted_is_submitted_all_the_same(world, monkeypatch):
    fail(world)

    def refused(*_, **__):
        raise StoreDenied("no")

    monkeypatch.setattr(EventWriter, "emit", refused)
    answer = world.run("--json", "retry", "old")
    assert answer.code == 0 and world.store.jobs.get(answer.json["job_id"]) is not None
    assert f"job {answer.json['job_id']} was created" in answer.json["warnings"][-1]


@pytest.mark.parametrize("readable", [True, False])
def test_a_retry_whose_answer_is_lost_is_named(world, monkeypatch, readable):
    fail(world)
    submit, get = Store.submit, Table.get
    job_ids = []

    def lost(store, submission, *arguments, **more):
        job_ids.append(submit(store, submission, *arguments, **more).job_id)
        raise StoreUnavailable("no answer")

    def unseen(table, id):
        if job_ids and id == job_ids[0] and not readable:
            raise StoreUnavailable("no answer")
        return get(table, id)

    monkeypatch.setattr(Store, "submit", lost)
    monkeypatch.setattr(Table, "get", unseen)
    answer = world.run("--json", "retry", "old")
    if readable:
        assert answer.code == 0 and answer.json["job_id"] == job_ids[0]
    else:
        assert answer.code == 4 and f"whether {job_ids[0]} was created is not known" in answer.err


def test_a_job_without_a_checkpoint_is_begun_again(world, tmp_path):
    world.submit("old")
    world.assign("old", "i-base", 10)
    world.leave("old", 20, Reason.CANCEL)
    new = world.run("--json", "retry", "old").json["job_id"]
    assert world.store.checkpoints(new, 1).restore(tmp_path / "r") is None


def test_a_retry_says_that_the_checkpoints_were_removed(world):
    fail(world)
    head = world.store.heads.get("old")
    world.store.heads.replace("old", head, head.value.model_copy(update={"checkpoints": [], "emptied": True}))
    answer = world.run("retry", "old")
    assert answer.code == 1
    assert "the checkpoints of old were removed; --from-scratch begins at step 0" in answer.err
    assert list(world.store.jobs.scan()) == ["old"]
    assert world.run("retry", "old", "--from-scratch").code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--set", "resources.vcpus=none"), "resources.vcpus"),
        (("--set", "code=src"), "cannot be changed"),
        (("--set", "resources.gpus=8"), "nothing that the cluster test has can hold this job"),
    ],
)
def test_what_a_submission_would_refuse_a_retry_refuses(world, options, words):
    world.offer("c6i.large")
    fail(world)
    answer = world.run("retry", "old", *options)
    assert answer.code == 1
    assert words in answer.err
    assert list(world.store.jobs.scan()) == ["old"] and list(world.store.heads.scan()) == ["old"]


def test_what_lives_or_has_succeeded_is_not_retried(past):
    past.submit("waiting", 9100)
    assert "has not ended" in past.run("retry", "waiting").err
    assert "has succeeded" in past.run("retry", "moved").err
    assert past.run("retry", "moved").code == 1


def list_code(world, spec_file, tmp_path, ignore):
    for name in ("train.py", "notes.txt", "data/big.bin", "out/a.log", "out/keep/b.log", "keep.bin"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(name)
    (tmp_path / "src" / ".everspotignore").write_text(ignore)
    path = spec_file("name: own\nentrypoint: [train.py]\ncode: src\n")
    answer = world.run("--json", "submit", str(path))
    if answer.code:
        return answer
    folder = tmp_path / "there"
    world.store.fetch_code(world.store.jobs.get(answer.json["job_id"]).value, folder)
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} - {".everspotignore"}


def test_everspotignore_is_read_as_git_reads_its_own(world, spec_file, tmp_path):
    ignore = "# what is large\ndata/\n*.bin\n!keep.bin\n/out/*\n!/out/keep/\n"
    assert list_code(world, spec_file, tmp_path, ignore) == {"train.py", "notes.txt", "keep.bin", "out/keep/b.log"}


def test_what_is_left_out_may_be_what_could_not_be_packed(world, spec_file, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "link").symlink_to(tmp_path)
    assert "train.py" in list_code(world, spec_file, tmp_path, "link\n")


@pytest.mark.parametrize(("ignore", "words"), [("*.py\n", "the job's own script"), ("!\n", "Invalid git pattern")])
def test_an_ignore_file_that_cannot_be_meant_is_refused(world, spec_file, tmp_path, ignore, words):
    answer = list_code(world, spec_file, tmp_path, ignore)
    assert answer.code == 1
    assert words in answer.err
    assert world.store.jobs.scan() == {}


def test_of_several_jobs_of_one_beginning_the_likely_one_is_meant_and_named(world):
    fail(world, "night-a")
    world.submit("night-b", 200)
    answer = world.run("job", "night")
    assert answer.code == 0
    assert answer.err == "night: night-b is meant, the only one that has not ended of 2 jobs that begin so\n"
    answer = world.run("retry", "night", "--name", "again")
    assert answer.code == 0
    assert answer.err == "night: night-a is meant, the only one that has ended of 2 jobs that begin so\n"
    assert world.run("--json", "job", "night").err == ""
    fail(world, "night-c")
    answer = world.run("retry", "night")
    assert answer.code == 3
    assert "'night' is the beginning of several jobs: night-a, night-b, night-c" in answer.err


def test_a_job_that_goes_on_is_not_retried(world):
    world.submit("a")
    for state in ("PENDING", "ASSIGNED"):
        if state == "ASSIGNED":
            world.assign("a", "i-base", 10)
        answer = world.run("retry", "a")
        assert answer.code == 1
        assert f"a has not ended ({state}): only what failed or was cancelled is tried again" in answer.err
        assert "everspot cancel a" in answer.err
