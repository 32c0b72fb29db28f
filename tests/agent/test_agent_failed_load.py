"""A program that SIGKILL ended says nothing about the checkpoint that it began with."""

import signal
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.records import Reason
from everspot_train.agent.actions import JobKey
from everspot_train.agent.endings import Ending
from everspot_train.agent.job_artifacts import JobArtifacts
from folder_helpers import Place, tree, write


@pytest.mark.parametrize(
    ("exit_code", "older"),
    [(1, True), (-signal.SIGSEGV, True), (-signal.SIGKILL, False), (128 + signal.SIGKILL, False)],
)
def test_only_a_program_that_was_not_killed_may_have_failed_to_load(
    tmp_path: Path, exit_code: int, older: bool
) -> None:
    place = Place(tmp_path)
    first = place.keeper(1, timedelta(seconds=5))
    first.restore()
    for step in (1, 2):
        write(first, f"epoch-{step}.ckpt", str(step), rename=True)
        place.look(first, 10)
    artifacts = JobArtifacts(place.store, JobKey("job-1", 2), place.clock, place.record_event, timedelta())
    artifacts.put_back(place.keeper(2))
    artifacts.launched()
    ending = Ending(Reason.ERROR, exit_code, None, None)
    artifacts.note_failed_load(ending, exit_code, None, tmp_path)
    assert len(tree(place.next_machine(3))) == (1 if older else 2)
