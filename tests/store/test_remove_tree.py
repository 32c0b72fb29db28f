"""Removing a folder in which a program may have put anything."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from everspot_store import remove_tree

DEPTH = 3000
"""More folders than a path can name, than Python calls can be nested and than a process may usually have open."""


def nest(folder: Path) -> None:
    """Make nested folders, with an inaccessible innermost one."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.fchmod(handle, 0)
    os.close(handle)


def close_folders(folder: Path) -> None:
    for name in ("a/b/c", "a/d", "e"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch(mode=0o400)
    for name in ("a/b/c", "a/b", "a", "e"):
        (folder / name).chmod(0)


def put_other_kinds(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(folder.parent / "kept")
    (folder / "nowhere").symlink_to(folder / "missing")
    (folder / "name\n\x1b[2J").touch()
    (Path(os.fsdecode(os.fsencode(folder) + b"/\xff"))).mkdir()


@pytest.mark.parametrize("fill", [nest, close_folders, put_other_kinds])
def test_nothing_stays_whatever_is_in_a_folder(tmp_path: Path, fill: Callable[[Path], None]) -> None:
    sibling = tmp_path / "kept"
    sibling.mkdir()
    (sibling / "file").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    fill(folder)
    remove_tree(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (sibling / "file").exists()


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    sibling = tmp_path / "kept"
    sibling.mkdir(mode=0o750)
    (sibling / "file").touch()
    (tmp_path / "link").symlink_to(sibling)
    remove_tree(tmp_path / "link")
    assert (sibling / "file").exists()
    assert sibling.stat().st_mode & 0o777 == 0o750
