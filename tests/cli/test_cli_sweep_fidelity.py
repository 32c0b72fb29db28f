"""`fidelity` of a sweep: all trials small, the best of each rung in the next, by any number of processes."""

import json
from itertools import pairwise
from typing import Any

import pytest
from everspot_core.experiments.fidelity import Fidelity, choose_promoted
from everspot_core.experiments.sweep import SweepSpec
from everspot_core.jobs import lease
from everspot_core.jobs.checkpoint import Checkpoint, CheckpointHead
from everspot_core.jobs.records import EventKind, Reason
from hypothesis import given
from hypothesis import strategies as st
from sweep_helpers import SWEEP, Playground

HOURLY = 0.096
"""The on-demand price of m6i.large, USD an hour. Each trial runs there for an hour."""
FIDELITY = {"field": "parameters.epochs", "values": [1, 3, 9], "keep": 3}
RUNGS: dict[str, Any] = {"trials": 9, "parallel": 3, "fidelity": FIDELITY}


def value(job: str) -> float:
    """The value of a trial, by the number in its id: 7 is the best, and each rung makes it better."""
    number, _, rung = job.removeprefix("rates-t").partition("-r")
    return 1 - abs(int(number) - 7) / 10 + int(rung or 0) / 100


def play_out(play: Playground, **more: Any) -> list[list[str]]:
    """Run the sweep to its end, each turn by another process; the jobs that each turn began."""
    began = []
    for _ in range(40):
        standing = play.sweep(**RUNGS | more).turn()
        waiting = play.waiting()
        began += [waiting] if waiting else []
        if standing.over:
            return began
        for job in waiting:
            play.start(job)
            play.reports(job, 100, value(job))
            play.ends(job, Reason.FINISHED)
    raise AssertionError("the sweep does not end")


def test_the_best_of_each_rung_come_to_the_next_with_their_values_and_the_cost_of_each_rung_is_shown(
    play: Playground,
) -> None:
    began = play_out(play)
    jobs = sorted(job for turn in began for job in turn)
    first, second, last = ([job for job in jobs if job.endswith(end)] for end in ("", "-r1", "-r2"))
    assert [job for job in first if "-r" not in job] == [f"rates-t{n:04d}" for n in range(9)]
    assert (second, last) == (["rates-t0006-r1", "rates-t0007-r1", "rates-t0008-r1"], ["rates-t0007-r2"])
    specs = {job: play.world.store.jobs.get(job).value.spec for job in jobs}
    for job, epochs in (("rates-t0007", 1), ("rates-t0007-r1", 3), ("rates-t0007-r2", 9)):
        assert specs[job].parameters["epochs"] == epochs
        assert specs[job].parameters["learning_rate"] == specs["rates-t0007"].parameters["learning_rate"]
        assert specs[job].env == specs["rates-t0007"].env
    path = play.write(**RUNGS)
    answer = play.world.run("sweep", str(path), "--json").json
    assert (answer["over"], answer["best"], len(answer["trials"])) == (True, "rates-t0007-r2", 13)
    assert [(row["value"], row["trials"], row["useful_trials"]) for row in answer["rungs"]] == [
        (1, 9, 9), (3, 3, 3), (9, 1, 1),
    ]  # fmt: skip
    costs = [row["cost_usd"] for row in answer["rungs"]]
    assert costs == pytest.approx([9 * HOURLY, 3 * HOURLY, HOURLY], rel=0.01)
    assert sum(costs) == pytest.approx(answer["cost_usd"], abs=3e-6)
    report = play.world.run("report", "--json").json
    assert [row["cost_usd"] for row in report["sweeps"][0]["rungs"]] == pytest.approx(costs, abs=2e-6)
    assert "rung 1 (3): 3 trials, 3 useful, $0.28" in play.world.run("sweep", str(path), "--show").out
    assert "rates, rung 2 (9)" in " ".join(play.world.run("report").out.split())


def test_no_trial_is_promoted_before_its_rung_has_ended(play: Playground) -> None:
    settings = RUNGS | {"parallel": 9}
    play.sweep(**settings).turn()
    *others, slowest = play.waiting()
    for job in (*others, slowest):
        play.start(job)
    for job in others:
        play.reports(job, 100, value(job))
        play.ends(job, Reason.FINISHED)
    for _ in range(3):
        play.sweep(**settings).turn()
    assert play.waiting() == []
    play.reports(slowest, 100, 5.0)
    play.ends(slowest, Reason.FINISHED)
    play.sweep(**settings).turn()
    assert f"{slowest}-r1" in play.waiting()


def test_trials_that_fail_are_not_promoted_and_without_any_the_sweep_ends(play: Playground) -> None:
    for _ in range(10):
        standing = play.sweep(**RUNGS).turn()
        for job in play.waiting():
            play.start(job)
            play.ends(job, Reason.BUDGET)
        if standing.over:
            break
    assert standing.over
    assert {trial.rung for trial in standing.trials} == {0}


def test_the_budget_is_one_over_all_rungs(play: Playground) -> None:
    budget = {"dollars": 10.5 * HOURLY}
    jobs = [job for turn in play_out(play, budget=budget, parallel=1) for job in turn]
    assert len(jobs) == 11
    assert play.sweep(**RUNGS | {"budget": budget}).turn().exhausted


def test_two_processes_that_promote_at_once_make_each_job_once(play: Playground) -> None:
    first, second = (play.sweep(**RUNGS | {"parallel": 9}) for _ in range(2))
    first.turn()
    second.turn()
    for job in play.waiting():
        play.start(job)
        play.reports(job, 100, value(job))
        play.ends(job, Reason.FINISHED)
    first._begin(9)
    second._begin(9)
    for sweep in (first, second):
        sweep.turn()
    for sweep in (second, first):
        sweep._begin(9)
    standing = first.turn()
    promoted = [trial.job_id for trial in standing.trials if trial.rung == 1]
    assert sorted(promoted) == play.waiting() == ["rates-t0006-r1", "rates-t0007-r1", "rates-t0008-r1"]


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_warm_start_goes_on_from_the_checkpoint_of_the_rung_before(play: Playground, has_checkpoint: bool) -> None:
    fidelity, store = {**FIDELITY, "values": [1, 3], "warm_start": True}, play.world.store
    if has_checkpoint:
        checkpoint = Checkpoint(step=100, epoch=1, created_at=play.world.clock.now(), parts=[])
        store.heads.create("rates-t0001", CheckpointHead(job_id="rates-t0001", epoch=1, checkpoints=[checkpoint]))
    play_out(play, trials=2, fidelity=fidelity, parallel=2)
    promoted = store.jobs.get("rates-t0001-r1").value
    assert (promoted.retry_of, promoted.warm_start) == ("rates-t0001", True)
    assert promoted.spec.parameters["epochs"] == 3
    head = store.heads.get("rates-t0001-r1")
    assert [c.step for c in head.value.checkpoints] == [100] if has_checkpoint else head is None


def test_a_dry_run_states_what_each_rung_is_expected_to_cost_and_writes_nothing(play: Playground) -> None:
    play.world.offer("m6i.large")
    job = play.folder / "train.yaml"
    job.write_text("name: train\nrecipe: image-classification\nexpected_duration: 9h\n")
    path = play.write(**RUNGS, budget={"dollars": 1})
    answer = play.world.run("sweep", str(path), "--dry-run", "--json").json
    hours = [row["hours_per_trial"] for row in answer["rungs"]]
    assert hours == [1, 3, 9]
    first, longest = (seconds / 3600 for seconds in answer["start_seconds"])
    assert 0 < first < longest
    rungs = ((9, 1), (3, 3), (1, 9))
    for start, side in ((first, 0), (longest, 1)):
        expected = [trials * (hours + start) * HOURLY for trials, hours in rungs]
        assert [row["on_demand_usd"][side] for row in answer["rungs"]] == pytest.approx(expected, abs=2e-6)
        assert answer["expected_on_demand_usd"][side] == pytest.approx(sum(expected), abs=2e-6)
    low, high = answer["expected_spot_usd"]
    assert 0 < low <= high < answer["expected_on_demand_usd"][0]
    assert play.waiting() == []
    assert play.world.store.studies.get("rates") is None
    shown = " ".join(play.world.run("sweep", str(path), "--dry-run").out.split())
    assert "rung 2 (9): 1 trial, 9.00 h each" in shown
    assert "The time of a trial is proportional to parameters.epochs." in shown
    assert "Each trial pays for its start beside it: 210 s, 420 s at most, by past changeovers." in shown
    assert "The budget of $1.00 may be used up before the last trial ends." in shown
    play.write(**RUNGS | {"fidelity": {**FIDELITY, "warm_start": True}})
    answer = play.world.run("sweep", str(path), "--dry-run", "--json").json
    assert answer["expected_on_demand_usd"][0] == pytest.approx((21 + 13 * first) * HOURLY, abs=2e-6)
    job.write_text("name: train\nrecipe: image-classification\n")
    unknown = play.world.run("sweep", str(path), "--dry-run", "--json").json
    assert (unknown["expected_on_demand_usd"], unknown["expected_spot_usd"]) == (None, None)
    assert unknown["assumptions"] == ["Without expected_duration in the job's file nobody knows what a trial costs."]


def run_once(play: Playground, job: str, epochs: int, first_report: float, length: float) -> None:
    """Run a job whose output reports its steps, 94 an epoch, at the end of each epoch."""
    fields = {"name": "train", "recipe": "image-classification", "parameters": {"epochs": epochs}}
    began = play.seconds = play.seconds + 10
    play.world.submit(job, began, **fields)
    play.world.assign(job, "i-base", began)
    now, record = play.world.to(began + first_report), play.world.record(job)
    play.world.save(lease.start(record, record.epoch, record.owner, now))
    play.world.emit(job, EventKind.TRAINING, from_step=94, restored=False, by="agent")
    play.world.to(began + length)
    play.world.emit(job, EventKind.FINISHED, step=94 * epochs, metrics={})
    play.world.leave(job, began + length, Reason.FINISHED)
    play.seconds += round(length)


def test_a_dry_run_is_by_past_runs_of_the_job_and_the_times_of_their_starts(play: Playground) -> None:
    """Given runs that were first heard of after an epoch, when the cost is stated, then their starts count in full."""
    play.world.offer("m6i.large")
    (play.folder / "train.yaml").write_text("name: train\nrecipe: image-classification\nexpected_duration: 9h\n")
    path = play.write(**RUNGS)
    start, epoch = 600, 60
    run_once(play, "train-full", 9, start + epoch, start + 9 * epoch)
    answer = play.world.run("sweep", str(path), "--dry-run", "--json").json
    assert (answer["past_runs"], answer["start_seconds"]) == (1, [start / 2, start * 1.25])
    assert [row["hours_per_trial"] for row in answer["rungs"]] == pytest.approx([1 / 60, 3 / 60, 9 / 60], abs=1e-4)
    for row, trials, epochs in zip(answer["rungs"], (9, 3, 1), (1, 3, 9), strict=True):
        low, high = row["on_demand_usd"]
        assert low < trials * (start + epochs * epoch) / 3600 * HOURLY < high
    shown = " ".join(play.world.run("sweep", str(path), "--dry-run").out.split())
    assert "A trial of full size takes as long as in 1 past run, a quarter more or less, on the cheapest" in shown
    assert "Each trial pays for its start beside it: 300 to 750 s, by those measured." in shown
    run_once(play, "train-small", 1, 900 + epoch, 900 + epoch)  # no step followed the first report
    answer = play.world.run("sweep", str(path), "--dry-run", "--json").json
    assert (answer["past_runs"], answer["start_seconds"]) == (2, [start / 2, 900 * 1.25])


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"fidelity": {**FIDELITY, "field": "env.SEED"}}, "fidelity.field: env.SEED is one of fields, which"),
        ({"fidelity": FIDELITY, "pruner": "asha"}, "pruner: has to be none with fidelity"),
        ({"fidelity": FIDELITY, "trials": 2}, "trials: has to be at least 3, one for each rung"),
        ({"fidelity": {**FIDELITY, "values": [1]}}, "fidelity.values: "),
        ({"fidelity": {**FIDELITY, "values": [1, 1]}}, "fidelity.values: each value once"),
        ({"fidelity": {**FIDELITY, "values": [1, 1.0]}}, "fidelity.values: each value once"),
        ({"fidelity": {**FIDELITY, "field": "env.SIZE", "values": ["1", 1]}}, "fidelity.values: each value once"),
        ({"fidelity": {**FIDELITY, "values": [9, 3, 1]}}, "fidelity.values: in ascending order"),
        ({"fidelity": {**FIDELITY, "field": "name"}}, "fidelity.field: name does not change what a trial computes"),
        ({"fidelity": {**FIDELITY, "field": "cache"}}, "fidelity.field: cache does not change what a trial"),
        ({"fidelity": {**FIDELITY, "field": "tags.Size"}}, "fidelity.field: tags.Size does not change what a"),
        ({"fidelity": {**FIDELITY, "values": [0, 1]}}, "fidelity: 0"),
        ({"fidelity": {**FIDELITY, "field": "parameters.epoch"}}, "fidelity: "),
    ],
)
def test_a_wrong_fidelity_is_refused_before_anything_is_written(play: Playground, more: Any, problem: str) -> None:
    answer = play.world.run("sweep", str(play.write(**more)))
    assert answer.code != 0
    assert problem in answer.err, answer.err


def test_one_error_names_each_bad_part_of_a_fidelity(play: Playground) -> None:
    fidelity = {**FIDELITY, "field": "name", "values": [3, 1]}
    answer = play.world.run("sweep", str(play.write(fidelity=fidelity, trials=1)), "--json")
    fields = {row["field"] for row in json.loads(answer.err)["problems"]}
    assert fields >= {"fidelity.field", "fidelity.values", "trials"}, answer.err


@given(st.integers(2, 500), st.integers(2, 10), st.integers(2, 6))
def test_a_rung_is_never_larger_than_the_one_before_and_never_empty(trials: int, keep: int, rungs: int) -> None:
    fidelity = Fidelity(field="env.SIZE", values=list(range(1, rungs + 1)), keep=keep)
    sizes = fidelity.rung_sizes(trials)
    assert (len(sizes), sizes[0]) == (rungs, trials)
    assert all(1 <= later <= earlier for earlier, later in pairwise(sizes))
    assert sum(Fidelity(**{**fidelity.model_dump(), "warm_start": True}).rung_shares()) == pytest.approx(1)


@given(st.lists(st.floats(-1e3, 1e3), max_size=30), st.integers(0, 10), st.booleans())
def test_the_promoted_are_as_good_as_all_others(values: list[float], count: int, maximize: bool) -> None:
    chosen = choose_promoted(list(enumerate(values)), count, maximize=maximize)
    assert len(chosen) == len(set(chosen)) == min(count, len(values))
    others = [value for number, value in enumerate(values) if number not in chosen]
    for number in chosen:
        assert all(values[number] >= other if maximize else values[number] <= other for other in others)


def test_a_sweep_without_fidelity_is_as_before() -> None:
    assert SweepSpec.model_validate(SWEEP).pruner.value == "asha"
    assert SweepSpec.model_validate(SWEEP | RUNGS).pruner.value == "none"
