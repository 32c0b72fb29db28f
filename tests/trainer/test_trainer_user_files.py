"""Files that a program writes into `checkpoints` itself are kept with the library's checkpoints, and uploaded once."""

import os
import shutil
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp

import pytest
from everspot_store import ManualClock, Store
from everspot_store.file_tree import FileTree, put_back
from everspot_train.rundir import USER_TREE
from everspot_train.trainer.user_files import UserFiles
from trainer_post import JOB, Post


class Keeping:
    """A store, and the user's folder beside it."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, ManualClock()
        for name in ("control", "data", "checkpoints"):
            (root / name).mkdir()
        store = Store.open(f"file://{root}/control", f"file://{root}/data", clock=self.clock)
        self.checkpoints = store.checkpoints("job-1", 1)
        self.files = UserFiles(root / "checkpoints", self.clock)

    def publish(self, step: int, limit: int | None = None, *, again: bool = False) -> dict[str, str]:
        """Publish a snapshot. Returns the step under which each file was uploaded, by path."""
        directory = Path(mkdtemp(dir=self.root))
        (directory / "state.pt").write_text("state")
        unchanged = self.files.add_to(directory, step, limit)
        files = {path.name: path for path in directory.iterdir()}
        done = self.checkpoints.publish(step, files, {}, 2, unchanged, again=again)
        self.files.published(step, done.parts)
        if not (directory / USER_TREE).exists():
            return {}
        parts = {part.name: part.key.split("/")[4].lstrip("0") for part in done.parts}
        return {
            entry.path: parts[entry.content]
            for entry in FileTree.read((directory / USER_TREE).read_bytes()).entries
            if entry.content
        }

    def restore(self) -> dict[str, str]:
        """Restore the newest checkpoint. Returns the content of each of the user's files, by path."""
        parts, folder = self.root / "parts", self.root / "restored"
        for place in (parts, folder):
            shutil.rmtree(place, ignore_errors=True)
        assert self.checkpoints.restore(parts) is not None
        tree = FileTree.read((parts / USER_TREE).read_bytes())
        assert put_back(tree.entries, folder, lambda entry: parts / entry.content) == {}
        return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_file_is_uploaded_once_and_again_when_it_changes_or_grows_old(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    assert keeping.publish(1) == {}
    best = tmp_path / "checkpoints" / "best" / os.fsdecode(b"caf\xe9.pt")
    best.parent.mkdir()
    best.write_text("one")
    (tmp_path / "checkpoints" / "half.tmp").write_text("half")
    (tmp_path / "checkpoints" / "other").hardlink_to(best)
    name = "best/caf%E9.pt"
    assert keeping.publish(2) == {name: "2", "other": "2"}
    assert keeping.publish(3) == {name: "2", "other": "2"}
    best.write_text("two, longer")
    assert keeping.publish(4) == {name: "4", "other": "4"}
    keeping.clock.advance(timedelta(days=8))
    assert keeping.publish(5) == {name: "5", "other": "5"}


def test_a_short_notice_is_not_spent_on_them(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    for name, size in (("a", 10), ("b", 10), ("c", 4)):
        (tmp_path / "checkpoints" / name).write_text("x" * size)
    assert keeping.publish(1, limit=15) == {"a": "1", "c": "1"}
    assert keeping.publish(2) == {"a": "1", "b": "2", "c": "1"}


def test_a_file_that_does_not_fit_now_keeps_its_published_content(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    best, twin = tmp_path / "checkpoints" / "best.pt", tmp_path / "checkpoints" / "twin.pt"
    best.write_text("old")
    twin.hardlink_to(best)
    assert keeping.publish(1) == {"best.pt": "1", "twin.pt": "1"}
    best.write_text("new, and too large for the notice")
    (tmp_path / "checkpoints" / "small").write_text("small")
    for step in (2, 3, 4):  # more than the number of checkpoints that are kept
        assert keeping.publish(step, limit=10) == {"best.pt": "1", "twin.pt": "1", "small": "2"}
        keeping.checkpoints.retire()
    assert keeping.restore() == {"best.pt": "old", "twin.pt": "old", "small": "small"}
    assert keeping.publish(5) == {"best.pt": "5", "twin.pt": "5", "small": "2"}
    best.unlink()
    twin.unlink()
    assert keeping.publish(6) == {"small": "2"}


def test_an_attempt_that_publishes_the_restored_step_again_gives_no_name_twice(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    for name in ("large", "small"):
        (tmp_path / "checkpoints" / name).write_text(f"{name} file")
    keeping.publish(100)
    checkpoint = keeping.checkpoints.restore(tmp_path / "parts")
    assert checkpoint is not None
    keeping.files = UserFiles(tmp_path / "checkpoints", keeping.clock)
    keeping.files.resume(tmp_path / "parts" / USER_TREE, checkpoint.parts)
    (tmp_path / "checkpoints" / "small").write_text("new")
    keeping.publish(100, limit=5, again=True)
    assert keeping.restore() == {"large": "large file", "small": "new"}


def test_a_hard_link_of_a_file_that_was_not_copied_has_no_content_either(tmp_path: Path) -> None:
    keeping = Keeping(tmp_path)
    (tmp_path / "checkpoints" / "last.pt").write_text("larger than the limit")
    (tmp_path / "checkpoints" / "step1.pt").hardlink_to(tmp_path / "checkpoints" / "last.pt")
    (tmp_path / "checkpoints" / "small").write_text("small")
    assert keeping.publish(1, limit=10) == {"small": "1"}
    assert keeping.restore() == {"small": "small"}


@pytest.mark.torch
def test_a_file_that_does_not_fit_a_notice_after_a_resume_stays_published(tmp_path: Path) -> None:
    """Given a checkpoint with a large file of the user, when the next attempt is interrupted before its first
    checkpoint, then the file still belongs to the newest checkpoint."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "best.pt").write_bytes(b"best" * 1_000_000)
    first, post = (Post(tmp_path / f"run-{epoch}", tmp_path / "store", epoch) for epoch in (1, 2))
    first.run(tmp_path / "losses-1", EVERSPOT_CHECKPOINT_DIR=folder, STOP_AT=5)
    post.run(tmp_path / "losses-2", EVERSPOT_CHECKPOINT_DIR=folder, STOP_AT=10, NOTICE=3600)
    assert post.steps_published == [10, 5]
    parts = tmp_path / "parts"
    assert post.store.checkpoints(JOB).restore(parts) is not None
    assert [entry.path for entry in FileTree.read((parts / USER_TREE).read_bytes()).entries] == ["best.pt"]
