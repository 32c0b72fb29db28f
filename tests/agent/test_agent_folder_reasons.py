"""What is not kept of a folder has the true reason: torn files, files written again, faults of the agent."""

import pickle
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_core.jobs.records import EventKind
from everspot_store.outputs import Outputs
from everspot_train.agent.actions import JobKey
from everspot_train.agent.artifacts.assess import ProgramEnd
from everspot_train.agent.artifacts.contents import Wholeness, check_content
from everspot_train.agent.artifacts.look import FolderWatch
from everspot_train.agent.job_artifacts import JobArtifacts
from folder_helpers import Place, restore_tree, tree, write

EVERY = timedelta(seconds=5)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_only_the_file_that_is_not_whole_is_called_so(place: Place) -> None:
    keeper = place.keeper(1, EVERY)
    keeper.restore()
    write(keeper, "model.json", '{"a": 1')
    write(keeper, "optim.json", '{"b": 2}')
    keeper.keep_last(ProgramEnd.SOUND)
    reasons = {path: event["reason"] for event in place.list_events(EventKind.SKIPPED) for path in event["paths"]}
    assert reasons == {
        "model.json": "its content is not whole",
        "optim.json": "it belongs to the same checkpoint as model.json: its content is not whole",
    }


def test_a_file_that_stays_torn_is_told_of_while_the_program_runs(place: Place) -> None:
    keeper = place.keeper(1, EVERY)
    keeper.restore()
    write(keeper, "model.json", '{"a": 1')
    place.look(keeper, 100)
    (skipped,) = place.list_events(EventKind.SKIPPED)
    assert (skipped["paths"], skipped["reason"]) == (["model.json"], "its content is not whole")
    (overdue, *_) = place.list_events(EventKind.NOT_CHECKPOINTED)
    assert overdue["reason"] == "its content is not whole"


def test_a_program_that_writes_faster_than_files_are_copied_is_not_said_to_write_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = place.keeper(1, EVERY)
    keeper.restore()
    write(keeper, "model.pt", "0")
    look, count = FolderWatch.look, 0

    def written_again(watch: FolderWatch, at: timedelta, *, thorough: bool = False):  # type: ignore[no-untyped-def]
        nonlocal count
        listing = look(watch, at, thorough=thorough)
        if thorough:  # between the look and the copy
            count += 1
            (keeper.folder / "model.pt").write_text("x" * count)
        return listing

    place.look(keeper, 19)
    monkeypatch.setattr(FolderWatch, "look", written_again)
    for _ in range(10):
        place.look(keeper, 21)
    assert place.checkpoint_events == []
    reasons = {event["reason"] for event in place.list_events(EventKind.NOT_CHECKPOINTED)}
    assert not [reason for reason in reasons if "written nothing" in reason], reasons


def test_an_unexpected_error_becomes_an_event_of_the_job_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = place.keeper(1, EVERY)
    artifacts = JobArtifacts(place.store, JobKey("job-1", 1), place.clock, place.record_event, timedelta())
    artifacts.put_back(keeper)
    artifacts.launched()

    def fail(*_: object, **__: object) -> None:
        raise AttributeError("no such thing")

    with monkeypatch.context() as patch:
        patch.setattr(FolderWatch, "look", fail)
        for _ in range(5):
            place.clock.advance(timedelta(seconds=1))
            artifacts.keep_if_due(urgent=False)
    (event,) = place.list_events(EventKind.NOT_CHECKPOINTED)
    assert event["reason"] == "the agent failed, and tries again: AttributeError: no such thing"
    write(keeper, "model.ckpt", "1", rename=True)
    place.look(keeper, 3)
    assert len(place.checkpoint_events) == 1, "it tries again"


def test_an_unexpected_error_about_outputs_becomes_an_event(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts = JobArtifacts(place.store, JobKey("job-1", 1), place.clock, place.record_event, timedelta())
    artifacts.outputs = place.root / "outputs"
    artifacts.outputs.mkdir()
    artifacts.launched()

    def fail(*_: object) -> None:
        raise AttributeError("no such thing")

    monkeypatch.setattr(Outputs, "keep", fail)
    with pytest.raises(AttributeError):
        artifacts.keep_outputs(lambda: True)
    reason = "the agent failed: AttributeError: no such thing"
    assert place.list_events(EventKind.SKIPPED) == [{"folder": "outputs", "reason": reason}]


@pytest.mark.parametrize("name", ["f%05d.bin", "s{step}/f%05d.bin"])
def test_numbered_files_of_one_checkpoint_are_known_as_such_on_the_next_machine(place: Place, name: str) -> None:
    def save(keeper, step: int) -> None:  # type: ignore[no-untyped-def]
        for number in range(5):
            path = keeper.folder / (name.format(step=step) % number)
            path.parent.mkdir(exist_ok=True)
            temporary = path.with_name(path.name + ".tmp")
            temporary.write_text(str(step))
            temporary.rename(path)

    first = place.keeper(1, EVERY)
    first.restore()
    for step in (1, 2, 3):
        save(first, step)
        place.look(first, 30)
    second = place.next_machine(2)
    save(second, 4)
    place.look(second, 3)
    assert "4" in restore_tree(place, 3).values()


@pytest.mark.parametrize(
    ("name", "content", "wholeness"),
    [
        ("latin.json", '{"name": "é"}'.encode("latin-1"), Wholeness.UNKNOWN),
        ("cut.json", '{"name": "é'.encode()[:-1], Wholeness.TORN),
        ("deep.json", b"[" * 200_000 + b"]" * 200_000, Wholeness.UNKNOWN),
        ("list.safetensors", (2).to_bytes(8, "little") + b"[]", Wholeness.TORN),
        ("old.pkl", pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps({}, 2) + b"\0" * 20, Wholeness.UNKNOWN),
        ("cut.pkl", pickle.dumps([1, 2, 3])[:-1], Wholeness.TORN),
    ],
)
def test_no_content_makes_the_check_fail_or_call_a_whole_file_torn(
    tmp_path: Path, name: str, content: bytes, wholeness: Wholeness
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert check_content(path, name.encode()) is wholeness


def test_an_empty_folder_inside_a_checkpoint_is_expected_and_any_other_is_reported(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    unfinished = keeper.folder / "step-20.tmp"
    (unfinished / "shards" / "none").mkdir(parents=True)
    (unfinished / "model.pt").write_text("20")
    unfinished.rename(keeper.folder / "step-20")
    (keeper.folder / "step-40").mkdir()  # as a program does that is killed before it writes its next checkpoint
    place.look(keeper, 3)
    keeper.keep_last(ProgramEnd.KILLED)
    (event,) = place.list_events(EventKind.SKIPPED)
    assert event["paths"] == ["step-40"]
    assert event["reason"] == "it is an empty folder outside of checkpoint folders"

    second = place.next_machine(2)
    assert (second.folder / "step-20" / "shards" / "none").is_dir()
    assert not (second.folder / "step-40").exists()


def test_an_empty_folder_of_a_checkpoint_that_is_being_written_over_stays_with_it(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    (keeper.folder / "last" / "none").mkdir(parents=True)
    write(keeper, "last/model.pt", "1")
    write(keeper, "last/.everspot-complete", "")
    place.look(keeper, 3)
    (keeper.folder / "last" / "none").rmdir()
    write(keeper, "last/model.pt", "2")
    write(keeper, "log.csv", "1")
    place.look(keeper, 61)
    keeper.keep_last(ProgramEnd.KILLED)
    second = place.next_machine(2)
    assert tree(second)["last/model.pt"] == "1"
    assert (second.folder / "last" / "none").is_dir()


def test_a_file_without_an_ending_that_is_rewritten_all_the_time_is_reported(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    write(keeper, "model.pt", "1")
    for number in range(12):
        write(keeper, "weights", f"{number:03}")
        write(keeper, "step", f"{number:03}")
        write(keeper, "output.log", f"{number:03}")
        write(keeper, "growing", "x" * number)
        place.look(keeper)
    events = place.list_events(EventKind.SKIPPED)
    assert sorted(path for event in events for path in event["paths"]) == ["step", "weights"]
    assert {event["reason"] for event in events} == {
        "it is rewritten all the time, so it counts as a log, and its copy may not match the other files"
    }


def test_a_memory_map_of_a_program_that_is_killed_is_told_and_what_was_kept_before_stays(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    path = write(keeper, "weights.mmap", "x" * 100)
    write(keeper, "meta.json", "{}")
    place.look(keeper, 25)
    code = (
        "import sys, time, numpy\n"
        "numpy.memmap(sys.argv[1], 'uint8', 'r+')[:3] = 7\n"
        "weights = numpy.memmap(sys.argv[1], 'uint8', 'r+')\n"
        "weights[50:] = 7; print(1, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        place.look(keeper, 70)
        program.kill()
    keeper.keep_last(ProgramEnd.KILLED)
    assert len(place.checkpoint_events) == 1
    assert place.list_events(EventKind.SKIPPED)[0]["reason"] == "weights.mmap is mapped for writing"
    assert restore_tree(place, 2) == {"weights.mmap": "x" * 100, "meta.json": "{}"}


@pytest.mark.parametrize(("first", "second"), [("weights", "step"), ("weights.json", "step.json"), ("a.pt", "b.pt")])
def test_state_that_is_rewritten_all_the_time_is_kept_of_one_round_where_there_is_nothing_else(
    place: Place, first: str, second: str
) -> None:
    keeper = place.keeper(1, timedelta(seconds=1))
    keeper.restore()
    write(keeper, first, "1000")
    place.look(keeper)
    for number in range(1001, 1030):  # each look comes in the middle of a round
        write(keeper, second, f"{number - 1}")
        write(keeper, first, f"{number}")
        write(keeper, "lines.log", "x" * number)
        place.look(keeper)
    assert place.checkpoint_events == []
    write(keeper, second, "1029")
    place.look(keeper, 2)
    restored = restore_tree(place, 2, fence=False)
    assert (restored[first], restored[second]) == ("1029", "1029")
    write(keeper, first, "1030")
    keeper.keep_last(ProgramEnd.KILLED)
    restored = restore_tree(place, 3)
    assert (restored[first], restored[second]) == ("1029", "1029")


def test_a_counter_that_is_rewritten_all_the_time_holds_up_no_checkpoint_that_comes_later(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=1))
    keeper.restore()
    for number in range(60):
        write(keeper, "progress", f"{number:03}")
        place.look(keeper)
    write(keeper, "model.pt", "1")
    path = keeper.folder / "progress"
    with path.open("r+") as file:  # as a program that writes it without a pause
        for number in range(60, 90):
            file.seek(0)
            file.write(f"{number:03}")
            file.flush()
            place.look(keeper)
        assert restore_tree(place, 2, fence=False)["model.pt"] == "1"


@pytest.mark.parametrize(("pause", "is_told"), [(25, True), (5, False)])
def test_settings_that_come_after_their_checkpoint_are_reported(place: Place, pause: int, is_told: bool) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    for number in range(3):
        write(keeper, "model.pt", f"{number}")
        place.look(keeper, pause)
        write(keeper, "trainer.toml", f"step = {number}")
        place.look(keeper, 30)
    events = [event for event in place.list_events(EventKind.SKIPPED) if event["paths"] == ["trainer.toml"]]
    reason = "it was written after its checkpoint was published, so the checkpoint has the older version"
    assert [event["reason"] for event in events] == [reason] * is_told
    keeper.keep_last(ProgramEnd.SOUND)
    assert restore_tree(place, 2) == {"model.pt": "2", "trainer.toml": "step = 2"}
