"""The folder of a program that does not use the trainer library is kept: on a folder store, by a clock set by hand."""

import json
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_core.records import EventKind
from everspot_store import CheckpointCorrupt, Fenced, ManualClock, Store
from everspot_train.agent.folder import QUIET_SECONDS, FolderKeeper

SECOND = timedelta(seconds=1)


class Place:
    """A job's folder on one machine after the other."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, ManualClock()
        for name in ("control", "data"):
            (root / name).mkdir()
        self.store = Store.open(f"file://{root}/control", f"file://{root}/data", clock=self.clock)
        self.told: list[dict[str, Any]] = []

    def keeper(self, epoch: int, every: timedelta | None = None) -> FolderKeeper:
        machine = self.root / f"machine-{epoch}"
        checkpoints = self.store.checkpoints("job-1", epoch)
        return FolderKeeper(checkpoints, machine / "checkpoints", machine / "scratch", every, 2, self._say, self.clock)

    def _say(self, kind: EventKind, **data: Any) -> None:
        assert kind is EventKind.CHECKPOINTED
        self.told.append(data)

    def keys(self) -> list[str]:
        return [entry.key.rsplit("/", 2)[1] + "/" + Path(entry.key).name for entry in self.store.data.list()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)


def write(keeper: FolderKeeper, name: str, text: str, age: float = 2 * QUIET_SECONDS) -> None:
    path = keeper.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    at = time.time() - age
    os.utime(path, (at, at))


def test_what_is_new_is_kept_once_it_has_come_to_rest_and_what_is_the_same_is_not_sent_again(place: Place) -> None:
    keeper = place.keeper(1)
    assert not keeper.restore()
    keeper.keep_if_due(urgent=False)
    assert place.told == []

    write(keeper, "step-1/model", "one")
    write(keeper, "half.tmp", "half")
    place.clock.advance(SECOND)
    keeper.keep_if_due(urgent=False)
    write(keeper, "step-2/model", "two", age=0)
    place.clock.advance(60 * SECOND)
    keeper.keep_if_due(urgent=False)
    assert len(place.told) == 1, "it is being written to"
    write(keeper, "step-2/model", "two")
    place.clock.advance(SECOND)
    keeper.keep_if_due(urgent=False)

    assert [(told["files"], told["trigger"]) for told in place.told] == [(1, "interval"), (2, "interval")]
    parts = [entry.key for entry in place.store.data.list()]
    assert len(parts) == 2, "the first file was sent once"
    place.clock.advance(600 * SECOND)
    keeper.keep_if_due(urgent=False)
    assert len(place.told) == 2, "nothing has changed"


def test_no_file_of_a_living_job_is_older_in_the_store_than_a_week(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everspot_train.agent.folder.QUIET_SECONDS", 0.0)  # what is put back is new on the disk
    first = place.keeper(1)
    write(first, "old", "one")
    write(first, "new", "1")
    first.keep_last(sound=True)
    place.clock.advance(timedelta(days=5))
    write(first, "new", "2")
    first.keep_last(sound=True)
    assert place.keys().count("000000000001/old") == 1

    second = place.keeper(2)
    assert second.restore()
    place.clock.advance(timedelta(days=1))
    second.keep_last(sound=True)
    assert len(place.told) == 2, "nothing has changed"
    place.clock.advance(timedelta(days=2))
    second.keep_if_due(urgent=False)
    second.keep_if_due(urgent=False)
    assert len(place.told) == 3
    head = place.store.checkpoints("job-1").head()
    assert head is not None
    keys = {part.name: part.key.split("/")[3:] for part in head.checkpoints[0].parts}
    assert keys == {"old": ["000002", "000000000003", "old"], "new": ["000001", "000000000002", "new"]}
    place.clock.advance(timedelta(days=5))
    second.keep_if_due(urgent=False)
    assert place.told[-1]["files"] == 2
    head = place.store.checkpoints("job-1").head()
    assert head is not None
    assert {part.name: part.key.split("/")[3] for part in head.checkpoints[0].parts} == {
        "old": "000002",
        "new": "000002",
    }


@pytest.mark.parametrize("spoil", [{"sent": None}, {"sent": "x"}, {"sent": {"jobs": 3}}, {}])
def test_what_is_of_unknown_age_is_sent_again(place: Place, spoil: dict[str, Any]) -> None:
    first = place.keeper(1)
    write(first, "a", "one")
    first.keep_last(sound=True)
    table = place.store.control.list("heads/")
    key = next(entry.key for entry in table)
    found = place.store.control.get(key)
    assert found is not None
    head = json.loads(found.value)
    head["checkpoints"][0]["info"] = {"kind": "folder", **spoil}
    place.store.control.put(key, json.dumps(head).encode())
    second = place.keeper(2)
    assert second.restore()
    write(second, "b", "two")
    second.keep_last(sound=True)
    done = place.store.checkpoints("job-1").head()
    assert done is not None
    assert [part.key.split("/")[3] for part in done.checkpoints[0].parts] == ["000002", "000002"]


@pytest.mark.parametrize(("every", "urgent", "seconds"), [(None, False, 60), (20, False, 20), (300, True, 5)])
def test_it_is_kept_no_more_often_than_it_should(place: Place, every: int | None, urgent: bool, seconds: int) -> None:
    keeper = place.keeper(1, timedelta(seconds=every) if every else None)
    for number in range(2):
        write(keeper, "model", f"state {number}")
        place.clock.advance(SECOND)
        keeper.keep_if_due(urgent=urgent)
    assert len(place.told) == 1
    place.clock.advance((seconds - 2) * SECOND)
    keeper.keep_if_due(urgent=urgent)
    assert len(place.told) == 1
    place.clock.advance(SECOND)
    keeper.keep_if_due(urgent=urgent)
    assert len(place.told) == 2


def test_the_next_machine_has_the_folder_as_it_was_and_goes_on_from_there(place: Place) -> None:
    first, second, third = (place.keeper(epoch) for epoch in (1, 2, 3))
    write(first, "a/model", "one")
    write(first, "b", "old")
    first.keep_last(sound=True)

    assert second.restore()
    assert (second.folder / "a/model").read_text() == "one"
    assert not list((place.root / "machine-2" / "scratch").rglob("*model")), "it is moved, not copied"
    write(second, "b", "new", age=0)
    second.keep_last(sound=True)

    assert third.restore()
    found = {path.name: path.read_text() for path in third.folder.rglob("*") if path.is_file()}
    assert found == {"model": "one", "b": "new"}
    assert [told["files"] for told in place.told] == [2, 2]
    with pytest.raises(Fenced):
        write(first, "b", "of a machine that was thought dead")
        first.keep_last(sound=True)


def test_a_file_that_was_being_written_when_the_program_died_is_not_kept(place: Place) -> None:
    keeper = place.keeper(1)
    write(keeper, "model", "half of i", age=0)
    keeper.keep_last(sound=False)
    assert place.told == []
    write(keeper, "model", "whole")
    keeper.keep_last(sound=False)
    assert len(place.told) == 1


def test_links_and_checkpoints_of_the_trainer_are_left_alone(place: Place, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("the trainer's")
    place.store.checkpoints("job-1", 1).publish(7, {"state": tmp_path / "state"}, {"precision": "bf16"})
    keeper = place.keeper(2)
    assert not keeper.restore()
    assert list(keeper.folder.iterdir()) == []
    (keeper.folder / "passwd").symlink_to("/etc/passwd")
    keeper.keep_last(sound=True)
    assert place.told == []


def test_a_folder_that_is_damaged_in_the_store_is_said_to_be(place: Place) -> None:
    keeper = place.keeper(1)
    write(keeper, "model", "one")
    keeper.keep_last(sound=True)
    for entry in place.store.data.list():
        place.store.data.put(entry.key, b"others")
    with pytest.raises(CheckpointCorrupt):
        place.keeper(2).restore()
