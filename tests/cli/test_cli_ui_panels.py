"""The web UI's panels for jobs: reasons in words, and a bounded number of rows."""

from datetime import timedelta
from typing import Any

import pytest
from everspot_cli.stop_reasons import MEANING_OF_REASON
from everspot_cli.ui.panels.jobs import SHOWN, Filter, list_reasons, panel
from everspot_cli.ui.sources import RecentJobs
from everspot_core.jobs.records import Reason
from everspot_store import Store

from tests.cli.conftest import T0, World

NOW = T0 + timedelta(hours=3)
ROW: dict[str, Any] = {
    "job_id": "train-1", "name": "train", "status": "RUNNING", "state": "RUNNING", "priority": "normal", "step": 5,
    "total_steps": 20, "interruptions": 0, "last_reason": None, "detail": "", "deadline": None, "deadline_at": None,
    "changed_at": T0, "waits_because": None, "waits_since": None, "waits_for": None, "on_demand_at": None, "away": None,
    "visit_of": None, "tags": {}, "user": "ann", "submitted_at": T0, "job_duration_seconds": 60.0, "owner": None,
    "instance_type": None, "zone": None, "market": None,
}  # fmt: skip


def row(**more: Any) -> dict[str, Any]:
    return ROW | more


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ({}, []),
        ({"deadline": "missed", "deadline_at": T0 + timedelta(hours=1)},
         ["Deadline missed by 2h00m so far (2026-03-01 13:00 UTC)"]),
        ({"status": "PENDING", "state": "PENDING", "waits_because": "spot is dear"}, ["Waits: spot is dear"]),
        ({"interruptions": 2, "last_reason": "notice"},
         ["Left its instance 2 times, last because the cloud gave notice that it takes the instance back"]),
        ({"status": "RECOVERING", "state": "PENDING", "last_reason": "error", "waits_because": "it is tried again"},
         ["Waits: it is tried again", "Left its instance because its program failed"]),
        ({"status": "FAILED", "state": "FAILED", "detail": "ValueError: bad\nmore", "last_reason": "error"},
         ["ValueError: bad"]),
        ({"status": "SUCCEEDED", "state": "SUCCEEDED", "interruptions": 1, "last_reason": "finished"},
         ["Was interrupted 1 time"]),
    ],
)  # fmt: skip
def test_the_reasons_of_a_job(fields: dict[str, Any], reasons: list[str]) -> None:
    assert list_reasons(row(**fields), NOW) == reasons


def test_every_reason_has_words() -> None:
    assert set(MEANING_OF_REASON) == set(Reason)
    assert len(set(MEANING_OF_REASON.values())) == len(Reason)


def test_a_page_of_very_many_jobs_shows_some_and_counts_all() -> None:
    running = [row(job_id=f"r-{n}") for n in range(500)]
    ended = [row(job_id=f"e-{n}", status="SUCCEEDED", state="SUCCEEDED") for n in range(10_000)]
    shown = panel([*running, *ended], NOW)
    assert (len(shown.live.shown), shown.live.left_out) == (SHOWN, 500 - SHOWN)
    assert (len(shown.ended.shown), shown.ended.left_out) == (SHOWN, 10_000 - SHOWN)
    assert shown.summary == "500 running, 0 waiting, 0 late, 10000 succeeded."
    assert panel(running, NOW, Filter(times=3)).live.left_out == 0
    assert [line.job_id for line in panel(running, NOW, Filter(words="R-49", times=9)).live.shown][:2] == [
        "r-49",
        "r-490",
    ]


def test_the_archive_is_listed_when_a_job_has_left_the_tables_and_otherwise_seldom(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everspot_cli.session import Session

    for name in ("first", "second"):
        world.submit(name)
        world.assign(name, "i-base", 10)
        world.start(name, 20)
        world.finish(name, 30, 5, 0.9)
    session, listed = Session(store_option=world.url, json=True), []
    session.__dict__.update(clock=world.clock, store=Store.open(world.url, clock=world.clock))
    monkeypatch.setattr(world.clock, "to_real", lambda span: span, raising=False)
    monkeypatch.setattr(world.clock, "scale", 1.0, raising=False)
    scan = session.store.archive.scan
    monkeypatch.setattr(session.store.archive, "scan", lambda *args: listed.append(1) or scan(*args))
    requested_jobs: list[str] = []
    read = session.store.events_by_job
    monkeypatch.setattr(
        session.store, "events_by_job", lambda jobs, **more: requested_jobs.extend(jobs) or read(jobs, **more)
    )
    recent = RecentJobs(session)

    def look(seconds: float) -> tuple[set[str], int]:
        listed.clear()
        world.clock.advance(timedelta(seconds=seconds))
        return {row["job_id"] for row in recent.rows()}, len(listed)

    assert look(1) == ({"first", "second"}, 1)
    assert [look(2) for _ in range(3)] == [({"first", "second"}, 0)] * 3
    job, record = world.store.jobs.get("first"), world.store.records.get("first")
    assert job is not None and record is not None
    world.store.archive.move(job.value, record.value, world.clock.now())
    assert look(2) == ({"first", "second"}, 1), "it is found where it went"
    assert look(2) == ({"first", "second"}, 0)
    assert look(61)[1] == 1
    assert sorted(requested_jobs) == ["first", "second"], "the events of what has ended are read once"
