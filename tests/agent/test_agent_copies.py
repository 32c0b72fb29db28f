"""Files are copied as they were at one scan, while their program runs, and read files are not read again."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import FileIO
from pathlib import Path

import pytest
from everspot_train.agent.artifacts import copies
from everspot_train.agent.artifacts.copies import Changed, FolderCopier, copy_growing
from everspot_train.agent.artifacts.look import FolderWatch, Look, Stamp

SMALL, LARGE = b"small" * 10, b"large" * 100_000


class Folder:
    """A folder that a program writes, and its copier. `opened`: the names that the copier has opened."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root / "checkpoints"
        self.target = root / "copies"
        self.root.mkdir()
        self.copier = FolderCopier(os.fsencode(self.root), self.target)
        self.opened: list[str] = []
        real = copies.open_regular

        def open_file(path: bytes) -> FileIO:
            self.opened.append(os.fsdecode(path).rpartition("/")[2])
            return real(path)

        monkeypatch.setattr(copies, "open_regular", open_file)

    def write(self, *names: str, content: bytes = SMALL) -> None:
        for name in names:
            (self.root / name).write_bytes(content)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file as most frameworks do: by renaming it into place."""
        (self.root / f"{name}.tmp").write_bytes(content)
        (self.root / f"{name}.tmp").replace(self.root / name)

    def look(self) -> Look:
        return FolderWatch(os.fsencode(self.root)).look(timedelta(), thorough=True)

    def copy(self, look: Look) -> dict[str, bytes]:
        copied = self.copier.copy(list(look.items), look)
        return {os.fsdecode(path): copy.read_bytes() for path, copy in copied.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(tmp_path, monkeypatch)


def settle() -> None:
    """Let the kernel's clock tick, so that a later change has another stamp."""
    time.sleep(0.03)


@contextmanager
def before_large_copies(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> Iterator[None]:
    """Act when all files have been looked at again, and before the larger ones are copied."""
    real = FolderCopier._copy_open

    def copy_open(self: FolderCopier, path: bytes, stamp: Stamp, reader: FileIO) -> None:
        act()
        real(self, path, stamp, reader)

    with monkeypatch.context() as patch:
        patch.setattr(FolderCopier, "_copy_open", copy_open)
        yield


def test_small_and_large_files_are_copied(folder: Folder) -> None:
    folder.write("a", "b")
    folder.write("c", content=LARGE)
    folder.write("empty", content=b"")
    assert folder.copy(folder.look()) == {"a": SMALL, "b": SMALL, "c": LARGE, "empty": b""}
    folder.copier.clear()
    assert not folder.target.exists()


def test_a_program_that_renames_its_files_into_place_may_go_on_while_they_are_copied(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a", content=LARGE)
    folder.write("b", content=SMALL)
    settle()
    look = folder.look()

    def go_on() -> None:
        for name in ("a", "b"):
            folder.replace(name, b"next round")

    with before_large_copies(monkeypatch, go_on):
        assert folder.copy(look) == {"a": LARGE, "b": SMALL}


def test_a_large_file_that_is_written_over_while_it_is_copied_has_changed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("a", content=LARGE)
    settle()
    look = folder.look()
    with (
        before_large_copies(monkeypatch, lambda: folder.write("a", content=LARGE[::-1])),
        pytest.raises(Changed, match="a"),
    ):
        folder.copy(look)
    assert list(folder.target.iterdir()) == [], "no part of a copy stays"


def test_after_a_change_only_the_changed_files_are_read_again(folder: Folder) -> None:
    names = [f"f{n:03d}" for n in range(50)]
    folder.write(*names)
    settle()
    look = folder.look()
    folder.write("f007", content=b"new")
    with pytest.raises(Changed):
        folder.copy(look)
    settle()
    assert sorted(folder.opened) == names, "also those behind it, for the next try"
    folder.opened.clear()
    look = folder.look()
    folder.write("f008", content=b"new, too")
    with pytest.raises(Changed):
        folder.copy(look)
    assert folder.opened == ["f007"]
    settle()
    folder.opened.clear()
    copied = folder.copy(folder.look())
    assert (copied["f007"], copied["f008"], copied["f009"]) == (b"new", b"new, too", SMALL)
    assert folder.opened == ["f008"]
    folder.opened.clear()
    assert folder.copy(folder.look()) == copied
    assert folder.opened == []


def test_what_was_read_right_after_its_last_change_is_read_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change within the same tick of the kernel's clock would leave the stamp as it is."""
    monkeypatch.setattr(copies, "_TICK_NS", 3_600_000_000_000)
    folder.write("a", "b")
    look = folder.look()
    settle()
    folder.write("b", content=b"new")
    with pytest.raises(Changed):
        folder.copy(look)
    folder.opened.clear()
    assert folder.copy(folder.look()) == {"a": SMALL, "b": b"new"}
    assert folder.opened == ["a", "b"]


@pytest.mark.parametrize(("memory", "most_open"), [(0, 0), (60, 0), (60, 1), (10**9, 1)])
def test_beyond_the_limits_files_are_copied_at_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, memory: int, most_open: int
) -> None:
    monkeypatch.setattr(copies, "_MEMORY_BYTES", memory)
    monkeypatch.setattr(copies, "_MOST_OPEN", most_open)
    folder.write("a", "b", "c")
    folder.write("d", "e", content=LARGE)
    assert folder.copy(folder.look()) == {"a": SMALL, "b": SMALL, "c": SMALL, "d": LARGE, "e": LARGE}


def test_files_that_are_asked_for_no_more_leave_no_copy(folder: Folder) -> None:
    folder.write("a", "b", content=LARGE)
    look = folder.look()
    folder.copy(look)
    assert len(list(folder.target.iterdir())) == 2
    assert list(folder.copier.copy([b"a"], look)) == [b"a"]
    assert len(list(folder.target.iterdir())) == 1


def test_a_file_that_is_gone_has_changed(folder: Folder) -> None:
    folder.write("a", "b")
    look = folder.look()
    (folder.root / "b").unlink()
    with pytest.raises(Changed, match="b"):
        folder.copy(look)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "link to a file", "socket", "folder"])
def test_what_a_program_puts_in_the_place_of_a_file_is_neither_waited_for_nor_followed(
    folder: Folder, tmp_path: Path, kind: str
) -> None:
    folder.write("a", "log")
    look = folder.look()
    for name in ("a", "log"):
        put_in_place(folder.root / name, tmp_path / f"elsewhere-{name}", kind)
    with pytest.raises(Changed, match="a"):
        folder.copy(look)
    assert copy_growing(os.fsencode(folder.root), {b"log": "copy"}, tmp_path / "logs") == {}


def put_in_place(path: Path, elsewhere: Path, kind: str) -> None:
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a pipe":
        os.mkfifo(elsewhere)
        path.symlink_to(elsewhere)
    elif kind == "link to a file":
        elsewhere.write_bytes(SMALL)
        path.symlink_to(elsewhere)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        path.mkdir()
