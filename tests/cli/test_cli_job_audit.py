"""`everspot cost audit JOB`: a job's use of its machine, its cost, proposed changes, and their effect in a later
run."""

from typing import Any

import pytest
from everspot_core.jobs import lease
from everspot_core.jobs.utilization import Utilization
from test_cli_machine_use import ATTEMPT, TRAINER
from ui_helpers import served

from tests.cli.conftest import Answer, World

GPU = "i-0a1b2c3d4e5f60718"
FIXED = {"loop_seconds": 1800, "data_wait_seconds": 90, "steps": 7000, "gpu_busy_seconds": 3200}


def run_on_gpu(
    world: World, job: str, begin: float, end: float, used: dict[str, Any], accuracy: float, from_step: int = 0,
    **spec: Any,
) -> None:  # fmt: skip
    settings: dict[str, Any] = {"name": "train", "resources": {"gpus": 1, "vcpus": 4, "memory_gib": 8}} | spec
    settings["tags"] = {"Team": "vision"}
    world.submit(job, begin, **settings)
    world.assign(job, GPU, begin)
    world.start(job, begin, from_step)
    world.finish(job, end, 7000, accuracy)
    record = world.record(job)
    assert record is not None
    use = Utilization.model_validate(ATTEMPT | used)
    world.save(record.model_copy(update={"progress": record.progress.model_copy(update={"attempt_use": use})}))


@pytest.fixture
def audited(world: World) -> World:
    """A run that waited for its data, and a later one with more workers of its loader."""
    world.launch(GPU, 0)
    run_on_gpu(world, "before", 0, 4000, TRAINER, 0.9)
    run_on_gpu(world, "after", 4100, 6100, FIXED, 0.903, parameters={"batch_size": 128})
    world.end(GPU, 6200)
    return world


def audit(world: World, *arguments: str) -> Answer:
    return world.run("audit", *arguments)


def test_a_job_that_waits_for_data_gets_two_changes_with_figures(audited: World) -> None:
    document = audit(audited, "before", "--json").json
    machine = document["machine"]
    assert (machine["bottleneck"], machine["gpu_share"], machine["data_wait_share"]) == ("data", 0.4, 0.54)
    assert document["measured_share"] == pytest.approx(3600 / 4000)
    assert document["cost_known"] and document["cost_usd"] == pytest.approx(0.04 * 4000 / 3600, abs=1e-6)
    assert document["wasted_gpu_usd"] == pytest.approx(0.6 * document["cost_usd"], abs=1e-6)
    workers, smaller = document["changes"]
    assert (workers["change"], smaller["change"]) == ("loader-workers", "smaller-type")
    assert "0.23 s instead of 0.5 s" in workers["gain"] and workers["assumes"]
    assert "g4dn.xlarge (resources.vcpus: 2) at $0.526 an hour instead of g5.xlarge" in smaller["action"]
    assert "the time of a step there is not known" in smaller["assumes"]


def test_a_later_run_of_the_name_shows_that_it_helped_and_the_metric_held(audited: World) -> None:
    comparison = audit(audited, "before", "--json").json["comparison"]
    assert (comparison["against"], comparison["metric"]) == ("after", "test_accuracy")
    assert comparison["changed"] == [{"field": "parameters.batch_size", "before": None, "after": 128}]
    assert (comparison["cost"]["outcome"], comparison["quality"]["outcome"]) == ("better", "same")
    before, after = comparison["runs"]
    assert after["list_usd"] == pytest.approx(before["list_usd"] / 2, rel=1e-3)
    assert (before["step_seconds"], after["gpu_share"]) == (0.5, pytest.approx(3200 / 3600))
    strict = audit(audited, "before", "--json", "--metric", "loss", "--tolerance", "0.001").json["comparison"]
    assert (strict["metric"], strict["quality"]["outcome"]) == ("loss", "same")


def test_people_read_cost_changes_and_both_runs(audited: World) -> None:
    shown = " ".join(audit(audited, "before").out.split())
    for words in (
        "90.0 % of the time for which it held instances",
        "of it was paid while its GPUs did not compute",
        "used well no: its GPUs computed for 40% of the time, and the loop waited for data for 54% of it",
        "Assumed: no wait is left",
        "Compared with after",
        "parameters.batch_size: None → 128",
        "helped yes: $",
        "50% less",
        "metric held yes: test_accuracy 0.903 instead of 0.9",
        "List prices of g5.xlarge",
    ):
        assert words in shown, shown


def test_the_last_run_has_no_later_one_and_is_compared_with_any(audited: World) -> None:
    assert audit(audited, "after", "--json").json["comparison"] is None
    comparison = audit(audited, "after", "--against", "before", "--json").json["comparison"]
    assert comparison["cost"]["outcome"] == "worse"


def test_what_cannot_be_audited_ends_with_its_exit_code(audited: World) -> None:
    audited.submit("new", 6300)
    nothing = audit(audited, "new")
    assert (nothing.code, "nothing was measured of it" in nothing.err) == (1, True)
    assert audit(audited, "none").code == 3
    assert audit(audited, "before", "--against", "before").code == 2
    wrong = audit(audited, "before", "--month", "2026-03", "--tolerance", "0", "--metric", "", "--json")
    assert wrong.code == 2
    assert all(name in wrong.err for name in ("--month", "--tolerance", "--metric"))
    assert audit(audited, "--tolerance", "1%").code == 2


def test_the_report_shows_how_each_job_used_its_machine(audited: World) -> None:
    report = audited.run("report", "--json").json
    machines = {job["job_id"]: job["machine"] for job in report["jobs"]}
    assert machines["before"]["bottleneck"] == "data" and len(machines["before"]["changes"]) == 2
    assert machines["before"]["wasted_gpu_usd"] == pytest.approx(0.6 * 0.04 * 4000 / 3600, abs=1e-6)
    shown = " ".join(audited.run("report").out.split())
    assert "Use of the machines" in shown and "more workers of the loader" in shown
    assert "Use of the machines" in audited.run("report", "before").out


def test_teams_see_what_they_waste_on_gpus(audited: World) -> None:
    month = ("chargeback", "--month", "2026-03", "--by", "Team")
    (vision, *_) = audited.run(*month, "--json").json["by"]["Team"]
    wasted = 0.04 * (0.6 * 4000 + 400 / 3600 * 2000) / 3600
    assert (vision["value"], vision["gpu_usd"]) == ("vision", pytest.approx(0.04 * 6000 / 3600, abs=2e-6))
    assert vision["wasted_gpu_usd"] == pytest.approx(wasted, abs=2e-6)
    assert vision["gpu_utilization"] == pytest.approx(1 - wasted / vision["gpu_usd"], abs=1e-4)
    assert "WASTED ON GPUS" in audited.run(*month).out
    (team,) = audited.run("report", "--json").json["cost_by_tag"]["Team"]
    assert team["wasted_gpu_usd"] == pytest.approx(wasted, abs=2e-6)


def test_the_web_ui_says_what_would_help(audited: World) -> None:
    with served(audited.url) as page:
        text = page.until("/jobs/before", lambda text: "would help" in text)
        spending = page.until("/spending", lambda text: "Wasted on GPUs" in text)
    assert "were paid while its GPUs did not compute" in text and "num_workers" in text
    assert "vision" in spending


def test_a_run_that_was_not_run_or_was_run_in_part_shows_no_effect(audited: World) -> None:
    run_on_gpu(audited, "rest-of-it", 6300, 6400, FIXED, 0.9, from_step=6900)
    document = audited.store.jobs.get("rest-of-it")
    audited.store.jobs.replace("rest-of-it", document, document.value.model_copy(update={"retry_of": "failed"}))
    audited.submit("cached", 6500, name="train")
    reused = lease.reuse(None, "cached", "before", audited.record("before").progress, audited.clock.now())
    audited.save(reused)
    answer = audit(audited, "before", "--json").json
    assert answer["comparison"]["against"] == "after"
    assert "cached is no whole run: it was not run: it has the outputs of before" in answer["notes"]
    assert "rest-of-it is no whole run: it continued failed from step 6900" in answer["notes"]
    refused = audit(audited, "before", "--against", "cached")
    assert (refused.code, "it was not run: it has the outputs of before" in refused.err) == (1, True)
