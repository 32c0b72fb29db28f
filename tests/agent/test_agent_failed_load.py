"""When the failure of a program counts as a failure to load the checkpoint that it began with."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.records import Reason
from everspot_train.agent.actions import JobKey
from everspot_train.agent.endings import Ending
from everspot_train.agent.job_artifacts import LOAD_TIME, JobArtifacts
from folder_helpers import Place, tree, write


def restored(place: Place) -> JobArtifacts:
    """The folders of a second attempt, which begins with the second of two checkpoints."""
    first = place.keeper(1, timedelta(seconds=5))
    first.restore()
    for step in (1, 2):
        write(first, f"epoch-{step}.ckpt", str(step), rename=True)
        place.look(first, 10)
    artifacts = JobArtifacts(place.store, JobKey("job-1", 2), place.clock, place.record_event, timedelta())
    artifacts.put_back(place.keeper(2))
    return artifacts


@pytest.mark.parametrize(
    ("exit_code", "older"),
    [(1, True), (-signal.SIGSEGV, True), (-signal.SIGKILL, False), (128 + signal.SIGKILL, False)],
)
def test_only_a_program_that_was_not_killed_may_have_failed_to_load(
    tmp_path: Path, exit_code: int, older: bool
) -> None:
    place = Place(tmp_path)
    artifacts = restored(place)
    artifacts.launched()
    ending = Ending(Reason.ERROR, exit_code, None, None)
    artifacts.note_failed_load(ending, exit_code, None, tmp_path, made_steps=False)
    assert len(tree(place.next_machine(3))) == (1 if older else 2)


@pytest.mark.parametrize(
    ("hours", "made_steps", "older"),
    [(0, False, True), (0, True, False), (LOAD_TIME / timedelta(hours=1), False, False)],
)
def test_a_program_that_has_trained_since_has_loaded_its_checkpoint(
    tmp_path: Path, hours: float, made_steps: bool, older: bool
) -> None:
    place = Place(tmp_path)
    artifacts = restored(place)
    artifacts.launched()
    place.clock.advance(timedelta(hours=hours))
    artifacts.note_failed_load(Ending(Reason.ERROR, 1, None, None), 1, None, tmp_path, made_steps=made_steps)
    assert len(tree(place.next_machine(3))) == (1 if older else 2)
