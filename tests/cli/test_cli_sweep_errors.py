"""The cost of a sweep in the report, and errors that are found before anything is written."""

import json

import pytest
from everspot_cli.errors import CliError
from everspot_core import extras
from everspot_core.experiments.sweep import SweepSpec, trial_sweep
from everspot_core.jobs.records import Reason
from sweep_helpers import SWEEP, Playground, record


def test_the_report_tells_the_cost_of_each_trial_and_of_each_useful_one_as_the_sweep_does(play: Playground) -> None:
    """Three trials of an hour: one is done, one failed, one is done and never reported the metric."""
    play.world.store.studies.begin(record(play, trials=3, parallel=3))
    play.sweep(trials=3, parallel=3).turn()
    done, failed, silent = play.waiting()
    assert play.world.run("--json", "report").json["sweeps"] == [
        {"sweep": "rates", "metric": "test_accuracy", "trials": 3, "useful_trials": 0, "cost_usd": 0.0,
         "cost_per_trial_usd": 0.0, "cost_per_useful_trial_usd": None, "rungs": []}
    ]  # fmt: skip
    for job in (done, failed, silent):
        play.start(job)
        if job != silent:
            play.reports(job, 100, 0.5)
        play.ends(job, Reason.BUDGET if job == failed else Reason.FINISHED)
    for _ in range(2):  # before the command has looked, and when it has: the same
        shown = play.world.run("sweep", str(play.write(trials=3, parallel=3)), "--show", "--json").json
        (row,) = play.world.run("--json", "report").json["sweeps"]
        assert (row["trials"], row["useful_trials"]) == (3, 1)
        for name in ("cost_usd", "cost_per_trial_usd", "cost_per_useful_trial_usd"):
            assert row[name] == pytest.approx(shown[name], rel=1e-6), name
        assert row["cost_per_useful_trial_usd"] == pytest.approx(3 * row["cost_per_trial_usd"], rel=1e-5)
        assert row["cost_usd"] == pytest.approx(3 * 0.096, rel=0.01)
        play.sweep(trials=3, parallel=3).turn()
    lines = [line.split() for line in play.world.run("report").out.splitlines()]
    assert ["rates", "test_accuracy", "3", "1", "$0.2880", "$0.0960", "$0.2880"] in lines
    page = play.folder / "report.html"
    assert play.world.run("report", "--html", str(page)).code == 0
    assert "a useful one" in page.read_text()
    assert play.world.run("--json", "report", done).json["sweeps"] == []


def test_a_job_that_only_looks_like_a_trial_is_none_in_the_report(play: Playground) -> None:
    play.sweep().turn()
    assert play.world.run("--json", "report").json["sweeps"] == [], "no sweep of that name was begun"
    play.world.store.studies.begin(record(play))
    assert [row["trials"] for row in play.world.run("--json", "report").json["sweeps"]] == [2]
    play.world.store.control.put("studies/rates/sweep.json", b"{")
    assert play.world.run("--json", "report").json["sweeps"] == []
    assert trial_sweep("rates-t0001", {"Sweep": "other"}) is trial_sweep("rates", {"Sweep": "rates"}) is None


@pytest.mark.parametrize(
    ("more", "messages"),
    [
        ({"trials": 0, "direction": "up", "fields": {}}, ["trials: ", "direction: ", "fields: "]),
        ({"metric": "score_x"}, ["direction: the name score_x does not say whether lower or higher is better"]),
        (
            {"fields": {"env.SEED": {"low": 1, "high": 1}}},
            ["fields.env.SEED: low has to be less than high"],
        ),
        ({"fields": {"env.SEED": {"low": 1, "choices": [1]}}}, ["has either choices or a range"]),
        # In a record NaN and infinity are null, so that the sweep would be there and nobody could read it.
        ({"fields": {"env.SEED": {"low": 0.1, "high": float("inf")}}}, ["high: has to be a number from"]),
        ({"fields": {"env.SEED": {"low": float("nan"), "high": 1}}}, ["low: has to be a number from"]),
        ({"fields": {"env.SEED": {"low": 1, "high": 10**400}}}, ["high: has to be a number from -1e+15 to 1e+15"]),
        ({"fields": {"env.SEED": {"choices": [1, float("nan")]}}}, ["has to be finite"]),
        ({"fields": {"env.SEED": {"low": 0.0, "high": 1.0, "step": 1e-300}}}, ["step leaves more than 1e+12 values"]),
        # Trials that are all the same, or never try an end that is said to be included, are paid for nothing.
        (
            {"fields": {"parameters.width": {"low": 1, "high": 8, "step": 100}}},
            ["step 100 ends at 1 and never reaches"],
        ),
        (
            {"fields": {"env.SEED": {"low": 0.1, "high": 0.35, "step": 0.1}}},
            ["ends at 0.3 and never reaches high, 0.35"],
        ),
        ({"fields": {"name": {"choices": ["a", "b"]}}}, ["fields.name: the sweep sets it itself"]),
        ({"fields": {"tags.Sweep": {"choices": ["a", "b"]}}}, ["fields.tags.Sweep: the sweep sets it itself"]),
        ({"fields": {"parameters.speed": {"choices": [1]}}}, ["parameters.speed: unknown"]),
        ({"fields": {"parameters.width": {"choices": [8, 0, 999]}}}, ["fields.parameters.width: 0: ", "width: 999: "]),
        ({"fields": {"parameters.dropout": {"low": 0.0, "high": 1.5}}}, ["fields.parameters.dropout: 1.5: "]),
        ({"fields": {"precision": {"choices": ["fp32", "fp7"]}}}, ["fields.precision: 'fp7': "]),
        (
            {"fields": {"deadline": {"choices": ["9h", "1h"]}, "expected_duration": {"choices": ["30m", "8h"]}}},
            ["deadline"],
        ),
        (
            {"metric": "acuracy"},
            ["metric: image-classification does not report 'acuracy'", "loss, skipped_steps, test_accuracy"],
        ),
        ({"job": "none.yaml"}, ["none.yaml"]),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(play: Playground, more, messages) -> None:
    answer = play.world.run("sweep", str(play.write(**more)))
    assert answer.code != 0
    for words in messages:
        assert words in answer.err
    assert play.world.store.jobs.names() == []
    assert play.world.store.studies.get("rates") is None


def test_a_job_that_is_repeated_is_not_swept(play: Playground) -> None:
    """Each trial would be repeated every day, long after the sweep is over."""
    file = play.write()
    job = play.folder / "train.yaml"
    job.write_text(job.read_text() + "every: 1d\n")
    answer = play.world.run("sweep", str(file))
    assert answer.code == 1 and "a trial has no `every`" in answer.err
    assert play.world.store.jobs.names() == []


def test_a_step_of_decimal_fractions_that_reaches_the_end_is_taken(tmp_path) -> None:
    """In binary (0.7 - 0.1) / 0.1 is no whole number."""
    from everspot_cli.sweeping.reading import read_sweep

    (tmp_path / "job.yaml").write_text("name: j\nrecipe: image-classification\n")
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "name: s\njob: job.yaml\nmetric: loss\ntrials: 2\n"
        "fields: {parameters.dropout: {low: 0.1, high: 0.7, step: 0.1}, env.SEED: {low: 1, high: 9, step: 2}}\n"
    )
    assert read_sweep(file).fields["parameters.dropout"].step == 0.1


def test_a_value_that_the_cluster_cannot_hold_is_refused_before_the_first_trial(play: Playground) -> None:
    """Given a second choice that no instance type holds, when the sweep is started, then nothing is submitted."""
    play.world.offer("m6i.large")
    fields = {"resources.vcpus": {"choices": [2, 64]}, "parameters.width": {"choices": [4, 8]}}

    answer = play.world.run("sweep", str(play.write(fields=fields)))

    assert answer.code == 1
    assert "fields: resources.vcpus=64: " in answer.err
    assert "add a type that holds it to the fleet" in answer.err
    assert "--wait-for-capacity" not in answer.err, "an option that `sweep` does not have"
    assert play.world.store.jobs.names() == []
    assert play.world.store.studies.get("rates") is None


def test_a_sweep_whose_trials_never_report_the_metric_stops(play: Playground) -> None:
    """Given a program that reports another metric, when its first trial has ended, then no further trial begins."""
    play.world.store.studies.begin(record(play, parallel=1))
    play.sweep(parallel=1).turn()
    (job,) = play.waiting()
    play.start(job)
    play.ends(job, Reason.FINISHED)

    answer = play.world.run("sweep", str(play.write(parallel=1)))

    assert answer.code == 1
    assert f"{job} succeeded and never reported test_accuracy" in answer.err
    assert play.world.store.jobs.names() == [job]


def test_a_sweep_goes_on_behind_a_trial_that_has_diverged(play: Playground) -> None:
    """Given a first trial whose metric ended as NaN, when it has ended, then it has failed and the next one begins."""
    play.world.store.studies.begin(record(play, parallel=1))
    run = play.sweep(parallel=1)
    run.turn()
    (job,) = play.waiting()
    play.start(job)
    play.world.store.metrics.append(job, 1, 0, b'{"step": 5, "metrics": {"test_accuracy": null}}\n')
    play.ends(job, Reason.FINISHED)

    run.turn()

    assert len(play.world.store.jobs.names()) == 2
    assert "failed" in play.world.run("sweep", str(play.write(parallel=1)), "--show").out


def test_a_metric_that_the_record_has_left_out_is_read_from_the_stored_metrics(play: Playground) -> None:
    """Given a trial with more metrics than a record has, when it has succeeded, then its value counts."""
    run = play.sweep(parallel=1)
    run.turn()
    (job,) = play.waiting()
    play.start(job)
    play.world.store.metrics.append(job, 1, 0, b'{"step": 5, "metrics": {"test_accuracy": 0.75}}\n')
    play.ends(job, Reason.FINISHED)

    run.turn()

    (trial, _) = run.turn(act=False).trials
    assert (trial.state, trial.value) == ("COMPLETE", 0.75)


def test_a_trial_whose_job_is_refused_fails_and_the_next_command_goes_on(play: Playground) -> None:
    """Given a job file that broke while a sweep goes on, when it is repaired, then the sweep continues."""
    run = play.sweep(parallel=1)
    good = (play.folder / "train.yaml").read_text()
    (play.folder / "train.yaml").write_text(f"{good}priority: huge\n")
    with pytest.raises(CliError, match="field is wrong"):
        run.turn()
    (play.folder / "train.yaml").write_text(good)

    standing = play.sweep(parallel=1).turn()

    assert [trial.state for trial in standing.trials] == ["FAIL"]
    assert play.waiting() == ["rates-t0001"]


def test_the_faults_of_a_sweep_and_of_its_fields_in_the_job_are_told_in_one_error_by_the_file_they_are_in(
    play: Playground,
) -> None:
    rate = {"parameters.lr": {"choices": [0.1]}}
    answer = play.world.run("--json", "sweep", str(play.write(fields=rate)), "--show")
    error = json.loads(answer.err)
    assert (answer.code, error["error"]) == (1, f"{play.folder / 'sweep.yaml'}: a field is wrong")
    (problem,) = error["problems"]
    assert problem["field"] == "fields.parameters.lr"
    assert problem["problem"].startswith("unknown field") and "allowed: data, epochs" in problem["problem"]
    fields = {
        "parameters.learning_rat": {"low": 1},
        "parameters.epochs": {"choices": ["many"]},
        "foo.bar": {"choices": [1]},
        "resources.vcpus": {"low": 3, "high": 2},
    }
    (play.folder / "train.yaml").write_text("name: train\nrecipe: image-classification\npriority: huge\n")
    wrong = play.write(fields=fields, trials=0, direction="up")
    error = json.loads(play.world.run("--json", "sweep", str(wrong), "--show").err)
    fields_wrong = [problem["field"] for problem in error["problems"]]
    assert sorted(fields_wrong) == [
        "direction", "fields.foo.bar", "fields.parameters.epochs", "fields.parameters.learning_rat",
        "fields.parameters.learning_rat", "fields.resources.vcpus", "train.yaml: priority", "trials",
    ]  # fmt: skip
    assert "did you mean" in "".join(problem["problem"] for problem in error["problems"])
    alone = play.world.run("sweep", str(play.write()), "--show")
    assert "train.yaml: a field is wrong\n  priority: " in alone.err
    combined = json.loads(play.world.run("--json", "sweep", str(play.write(job="none.yaml", trials=0))).err)
    assert {problem["field"] for problem in combined["problems"]} == {"trials", "job"}


def test_another_sweep_of_the_same_name_is_refused_and_other_caps_are_taken(play: Playground) -> None:
    play.world.store.studies.begin(record(play))
    answer = play.world.run("sweep", str(play.write(metric="loss")))
    assert answer.code == 1
    assert "another sweep named rates was begun" in answer.err
    assert "metric: is not what the sweep was begun with" in answer.err
    assert SweepSpec.model_validate(SWEEP | {"trials": 9}).differs(record(play).spec) == []
    assert play.world.run("sweep", str(play.write(name="other")), "--show").code == 1


def test_without_the_extra_it_is_named(play: Playground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "requires", lambda name: ['optuna>=4.5; extra == "sweep"'])
    monkeypatch.setattr(extras, "_installed", lambda name: name != "optuna")
    answer = play.world.run("--json", "sweep", str(play.write()))
    needs = "everspot sweep needs optuna, which is not installed: pip install 'everspot[sweep]'"
    assert (answer.code, json.loads(answer.err)["error"]) == (1, needs)


def test_a_budget_in_dollars_is_refused_where_the_trials_could_run_on_types_without_a_price(play: Playground) -> None:
    play.world.offer("onprem.large", name="onprem.large", arch="x86_64", vcpus=4, memory_gib=16)
    answer = play.world.run("sweep", str(play.write(trials=2, parallel=1, budget={"dollars": 0.5})), "--dry-run")
    assert answer.code != 0
    assert "a budget in dollars needs prices" in answer.err
    assert "onprem.large" in answer.err
