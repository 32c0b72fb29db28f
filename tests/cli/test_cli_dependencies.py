"""`submit`, `job`, `jobs` and `cancel` for jobs that wait for other jobs, a start time or hours, and for recurring
jobs."""

from datetime import timedelta
from typing import Any

import pytest
from everspot_core.jobs.job import PrecedingJob, Series
from everspot_core.jobs.records import JobState, Reason

JOB = "name: train\nrecipe: image-classification\n"


def take(world: Any, path: Any) -> Any:
    """Submit a file; the submission."""
    answer = world.run("submit", str(path), "--json")
    assert answer.code == 0, answer.err
    return world.store.jobs.get(answer.json["job_id"]).value


def test_jobs_to_come_after_are_found_by_name_and_by_id(world: Any, spec_file: Any) -> None:
    first = take(world, spec_file(JOB.replace("train", "prepare")))
    world.to(60)
    second = take(world, spec_file(JOB.replace("train", "prepare")))
    other = take(world, spec_file(JOB.replace("train", "fetch")))
    dependent = take(world, spec_file(JOB + f"after: [prepare, {other.job_id}]\n"))
    assert dependent.after == [
        PrecedingJob(name="prepare", job_id=max(first, second, key=lambda j: j.submitted_at).job_id),
        PrecedingJob(name="fetch", job_id=other.job_id),
    ]
    assert "after" in world.run("job", dependent.job_id).out
    assert world.run("job", dependent.job_id, "--json").json["after"] == [dependent.after[0].job_id, other.job_id]


def test_one_that_has_left_the_tables_is_found_in_the_archive(world: Any, spec_file: Any) -> None:
    first = take(world, spec_file(JOB.replace("train", "prepare")))
    world.launch("i-base", 0)
    world.assign(first.job_id, "i-base", 10)
    world.start(first.job_id, 11)
    world.leave(first.job_id, 20, Reason.FINISHED)
    world.store.archive.move(first, world.record(first.job_id), world.clock.now())
    assert take(world, spec_file(JOB + "after: [prepare]\n")).after[0].job_id == first.job_id


def test_all_jobs_that_are_not_there_or_will_never_succeed_are_told_at_once(world: Any, spec_file: Any) -> None:
    world.submit("failed-0123abcd")
    world.submit("same-0123abcd", name="same")
    world.submit("same-1", name="same")
    world.launch("i-base", 0)
    world.assign("failed-0123abcd", "i-base", 10)
    world.leave("failed-0123abcd", 20, Reason.BUDGET)
    assert world.record("failed-0123abcd").state is JobState.FAILED
    before = set(world.store.jobs.names())
    path = spec_file(JOB + "after: [never, failed-0123abcd, same-0123abcd, same-1]\n")
    for where in ((), ("--dry-run",)):
        answer = world.run("submit", str(path), *where)
        assert answer.code != 0
        assert "after[0]: there is no job never, neither by name nor by id" in answer.err
        assert "after[1]: failed-0123abcd has not succeeded, and never will (FAILED)" in answer.err
        assert answer.err.count("another one is named same too") == 2
    assert set(world.store.jobs.names()) == before


def test_the_faults_of_a_file_are_told_at_once_and_by_their_fields(world: Any, spec_file: Any) -> None:
    answer = world.run(
        "submit",
        str(
            spec_file(
                JOB + "after: [train]\nstart_after: 2h\ndeadline: 1h\n"
                "window: '22:00-22:00'\nskip_if: accuracy gain < 1\n"
            )
        ),
    )
    assert answer.code == 1
    for problem in (
        "window: has no length",
        "after: names the job itself",
        "deadline, start_after: contradict each other",
        "skip_if: belongs to a series: every is missing",
    ):
        assert problem in answer.err


def test_a_deadline_that_the_hours_rule_out_is_refused_with_all_fields(world: Any, spec_file: Any) -> None:
    hours = "window: '22:00-06:00'\nexpected_duration: 10h\ndeadline: 24h\n"
    answer = world.run("submit", str(spec_file(JOB + hours)))
    assert answer.code == 1
    assert "deadline, window: " in answer.err
    assert "by window and expected_duration the job ends" in answer.err
    assert take(world, spec_file(JOB + hours.replace("24h", "72h"))).deadline_at is not None


def test_a_job_begins_at_its_time_and_is_the_first_of_its_series(world: Any, spec_file: Any) -> None:
    path = spec_file(
        JOB + "start_after: 3h\nevery: 24h\nskip_if: accuracy gain < 0.01\nwindow: 22:00-06:00 Europe/Berlin\n"
    )
    submission = take(world, path)
    assert submission.start_at - submission.submitted_at == timedelta(hours=3)
    assert submission.series == Series(id=submission.job_id, run=1)
    sheet = world.run("job", submission.job_id).out
    assert f"run 1 of {submission.job_id}, every 1d, skipped if accuracy gain < 0.01" in sheet
    assert "22:00-06:00 Europe/Berlin" in sheet
    assert "in 2h59m" in sheet or "in 3h00m" in sheet
    row = world.run("jobs", "--json").json[0]
    assert (row["series"], row["run"], row["window"]) == (submission.job_id, 1, "22:00-06:00 Europe/Berlin")


def test_cancelling_any_run_ends_the_series_by_the_run_that_lives(world: Any) -> None:
    world.submit("nightly-1", every="24h")
    first = world.store.jobs.get("nightly-1")
    series = first.value.model_copy(update={"series": Series(id="nightly-1")})
    world.store.jobs.replace("nightly-1", first, series)
    world.launch("i-base", 0)
    world.assign("nightly-1", "i-base", 10)
    world.start("nightly-1", 11)
    world.leave("nightly-1", 20, Reason.FINISHED)
    following = series.model_copy(update={"job_id": "nightly-1-2", "series": Series(id="nightly-1", run=2)})
    world.store.jobs.create("nightly-1-2", following)
    answer = world.run("cancel", "nightly-1")
    assert "nightly-1-2 will be cancelled, and its series nightly-1 ends" in answer.out
    assert set(world.store.cancels.names()) == {"nightly-1-2"}


@pytest.mark.parametrize("text", ["22:00-06:00 Mars/Base", "7", "25:00-26:00"])
def test_what_is_no_window_is_told_with_what_is_allowed(world: Any, spec_file: Any, text: str) -> None:
    answer = world.run("submit", str(spec_file(JOB + f"window: {text}\n")))
    assert answer.code == 1
    assert "  window: " in answer.err
