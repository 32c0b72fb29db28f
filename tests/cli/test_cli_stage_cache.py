"""`cache` of a job file: the same stage is not run again, and the report has what that saved. Submissions are made by
the command, decisions by a real scheduler; only the programs' runs are written by the test."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from everspot_cli.session import Session
from everspot_cli.stage_cache import claim_stage
from everspot_clouds.null_cloud import NullCloud
from everspot_core.jobs.records import EventKind, JobState, Reason, Request
from everspot_scheduler.loop import Scheduler
from everspot_store import StoreDenied, StoreUnavailable
from everspot_store.outputs import Outputs

ON_DEMAND, SPOT = 0.096, 0.04
"""Dollars of an hour of i-base and of i-spot1."""


class Stages:
    """A chain of two stages in a cluster whose instances the test plays."""

    def __init__(self, world: Any, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.scheduler = Scheduler(world.store, world.store.manifest(), NullCloud(), "s-1")
        (folder / "src").mkdir()
        (folder / "src" / "main.py").write_text("print('words')")
        (folder / "words").mkdir()
        (folder / "words" / "one.txt").write_text("one")
        assert world.run("data", "put", str(folder / "words"), "words").code == 0
        for number, instance in enumerate(("i-base", "i-spot1")):
            world.launch(instance, number)

    def submit(self, name: str = "prepare", **fields: Any) -> str:
        job = {"name": name, "code": str(self.folder / "src"), "entrypoint": ["main.py"], "cache": True}
        job |= {"datasets": ["words"]} if name == "prepare" else {"after": ["prepare"]}
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(job | fields))
        self.world.clock.advance(timedelta(seconds=1))
        answer = self.world.run("submit", str(file), "--json", "--quiet")
        assert answer.code == 0, answer.err
        return str(answer.json["job_id"])

    def same_stage(self, job: str) -> list[str]:
        return list(self.world.store.jobs.get(job).value.same_stage)

    def begin(self, job: str, seconds: float, instance: str = "i-base") -> None:
        self.world.assign(job, instance, seconds)
        self.world.start(job, seconds)

    def finish(self, job: str, seconds: float, text: str = "ready") -> None:
        record = self.world.record(job)
        folder = self.folder / f"outputs-{job}"
        folder.mkdir()
        (folder / "table.csv").write_text(text)
        self.world.store.outputs(job).keep(record.epoch, folder, lambda: True)
        self.world.finish(job, seconds, step=7, accuracy=0.875)

    def tick(self) -> None:
        self.scheduler.tick()

    def state(self, job: str) -> str:
        record = self.world.record(job)
        return record.state.value if record is not None else "PENDING"


@pytest.fixture
def stages(world: Any, tmp_path: Path) -> Stages:
    return Stages(world, tmp_path)


def test_a_chain_that_has_not_changed_is_not_run_again_and_the_report_says_what_that_saved(
    stages: Stages, tmp_path: Path
) -> None:
    world = stages.world
    first = stages.submit()
    stages.begin(first, 100)
    stages.finish(first, 100 + 1800)
    features = stages.submit("features")
    stages.begin(features, 2000, "i-spot1")
    stages.finish(features, 2000 + 7200)

    again, features_again = stages.submit(), stages.submit("features")
    assert (stages.same_stage(again), stages.same_stage(features_again)) == ([first], [features])
    for _ in range(3):
        stages.tick()
    assert [stages.state(job) for job in (again, features_again)] == ["SUCCEEDED", "SUCCEEDED"]
    assert [world.record(job).epoch for job in (again, features_again)] == [0, 0]

    report = world.run("report", "--json").json
    jobs = {job["job_id"]: job for job in report["jobs"]}
    assert jobs[again]["reused"] == {
        "job_id": first, "hours_not_run": 0.5, "usd_not_spent": pytest.approx(0.5 * ON_DEMAND),
    }  # fmt: skip
    assert jobs[features_again]["reused"]["usd_not_spent"] == pytest.approx(2 * SPOT)
    assert report["reused_stages"] == {
        "jobs": 2, "hours_not_run": 2.5, "usd_not_spent": pytest.approx(0.5 * ON_DEMAND + 2 * SPOT),
    }  # fmt: skip
    assert [jobs[job]["cost_usd"] for job in (again, features_again)] == [0, 0]
    assert report["jobs_cost_usd"] == pytest.approx(0.5 * ON_DEMAND + 2 * SPOT)
    assert jobs[again]["metrics"]["test_accuracy"] == 0.875
    shown = " ".join(world.run("report").out.split())
    assert "$0.1280 and 2h30m of 2 cached stages that were not run again" in shown
    shown = " ".join(world.run("report", again).out.split())
    assert "$0.0480 and 30m00s of 1 cached stage that was not run again" in shown
    assert f"`everspot logs {first}` has the run's output" in world.run("logs", again).err
    world.run("report", "--html", str(tmp_path / "report.html"))
    assert "Stages not run again" in (tmp_path / "report.html").read_text()

    pulled = world.run("pull", again, "--to", str(tmp_path), "--json").json
    assert [file["path"] for file in pulled["files"]] == ["table.csv"]
    assert (tmp_path / again / "table.csv").read_text() == "ready"
    assert f"it has the outputs of {first}" in world.run("job", again).out


@pytest.mark.parametrize(
    "change", ["code", "data", "env", "argument", "resources", "precision", "generation", "outputs", "tree", "opt-out"]
)
def test_whatever_changes_the_result_is_run_again(stages: Stages, change: str) -> None:
    first, store = stages.submit(), stages.world.store
    stages.begin(first, 100)
    stages.finish(first, 200)
    fields: dict[str, Any] = {}
    match change:
        case "code":
            (stages.folder / "src" / "main.py").write_text("print('Words')")
        case "data":
            (stages.folder / "words" / "one.txt").write_text("One")
            assert stages.world.run("data", "put", str(stages.folder / "words"), "words").code == 0
        case "generation":
            store.write_manifest(store.manifest().model_copy(update={"generation": "g2"}))
        case "outputs" | "tree":
            keys = [entry.key for entry in store.data.list(f"jobs/{first}/outputs/")]
            ending = "table.csv" if change == "outputs" else ".json"
            assert store.data.delete(next(key for key in keys if key.endswith(ending)))
            if change == "tree":
                assert store.data.delete(next(key for key in keys if key.endswith("table.csv")))
        case _:
            values = {"env": {"A": "1"}, "argument": ["main.py", "x"], "resources": {"vcpus": 2}, "precision": "fp32"}
            name = {"argument": "entrypoint", "opt-out": "cache"}.get(change, change)
            fields = {name: values.get(change, False)}
    again = stages.submit(**fields)
    assert stages.same_stage(again) == []
    stages.tick()
    assert stages.state(again) == "PENDING"


def test_a_stage_behind_one_that_is_run_again_is_run_again(stages: Stages) -> None:
    first = stages.submit()
    stages.begin(first, 100)
    stages.finish(first, 200)
    features = stages.submit("features")
    stages.begin(features, 300)
    stages.finish(features, 400)
    stages.submit(env={"A": "2"})
    assert stages.same_stage(stages.submit("features")) == []


def test_the_same_stage_twice_waits_for_the_first_and_is_run_if_that_fails(stages: Stages) -> None:
    first, second, third = (stages.submit() for _ in range(3))
    assert [stages.same_stage(job) for job in (first, second, third)] == [[], [first], [first, second]]
    behind = [stages.submit("features", after=[job]) for job in (first, third)]
    assert stages.same_stage(behind[1]) == [behind[0]]
    waits = lambda: {job: wait.why for job, wait in stages.world.store.notes.waiting.read().jobs.items()}  # noqa: E731
    stages.begin(first, 100)
    stages.tick()
    assert (waits()[second], waits()[third]) == ("same-stage", "same-stage")
    stages.world.leave(first, 200, Reason.BUDGET)
    stages.tick()
    stages.world.clock.advance(stages.world.store.manifest().limits.tick_every * 20)
    stages.tick()
    assert stages.state(behind[0]) == "FAILED"
    assert waits()[third] == "same-stage"
    assert waits()[second] != "same-stage"
    stages.begin(second, 1000)
    stages.finish(second, 1100)
    stages.tick()
    assert (stages.state(third), stages.world.record(third).reused_from) == ("SUCCEEDED", second)


def test_an_urgent_job_waits_for_no_job_that_has_no_instance(stages: Stages) -> None:
    first, urgent, patient = stages.submit(), stages.submit(priority="critical"), stages.submit()
    stages.tick()
    waiting = stages.world.store.notes.waiting.read().jobs
    assert waiting[patient].why == "same-stage"
    assert waiting[urgent].why != "same-stage"
    stages.begin(first, 100)
    stages.world.clock.advance(stages.world.store.manifest().limits.tick_every * 20)
    stages.tick()
    assert stages.world.store.notes.waiting.read().jobs[urgent].why == "same-stage"


def test_a_cancelled_job_gets_no_outputs_and_an_archived_one_still_gives_its_own(stages: Stages) -> None:
    first, store = stages.submit(), stages.world.store
    stages.begin(first, 100)
    stages.finish(first, 200)
    store.archive.move(store.jobs.get(first).value, stages.world.record(first), stages.world.clock.now())
    cancelled, again = stages.submit(), stages.submit()
    store.cancels.create(cancelled, Request(at=stages.world.clock.now(), by="ann"))
    for _ in range(2):
        stages.tick()
    assert (stages.state(cancelled), stages.state(again)) == ("CANCELLED", "SUCCEEDED")
    (event,) = [e for e in store.events(again) if e.kind is EventKind.FINISHED]
    assert event.data["reused_from"] == first
    third = stages.submit()
    stages.tick()
    assert stages.world.record(third).state is JobState.SUCCEEDED
    assert store.resolve_inputs(store.jobs.get(stages.submit("features")).value).after[0].job_id == first


def test_a_submitter_that_died_before_it_created_its_job_holds_nobody_up(stages: Stages) -> None:
    first, store = stages.submit(), stages.world.store
    store.jobs.delete(first)
    second = stages.submit()
    stages.tick()
    assert stages.state(second) == "PENDING"
    waiting = store.notes.waiting.read().jobs
    assert waiting[second].why != "same-stage"


def test_of_many_submitters_at_once_each_waits_for_all_before_it(stages: Stages) -> None:
    """However their conditional writes interleave, exactly one of them awaits nobody."""
    template, count = stages.world.store.jobs.get(stages.submit()).value, 6
    stages.world.store.jobs.delete(template.job_id)
    for document in stages.world.store.stages.scan().values():
        stages.world.store.stages.delete(document.value.key)
    gate = Barrier(count)

    def claim(number: int) -> list[str]:
        session = Session()
        session.store_option = stages.world.url
        submission = template.model_copy(update={"job_id": f"prepare-{number:08x}"})
        assert session.submission_time and session.manifest  # what is read once is read before
        gate.wait()
        return claim_stage(session, submission).same_stage

    with ThreadPoolExecutor(count) as pool:
        queues = sorted(pool.map(claim, range(count)), key=len)
    assert [len(queue) for queue in queues] == list(range(count))
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(queues))


@pytest.mark.parametrize("changed", [True, False], ids=["other settings", "the same stage"])
def test_a_retry_from_the_checkpoint_of_other_settings_is_another_stage(stages: Stages, changed: bool) -> None:
    """Half of its steps are of the settings before: whoever submits the new ones has to get all of them."""
    failed, store = stages.submit(env={"RATE": "1"}), stages.world.store
    stages.begin(failed, 100)
    (part := stages.folder / "model.pt").write_text("half")
    store.checkpoints(failed, 1).publish(4, {"model.pt": part}, {"world": 1})
    stages.world.leave(failed, 200, Reason.BUDGET)
    rate = "2" if changed else "1"
    retry = stages.world.run("retry", failed, "--env", f"RATE={rate}", "--json").json["job_id"]
    second = stages.world.run("retry", failed, "--env", f"RATE={rate}", "--json").json["job_id"]
    assert stages.same_stage(second) == [retry]  # both go on from there
    stages.begin(retry, 300)
    stages.finish(retry, 400)
    assert stages.same_stage(stages.submit(env={"RATE": rate})) == ([] if changed else [retry])
    from_scratch = stages.world.run("retry", failed, "--from-scratch", "--env", f"RATE={rate}", "--json").json["job_id"]
    assert (retry in stages.same_stage(from_scratch)) is not changed


def test_a_waiting_stage_is_run_if_the_one_that_it_awaited_ran_with_another_image(stages: Stages) -> None:
    first, second = stages.submit(), stages.submit()
    stages.world.beat("i-base", generation="g0")
    stages.begin(first, 100)
    stages.finish(first, 200)
    for _ in range(2):
        stages.tick()
    assert (stages.same_stage(second), stages.state(second)) == ([first], "ASSIGNED")


@pytest.mark.parametrize("removed", ["all", "one"])
def test_a_waiting_stage_is_run_if_outputs_have_disappeared_since_its_submission(stages: Stages, removed: str) -> None:
    store, prepare, first = stages.world.store, stages.submit(), stages.submit("features")
    for job, began in ((prepare, 100), (first, 300)):
        stages.begin(job, began)
        stages.finish(job, began + 100)
    store.outputs(first).put(1, "second.csv", b"more")
    prepare_again, second = stages.submit(), stages.submit("features")
    assert (stages.same_stage(prepare_again), stages.same_stage(second)) == ([prepare], [first])
    for entry in store.data.list(f"jobs/{first}/outputs/"):
        if removed == "all" or entry.key.endswith("table.csv"):
            store.data.delete(entry.key)
    for _ in range(3):
        stages.tick()
    assert stages.state(prepare_again) == "SUCCEEDED"
    assert stages.state(second) in ("PENDING", "ASSIGNED"), "it waits for an instance, or has one"
    waiting = store.notes.waiting.read().jobs
    assert second not in waiting or waiting[second].why != "same-stage"


@pytest.mark.parametrize("error", [StoreDenied, StoreUnavailable])
def test_outputs_count_as_present_where_the_scheduler_cannot_read_the_data_bucket(
    stages: Stages, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def refuse(*_: object) -> bool:
        raise error("jobs/ of the data bucket")

    first, second = stages.submit(), stages.submit()
    stages.begin(first, 100)
    stages.finish(first, 200)
    monkeypatch.setattr(Outputs, "is_complete", refuse)
    for _ in range(2):
        stages.tick()
    assert (stages.state(second), stages.world.record(second).reused_from) == ("SUCCEEDED", first)


def test_a_stage_that_was_held_gets_the_outputs_of_a_later_job_that_was_not(stages: Stages) -> None:
    first, second = stages.submit(window="02:00-04:00"), stages.submit()
    stages.begin(second, 100)
    stages.finish(second, 200)
    for _ in range(2):
        stages.tick()
    assert (stages.state(first), stages.world.record(first).reused_from) == ("SUCCEEDED", second)


@pytest.mark.parametrize("submitted", ["before", "after"])
def test_features_of_one_table_are_not_taken_for_those_of_another(stages: Stages, submitted: str) -> None:
    """Two jobs compute the same stage at the same time, because the second one is urgent. The key of the features
    behind the second one names the first, whose outputs were expected."""
    world = stages.world
    first, urgent = stages.submit(), stages.submit(priority="critical")
    features = stages.submit("features")
    if submitted == "before":
        again, features_again = stages.submit(), stages.submit("features")
    stages.begin(first, 100)
    stages.begin(urgent, 110, "i-spot1")
    stages.finish(first, 200, "a random split")
    if submitted == "before":
        stages.tick()
        assert world.record(again).reused_from == first
    stages.finish(urgent, 300, "another random split")
    stages.begin(features, 400)
    stages.finish(features, 500)
    if submitted == "after":
        again, features_again = stages.submit(), stages.submit("features")
        assert stages.same_stage(features_again) == []
    for _ in range(3):
        stages.tick()
    assert world.record(again).reused_from == first
    assert stages.state(features_again) in ("PENDING", "ASSIGNED"), "it waits for an instance, or has one"
    waiting = world.store.notes.waiting.read().jobs
    assert features_again not in waiting or waiting[features_again].why != "same-stage"
