"""The folder of a program that does not use the trainer library is kept: on a folder store, by a clock set by hand."""

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from everspot_core.jobs.records import EventKind
from everspot_store import CheckpointCorrupt, Fenced
from everspot_train.agent.artifacts.assess import REST, ProgramEnd
from everspot_train.agent.artifacts.layouts import path_template
from everspot_train.agent.folder import LIBRARY_SILENCE, FolderCheckpoints
from folder_helpers import SECOND, Place, restore_tree, tree, write


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    yield Place(tmp_path)


def test_a_single_file_is_kept_after_a_rest_and_then_at_once(place: Place) -> None:
    keeper = place.keeper(1)
    assert not keeper.restore()
    place.look(keeper)
    write(keeper, "model.pt", "one", rename=True)
    place.look(keeper, int(REST.total_seconds()))
    assert place.checkpoint_events == [], "another file may follow that belongs to it"
    place.look(keeper)
    assert len(place.checkpoint_events) == 1
    place.look(keeper, 60)
    assert len(place.checkpoint_events) == 1, "nothing has changed"
    write(keeper, "model.pt", "two", rename=True)
    place.look(keeper)
    assert len(place.checkpoint_events) == 2, "the program writes nothing else"
    assert restore_tree(place, 2) == {"model.pt": "two"}


@pytest.mark.parametrize("ended", [None, ProgramEnd.SOUND])
def test_a_retry_without_the_trainer_library_is_kept(place: Place, ended: ProgramEnd | None) -> None:
    """Given a library's checkpoint, when the job continues with a program that never reports, then its folder is kept
    once it is known that the library does not take over."""
    library = place.store.checkpoints("job-1", 1)
    library.fence()
    (place.root / "state").write_text("tensors")
    library.publish(7, {"state": place.root / "state"}, {})
    keeper = place.keeper(2)
    assert not keeper.restore()
    write(keeper, "model.pt", "one", rename=True)
    place.look(keeper, int(LIBRARY_SILENCE.total_seconds()) - 1)
    assert place.checkpoint_events == []
    if ended is None:
        place.look(keeper, 1 + int(REST.total_seconds()))
    else:
        keeper.keep_last(ended)
    assert restore_tree(place, 3) == {"model.pt": "one"}


def test_files_that_belong_together_are_never_kept_apart(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    epoch = 1
    for step in range(0, 120, 20):
        for name in ("model.pt", "optim.pt", "meta/progress.json"):
            write(keeper, name, json.dumps(step), rename=True)
            for _ in range(9):
                place.look(keeper)
                epoch += 1
                head = place.store.checkpoints("job-1").head()
                if head is not None and head.checkpoints:
                    restored = restore_tree(place, epoch, fence=False)
                    assert len(set(restored.values())) == 1 and len(restored) == 3, (step, name, restored)
        place.look(keeper, 10)
    assert len(place.checkpoint_events) >= 5, "each round was kept once it was whole"
    write(keeper, "model.pt", "120", rename=True)
    keeper.keep_last(ProgramEnd.KILLED)
    second = place.next_machine(100)
    assert set(tree(second).values()) == {"100"}, "the program was killed in the middle of a round"
    write(second, "model.pt", "120", rename=True)
    place.look(second, 40)
    assert len(restore_tree(place, 101)) == 3 and set(restore_tree(place, 102).values()) == {"100"}, (
        "what was learnt is not lost"
    )
    assert place.list_events(EventKind.SKIPPED)[0]["paths"] == ["model.pt"]


@pytest.mark.parametrize("versioned", [True, False])
def test_a_file_that_only_some_rounds_write_is_waited_for_no_more(place: Place, versioned: bool) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    for step in range(6):
        write(keeper, f"state-{step}.txt" if versioned else "state.txt", str(step), rename=True)
        if step in (0, 4):
            write(keeper, "best.txt", str(step), rename=True)
        place.look(keeper, 10)
    last = "state-5.txt" if versioned else "state.txt"
    assert restore_tree(place, 2) | {last: "5", "best.txt": "4"} == restore_tree(place, 3)


def test_files_are_kept_together_when_the_one_that_begins_a_round_is_not_in_each(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    epoch = 1
    for step in range(9):
        for name in ("best.pt", "model.pt", "optim.pt"):  # the best model comes first, and not in each round
            if name != "best.pt" or step in (0, 1, 2, 5):
                write(keeper, name, str(step), rename=True)
            place.look(keeper, 8)
            epoch += 1
            if place.checkpoint_events:
                restored = restore_tree(place, epoch, fence=False)
                assert restored["model.pt"] == restored["optim.pt"], (step, name, restored)
    assert len(place.checkpoint_events) >= 7
    last = restore_tree(place, epoch + 1, fence=False)
    assert (last["model.pt"], last["optim.pt"]) == ("8", "8")


@pytest.mark.parametrize("name", ["ep{}/{:05d}.bin", "last/{1:05d}.bin", "model_{1}.pt"])
def test_many_numbered_files_of_one_checkpoint_are_not_many_checkpoints(place: Place, name: str) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    epoch = 1
    for step in range(3):
        for part in range(30):
            path = keeper.folder / name.format(step, part)
            path.parent.mkdir(exist_ok=True)
            path.with_name("x.tmp").write_text(str(step))
            path.with_name("x.tmp").replace(path)
            if part % 10 == 0:
                place.look(keeper, 6)
                epoch += 1
                if place.checkpoint_events:
                    restored = restore_tree(place, epoch, fence=False)
                    by_step = [text for text in restored.values() if text == max(restored.values())]
                    assert len(by_step) == 30, (step, part, len(by_step))
        place.look(keeper, 30)
        assert len(place.checkpoint_events) >= step + 1


def test_a_file_that_each_round_writes_twice_begins_no_round(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    for step in range(6):
        for name in ("model.pt", "progress.pkl", "optim.pt", "progress.pkl"):
            write(keeper, name, f"{step}", rename=True)
            place.look(keeper, 3)
        place.look(keeper, 10)
    assert len(place.checkpoint_events) >= 4
    assert set(restore_tree(place, 2).values()) == {"5"}


@pytest.mark.parametrize("folder", ["runs/detect/train/weights", "logs/44k", "wandb/run-1/files", "tensorboard"])
def test_a_checkpoint_below_a_folder_for_logs_is_a_checkpoint(place: Place, folder: str) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    for step in range(3):
        write(keeper, f"{folder}/last.pt", str(step))
        write(keeper, f"{folder}/results", str(step))
        place.look(keeper, 30)
    assert restore_tree(place, 2)[f"{folder}/last.pt"] == "2"


@pytest.mark.parametrize("name", ["train.log", "metrics.jsonl", "events.out.tfevents.1", "runs/x", "progress"])
def test_a_log_that_is_always_written_and_a_time_in_the_future_block_nothing(place: Place, name: str) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    future = time.time() + 10**6
    os.utime(write(keeper, "config.bin", "x"), (future, future))
    write(keeper, name, "")
    with (keeper.folder / name).open("a") as log:
        for step in range(45):
            if step % 15 == 0:
                write(keeper, "model.pt", str(step), rename=True)
            log.write("line\n")
            log.flush()
            place.look(keeper)
    assert restore_tree(place, 2)["model.pt"] == "30"
    assert restore_tree(place, 3)[name].startswith("line\n"), "logs are kept beside it"


def test_names_that_end_in_tmp_are_left_out_at_every_level_and_a_renamed_folder_is_complete(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    write(keeper, "step-20.tmp/model.pt", "half")
    write(keeper, "half.tmp", "half")
    place.look(keeper, 40)
    assert place.checkpoint_events == []
    write(keeper, "step-20.tmp/optim.pt", "whole")
    time.sleep(0.02)
    (keeper.folder / "step-20.tmp").rename(keeper.folder / "step-20")
    place.look(keeper, 2)
    assert set(restore_tree(place, 2)) == {"step-20/model.pt", "step-20/optim.pt"}
    write(keeper, "step-40.tmp/model.pt", "half")
    keeper.keep_last(ProgramEnd.KILLED)
    (skipped,) = place.list_events(EventKind.SKIPPED)
    assert skipped == {
        "folder": "checkpoints",
        "paths": ["half.tmp", "step-40.tmp", "step-40.tmp/model.pt"],
        "count": 3,
        "reason": "names that end in .tmp are unfinished",
    }


def archive(path: Path, size: int = 1000) -> bytes:
    """An archive as torch.save writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", os.urandom(size))
    return path.read_bytes()


@pytest.mark.parametrize("ended", [ProgramEnd.KILLED, ProgramEnd.BY_ITSELF])
@pytest.mark.parametrize("versioned", [True, False])
def test_a_file_that_was_being_written_when_the_program_died_is_not_kept(
    place: Place, ended: ProgramEnd, versioned: bool
) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    for step in (0, 1, 2):
        whole = archive(keeper.folder / (f"model_{step}.pt" if versioned else "model.pt"))
        place.look(keeper, 6)
    torn = keeper.folder / ("model_3.pt" if versioned else "model.pt")
    torn.write_bytes(archive(place.root / "other")[:600])
    keeper.keep_last(ended)
    second = place.next_machine(2)
    assert (second.folder / ("model_2.pt" if versioned else "model.pt")).read_bytes() == whole
    assert not versioned or not (second.folder / "model_3.pt").exists()


def test_a_crash_checkpoint_is_kept(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    write(keeper, "crash.txt", "saved before the end")
    keeper.keep_last(ProgramEnd.BY_ITSELF)
    assert restore_tree(place, 2) == {"crash.txt": "saved before the end"}


def test_what_a_program_that_ended_well_has_left_is_kept(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    write(keeper, "a/model", "one")
    place.look(keeper)
    write(keeper, "b", "two")
    keeper.keep_last(ProgramEnd.SOUND)
    assert restore_tree(place, 2) == {"a/model": "one", "b": "two"}


def trainer_files(keeper: FolderCheckpoints, step: int, *names: str) -> None:
    for name in names or ("model.bin", "optimizer.pt", "training_args.bin", "rng_state.pth", "trainer_state.json"):
        write(keeper, f"checkpoint-{step}/{name}", "{}")


@pytest.mark.parametrize("ended", list(ProgramEnd))
def test_a_checkpoint_of_transformers_is_complete_with_its_last_file(place: Place, ended: ProgramEnd) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    trainer_files(keeper, 20)
    place.look(keeper, 3)
    trainer_files(keeper, 40, "model.bin", "training_args.bin", "optimizer.pt")
    place.look(keeper, 70)
    assert {name.split("/")[0] for name in restore_tree(place, 2)} == {"checkpoint-20"}
    third = place.next_machine(3)
    trainer_files(third, 40, "model.bin")
    place.look(third, 2)
    third.keep_last(ended)
    steps = {name.split("/")[0] for name in restore_tree(place, 4)}
    assert steps == ({"checkpoint-20", "checkpoint-40"} if ended is ProgramEnd.SOUND else {"checkpoint-20"})


def test_a_checkpoint_that_is_written_over_stays_as_it_was_until_it_is_complete(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    for name in ("__0_0.distcp", ".metadata"):
        write(keeper, f"last/{name}", "one")
    place.look(keeper, 3)
    write(keeper, "last/__0_0.distcp", "two")
    place.look(keeper, 70)
    keeper.keep_last(ProgramEnd.KILLED)
    assert set(restore_tree(place, 2).values()) == {"one"}
    third = place.next_machine(3)
    for name in ("__0_0.distcp", ".metadata"):
        write(third, f"last/{name}", "three")
    third.keep_last(ProgramEnd.KILLED)
    assert set(restore_tree(place, 4).values()) == {"three"}


def test_accelerate_is_complete_when_it_has_the_files_of_the_ones_before(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    files = ("model.safetensors", "optimizer.bin", "random_states_0.pkl", "custom_checkpoint_0.pkl")
    for step in (0, 1):
        for name in files:
            path = keeper.folder / f"checkpoint_{step}" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes({".pkl": b"\x80\x04.", ".bin": b"x"}.get(path.suffix, b"\x02\0\0\0\0\0\0\0{}"))
            if name == "random_states_0.pkl":
                place.look(keeper, 2 + 65 * step)
                assert len(place.checkpoint_events) == step, "a custom object may follow"
        place.look(keeper, 65)
        assert len(place.checkpoint_events) == step + 1


def test_modes_times_links_and_dot_files_come_back(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    old = write(keeper, "epoch=0-step=90.ckpt", "90")
    new = write(keeper, "epoch=1-step=110.ckpt", "110")
    os.utime(old, (1000, 1000))
    os.utime(new, (2000.5, 2000.5))
    new.chmod(0o640)
    (keeper.folder / "last.ckpt").symlink_to(new.name)
    (keeper.folder / "best").symlink_to(old)
    (keeper.folder / "hard.ckpt").hardlink_to(new)
    (keeper.folder / "elsewhere").symlink_to("/etc/passwd")
    write(keeper, ".hidden/.state", "dot")
    keeper.keep_last(ProgramEnd.SOUND)
    assert place.checkpoint_events[0]["bytes"] == 8, "a hard link is stored once"
    second = place.next_machine(2)
    folder = second.folder
    assert (folder / "last.ckpt").readlink().name == new.name and (folder / "last.ckpt").read_text() == "110"
    assert (folder / "best").readlink() == folder / old.name, "an absolute link leads to this machine's folder"
    assert (folder / "elsewhere").readlink() == Path("/etc/passwd")
    assert (folder / "hard.ckpt").samefile(folder / new.name)
    assert ((folder / new.name).stat().st_mtime, (folder / new.name).stat().st_mode & 0o777) == (2000.5, 0o640)
    assert (folder / ".hidden/.state").read_text() == "dot"
    files = [folder / old.name, folder / new.name]
    assert max(files, key=os.path.getctime).name == max(files, key=os.path.getmtime).name == new.name
    place.look(second, 65)
    assert len(place.checkpoint_events) == 1, "nothing has changed"


def test_a_link_goes_with_what_it_leads_to(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    trainer_files(keeper, 20)
    link = keeper.folder / "latest"
    link.symlink_to("checkpoint-20")
    place.look(keeper, 3)
    trainer_files(keeper, 40, "model.bin", "training_args.bin")
    link.unlink()
    link.symlink_to("checkpoint-40")
    trainer_files(keeper, 30)
    keeper.keep_last(ProgramEnd.KILLED)
    assert (place.next_machine(2).folder / "latest").readlink().name == "checkpoint-20"


def test_a_file_that_is_mapped_is_not_kept_before_it_is_let_go(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    path = write(keeper, "weights.mmap", "x" * 100)
    write(keeper, "meta.json", "{}")
    code = (
        "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 100); f.close()\n"
        "print(1, flush=True)\n"
        "sys.stdin.readline(); m[:3] = b'new'; print(2, flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdout.readline()
        place.look(keeper, 70)
        assert place.checkpoint_events == []
        print(file=program.stdin, flush=True)
        program.stdout.readline()
    keeper.keep_last(ProgramEnd.SOUND)
    assert (place.next_machine(2).folder / "weights.mmap").read_text().startswith("newx")
    assert place.list_events(EventKind.SKIPPED)[0]["reason"] == "weights.mmap is mapped for writing"


ODD = (b"caf\xe9.pt", b"a.pt\r", b"new\nline/x", "模型".encode(), b"~")


def test_every_name_that_linux_allows_comes_back(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    for name in ODD:
        write(keeper, os.fsdecode(name), "odd")
    write(keeper, "good.pt", "good")
    keeper.keep_last(ProgramEnd.SOUND)
    folder = place.next_machine(2).folder
    names = {os.fsencode(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {*ODD, b"good.pt"}
    assert all(entry.key.isascii() for entry in place.store.data.list())


def test_a_program_that_keeps_nothing_is_told_of_and_why(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=10))
    keeper.restore()
    place.look(keeper, 29)
    assert place.events == []
    place.look(keeper, 1)
    reason = "the program has written nothing into the folder checkpoints yet"
    first = {"intervals": 3, "seconds": 30.0, "reason": reason}
    assert place.list_events(EventKind.NOT_CHECKPOINTED) == [first]
    place.look(keeper, 29)
    assert len(place.list_events(EventKind.NOT_CHECKPOINTED)) == 1, "again when it has doubled"
    place.look(keeper, 1)
    assert place.list_events(EventKind.NOT_CHECKPOINTED)[1] == {**first, "intervals": 6, "seconds": 60.0}


def test_a_program_that_saves_less_often_than_the_interval_is_no_warning(place: Place) -> None:
    """Its own usual time counts, also after it was moved, and what was just written may still be published."""
    keeper = place.keeper(1, timedelta(seconds=10))
    keeper.restore()
    place.look(keeper, 29)
    for content in ("one", "two", "three"):
        write(keeper, "model.pt", content, rename=True)
        for _ in range(50):
            place.look(keeper, 1)
    assert len(place.list_events(EventKind.CHECKPOINTED)) == 3 and place.list_events(EventKind.NOT_CHECKPOINTED) == []
    moved = place.keeper(2, timedelta(seconds=10))
    moved.restore()
    place.look(moved, 145)
    assert place.list_events(EventKind.NOT_CHECKPOINTED) == []
    place.look(moved, 10)
    (event,) = place.list_events(EventKind.NOT_CHECKPOINTED)
    assert event["reason"] == "the program has written nothing new into the folder checkpoints"


def test_a_checkpoint_of_an_earlier_release_is_put_back(place: Place, tmp_path: Path) -> None:
    (tmp_path / "part").write_text("old")
    parts = {"deep/tree.json": tmp_path / "part", "tree.json": tmp_path / "part"}
    place.store.checkpoints("job-1", 1).publish(3, parts, {"kind": "folder", "sent": {}})
    second = place.next_machine(2)
    assert tree(second) == {"deep/tree.json": "old", "tree.json": "old"}
    write(second, "b", "two")
    second.keep_last(ProgramEnd.SOUND)
    assert restore_tree(place, 3) == {"b": "two", "deep/tree.json": "old", "tree.json": "old"}


def test_no_file_of_a_living_job_is_older_in_the_store_than_a_week(place: Place) -> None:
    def epochs() -> dict[str, int]:
        head = place.store.checkpoints("job-1").head()
        assert head is not None
        folder = place.root / "reader"
        checkpoint = head.checkpoints[0]
        parts = {part.name: part for part in checkpoint.parts}
        place.store.data.download(parts["tree.json"].key, folder)
        entries = json.loads(folder.read_text())["entries"]
        return {e["path"]: int(parts[e["content"]].key.split("/")[3]) for e in entries if e["kind"] == "file"}

    first = place.keeper(1)
    first.restore()
    write(first, "old", "one")
    write(first, "new", "1")
    first.keep_last(ProgramEnd.SOUND)
    place.clock.advance(timedelta(days=5))
    write(first, "new", "2")
    first.keep_last(ProgramEnd.SOUND)
    second = place.next_machine(2)
    place.clock.advance(timedelta(days=1))
    second.keep_last(ProgramEnd.SOUND)
    assert len(place.checkpoint_events) == 2, "nothing has changed"
    place.clock.advance(timedelta(days=2))
    place.look(second, 2)
    assert len(place.checkpoint_events) == 3
    assert epochs() == {"old": 2, "new": 1}
    place.clock.advance(timedelta(days=5))
    place.look(second)
    assert epochs() == {"old": 2, "new": 2}


AHEAD = {"jobs/job-1/checkpoints/000001/000000000001": "2200-01-01T00:00:00+00:00"}
"""The upload times of a machine whose clock was ahead."""


@pytest.mark.parametrize("spoil", [{"sent": None}, {"sent": "x"}, {"sent": {"jobs": 3}}, {}, {"sent": AHEAD}])
def test_what_is_of_unknown_age_is_sent_again(place: Place, spoil: dict[str, Any]) -> None:
    first = place.keeper(1)
    first.restore()
    write(first, "a", "one")
    first.keep_last(ProgramEnd.SOUND)
    key = next(entry.key for entry in place.store.control.list("heads/"))
    stored = place.store.control.get(key)
    assert stored is not None
    head = json.loads(stored.value)
    head["checkpoints"][0]["info"] = {"kind": "folder", "format": 2, "rhythm": 7, **spoil}
    place.store.control.put(key, json.dumps(head).encode())
    second = place.next_machine(2)
    write(second, "b", "two")
    second.keep_last(ProgramEnd.SOUND)
    done = place.store.checkpoints("job-1").head()
    assert done is not None
    assert {part.key.split("/")[3] for part in done.checkpoints[0].parts} == {"000002"}


@pytest.mark.parametrize(("interval", "urgent", "seconds"), [(None, False, 60), (20, False, 20), (300, True, 5)])
def test_it_is_kept_no_more_often_than_it_should(
    place: Place, interval: int | None, urgent: bool, seconds: int
) -> None:
    keeper = place.keeper(1, timedelta(seconds=interval) if interval else None)
    keeper.restore()
    times = []
    for step in range(seconds * 3 + 5):
        write(keeper, "model.ckpt", str(step), rename=True)
        if step % 2:
            place.clock.advance(SECOND)
            continue
        for _ in range(2):
            place.look(keeper, urgent=urgent)
            if len(place.checkpoint_events) > len(times):
                times.append(place.clock.monotonic())
    gaps = {(after - before).total_seconds() for before, after in pairwise(times)}
    assert len(times) > 2 and min(gaps) >= seconds and max(gaps) <= seconds + 5


def test_the_next_machine_goes_on_from_there_and_the_one_before_is_shut_out(place: Place) -> None:
    first, second = place.keeper(1), place.keeper(2)
    first.restore()
    write(first, "a/model", "one")
    write(first, "b", "old")
    first.keep_last(ProgramEnd.SOUND)
    assert second.restore()
    assert not (place.root / "machine-2" / "scratch" / "folder").exists(), "it is moved, not copied"
    write(second, "b", "new")
    second.keep_last(ProgramEnd.SOUND)
    assert restore_tree(place, 3) == {"a/model": "one", "b": "new"}
    with pytest.raises(Fenced):
        write(first, "b", "of a machine that was thought dead")
        first.keep_last(ProgramEnd.SOUND)


def test_checkpoints_of_the_trainer_are_left_alone(place: Place, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("the trainer's")
    place.store.checkpoints("job-1", 1).publish(7, {"state": tmp_path / "state"}, {"precision": "bf16"})
    keeper = place.keeper(2)
    assert not keeper.restore()
    assert list(keeper.folder.iterdir()) == []


def test_a_folder_that_is_damaged_in_the_store_is_reported_as_damaged(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    write(keeper, "model", "one")
    keeper.keep_last(ProgramEnd.SOUND)
    for entry in place.store.data.list():
        place.store.data.put(entry.key, b"others")
    with pytest.raises(CheckpointCorrupt):
        place.keeper(2).restore()


def test_a_checkpoint_that_does_not_load_is_followed_by_the_one_before(place: Place) -> None:
    first = place.keeper(1, timedelta(seconds=5))
    first.restore()
    for step in (1, 2):
        write(first, f"epoch-{step}.ckpt", str(step), rename=True)
        place.look(first, 10)
    second = place.next_machine(2)
    assert len(tree(second)) == 2
    second.keep_last(ProgramEnd.BY_ITSELF)
    second.note_failed_load(library=False)
    third = place.next_machine(3)
    assert tree(third) == {"epoch-1.ckpt": "1"}
    assert place.list_events(EventKind.FELL_BACK) == [{"from_step": 2, "to_step": 1, "count": 1}]
    third.note_failed_load(library=False)
    assert len(restore_tree(place, 4)) == 2, "none of them loads: the newest is tried again"
    assert len(place.list_events(EventKind.FELL_BACK)) == 1

    fifth = place.next_machine(5)
    write(fifth, "epoch-3.ckpt", "3", rename=True)
    place.look(fifth, 10)
    fifth.note_failed_load(library=False)
    assert "epoch-3.ckpt" in restore_tree(place, 6), "it has loaded, and made something of it"


def test_what_did_not_load_leaves_the_head_with_the_next_checkpoint(place: Place) -> None:
    first = place.keeper(1, timedelta(seconds=5))
    first.restore()
    for step in (1, 2):
        write(first, "a.ckpt", str(step), rename=True)
        place.look(first, 10)
    place.next_machine(2).note_failed_load(library=False)
    third = place.next_machine(3)
    write(third, "a.ckpt", "3", rename=True)
    place.look(third, 10)
    head = place.store.checkpoints("job-1").head()
    assert head is not None and [checkpoint.step for checkpoint in head.checkpoints] == [3, 1]


def test_a_marker_says_that_what_was_written_before_it_is_complete(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    marker = ".everspot-complete"
    for step in (1, 2, 3):
        for name in ("model.bin", "optim.bin", marker):
            write(keeper, name, str(step))
            place.look(keeper, 6)
            assert len(place.checkpoint_events) == (step if name == marker else step - 1)
    write(keeper, "step-1/model", "1")
    write(keeper, f"step-1/{marker}", "")
    place.look(keeper, 6)
    write(keeper, "step-2/model", "1")
    write(keeper, "model.bin", "4")
    place.look(keeper, 60)
    keeper.keep_last(ProgramEnd.KILLED)
    kept_files = restore_tree(place, 2)
    assert (kept_files["model.bin"], kept_files["optim.bin"], kept_files["step-1/model"]) == ("3", "3", "1")
    assert "step-2/model" not in kept_files


def test_a_marker_counts_after_the_program_was_killed(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    for name in ("model.bin", "state.json", ".everspot-complete"):
        write(keeper, name, "1")
        time.sleep(0.02)
    keeper.keep_last(ProgramEnd.KILLED)
    assert restore_tree(place, 2) == {"model.bin": "1", "state.json": "1", ".everspot-complete": "1"}


def test_a_marker_says_nothing_of_a_file_that_is_written_after_it(place: Place) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    for name in (".everspot-complete", "model.bin"):
        write(keeper, name, "1")
        time.sleep(0.02)
    keeper.keep_last(ProgramEnd.KILLED)
    assert not place.keeper(2).restore()


def test_a_file_that_is_held_open_for_long_is_a_log_and_json_lines_are_no_torn_file(place: Place) -> None:
    keeper = place.keeper(1, timedelta(seconds=5))
    keeper.restore()
    path = write(keeper, "history.txt", "0")
    code = "import sys; f = open(sys.argv[1], 'r+'); print(1, flush=True); sys.stdin.readline()"
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdout.readline()
        for step in range(4):
            write(keeper, "state.json", f'{{"step": {step}}}\n{{"loss": 1}}\n', rename=True)
            place.look(keeper, 30)
        print(file=program.stdin, flush=True)
    assert restore_tree(place, 2)["state.json"].startswith('{"step": 3}')


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("model_20.pt", "model_#.pt"),
        ("step-20/rank-0.pt", "step-#/rank-0.pt"),
        ("rank-0.pt", "rank-0.pt"),
        ("run_3/ckpt_40.pt", "run_#/ckpt_#.pt"),
        ("20/model.pt", "#/model.pt"),
        ("global_step20/zero_pp_rank_0.pt", "global_step#/zero_pp_rank_0.pt"),
        ("epoch=3-loss=0.12.bin", "epoch=#-loss=#.#.bin"),
        ("ckpt-3fa9b27c.pt", "ckpt-#.pt"),
        ("G_20.pth", "G_#.pth"),
        ("step-500/model_500.pt", "step-#/model_#.pt"),
        ("checkpoint_0/custom_checkpoint_0.pkl", "checkpoint_#/custom_checkpoint_0.pkl"),
        ("ep10/00010.bin", "ep#/00010.bin"),
        ("v20/weights.bin", "v#/weights.bin"),
        ("net_20/weights.bin", "net_#/weights.bin"),
        ("gpt2/model_40.pt", "gpt2/model_#.pt"),
        ("rank0/weights.bin", "rank0/weights.bin"),
    ],
)
def test_files_of_several_versions_have_one_template(path: str, template: str) -> None:
    assert path_template(path.encode()).decode() in (template, template.replace("run_#", "run_3"))


@pytest.mark.parametrize(("name", "is_kept"), [("results.jsonl", True), ("train.log", False), ("runs/events", False)])
def test_a_table_of_results_is_kept_where_there_is_nothing_else(place: Place, name: str, is_kept: bool) -> None:
    keeper = place.keeper(1)
    keeper.restore()
    for row in range(8):
        with write(keeper, name, "").open("a") as file:
            file.write(f"{row}\n")
        place.look(keeper)
    keeper.keep_last(ProgramEnd.KILLED)
    assert keeper.durable == is_kept, "a job that keeps nothing begins again, which must be counted"
