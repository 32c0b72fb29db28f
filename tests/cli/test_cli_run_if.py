"""`run_if` and `continue_from` of a job file: submissions by the command, decisions by a real scheduler; only the runs
of the programs are written by the test."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_clouds.null_cloud import NullCloud
from everspot_core.jobs.records import EventKind, Progress, Reason
from everspot_core.jobs.visit_records import Visit
from everspot_scheduler.loop import Scheduler

ON_DEMAND = 0.096
"""Dollars of an hour of i-base."""
DEPLOY = "metric(train.accuracy) > last(deployed.accuracy) + 0.5%"


class Pipeline:
    """Chains of jobs on an instance that the test plays."""

    def __init__(self, world: Any, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.scheduler = Scheduler(world.store, world.store.manifest(), NullCloud(), "s-1")
        (folder / "src").mkdir()
        (folder / "src" / "main.py").write_text("print('words')")
        world.launch("i-base", 0)

    def answer(self, name: str, **fields: Any) -> Any:
        job = {"name": name, "code": str(self.folder / "src"), "entrypoint": ["main.py"]} | fields
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(job))
        self.world.clock.advance(timedelta(seconds=1))
        clock = f"1e-12@{self.world.clock.now().timestamp():.0f}"  # the test's time, which stands still
        return self.world.run("submit", str(file), "--json", "--quiet", env={"EVERSPOT_CLOCK": clock})

    def submit(self, name: str, **fields: Any) -> str:
        answer = self.answer(name, **fields)
        assert answer.code == 0, answer.err
        return str(answer.json["job_id"])

    def work(self, job: str, seconds: float, **metrics: float) -> None:
        """Run the job on i-base for so long, to its success."""
        began = self.now
        self.world.assign(job, "i-base", began)
        self.world.start(job, began)
        record = self.world.record(job)
        self.world.save(record.model_copy(update={"progress": Progress(step=5, metrics=metrics)}))
        self.world.to(began + seconds)
        self.world.emit(job, EventKind.FINISHED, step=5, metrics=metrics)
        self.world.leave(job, began + seconds, Reason.FINISHED)

    @property
    def now(self) -> float:
        return (self.world.clock.now() - self.world.store.launches.get("i-base").value.launched_at).total_seconds()

    def tick(self) -> None:
        self.scheduler.tick()

    def state(self, job: str) -> str:
        record = self.world.record(job)
        return record.state.value if record is not None else "PENDING"

    def archive(self, job: str) -> None:
        store = self.world.store
        store.archive.move(store.jobs.get(job).value, self.world.record(job), self.world.clock.now())

    def chain(self) -> tuple[str, str, str]:
        """Submit a chain whose second stage has a condition."""
        train = self.submit("train")
        deployed = self.submit("deployed", after=["train"], run_if=DEPLOY)
        return train, deployed, self.submit("announce", after=["deployed"])


@pytest.fixture
def pipeline(world: Any, tmp_path: Path) -> Pipeline:
    return Pipeline(world, tmp_path)


def test_a_pipeline_deploys_only_what_is_better_than_what_it_deployed_last(pipeline: Pipeline) -> None:
    """At first there is nothing to compare with. Then comes a gain below 0.5 %, with the last deployment archived, and
    then one above."""
    world = pipeline.world
    train, deployed, announce = pipeline.chain()
    pipeline.work(train, 3600, accuracy=0.9)
    pipeline.tick()
    assert pipeline.state(deployed) == "PENDING"
    pipeline.work(deployed, 600, accuracy=0.9)
    pipeline.work(announce, 60)
    pipeline.archive(deployed)

    train, skipped, announce = pipeline.chain()
    pipeline.tick()
    assert pipeline.state(skipped) == "PENDING"
    pipeline.work(train, 3600, accuracy=0.904)
    for _ in range(2):
        pipeline.tick()
    assert (pipeline.state(skipped), pipeline.state(announce)) == ("SKIPPED", "SKIPPED")
    row = world.run("job", skipped, "--json").json
    assert row["detail"] == f"{DEPLOY} (0.904 > 0.9045) does not hold"
    assert world.run("job", announce, "--json").json["detail"] == "it was to come after deployed, which was skipped"
    assert world.run("job", skipped, "--wait").code == 0
    assert f"{skipped} was not run: `everspot job {skipped}` says why" in world.run("logs", skipped).err
    report = world.run("report", "--json").json
    rows = {job["job_id"]: job for job in report["jobs"]}
    assert [rows[job]["cost_usd"] for job in (skipped, announce)] == [0, 0]
    assert [rows[job]["state"] for job in (skipped, announce)] == ["SKIPPED", "SKIPPED"]
    assert report["jobs_cost_usd"] == pytest.approx((3600 + 600 + 60 + 3600) / 3600 * ON_DEMAND, abs=2e-6)

    assert pipeline.answer("later", after=["announce"]).code == 0  # of a script that submits its stages in order
    train, deployed, _ = pipeline.chain()
    pipeline.work(train, 3600, accuracy=0.905)
    for _ in range(2):
        pipeline.tick()
    assert pipeline.state(deployed) == "PENDING"
    assert (world.record(deployed), deployed in world.store.jobs.names()) == (None, True)


def test_of_two_pipelines_at_once_the_second_is_judged_by_what_the_first_deployed(pipeline: Pipeline) -> None:
    (train, deployed, _), (other_train, other_deployed, _) = pipeline.chain(), pipeline.chain()
    pipeline.work(train, 60, accuracy=0.95)
    pipeline.work(other_train, 60, accuracy=0.9)
    pipeline.tick()
    waiting = pipeline.world.store.notes.waiting.read().jobs
    assert (waiting[deployed].why == "same-name", waiting[other_deployed].why) == (False, "same-name")
    pipeline.work(deployed, 60, accuracy=0.95)
    pipeline.tick()
    assert pipeline.state(other_deployed) == "SKIPPED"


def test_a_condition_is_judged_again_until_the_job_begins(pipeline: Pipeline) -> None:
    """The job waits for an instance while another one of the name that it compares with succeeds."""
    pipeline.work(pipeline.submit("deployed"), 60, accuracy=0.8)
    stage = pipeline.submit("next", run_if="last(deployed.accuracy) < 0.85")
    pipeline.tick()
    assert pipeline.state(stage) == "PENDING"
    pipeline.work(pipeline.submit("deployed"), 60, accuracy=0.9)
    pipeline.tick()
    assert pipeline.state(stage) == "SKIPPED"


def test_the_last_job_of_a_name_is_none_of_the_same_chain(pipeline: Pipeline) -> None:
    better = "metric(train.accuracy) > last(train.accuracy)"
    states = []
    for accuracy in (0.9, 0.8, 0.85, 0.86):
        train = pipeline.submit("train")
        stage = pipeline.submit("deployed", after=["train"], run_if=better)
        pipeline.work(train, 60, accuracy=accuracy)
        pipeline.tick()
        states.append(pipeline.state(stage))
        pipeline.archive(train)
    assert states == ["PENDING", "SKIPPED", "PENDING", "PENDING"]


@pytest.mark.parametrize("archived", [False, True])
def test_the_last_job_is_the_one_whose_end_the_store_got_last_whatever_the_machines_clocks_say(
    pipeline: Pipeline, archived: bool
) -> None:
    """The clock of the first job's machine is an hour ahead."""
    store, ended = pipeline.world.store, []
    for accuracy, ahead in ((0.9, 3600), (0.8, 0)):
        job = pipeline.submit("deployed")
        pipeline.work(job, 60, accuracy=accuracy)
        record = pipeline.world.record(job)
        pipeline.world.save(record.model_copy(update={"changed_at": record.changed_at + timedelta(seconds=ahead)}))
        ended.append(job)
    if archived:
        pipeline.world.clock.advance(store.manifest().limits.archive_after + timedelta(hours=2))
        for _ in range(2):
            pipeline.tick()
        assert set(ended) <= set(store.archive.keys())
    stage = pipeline.submit("next", run_if="last(deployed.accuracy) < 0.85")
    pipeline.tick()
    assert pipeline.state(stage) != "SKIPPED", "0.9 is the accuracy of the job before the last one"


def test_the_last_job_of_a_name_is_no_earlier_stage_of_the_same_chain(pipeline: Pipeline) -> None:
    """`prepare` comes two stages before the condition. It is compared with the `prepare` of the chain before, whether
    this chain's stages are archived or not."""
    states = []
    for rows, archived in ((100, True), (90, True), (120, False), (120, False)):
        prepare = pipeline.submit("prepare")
        train = pipeline.submit("train", after=["prepare"])
        stage = pipeline.submit("deployed", after=["train"], run_if="metric(train.rows) > last(prepare.rows)")
        pipeline.work(prepare, 60, rows=rows)
        pipeline.work(train, 60, rows=rows)
        if archived:
            pipeline.archive(prepare)
            pipeline.archive(train)
        pipeline.tick()
        states.append(pipeline.state(stage))
    assert states == ["PENDING", "SKIPPED", "PENDING", "SKIPPED"]


def test_the_run_that_a_series_continues_from_is_its_last_one(pipeline: Pipeline) -> None:
    run = pipeline.submit("weekly", every="1h", continue_from="last", run_if="last(weekly.accuracy) < 0.9")
    for accuracy, following in ((0.8, "PENDING"), (0.95, "SKIPPED")):
        pipeline.work(run, 60, accuracy=accuracy)
        pipeline.tick()
        run = f"{run.removesuffix('-2')}-{3 if run.endswith('-2') else 2}"
        pipeline.world.to(pipeline.now + 3600)
        for _ in range(2):
            pipeline.tick()
        assert pipeline.state(run) == following
    assert pipeline.world.record(run).detail == "last(weekly.accuracy) < 0.9 (0.95 < 0.9) does not hold"


def test_a_job_that_never_reported_the_metric_fails_the_stage_by_name(pipeline: Pipeline) -> None:
    train, deployed, announce = pipeline.chain()
    pipeline.work(train, 60, loss=0.1)
    for _ in range(2):
        pipeline.tick()
    assert (pipeline.state(deployed), pipeline.state(announce)) == ("FAILED", "FAILED")
    detail = pipeline.world.record(deployed).detail
    words = f"{train} has no metric accuracy: it never reported it, or at last as NaN or infinite"
    assert detail == f"its run_if cannot be judged: {words}"


@pytest.mark.parametrize("archived", [False, True])
def test_a_stage_behind_a_skipped_one_is_not_retried_and_the_skipped_one_is(pipeline: Pipeline, archived: bool) -> None:
    """Its retry would come after the same skipped run, and be skipped again."""
    world = pipeline.world
    train = pipeline.submit("train")
    deployed = pipeline.submit("deployed", after=["train"], run_if="metric(train.accuracy) > 0.95")
    announce = pipeline.submit("announce", after=["deployed"])
    publish = pipeline.submit("publish", after=["announce"])
    pipeline.work(train, 60, accuracy=0.9)
    for _ in range(3):
        pipeline.tick()
    assert [pipeline.state(job) for job in (deployed, announce, publish)] == ["SKIPPED"] * 3
    if archived:
        pipeline.archive(deployed)
    jobs = set(world.store.jobs.names())
    for job, before in ((announce, deployed), (publish, announce)):
        answer = world.run("retry", job, "--json")
        assert answer.code == 1
        error = json.loads(answer.err)
        assert error["error"] == f"{job} comes after {before} (SKIPPED), and would end as before"
        assert error["hint"].startswith(f"`everspot retry {deployed}` begins the chain again")
    assert set(world.store.jobs.names()) == jobs
    again = world.run("retry", deployed, "--json")
    assert again.code == 0, again.err


def test_a_stage_that_has_begun_is_not_judged_again(pipeline: Pipeline) -> None:
    world = pipeline.world
    train, deployed, _ = pipeline.chain()
    pipeline.work(train, 60, accuracy=0.9)
    pipeline.tick()
    world.assign(deployed, "i-base", pipeline.now)
    world.start(deployed, pipeline.now)
    world.leave(deployed, pipeline.now + 5, Reason.NOTICE)
    other = pipeline.submit("deployed", after=["train"])
    pipeline.work(other, 60, accuracy=0.95)
    Scheduler(world.store, world.store.manifest(), NullCloud(), "s-2").tick()
    assert pipeline.state(deployed) == "PENDING"


def test_a_misspelt_last_job_is_warned_of_because_such_a_comparison_holds(pipeline: Pipeline) -> None:
    pipeline.submit("train")
    first = pipeline.answer("deployed", after=["train"], run_if=DEPLOY)
    assert not any(words.startswith("run_if") for words in first.json["warnings"])
    misspelt = pipeline.answer("other", after=["train"], run_if=DEPLOY.replace("deployed", "deployd"))
    words = "no job deployd has been submitted so far (did you mean deployed?): until one has succeeded, the comparison"
    assert f"run_if: {words} with last(deployd.accuracy) holds" in misspelt.json["warnings"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"run_if": "metric(train.accuracy) >> 1"}, "run_if: at '> 1' needs a number"),
        ({"run_if": "metric(train.accuracy) > 1"}, "run_if: metric() is of a job of after, which names none"),
        ({"run_if": "metric(tain.x) > 1", "after": ["train"]}, "run_if: metric(tain.x): none of the jobs of after is"),
        ({"run_if": "1 > 2"}, "run_if: 1 > 2 compares numbers alone: name a metric"),
        ({"run_if": "last(train.x) > 1 and 2 > 1"}, "run_if: 2 > 1 compares numbers alone"),
        ({"run_if": 5}, "run_if: must be a text such as"),
        ({"continue_from": "last"}, "continue_from: belongs to a series: every is missing"),
        ({"continue_from": "first", "every": "1h"}, "continue_from: "),
    ],
)
def test_a_wrong_condition_is_refused_at_submission(pipeline: Pipeline, fields: Any, problem: str) -> None:
    pipeline.submit("train")
    answer = pipeline.answer("deployed", **fields)
    assert answer.code != 0
    problems = [f"{row['field']}: {row['problem']}" for row in json.loads(answer.err)["problems"]]
    assert any(words.startswith(problem) for words in problems), problems


def test_a_series_continues_from_its_last_successful_run_and_the_report_says_what_that_saved(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    world = pipeline.world
    first = pipeline.submit("weekly", every="168h", continue_from="last")
    second, third, fourth = (f"{first}-{n}" for n in (2, 3, 4))
    assert world.store.jobs.get(first).value.after == []
    for job, seconds, succeeds in ((first, 7200, True), (second, 1800, True), (third, 600, False)):
        if succeeds:
            pipeline.work(job, seconds, accuracy=0.9)
        else:
            world.assign(job, "i-base", pipeline.now)
            world.leave(job, pipeline.now + seconds, Reason.BUDGET)
        for _ in range(2):
            pipeline.tick()
        world.clock.advance(timedelta(days=7))
    sources = [[e.job_id for e in world.store.dossier(job).submission.after] for job in (second, third, fourth)]
    assert sources == [[first], [second], [second]]
    pipeline.tick()
    assert world.store.notes.waiting.read().jobs[fourth].why != "after"

    report = world.run("report", "--json").json
    rows = {job["job_id"]: job["continued"] for job in report["jobs"]}
    assert rows[first] is None
    assert rows[second] == {
        "job_id": first, "hours": 0.5, "usd": pytest.approx(0.5 * ON_DEMAND), "from_scratch": first,
        "hours_from_scratch": 2.0, "usd_from_scratch": pytest.approx(2 * ON_DEMAND), "hours_saved": 1.5,
        "usd_saved": pytest.approx(1.5 * ON_DEMAND),
    }  # fmt: skip
    assert rows[third]["usd_saved"] is None
    shown = " ".join(world.run("report").out.split())
    assert "Continued runs" in shown
    assert "$0.1440" in shown
    world.run("report", "--html", str(tmp_path / "report.html"))
    assert "Continued runs" in (tmp_path / "report.html").read_text()


def test_a_visit_of_another_cluster_is_no_last_job_of_its_name(pipeline: Pipeline) -> None:
    """The names of a cluster's jobs mean nothing on the cluster that they visit."""
    train, deployed, _ = pipeline.chain()
    pipeline.work(train, 60, accuracy=0.8)
    pipeline.tick()
    pipeline.work(deployed, 60, accuracy=0.8)
    visitor = pipeline.submit("deployed")
    visit = Visit(home="away", job_id="deployed-00000001", number=1)
    jobs = pipeline.world.store.jobs
    jobs.put(visitor, jobs.get(visitor).value.model_copy(update={"visit": visit}))
    pipeline.work(visitor, 60, accuracy=0.99)
    train, deployed, _ = pipeline.chain()
    pipeline.work(train, 60, accuracy=0.9)
    pipeline.tick()
    assert pipeline.state(deployed) == "PENDING", "0.9 is more than 0.8 of the last deployment here"
