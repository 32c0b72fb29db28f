"""A job that its `stop` has ended: the reason and the best value everywhere, and what it did not spend."""

from typing import Any

import pytest
from everspot_core.costs.not_spent import estimate_not_spent
from everspot_core.jobs.early_stop import EarlyStop
from everspot_core.jobs.records import EventKind, Progress, Reason
from hypothesis import given
from hypothesis import strategies as st

STOP = EarlyStop(metric="val_loss", step=300, evaluations=3, best=0.412, best_step=150, min_delta="0.1%")
SENTENCE = "stopped early: val_loss has not improved by 0.1% for 3 evaluations; best 0.412 at step 150"
HOURLY = 0.096
"""Dollars of an hour of m6i.large on-demand."""


@pytest.fixture
def stopped(world: Any) -> Any:
    world.launch("i-base", 0)
    for job in ("known", "unknown"):
        world.submit(job, 10)
    for start, (job, total_steps) in ((100, ("known", 1200)), (4000, ("unknown", None))):
        world.assign(job, "i-base", start)
        world.start(job, start)
        progress = Progress(step=300, total_steps=total_steps, metrics={"val_loss": 0.42}, early_stop=STOP)
        world.save(world.record(job).model_copy(update={"progress": progress}))
        world.to(start + 3600)
        world.emit(job, EventKind.FINISHED, step=300, metrics={"val_loss": 0.42}, message=STOP.sentence)
        world.leave(job, start + 3600, Reason.FINISHED, detail=STOP.sentence)
    return world


def test_the_reason_and_the_best_value_are_in_job_and_jobs(stopped: Any) -> None:
    row = next(row for row in stopped.run("jobs", "--all", "--json").json if row["job_id"] == "known")
    assert (row["status"], row["detail"]) == ("SUCCEEDED", SENTENCE)
    assert row["early_stop"] == {
        "metric": "val_loss", "step": 300, "evaluations": 3, "best": 0.412, "best_step": 150, "min_delta": "0.1%",
    }  # fmt: skip
    assert stopped.run("job", "known", "--json").json["early_stop"] == row["early_stop"]
    shown = " ".join(stopped.run("job", "known").out.split())
    assert f"detail {SENTENCE}" in shown
    assert "finished early" in shown
    assert f"message {SENTENCE}" in shown


def test_the_report_estimates_what_was_not_spent(stopped: Any) -> None:
    jobs = {job["job_id"]: job["early_stop"] for job in stopped.run("report", "--json").json["jobs"]}
    assert jobs["known"]["sentence"] == SENTENCE
    assert jobs["known"]["steps_not_done"] == 900
    assert jobs["known"]["hours_not_spent_estimate"] == pytest.approx(3.0, rel=1e-3)
    assert jobs["known"]["usd_not_spent_estimate"] == pytest.approx(3 * HOURLY, rel=1e-3)
    assert jobs["unknown"]["sentence"] == SENTENCE
    figures = ("steps_not_done", "hours_not_spent_estimate", "usd_not_spent_estimate")
    assert [jobs["unknown"][name] for name in figures] == [None, None, None]
    shown = " ".join(stopped.run("report").out.split())
    assert "Stopped early" in shown
    assert "about 3.00" in shown


def test_the_page_of_the_report_has_the_estimate(stopped: Any, tmp_path: Any) -> None:
    stopped.run("report", "--html", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert "Stopped early" in page
    assert SENTENCE.removeprefix("stopped early: ") in page


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1e9), st.one_of(st.none(), st.floats(0, 1e9)))
def test_what_was_not_spent_and_what_was_make_the_whole(steps, total_steps, seconds, dollars) -> None:
    estimate = estimate_not_spent(steps=steps, total_steps=total_steps, useful_seconds=seconds, useful_dollars=dollars)
    if not 0 < steps < total_steps:
        assert estimate is None
        return
    assert estimate is not None
    assert steps + estimate.steps == total_steps
    assert seconds + 3600 * estimate.hours == pytest.approx(seconds / steps * total_steps)
    assert (estimate.dollars is None) == (dollars is None)
    if dollars is not None:
        assert dollars + estimate.dollars == pytest.approx(dollars / steps * total_steps)
