"""The automatic checkpoint interval of a run, from measured costs, and its report on the cost of a notice."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind
from everspot_store import ManualClock
from everspot_train.rundir import RunContext
from everspot_train.trainer.interval import INTERVAL, CheckpointInterval
from trainer_post import JOB, Post, wait_for


class Run:
    """A run's interval, and the events that it wrote."""

    def __init__(self, notice: float | None = 120, hours: float = 8, scale: float = 1, **checkpoint: object) -> None:
        fields = {"name": "toy", "entrypoint": ["train.py"], "code": ".", "checkpoint": checkpoint}
        submission = JobSubmission(
            job_id="toy-1", spec=JobSpec.model_validate(fields), submitted_at=datetime(2026, 1, 2, tzinfo=UTC)
        )
        self.events: list[dict[str, Any]] = []
        context = RunContext(
            job_id="toy-1", epoch=1, instance_id="i-1", control_url="memory://c", submission=submission,
            cloud="folder", scratch_dir="/nowhere", hours_between_interruptions=hours,
            notice=timedelta(seconds=notice) if notice is not None else None,
        )  # fmt: skip
        self.interval = CheckpointInterval(context, ManualClock(scale=scale), self._note)
        self._step = 0

    def _note(self, kind: EventKind, **data: object) -> None:
        assert kind is EventKind.CHECKPOINT_INTERVAL
        self.events.append(data)

    def checkpoint(self, stall: float, durable: float, rate: float | None = 2.0, size_bytes: int = 10**9) -> float:
        """One checkpoint beside training. Returns the seconds of the next interval."""
        self._step += 100
        self.interval.stalled(self._step, timedelta(seconds=stall), rate)
        self.interval.published(self._step, timedelta(seconds=durable), size_bytes)
        assert self.interval.interval is not None
        return round(self.interval.interval.total_seconds(), 1)


def test_the_first_checkpoint_comes_soon_and_the_next_as_it_measured() -> None:
    run = Run()
    assert run.interval.interval == timedelta(minutes=1)
    assert run.checkpoint(2, 10) == 339.4
    assert run.events == [
        {
            "seconds": 339.4,
            "cause": "balanced",
            "reason": "a checkpoint of 1 GB stalls training for 2 s, and an interruption comes about every 8 h",
        }
    ]


def test_only_a_change_by_more_than_a_quarter_is_reported() -> None:
    run = Run()
    assert [run.checkpoint(stall, 10) for stall in (2, 2.5, 2, 3)] == [339.4, 360.0, 349.9, 384.2]
    assert len(run.events) == 1
    assert run.checkpoint(8, 10) == 551.5
    assert [event["seconds"] for event in run.events] == [339.4, 551.5]


def test_a_rate_of_interruptions_that_is_four_times_as_high_halves_the_interval() -> None:
    assert Run(hours=2).checkpoint(2, 10) == 169.7


@pytest.mark.parametrize("checkpoint", [{"every": "30m"}, {"steps": 500}, {"every": "30m", "steps": 500}])
def test_the_authors_own_interval_stays_and_is_no_news(checkpoint: dict[str, object]) -> None:
    run = Run(**checkpoint)
    run.interval.stalled(100, timedelta(seconds=60), 2.0)
    run.interval.published(100, timedelta(seconds=100), 10**9)
    assert run.interval.interval == (timedelta(minutes=30) if "every" in checkpoint else None)
    assert run.events == []


@pytest.mark.parametrize(
    ("checkpoint", "seconds", "lost"),
    [
        ({}, 360.0, "1,200 steps (10 min)"),  # as long as ten minutes allow
        ({"every": "30m"}, 1800.0, "4,080 steps (34 min)"),
        ({"steps": 500}, None, "980 steps (8 min)"),
    ],
)
def test_a_notice_that_is_too_short_is_told_with_what_it_costs(
    checkpoint: dict[str, object], seconds: float | None, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(**checkpoint)
    run.interval.stalled(100, timedelta(seconds=30), 2.0)
    run.interval.published(100, timedelta(seconds=240), 150 * 10**9)
    (event,) = run.events
    assert event.get("seconds") == seconds
    assert event["notice"] == (
        "a checkpoint of 150 GB takes 240 s to be durable, longer than a notice of 120 s leaves: an interruption costs "
        f"up to {lost}"
    )
    assert event["lost_steps"] == int(lost.partition(" ")[0].replace(",", ""))
    assert event["notice"] in caplog.text


def test_on_a_cloud_whose_time_runs_faster_the_choice_is_the_same_in_its_time() -> None:
    faster = Run(notice=1800, scale=60)
    assert faster.checkpoint(2, 10) == 60.0
    assert faster.checkpoint(8, 13) == 69.3  # an interruption every 8 minutes, and a stall of 5 s on average
    assert faster.events[0]["reason"].endswith("stalls training for 120 s, and an interruption comes about every 8 h")
    assert "notice" not in faster.events[0]


def test_a_state_that_fits_again_is_told_too() -> None:
    run = Run(every="10m")
    run.checkpoint(2, 240)
    run.checkpoint(2, 20)
    assert [run.checkpoint(2, 20), len(run.events)] == [600.0, 2]
    assert "notice" not in run.events[1]


def test_the_next_attempt_goes_on_with_what_was_measured_and_reported() -> None:
    first, second = Run(), Run()
    assert first.interval.info() == {}
    first.checkpoint(2, 10)
    stored = first.interval.info()
    assert stored == {INTERVAL: {"stall": 2.0, "durable": 10.0, "bytes": 10**9, "every": 339.411255, "fits": True}}
    second.interval.resume(stored)
    assert second.interval.interval == first.interval.interval
    assert second.checkpoint(2, 10) == 339.4
    assert second.events == []


@pytest.mark.parametrize(
    "stored", [None, 5, {}, {"stall": -1, "durable": 3, "bytes": 9}, {"stall": "x"}, {"every": True, "fits": 3}]
)
def test_what_is_stored_and_makes_no_sense_is_not_known(stored: Any) -> None:
    run = Run()
    run.interval.resume({INTERVAL: stored})
    assert run.interval.interval == timedelta(minutes=1)
    assert run.checkpoint(2, 10) == 339.4


def test_a_checkpoint_for_which_training_has_ended_measures_nothing() -> None:
    run = Run()
    run.interval.published(7, timedelta(seconds=500), 10**9)
    assert (run.interval.interval, run.events, run.interval.info()) == (timedelta(minutes=1), [], {})


def interval_events(post: Post) -> list[dict[str, Any]]:
    return [dict(e.data) for e in post.store.events(JOB) if e.kind is EventKind.CHECKPOINT_INTERVAL]


@pytest.mark.torch
def test_a_real_run_measures_its_checkpoint_and_its_successor_knows_it(
    post: Callable[..., Post], tmp_path: Path
) -> None:
    machine = {"notice": 120, "hours_between_interruptions": 0.1}  # a stall of 4 s still leads to the shortest interval
    first = post(checkpoint={}, machine=machine)
    process = first.start(tmp_path / "first", CHECKPOINT_AT=5, STOP_AT=30, PAUSE=0.1)
    assert process.wait(timeout=120) == 0
    (event,) = interval_events(first)
    assert (event["cause"], event["seconds"]) == ("shortest", 60.0), "the state is tiny"
    assert event["reason"].endswith("and an interruption comes about every 0.1 h")
    head = first.store.checkpoints(JOB).head()
    stored = head.checkpoints[0].info[INTERVAL]
    assert 0 < stored["stall"] <= stored["durable"] and stored["bytes"] > 0
    second = post(2, checkpoint={}, machine=machine)
    assert second.start(tmp_path / "second", CHECKPOINT_AT=33, PAUSE=0.1).wait(timeout=120) == 0
    assert (second.status.phase, second.status.resumed_from) == ("finished", 30)
    assert interval_events(second) == [event]


@pytest.mark.torch
def test_a_real_run_says_how_many_steps_a_notice_costs(post: Callable[..., Post], tmp_path: Path) -> None:
    short = post(checkpoint={"every": "30m"}, machine={"notice": 5, "notice_reserve": 5})
    process = short.start(tmp_path / "first", CHECKPOINT_AT=5, STOP_AT=30, PAUSE=0.1)
    wait_for(lambda: process.poll() is not None, short)
    (event,) = interval_events(short)
    assert event["lost_steps"] > 1000
    assert f"up to {event['lost_steps']:,} steps (30" in event["notice"]
    assert "longer than a notice of 5 s leaves" in event["notice"]
    assert event["notice"] in (short.root / "stderr").read_text()
