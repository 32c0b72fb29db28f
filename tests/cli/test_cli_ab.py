"""`everspot ab`: each arm of number formats runs as jobs, the command can be interrupted and repeated, and prints one
verdict."""

import json
from pathlib import Path
from typing import Any

import pytest
from everspot_cli.specs import read_spec
from everspot_core.cluster.manifest import FleetOffer
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.records import EventKind, Market, Progress, Reason

OPTIONS = ("--precision", "fp32,bf16", "--seeds", "3", "--metric", "test_accuracy", "--tolerance", "1%")
SPREAD = (0.80, 0.84, 0.88)
"""The spread between seeds; the formats differ by far less."""


class Bench:
    """The cluster of the command's tests, a job on it, and instances that run whatever waits."""

    def __init__(self, world: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.folder, self.seconds = world, folder, 10.0
        self.file = folder / "train.yaml"
        self.write()
        world.launch("i-base", 0)
        monkeypatch.setattr("everspot_store.SystemClock.from_environment", lambda: world.clock)
        monkeypatch.setattr(world.clock, "on_sleep", lambda _: self.step())
        self.gains: dict[str, float] = {"fp32": 0.0, "bf16": 0.0}
        self.memory: dict[str, float] = {"fp32": 3.6, "bf16": 2.0}
        self.failing: set[str] = set()
        self.diverging: set[str] = set()
        self.run_on = "i-base"

    def write(self, text: str = "name: train\nrecipe: image-classification\n") -> None:
        self.file.write_text(text)

    def waiting(self) -> list[str]:
        return sorted(job for job in self.world.store.jobs.names() if self.world.record(job) is None)

    def step(self) -> None:
        """Run the jobs that wait, each for an hour and interrupted once."""
        for job in self.waiting():
            self.finish(job)

    def finish(self, job: str, *, interrupted: bool = True) -> None:
        spec = self.world.store.jobs.get(job).value.spec
        precision, seed = spec.precision.value, spec.parameters["seed"]
        for last in (False, True) if interrupted else (True,):
            self.seconds += 10
            self.world.assign(job, self.run_on, self.seconds)
            self.world.start(job, self.seconds + 1)
            self.seconds += 1800
            self.world.to(self.seconds)
            if not last:
                self.world.emit(job, EventKind.INTERRUPTED, reason=Reason.NOTICE.value, step=50)
                self.world.leave(job, self.seconds, Reason.NOTICE)
        if job in self.failing:
            self.world.leave(job, self.seconds, Reason.BUDGET)
            return
        # The second format's differences of the seeds are one thousandth up, one down, and none.
        noise = (0.001, -0.001, 0.0)[seed % 3] if precision != "fp32" else 0.0
        metrics = {"test_accuracy": SPREAD[seed % 3] + self.gains[precision] + noise}
        metrics |= {"skipped_steps": 2.0} if precision == "fp16" else {}
        if job in self.diverging:  # a metric that is no number is null where metrics are stored
            values = [metrics.pop("test_accuracy"), None]
            lines = [json.dumps({"step": 50 * n, "metrics": {"test_accuracy": v}}) for n, v in enumerate(values, 1)]
            self.world.store.metrics.append(job, 1, 0, "\n".join([*lines, ""]).encode())
        progress = Progress(
            step=100, total_steps=100, steps_per_epoch=50.0, metrics=metrics, memory_gib=self.memory[precision]
        )
        self.world.save(self.world.record(job).model_copy(update={"progress": progress}))
        self.world.emit(job, EventKind.FINISHED, step=100, metrics=metrics)
        self.world.leave(job, self.seconds, Reason.FINISHED)

    def ab(self, *options: str, **instead: str) -> Any:
        words = list(OPTIONS)
        for option, value in instead.items():
            words[words.index(f"--{option}") + 1] = value
        return self.world.run("ab", str(self.file), *words, *options)


@pytest.fixture
def bench(world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(world, tmp_path, monkeypatch)


def test_every_arm_and_seed_is_an_ordinary_job_with_the_same_data(bench: Bench) -> None:
    answer = bench.ab("--json")
    assert answer.code == 0, answer.err
    jobs = {job: bench.world.store.jobs.get(job).value.spec for job in bench.world.store.jobs.names()}
    assert sorted(jobs) == [f"train-ab-{p}-s{n:02d}" for p in ("bf16", "fp32") for n in range(3)]
    for job, spec in jobs.items():
        assert (spec.precision.value, spec.parameters) == (job.split("-")[2], {"seed": int(job[-1])})
        assert (spec.name, spec.tags) == ("train-ab", {"Comparison": "train-ab"})
    first, second = answer.json["arms"]
    assert (answer.json["passed"], answer.json["winner"], answer.json["over"]) == (True, "bf16", True)
    assert (first["verdict"], second["verdict"]) == (None, "equivalent")
    assert second["difference"]["mean"] == pytest.approx(0.0, abs=1e-9)
    assert second["difference"]["high"] == pytest.approx(4.3027 * 0.001 / 3**0.5, rel=1e-3)
    assert second["metric"]["high"] - second["metric"]["low"] > 0.15, "unpaired nothing could be decided"
    assert [run["interruptions"] for run in second["runs"]] == [1, 1, 1]


def test_memory_time_and_dollars_of_an_epoch_and_the_smaller_types_that_hold_an_arm(bench: Bench) -> None:
    first, second = bench.ab("--json").json["arms"]
    assert (first["peak_memory_gib"], second["peak_memory_gib"]) == (3.6, 2.0)
    # Two attempts of half an hour for two epochs, on an m6i.large at $0.096.
    assert second["seconds_per_epoch"] == pytest.approx(1800, rel=0.02)
    assert second["usd_per_epoch"] == pytest.approx(0.048, rel=0.02)
    smaller = {kind["instance_type"]: kind for kind in second["smaller_types"]}
    assert smaller["c6i.large"]["new"] is False or first["peak_memory_gib"] * 1.1 > 4
    assert set(smaller) == {"c6i.large"}
    assert smaller["c6i.large"]["usd_per_epoch"] == pytest.approx(0.0425, rel=0.02)
    assert first["smaller_types"] == [] or {k["instance_type"] for k in first["smaller_types"]} == {"c6i.large"}
    table = bench.ab().out
    assert "c6i.large $0.085/h" in table and "equivalent" in table and "tolerance 1%" in table


@pytest.mark.parametrize(
    ("gain", "tolerance", "verdict", "code"),
    [
        (0.0, "1%", "equivalent", 0),
        (0.05, "1%", "better", 0),
        (-0.05, "1%", "worse", 1),
        (-0.05, "0.06", "equivalent", 0),
        (-0.008, "1%", "undecided", 1),
        (0.0, "0.001", "undecided", 1),
    ],
)
def test_the_exit_code_is_0_only_for_a_verdict_that_passes(
    bench: Bench, gain: float, tolerance: str, verdict: str, code: int
) -> None:
    bench.gains["bf16"] = gain
    answer = bench.ab("--json", tolerance=tolerance)
    second = answer.json["arms"][1]
    assert (second["verdict"], answer.code, answer.json["passed"]) == (verdict, code, code == 0)
    assert (second["seeds_needed"] is not None) == (verdict == "undecided")


def test_less_of_a_loss_is_better(bench: Bench) -> None:
    """The metric is treated as a loss, where less is better."""
    bench.gains["bf16"] = -0.05
    answer = bench.ab("--direction", "minimize", "--json")
    assert (answer.json["arms"][1]["verdict"], answer.code) == ("better", 0)


def test_undecided_says_how_many_seeds_decide_and_more_of_them_continue(bench: Bench) -> None:
    bench.gains["bf16"] = -0.0064
    answer = bench.ab("--json")
    needed = answer.json["arms"][1]["seeds_needed"]
    assert answer.code == 1 and 3 < needed <= 12
    assert f"about {needed} seeds decide" in bench.ab().out
    before = set(bench.world.store.jobs.names())
    answer = bench.ab("--json", seeds=str(needed + 2))
    assert (answer.json["arms"][1]["verdict"], answer.code) == ("equivalent", 0)
    assert before < set(bench.world.store.jobs.names())
    assert len(bench.world.store.jobs.names()) == 2 * (needed + 2)


def test_a_command_that_is_ended_goes_on_where_it_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = iter(range(3))

    def go_on(_: Any) -> None:
        if next(polls) == 2:
            raise KeyboardInterrupt
        for job in bench.waiting()[:2]:
            bench.finish(job)

    monkeypatch.setattr(bench.world.clock, "on_sleep", go_on)
    assert bench.ab().code == 130
    shown = bench.ab("--show", "--json")
    assert (shown.code, shown.json["over"], shown.json["passed"]) == (1, False, False)
    assert len(bench.waiting()) == 2
    monkeypatch.setattr(bench.world.clock, "on_sleep", lambda _: bench.step())
    assert bench.ab("--json").code == 0
    assert len(bench.world.store.jobs.names()) == 6


def test_a_run_that_failed_leaves_no_verdict_that_passes(bench: Bench) -> None:
    bench.failing = {"train-ab-bf16-s01"}
    answer = bench.ab("--json", seeds="5")
    second = answer.json["arms"][1]
    assert (answer.code, second["verdict"], second["failed"]) == (1, "undecided", ["train-ab-bf16-s01"])
    assert second["metric"]["seeds"] == 4
    assert "undecided, 1 of 5 runs failed" in bench.ab(seeds="5").out


def test_several_arms_are_each_compared_with_the_first(bench: Bench) -> None:
    bench.gains |= {"fp16": -0.2, "tf32": 0.0}
    bench.memory |= {"fp16": 1.9, "tf32": 3.6}
    answer = bench.ab("--json", precision="fp32,bf16,fp16,tf32")
    assert [arm["verdict"] for arm in answer.json["arms"]] == [None, "equivalent", "worse", "equivalent"]
    assert [arm["skipped_steps"] for arm in answer.json["arms"]] == [None, None, 6, None]
    assert answer.code == 1, "one of them is worse"


def test_the_winner_is_tried_on_a_smaller_type_and_checked(bench: Bench) -> None:
    bench.world.offer("m6i.large", "c6i.large")
    assert bench.ab("--json").code == 0
    bench.world.launch("i-spot1", 0)
    bench.run_on = "i-spot1"
    answer = bench.ab("--try", "c6i.large", "--json")
    assert answer.code == 0, answer.err
    trial = answer.json["try"]
    assert (trial["job_id"], trial["ran_on"], trial["passed"]) == ("train-ab-try-c6i-large-bf16", "c6i.large", True)
    assert trial["difference"] == 0
    spec = bench.world.store.jobs.get("train-ab-try-c6i-large-bf16").value.spec
    assert (spec.precision.value, spec.resources.instance_types) == ("bf16", ("c6i.large",))
    assert "c6i.large passes" in bench.ab("--try", "c6i.large").out


def test_another_winner_is_tried_by_its_own_run_and_a_trial_of_an_earlier_release_counts_for_its_format(
    bench: Bench,
) -> None:
    bench.world.offer("m6i.large", "c6i.large")
    assert bench.ab("--json").code == 0
    bench.world.launch("i-spot1", 0)
    bench.run_on = "i-spot1"
    assert bench.ab("--try", "c6i.large", "--json").json["try"]["job_id"] == "train-ab-try-c6i-large-bf16"
    earlier = bench.world.store.jobs.get("train-ab-try-c6i-large-bf16").value
    bench.world.store.jobs.create(
        "train-ab-try-c6i-large", earlier.model_copy(update={"job_id": "train-ab-try-c6i-large"})
    )
    assert bench.ab("--try", "c6i.large", "--json").json["try"]["job_id"] == "train-ab-try-c6i-large"
    bench.gains |= {"fp16": 0.0}
    bench.memory |= {"fp16": 2.0}
    answer = bench.ab("--try", "c6i.large", "--json", precision="fp32,fp16")
    job = answer.json["try"]["job_id"]
    assert (answer.json["winner"], bench.world.store.jobs.get(job).value.spec.precision.value) == ("fp16", "fp16")


@pytest.mark.parametrize("trouble", ["another type", "another metric", "failed"])
def test_a_type_that_does_not_hold_the_winner_is_no_success(bench: Bench, trouble: str) -> None:
    bench.world.offer("m6i.large", "c6i.large")
    bench.ab("--json")
    bench.world.launch("i-spot1", 0)
    bench.run_on = "i-base" if trouble == "another type" else "i-spot1"
    bench.gains["bf16"] = -0.3 if trouble == "another metric" else 0.0
    bench.failing = {"train-ab-try-c6i-large-bf16"} if trouble == "failed" else set()
    answer = bench.ab("--try", "c6i.large", "--json")
    words = {
        "another type": "ran on m6i.large, which the cluster preferred",
        "another metric": "test_accuracy differs by -0.3",
        "failed": "ended as FAILED",
    }
    assert answer.code == 1 and not answer.json["passed"] and not answer.json["try"]["passed"]
    assert words[trouble] in answer.json["try"]["problems"][0]


@pytest.mark.parametrize(
    ("name", "complaint", "jobs"),
    [
        ("c6i.huge", "instance type 'c6i.huge' is not in the catalogue; did you mean", 0),
        ("m7i.large", "the cluster has no m7i.large", 0),
        ("t3.small", "t3.small does not hold bf16: it has too little of memory_gib", 6),
    ],
)
def test_a_type_that_cannot_be_tried_is_refused_and_an_unknown_one_before_any_run(
    bench: Bench, name: str, complaint: str, jobs: int
) -> None:
    bench.world.offer("m6i.large", "t3.small")
    answer = bench.ab("--try", name)
    assert answer.code == 1 and complaint in answer.err
    assert len(bench.world.store.jobs.names()) == jobs


@pytest.mark.parametrize(
    ("change", "options", "complaints"),
    [
        ({"precision": "fp32"}, (), ["--precision"]),
        ({"precision": "fp32,fp32"}, (), ["--precision", "a format twice"]),
        ({"precision": "auto,bf16"}, (), ["--precision", "auto is no format"]),
        ({"precision": "fp32,fp8", "tolerance": "0"}, (), ["--precision", "--tolerance", "0.5%"]),
        ({"metric": "acuracy"}, (), ["--metric", "did you mean", "test_accuracy"]),
        ({"seeds": "0"}, (), ["--seeds"]),
        ({}, ("--name", "Not A Name"), ["--name"]),
        ({}, ("--seed-field", "parameters.sed"), ["parameters.sed"]),
        ({}, ("--set", "every=1h"), ["every"]),
        ({}, ("--show", "--try", "t3.small"), ["--show"]),
        ({}, ("--show",), ["was never begun"]),
    ],
)
def test_what_makes_no_comparison_is_refused_before_a_job_is_submitted(
    bench: Bench, change: dict[str, str], options: tuple[str, ...], complaints: list[str]
) -> None:
    answer = bench.ab(*options, **change)
    assert answer.code in (1, 2)
    assert all(complaint in answer.err for complaint in complaints), answer.err
    assert bench.world.store.jobs.names() == []


def test_another_job_under_the_same_name_is_refused(bench: Bench) -> None:
    bench.ab("--json")
    bench.write("name: train\nrecipe: image-classification\nparameters: {epochs: 7}\n")
    answer = bench.ab("--json")
    assert answer.code == 1 and "another comparison named train-ab was begun" in answer.err and "the job" in answer.err
    assert bench.ab("--name", "other", "--json").code == 0


def test_later_runs_get_the_code_and_datasets_of_the_first_and_a_mixed_comparison_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench.world.clock, "on_sleep", stop)
    program, labels, store = bench.folder / "src" / "train.py", bench.folder / "flowers" / "labels", bench.world.store
    for file in (program, labels):
        file.parent.mkdir()
        file.write_text("1")
    store.datasets.put("flowers", labels.parent)
    bench.write("name: mine\nentrypoint: [train.py]\ncode: src\ndatasets: [flowers]\n")
    unchanged = bench.ab(seeds="2")
    assert unchanged.code == 130 and "changed since" not in unchanged.err
    assert "changed since" not in bench.ab(seeds="2").err
    for file in (program, labels):
        file.write_text("2")
    bench.world.to(bench.seconds + 60)
    store.datasets.put("flowers", labels.parent)
    later = bench.ab(precision="fp32,bf16,fp16")
    assert later.code == 130 and "the code and flowers changed since the comparison began" in later.err
    jobs = {job: store.jobs.get(job).value for job in store.jobs.names()}
    assert len(jobs) == 9 and len({(run.code_digest, *run.datasets) for run in jobs.values()}) == 1

    other = jobs["mine-ab-fp16-s02"].model_copy(update={"job_id": "mine-ab-tf32-s01", "code_digest": 64 * "0"})
    store.jobs.create(other.job_id, other)
    mixed = bench.ab("--show", precision="fp32,bf16,tf32")
    assert mixed.code == 1 and "mine-ab-tf32-s01: has other code than mine-ab-" in mixed.err, mixed.err


def test_a_comparison_goes_on_after_an_upgrade_that_brings_further_fields_of_a_job(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LaterSpec(JobSpec):
        another_field: str = "as before"

    assert bench.ab().code == 0
    later = lambda *args, **options: LaterSpec.model_validate(dict(read_spec(*args, **options)))  # noqa: E731
    monkeypatch.setattr("everspot_cli.precision.runner.read_spec", later)
    assert bench.ab().code == 0


def test_a_table_of_80_columns_shows_all_figures(bench: Bench) -> None:
    bench.gains["bf16"] = -0.008
    table = bench.world.run("ab", str(bench.file), *OPTIONS, env={"COLUMNS": "80"}).out
    figures = ("fp32", "bf16", "baseline", "undecided", "3.60", "2.00", "30m00s", "0.0480", "c6i.large $0.085/h")
    assert all(figure in table for figure in figures) and "…" not in table, table
    assert max(map(len, table.splitlines())) <= 80


def test_a_metric_that_no_run_reports_ends_the_wait(bench: Bench, tmp_path: Path) -> None:
    answer = bench.ab(metric="loss")
    assert answer.code == 1 and "succeeded and never reported loss" in answer.err


def test_a_program_gets_its_seed_and_variables_of_the_command_line_by_the_environment(bench: Bench) -> None:
    (bench.folder / "src").mkdir()
    (bench.folder / "src" / "train.py").write_text("print()")
    bench.write("name: mine\nentrypoint: [train.py]\ncode: src\nmixed_on_failover: true\n")
    polls: list[int] = []

    def stop(_: Any) -> None:
        polls.append(1)
        raise KeyboardInterrupt

    bench.world.clock.on_sleep = stop
    options = ("--first-seed", "5", "--env", "EPOCHS=0.5")
    unclear = bench.ab(*options, metric="anything")
    assert unclear.code == 2 and "--direction: the name anything does not say whether lower or" in unclear.err
    assert bench.ab(*options, "--direction", "minimize", metric="anything").code == 130
    assert bench.ab(*options, metric="anything").code == 130, "the comparison keeps its direction"
    assert bench.world.store.studies.get_comparison("mine-ab").spec.direction.value == "minimize"
    specs = {job: bench.world.store.jobs.get(job).value.spec for job in bench.world.store.jobs.names()}
    assert {job: spec.env["SEED"] for job, spec in specs.items() if "bf16" in job} == {
        f"mine-ab-bf16-s{n:02d}": str(5 + n) for n in range(3)
    }
    assert {spec.env["EPOCHS"] for spec in specs.values()} == {"0.5"}
    assert not any(spec.mixed_on_failover for spec in specs.values()), "a format stays what it is"


def test_a_cluster_that_cannot_hold_the_job_refuses_the_comparison(bench: Bench) -> None:
    fleet = FleetOffer(types=["t3.small"], zones=["us-east-1a"], markets=[Market.SPOT])
    bench.world.store.write_manifest(bench.world.store.manifest().model_copy(update={"fleet": fleet}))
    bench.write("name: train\nrecipe: image-classification\nresources: {vcpus: 64}\n")
    answer = bench.ab()
    assert answer.code == 1 and "t3.small" in answer.err and "vcpus" in answer.err.lower()
    assert bench.world.store.jobs.names() == []


def test_a_format_that_diverges_is_worse_and_its_other_runs_go_on(bench: Bench) -> None:
    bench.diverging = {"train-ab-bf16-s00", "train-ab-bf16-s02"}
    answer = bench.ab("--json").json
    _, second = answer["arms"]
    assert (answer["over"], answer["passed"], answer["winner"]) == (True, False, None)
    assert (second["verdict"], second["diverged"], second["failed"]) == ("worse", sorted(bench.diverging), [])
    shown = " ".join(bench.ab("--show").out.split())
    assert "worse, 2 of 3 runs diverged" in shown
    assert "2 of them without success" in shown
