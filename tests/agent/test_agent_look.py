"""The files that count as being written during a scan of a folder."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_train.agent.artifacts.look import FolderWatch
from everspot_train.agent.artifacts.open_files import OwnOpenFiles


class ActiveProgram(OwnOpenFiles):
    """A program that does something each time the agent asks which files it has open.

    Args:
        act: what it does; returns the files that it has open for writing then.
    """

    def __init__(self, act: Callable[[], frozenset[bytes]]) -> None:
        self._act = act

    def opened(self, root: bytes) -> tuple[set[bytes], set[bytes]]:
        return set(self._act()), set()


@pytest.mark.parametrize("opened", [frozenset(), frozenset({b"state.pkl"})], ids=["complete", "open"])
def test_a_file_that_is_renamed_into_place_during_a_look_is_complete(tmp_path: Path, opened: frozenset[bytes]) -> None:
    """Given a program that replaces its state by a rename all the time, when the agent looks, then the state is whole;
    unless the program has the new file open."""
    (tmp_path / "state.pkl").write_bytes(b"first")

    def replace() -> frozenset[bytes]:
        if (tmp_path / "state.pkl").read_bytes() == b"second":
            return opened
        (tmp_path / "state.new").write_bytes(b"second")
        (tmp_path / "state.new").replace(tmp_path / "state.pkl")
        return frozenset()

    watch = FolderWatch(os.fsencode(tmp_path), ActiveProgram(replace))
    listing = watch.look(timedelta(seconds=1), thorough=True)

    assert listing.writing == opened
    assert listing.items[b"state.pkl"].size == len(b"second")


def test_a_file_that_grows_during_a_look_is_being_written(tmp_path: Path) -> None:
    """Given a file that is written in place, when it grows while the agent looks, then it is not complete."""
    (tmp_path / "state.pkl").write_bytes(b"first")

    def grow() -> frozenset[bytes]:
        with (tmp_path / "state.pkl").open("ab") as file:
            file.write(b" and more")
        return frozenset()

    listing = FolderWatch(os.fsencode(tmp_path), ActiveProgram(grow)).look(timedelta(seconds=1), thorough=True)

    assert listing.writing == {b"state.pkl"}
