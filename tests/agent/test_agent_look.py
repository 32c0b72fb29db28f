"""What counts as being written while the agent looks at a folder."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_train.agent.artifacts import look
from everspot_train.agent.artifacts.look import FolderWatch


def replace_during_the_look(monkeypatch: pytest.MonkeyPatch, folder: Path, *, opened: frozenset[bytes]) -> None:
    """Let a program rename a new `state.pkl` into place while the agent asks who writes. `opened`: the files that the
    program has open when the agent asks again."""
    calls = []

    def list_open_files(root: bytes) -> tuple[set[bytes], set[bytes]]:
        calls.append(root)
        if len(calls) > 1:
            return set(opened), set()
        (folder / "state.new").write_bytes(b"second")
        (folder / "state.new").replace(folder / "state.pkl")
        return set(), set()

    monkeypatch.setattr(look, "_open_for_writing", list_open_files)


@pytest.mark.parametrize("opened", [frozenset(), frozenset({b"state.pkl"})], ids=["complete", "open"])
def test_a_file_that_is_renamed_into_place_during_a_look_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: frozenset[bytes]
) -> None:
    """Given a program that replaces its state by a rename all the time, when the agent looks, then the state is whole;
    unless the program has the new file open."""
    (tmp_path / "state.pkl").write_bytes(b"first")
    replace_during_the_look(monkeypatch, tmp_path, opened=opened)

    listing = FolderWatch(os.fsencode(tmp_path)).look(timedelta(seconds=1), thorough=True)

    assert listing.writing == opened
    assert listing.items[b"state.pkl"].size == len(b"second")


def test_a_file_that_grows_during_a_look_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a file that is written in place, when it grows while the agent looks, then it is not complete."""
    (tmp_path / "state.pkl").write_bytes(b"first")

    def list_open_files(root: bytes) -> tuple[set[bytes], set[bytes]]:
        with (tmp_path / "state.pkl").open("ab") as file:
            file.write(b" and more")
        return set(), set()

    monkeypatch.setattr(look, "_open_for_writing", list_open_files)

    listing = FolderWatch(os.fsencode(tmp_path)).look(timedelta(seconds=1), thorough=True)

    assert listing.writing == {b"state.pkl"}
