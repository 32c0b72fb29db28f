"""The events of a program's start, on a folder store, with a manual clock."""

from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, Progress
from everspot_store import ManualClock, Store
from everspot_train.agent.outbox import Outbox
from everspot_train.agent.start_events import SILENCE, StartEvents
from everspot_train.rundir import Ready, RunDir, Status, TrainingPhase


class Told:
    """A job with or without set-up commands, and its events."""

    def __init__(self, root: Path, setup: list[str]) -> None:
        for name in ("control", "data", "run"):
            (root / name).mkdir()
        self.clock = ManualClock()
        self.store = Store.open(f"file://{root}/control", f"file://{root}/data", clock=self.clock)
        self.outbox = Outbox(self.store.event_writer("job-1", 1, "i-1", "i-1"))
        self.run_dir, self.status = RunDir(root / "run"), None
        spec = JobSpec(name="toy", recipe="image-classification", setup=setup)
        submission = JobSubmission(job_id="job-1", spec=spec, submitted_at=self.clock.now())
        self.beginning = StartEvents(submission, self.run_dir, self.outbox, self.clock, lambda: self.status)

    def ready(self) -> None:
        now = self.clock.now(), self.clock.monotonic().total_seconds()
        self.run_dir.write(Ready(at=now[0], since=now[1]))

    def events(self) -> list[tuple[EventKind, timedelta]]:
        """The events, each with the time since the first."""
        self.outbox.write()
        events = self.store.events("job-1")
        return [(event.kind, event.at - events[0].at) for event in events]


@pytest.fixture
def prepared(tmp_path: Path) -> Told:
    return Told(tmp_path, ["make"])


def test_a_silent_program_trains_from_when_it_was_ready_and_not_before(prepared: Told) -> None:
    prepared.beginning.launched()
    prepared.clock.advance(2 * SILENCE)
    prepared.beginning.tell_if_silent(Progress(), restored=False)
    assert [kind for kind, _ in prepared.events()] == [EventKind.STARTED]
    prepared.ready()
    prepared.clock.advance(SILENCE / 2)
    prepared.beginning.tell_if_silent(Progress(), restored=False)
    assert [kind for kind, _ in prepared.events()] == [EventKind.STARTED]
    prepared.clock.advance(SILENCE / 2)
    for _ in range(2):
        prepared.beginning.tell_if_silent(Progress(), restored=False)
    kinds, moments = zip(*prepared.events(), strict=True)
    assert kinds == (EventKind.STARTED, EventKind.TRAINING)
    assert timedelta() <= moments[1] - 2 * SILENCE < timedelta(seconds=1)


def test_what_never_was_ready_is_not_told_as_training_when_it_ends(prepared: Told) -> None:
    prepared.beginning.launched()
    prepared.beginning.write_training(Progress(), restored=False)
    assert [kind for kind, _ in prepared.events()] == [EventKind.STARTED]


def test_a_program_that_speaks_for_itself_is_not_spoken_for(prepared: Told) -> None:
    prepared.beginning.launched()
    prepared.ready()
    prepared.status = Status(phase=TrainingPhase.TRAINING, step=1)
    prepared.clock.advance(2 * SILENCE)
    prepared.beginning.tell_if_silent(Progress(), restored=False)
    prepared.beginning.write_training(Progress(), restored=False)
    assert [kind for kind, _ in prepared.events()] == [EventKind.STARTED]


def test_the_record_says_that_a_job_is_being_made_ready_and_then_that_it_is_not(prepared: Told) -> None:
    last = Progress(step=7, metrics={"loss": 1.0})
    assert prepared.beginning.progress(last) is None
    prepared.beginning.launched()
    preparing = prepared.beginning.progress(last)
    assert preparing == last.model_copy(update={"preparing": True})
    assert prepared.beginning.progress(preparing) == preparing
    prepared.ready()
    assert prepared.beginning.progress(preparing) == last
    assert prepared.beginning.progress(last) is None


def test_what_has_nothing_to_be_made_ready_begins_when_it_is_launched(tmp_path: Path) -> None:
    plain = Told(tmp_path, [])
    plain.beginning.launched(again=1)
    assert plain.beginning.progress(Progress()) is None
    plain.beginning.write_training(Progress(), restored=True)
    assert [kind for kind, _ in plain.events()] == [EventKind.STARTED, EventKind.TRAINING]


def test_a_job_may_write_into_its_run_directory_what_it_likes(prepared: Told) -> None:
    prepared.beginning.launched()
    prepared.run_dir.file_path(Ready).write_text("{")
    prepared.beginning.write_training(Progress(), restored=False)
    assert [kind for kind, _ in prepared.events()] == [EventKind.STARTED, EventKind.TRAINING]


@pytest.mark.parametrize("before", [Progress(step=915, total_steps=2811), Progress(total_steps=2811)])
def test_a_program_that_reported_elsewhere_does_not_train_while_it_is_silent_here(
    prepared: Told, before: Progress
) -> None:
    prepared.beginning.launched()
    prepared.ready()
    prepared.clock.advance(2 * SILENCE)
    prepared.beginning.tell_if_silent(before, restored=False)
    prepared.beginning.write_training(before, restored=False)
    assert [kind for kind, _ in prepared.events()] == [EventKind.STARTED]
