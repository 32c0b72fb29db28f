"""When the failure of a program counts as a failure to load the checkpoint that it began with."""

import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.jobs.records import Reason
from everspot_store.file_tree import FileTree, TreeEntry
from everspot_store.folder import FolderBackend
from everspot_train.agent.actions import JobKey
from everspot_train.agent.endings import Ending
from everspot_train.agent.job_artifacts import LOAD_TIME, JobArtifacts
from everspot_train.rundir import USER_FILE, USER_TREE
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


@pytest.mark.parametrize(("processes", "older"), [(8, True), (1, False)])
def test_a_checkpoint_that_took_long_to_download_may_be_loaded_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, older: bool
) -> None:
    """Given downloads of half an hour, when a program fails three hours after its launch, then it may have failed to
    load the checkpoint only if eight processes load it."""
    place = Place(tmp_path)
    download = FolderBackend.download

    def slowly(*arguments: Any, **options: Any) -> Any:
        place.clock.advance(timedelta(minutes=10))
        return download(*arguments, **options)

    monkeypatch.setattr(FolderBackend, "download", slowly)
    artifacts = restored(place)
    artifacts.launched()
    place.clock.advance(timedelta(hours=3))
    ending = Ending(Reason.ERROR, 1, None, None)
    artifacts.note_failed_load(ending, 1, None, tmp_path, made_steps=False, processes=processes)
    assert len(tree(place.next_machine(3))) == (1 if older else 2)


def test_the_users_files_are_those_of_the_checkpoint_that_the_library_loads(tmp_path: Path) -> None:
    """Given a newest checkpoint whose state is gone from the store, when a machine restores both parts, then the user's
    files come from the earlier checkpoint, as the state does."""
    place = Place(tmp_path)
    owner = place.store.checkpoints("job-1", 1)
    owner.fence()
    for step in (100, 200):
        for name, content in (("state", f"state {step}"), (f"{USER_FILE}1", f"best {step}"), (USER_TREE, "")):
            (tmp_path / name).write_text(content)
        (tmp_path / USER_TREE).write_bytes(
            FileTree(entries=[TreeEntry(path="best.pt", content=f"{USER_FILE}1")]).to_json()
        )
        owner.publish(step, {name: tmp_path / name for name in ("state", f"{USER_FILE}1", USER_TREE)})
    newest = next(entry.key for entry in place.store.data.list() if "200/" in entry.key and entry.key.endswith("state"))
    place.store.data.delete(newest)
    folder = place.keeper(2)
    assert not folder.restore()
    assert (folder.folder / "best.pt").read_text() == "best 100"
    loaded = place.store.checkpoints("job-1").restore(tmp_path / "state-2", lambda name: name == "state")
    assert loaded is not None and loaded.step == 100
