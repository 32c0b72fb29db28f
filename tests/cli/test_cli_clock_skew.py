"""Deadlines and budgets count from the store's clock, whatever the submitter's clock says."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.jobs.records import Reason
from everspot_store.cloud import is_local

from tests.cli.conftest import everspot

SPEC = "name: train\nrecipe: image-classification\ndeadline: 9h\nexpected_duration: 1h\nbudget: {wall_clock: 2h}\n"
SLOW_MACHINE = timedelta(minutes=10)
"""Longer than a submission takes anywhere, and much less than the skews."""
SKEWS = [timedelta(hours=-3), timedelta(minutes=40)]


def turn_clock(monkeypatch: pytest.MonkeyPatch, skew: timedelta) -> None:
    """Change this machine's clock by `skew`. The store's clock, which is the file system's, stays right."""
    correct = time.time
    monkeypatch.setattr(time, "time", lambda: correct() + skew.total_seconds())


@pytest.mark.parametrize("skew", SKEWS, ids=str)
def test_times_count_from_the_stores_clock(
    world: Any, spec_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, skew: timedelta
) -> None:
    """Given a wrong clock of the submitter, when a job is submitted, then its times are right and a warning says so."""
    world.offer("m6i.large")
    world.launch("i-base", 0)
    world.price("i-base", 0, 0.096)
    turn_clock(monkeypatch, skew)

    answer = world.run("submit", str(spec_file(SPEC)), "--json")

    now = datetime.fromtimestamp(time.time(), UTC) - skew
    assert answer.code == 0, answer.err
    (warning,) = [text for text in answer.json["warnings"] if "clock" in text]
    assert f"{'behind' if skew < timedelta(0) else 'ahead of'} the store's" in warning
    job = world.store.jobs.get(answer.json["job_id"]).value
    assert abs(job.submitted_at - now) < SLOW_MACHINE
    assert job.deadline_at == job.submitted_at + timedelta(hours=9)
    assert world.store.control.list("clocks/") == []


def test_retries_and_sweeps_count_from_the_stores_clock_too(
    play: Any, world: Any, spec_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a wrong clock, when a job is tried again and a sweep begins, then their times are right."""
    monkeypatch.delenv("EVERSPOT_CLOCK")
    turn_clock(monkeypatch, SKEWS[0])
    first = world.run("submit", str(spec_file(SPEC)), "--json").json["job_id"]
    play.start(first)
    play.ends(first, Reason.BUDGET)

    again = world.run("retry", first, "--json")
    play.sweep().turn()

    assert again.code == 0, again.err
    now = datetime.fromtimestamp(time.time(), UTC) - SKEWS[0]
    jobs = [doc.value for doc in world.store.jobs.scan().values()]
    assert len(jobs) == 4
    assert all(abs(job.submitted_at - now) < SLOW_MACHINE for job in jobs)


@pytest.mark.parametrize("url", ["s3://prod-control", "gs://prod-control"])
def test_the_clock_of_a_local_cloud_is_refused_elsewhere(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Given a shell that was used with a local cloud, when it talks to a real cluster, then nothing is read or
    written."""
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "GOOGLE_BASE_URL"):
        monkeypatch.delenv(variable, raising=False)
    answer = everspot("--store", url, "gc", "--delete", env={"EVERSPOT_CLOCK": "60@1772539200"})
    assert (answer.code, answer.out) == (2, "")
    assert f"EVERSPOT_CLOCK makes time run 60 times as fast, and {url} is of no local cloud" in answer.err
    for endpoint, expected in (("http://127.0.0.1:5000", True), ("https://storage.example", False)):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("GOOGLE_BASE_URL", endpoint)
        assert is_local(url) is expected


@pytest.mark.parametrize("command", [("gc", "--delete"), ("cost", "report"), ("jobs", "--json"), ("submit",)])
def test_the_clock_of_a_local_cloud_is_refused_at_a_cluster_in_a_folder(
    world: Any, spec_file: Callable[[str], Path], command: tuple[str, ...]
) -> None:
    """Given a cluster whose machines have real time, when a shell still has a local cloud's clock, then nothing is read
    as older than it is, and nothing is written."""
    file = (str(spec_file(SPEC)),) if command == ("submit",) else ()
    answer = world.run(*command, *file, env={"EVERSPOT_CLOCK": "60@1772539200"})
    assert (answer.code, answer.out, world.store.jobs.names()) == (2, "", [])
    assert "time run 60 times as fast, and the agents of the cluster test have real time" in answer.err


def test_a_right_clock_is_left_alone_and_a_dry_run_writes_nothing(
    world: Any, spec_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a right clock, when a job is submitted, then no warning is printed; a dry run does not write to the
    store."""
    world.offer("m6i.large")
    answer = world.run("submit", str(spec_file(SPEC)), "--json")
    assert [text for text in answer.json["warnings"] if "clock" in text] == []

    before = [entry.key for entry in world.store.control.list()]
    turn_clock(monkeypatch, SKEWS[1])
    assert world.run("submit", str(spec_file(SPEC)), "--dry-run").code == 0
    assert [entry.key for entry in world.store.control.list()] == before
