"""`everspot plan`: a sweep's file within a budget, from the catalogue and past runs; `everspot sweep` takes it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from everspot_core.experiments.fidelity import Fidelity
from everspot_core.experiments.sweep import SweepSpec
from everspot_core.experiments.sweep_plan import RESERVE, find_fidelity, plan_sweep
from everspot_core.jobs.records import EventKind, Reason
from everspot_core.jobs.visit_records import Visit
from hypothesis import given
from hypothesis import strategies as st

HOURLY = 0.096
"""Dollars of an hour of i-base, an m6i.large on-demand."""
START = 300
"""Seconds until a run trains."""
JOB: dict[str, Any] = {"name": "train", "recipe": "image-classification", "parameters": {"epochs": 9}}


def plan(world: Any, folder: Path, *arguments: str, **more: Any) -> Any:
    (folder / "train.yaml").write_text(json.dumps(JOB | more))
    return world.run("plan", str(folder / "train.yaml"), "--metric", "test_accuracy", *arguments)


def run_once(world: Any, job: str, seconds: float, epochs: int = 9, from_step: int = 0, **more: Any) -> None:
    """Run a job to its end. `from_step`: of the checkpoint that it begins with. `more`: of its submission."""
    began = (world.clock.now() - world.store.launches.get("i-base").value.launched_at).total_seconds() + 10
    world.submit(job, began, **{**JOB, "parameters": {"epochs": epochs}})
    world.store.jobs.put(job, world.store.jobs.get(job).value.model_copy(update=more))
    world.assign(job, "i-base", began)
    world.start(job, began + min(START, seconds / 2), from_step)
    world.to(began + seconds)
    world.emit(job, EventKind.FINISHED, step=5, metrics={})
    world.leave(job, began + seconds, Reason.FINISHED)


def test_without_past_runs_the_plan_is_by_expected_duration_and_the_cheapest_type(world: Any, tmp_path: Path) -> None:
    world.offer("m6i.large", "c6i.large")
    out = tmp_path / "sweep.yaml"
    answer = plan(world, tmp_path, "--budget", "12", "--out", str(out), "--json", expected_duration="10h").json
    dry = world.run("submit", str(tmp_path / "train.yaml"), "--dry-run", "--json").json
    dearest = [row["spot_usd_per_hour"][1] for row in dry["candidates"] if row["spot_usd_per_hour"]]
    start = 210 / 3600  # of a cluster without measurements
    assert answer["run_usd"] == pytest.approx((10 + start) * min(dearest), abs=1e-6)
    assert answer["start_usd"] == pytest.approx(start * min(dearest), abs=1e-6)
    assert answer["run_range_usd"][0] <= answer["run_usd"] < answer["run_range_usd"][1]
    assert answer["run_source"].startswith("assumption: expected_duration (10 h) and a start (210 s) on ")
    listed = min(row["on_demand_usd_per_hour"] for row in dry["candidates"])
    (cap,) = answer["sweep"]["fields"]["budget.dollars"]["choices"]
    assert cap >= 2 * (10 + start) * listed > 4 * answer["run_usd"], "a trial that goes over to on-demand is not ended"
    spec = SweepSpec.model_validate(yaml.safe_load(out.read_text()))
    assert spec.fidelity is not None
    assert spec.fidelity.values == [1, 3, 9]
    sizes, usd = answer["rung_sizes"], answer["run_usd"]
    assert sizes == spec.fidelity.rung_sizes(spec.trials)
    paid = answer["start_usd"]
    spent = sum(size * (paid + value / 9 * (usd - paid)) for size, value in zip(sizes, (1, 3, 9), strict=True))
    assert answer["expected_usd"] == pytest.approx(spent, abs=1e-4)
    assert spent <= 12 * (1 - RESERVE)
    estimate = world.run("sweep", str(out), "--dry-run", "--json").json
    assert estimate["expected_spot_usd"][0] <= spent + 1e-4 <= estimate["expected_spot_usd"][1]
    assert estimate["budget_usd"] == 12
    assert world.store.jobs.names() == []
    again = plan(world, tmp_path, "--budget", "12", "--out", str(out), expected_duration="10h")
    assert (again.code, "exists, and is left as it is" in again.err) == (1, True)


def test_with_past_runs_the_plan_is_by_their_median(world: Any, tmp_path: Path) -> None:
    world.launch("i-base", 0)
    for number, hours in enumerate((1, 2, 6)):
        run_once(world, f"train-{number}", hours * 3600)
    run_once(world, "train-small", 60, epochs=1)  # of another size
    run_once(world, "train-rest", 600, from_step=4, retry_of="train-2")  # the last tenth of an earlier run
    run_once(world, "train-visit", 600, visit=Visit(home="away", job_id="train-00000001", number=1))
    reply = plan(world, tmp_path, "--budget", "5", "--json", expected_duration="100h")
    assert reply.code == 0, reply.err
    answer = reply.json
    assert (answer["past_runs"], answer["run_hours"]) == (3, 2)
    assert answer["run_usd"] == pytest.approx(2 * HOURLY, rel=1e-3)
    assert answer["run_source"] == "measured: the median of 3 past runs of train"
    largest = answer["sweep"]["trials"]
    rungs = [largest + 1, (largest + 1) // 3, (largest + 1) // 9]
    start_usd = answer["start_usd"]
    assert start_usd == pytest.approx(START / 3600 * HOURLY, rel=1e-3)
    training_usd = answer["run_usd"] - start_usd
    beyond = sum(size * (start_usd + training_usd * n / 9) for size, n in zip(rungs, (1, 3, 9), strict=True))
    assert answer["expected_usd"] <= 4 < beyond, "one more trial would not leave the reserve"
    assert answer["run_range_usd"] == pytest.approx([1 * HOURLY, 6 * HOURLY], rel=1e-3)
    assert answer["expected_range_usd"] == pytest.approx([answer["expected_usd"] * n for n in (0.5, 3)], rel=1e-3)
    assert answer["sweep"]["direction"] == "maximize"
    assert "parameters.learning_rate" in answer["sweep"]["fields"]
    assert "# types that fit, the cheapest first (catalogue)" in answer["file"]


def test_a_critical_job_is_planned_at_on_demand_prices_since_it_never_runs_on_spot(world: Any, tmp_path: Path) -> None:
    world.offer("m6i.large")
    out = tmp_path / "sweep.yaml"
    words = ("--budget", "20", "--json", "--out", str(out))
    answer = plan(world, tmp_path, *words, expected_duration="10h", priority="critical").json
    assert answer["run_usd"] == pytest.approx((10 + 210 / 3600) * HOURLY, abs=1e-6)
    assert answer["run_source"].endswith("(on-demand)")
    estimate = world.run("sweep", str(out), "--dry-run", "--json").json
    assert estimate["expected_spot_usd"] is None
    assert estimate["expected_on_demand_usd"] is not None
    dry = world.run("submit", str(tmp_path / "train.yaml"), "--dry-run", "--json").json
    assert {row["spot_usd_per_hour"] for row in dry["candidates"]} == {None}


@pytest.mark.parametrize("rate", [1e-3, 1e-4, 2e-5, 3e-7])
def test_small_learning_rates_are_read_back_as_numbers(world: Any, tmp_path: Path, rate: float) -> None:
    world.offer("m6i.large")
    words = ("--budget", "12", "--json")
    answer = plan(world, tmp_path, *words, expected_duration="1h", parameters={"epochs": 9, "learning_rate": rate})
    assert answer.code == 0, answer.err
    low_and_high = yaml.safe_load(answer.json["file"])["fields"]["parameters.learning_rate"]
    assert (low_and_high["low"], low_and_high["high"]) == pytest.approx((rate / 10, rate * 3))


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (("--budget", "5"), {}, "what a run of train costs is not known"),
        (("--budget", "0.01"), {"expected_duration": "100h"}, "$0.0100 does not suffice for a sweep of train"),
        (("--budget", "5", "--metric", "score"), {"expected_duration": "1h"}, "the name score does not say whether"),
        (("--budget", "5", "--metric", " "), {"expected_duration": "1h"}, "--metric has to name one of the metrics"),
        (
            ("--budget", "5", "--metric", "val/loss"),
            {"expected_duration": "1h"},
            "image-classification does not report",
        ),
        (("--budget", "5"), {"expected_duration": "1h", "every": "1d"}, "each trial would begin a series"),
        (("--budget", "5"), {"expected_duration": "1h", "deadline": "1m"}, "the deadline cannot be kept"),
        (("--budget", "5", "--out", "/sweep.yaml"), {"expected_duration": "1h"}, "names its job relative to itself"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_its_reason(
    world: Any, tmp_path: Path, arguments: tuple[str, ...], more: dict[str, Any], message: str
) -> None:
    world.offer("m6i.large")
    answer = plan(world, tmp_path, *arguments, **more)
    assert answer.code != 0
    assert message in " ".join(answer.err.split())


@pytest.mark.parametrize("metric", ["val/loss", "loss: first #2", "Verlust größe", "true loss", "1e5"])
def test_a_plan_can_be_read_back_whatever_a_metric_of_a_program_is_called(
    world: Any, tmp_path: Path, metric: str
) -> None:
    world.offer("m6i.large")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("# checkpoints")
    job = {"name": "own", "code": str(tmp_path / "src"), "entrypoint": ["main.py"], "expected_duration": "1h"}
    file, out = tmp_path / "a job #1.yaml", tmp_path / "sweep.yaml"
    file.write_text(json.dumps(job))
    words = ("--metric", metric, "--direction", "minimize", "--budget", "5", "--out", str(out))
    answer = world.run("plan", str(file), *words)
    assert answer.code == 0, answer.err
    assert yaml.safe_load(out.read_text())["metric"] == metric
    assert world.run("sweep", str(out), "--dry-run").code == 0


@given(st.floats(0.01, 1e4), st.floats(0.001, 1e3), st.floats(0, 1), st.integers(2, 5), st.integers(2, 5))
def test_a_plan_is_within_its_budget_and_one_more_trial_is_not(
    budget: float, usd: float, start: float, rungs: int, keep: int
) -> None:
    start_usd = start * usd
    values = [keep**n for n in range(rungs)]
    fidelity = Fidelity(field="env.EPOCHS", values=values, keep=keep)
    size = plan_sweep(budget, usd, fidelity, start_usd)

    def cost(trials: int) -> float:
        pairs = zip(fidelity.rung_sizes(trials), values, strict=True)
        return sum(count * (start_usd + (usd - start_usd) * value / values[-1]) for count, value in pairs)

    if size.trials:
        assert size.expected_usd == pytest.approx(cost(size.trials))
        assert size.expected_usd <= budget * (1 - RESERVE) + 1e-9
    if size.trials < 500:
        assert cost(max(size.trials + 1, rungs)) > budget * (1 - RESERVE) - 1e-9


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"env.EPOCHS": "90"}, [10, 30, 90]),
        ({"parameters.max_steps": 500}, [56, 167, 500]),
        ({"parameters.epochs": 2}, [1, 2]),
        ({"parameters.epochs": 1.5}, pytest.approx([1.5 / 9, 0.5, 1.5])),
        ({"env.WARMUP_STEPS": "90", "env.SEED": "3"}, None),
        ({"parameters.epochs": 1}, None),
        ({"env.EPOCHS": "many"}, None),
    ],
)
def test_the_field_that_says_how_long_a_job_trains_makes_the_rungs(fields: dict[str, Any], values: Any) -> None:
    fidelity = find_fidelity(fields)
    assert (fidelity.values if fidelity is not None else None) == values
