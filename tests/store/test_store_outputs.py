"""A job's outputs keep every file name that Linux allows, with modes, times and links."""

# pathlib takes no bytes
# ruff: noqa: PTH101, PTH103, PTH115, PTH118, PTH120, PTH123, PTH211

import os
import socket
import threading
from pathlib import Path

import pytest
from everspot_store import ManualClock, Store
from everspot_store.backend import Moved, Uploaded
from everspot_store.code import pack, unpack
from everspot_store.errors import UnsafeArchive
from everspot_store.file_tree import (
    EntryKind,
    FileTree,
    TreeEntry,
    escape_path,
    put_back,
    put_foreign_entry,
    unescape_path,
)
from everspot_store.testing import Fault, FaultScript, MemoryBackend, faulty_store
from hypothesis import given
from hypothesis import strategies as st

ODD = [
    b"a.csv\r",
    b"caf\xe9.csv",
    b"two\nlines",
    b" blank ",
    b"-rf",
    b"~tilde",
    b"%41 percent",
    b".hidden",
    b"..almost",
    b"tab\tand\x1b[31mcolor",
    b"\xff\xfe\x01",
    "smörgåsbord 模型 🎈".encode(),
    "bidi‮txt.exe".encode(),
    b"#?&+*\\|<>:\"'",
    b"n" * 255,
]


def write(root: bytes, path: bytes, text: bytes = b"") -> bytes:
    place = os.path.join(root, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "wb") as file:
        file.write(text or path)
    return place


def pull(store: Store, target: Path) -> bytes:
    outputs = store.outputs("job-1")
    for output in outputs.list():
        outputs.fetch(output, target)
    return os.fsencode(target)


def content(root: bytes) -> dict[bytes, bytes]:
    places = [os.path.join(parent, name) for parent, _, names in os.walk(root) for name in names]
    return {os.path.relpath(place, root): Path(os.fsdecode(place)).read_bytes() for place in places}


@pytest.mark.parametrize("deep", [b"", b"sub/", b"sub\r\xe9/"])
def test_every_name_that_linux_allows_is_kept_and_comes_back(folder_store: Store, tmp_path: Path, deep: bytes) -> None:
    root = os.fsencode(tmp_path / "outputs")
    names = [deep + name for name in [*ODD, b"plain.txt", b"deep/plain.bin"]]
    for name in names:
        write(root, name)
    assert folder_store.outputs("job-1").keep(1, tmp_path / "outputs", lambda: True) == (len(names), {})
    keys = [entry.key for entry in folder_store.data.list()]
    assert all(key.isascii() and key.isprintable() for key in keys)
    pulled = content(pull(folder_store, tmp_path / "pulled"))
    assert pulled == {name: name for name in names}


@given(st.binary(min_size=1, max_size=60).filter(lambda name: b"\0" not in name))
def test_an_escaped_path_is_printable_and_reads_back(path: bytes) -> None:
    text = escape_path(path)
    assert text.isprintable() and unescape_path(text) == path
    assert FileTree.read(FileTree(entries=[TreeEntry(path=text)]).to_json()).entries[0].path == text


def test_modes_times_links_and_dot_files_come_back(folder_store: Store, tmp_path: Path) -> None:
    root = os.fsencode(tmp_path / "outputs")
    script = write(root, b"run.sh", b"#!/bin/sh")
    os.chmod(script, 0o750)
    os.utime(script, ns=(10**18, 10**18 + 123))
    write(root, b"model/.metadata")
    os.link(script, os.path.join(root, b"model/same"))
    os.symlink("model/.metadata", os.path.join(root, b"last"))
    os.symlink(os.path.join(root, b"model"), os.path.join(root, b"newest"))
    assert folder_store.outputs("job-1").keep(1, tmp_path / "outputs", lambda: True) == (5, {})
    pulled = tmp_path / "pulled"
    pull(folder_store, pulled)
    status = (pulled / "run.sh").stat()
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o750, 10**18 + 123)
    assert (pulled / "model/same").stat().st_ino == status.st_ino
    assert (os.readlink(pulled / "last"), os.readlink(pulled / "newest")) == ("model/.metadata", "model")
    assert (pulled / "newest/.metadata").read_bytes() == b"model/.metadata"
    sizes = [entry.size for entry in folder_store.data.list() if entry.size == len(b"#!/bin/sh")]
    assert sizes == [9], "a hard link is stored once"


def test_what_cannot_be_kept_is_named_and_everything_else_is_kept(
    folder_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "outputs"
    write(os.fsencode(root), b"good.csv")
    (root / "out").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../elsewhere")
    with socket.socket(socket.AF_UNIX) as door:
        monkeypatch.chdir(root)  # a socket's path is short
        door.bind("door")
    uploaded, skipped = folder_store.outputs("job-1").keep(1, root, lambda: True)
    assert (uploaded, sorted(skipped)) == (1, ["door", "out", "up"])
    assert "leads out of the folder" in skipped["out"] and "neither" in skipped["door"]


def test_a_folder_that_cannot_be_listed_is_named(folder_store: Store, tmp_path: Path) -> None:
    """Its path is longer than Linux takes, so that root cannot list it either."""
    root = tmp_path / "outputs"
    write(os.fsencode(root), b"good.csv")
    deep = os.open(root, os.O_RDONLY)
    for _ in range(50):
        os.mkdir("d" * 100, dir_fd=deep)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    uploaded, skipped = folder_store.outputs("job-1").keep(1, root, lambda: True)
    assert (uploaded, len(skipped)) == (1, 1)
    ((path, reason),) = skipped.items()
    assert path.startswith("ddd") and reason == "File name too long"


@pytest.mark.parametrize(
    ("operation", "nth", "names"), [("list", 1, "abcdef"), ("create", 1, "abcdef"), ("upload", 2, "b")]
)
def test_a_store_that_fails_is_the_reason_for_which_outputs_are_not_kept(
    tmp_path: Path, operation: str, nth: int, names: str
) -> None:
    for name in "abcdef":
        write(os.fsencode(tmp_path), name.encode())
    faults = FaultScript().on(operation, key="jobs/*", nth=nth, fault=Fault.DENIED)
    store = faulty_store(MemoryBackend(), MemoryBackend(), ManualClock(), faults)
    reason = "the store refuses it: a permission is missing"
    kept_count = 6 - len(names)
    assert store.outputs("job-1").keep(1, tmp_path, lambda: True) == (kept_count, dict.fromkeys(names, reason))
    assert faults.spent
    assert len(store.outputs("job-1").list()) == kept_count


class Meeting(MemoryBackend):
    """Takes the files whose names begin with `pair` two at a time only."""

    def __init__(self) -> None:
        super().__init__()
        self._barrier = threading.Barrier(2)

    def upload(self, key: str, path: Path, moved: Moved | None = None) -> Uploaded:
        if path.name.startswith("pair"):
            self._barrier.wait(60)
        return super().upload(key, path, moved)


def test_many_outputs_are_uploaded_several_at_a_time(tmp_path: Path) -> None:
    for name in [*"abcdefgh", "pair-1", "pair-2", "pair-3", "pair-4"]:
        write(os.fsencode(tmp_path), name.encode())
    store = faulty_store(MemoryBackend(), Meeting(), ManualClock(), FaultScript())
    assert store.outputs("job-1").keep(1, tmp_path, lambda: True) == (12, {})


def test_after_three_files_in_a_row_that_the_store_does_not_take_no_more_is_tried(tmp_path: Path) -> None:
    for name in "abcdef":
        write(os.fsencode(tmp_path), name.encode())
    faults = FaultScript()
    for number in (2, 3, 4):
        faults.on("upload", nth=number, fault=Fault.DENIED)
    store = faulty_store(MemoryBackend(), MemoryBackend(), ManualClock(), faults)
    uploaded, skipped = store.outputs("job-1").keep(1, tmp_path, lambda: True)
    assert (uploaded, sorted(skipped)) == (1, ["b", "c", "d", "e", "f"])
    assert skipped["f"] == skipped["e"] == "the store took none of the files before it"
    again, _ = store.outputs("job-1").keep(1, tmp_path, lambda: True)
    assert again == 6, "what was not kept is tried once more by who asks again"


def test_outputs_of_earlier_releases_are_read_and_the_last_attempt_counts(folder_store: Store, tmp_path: Path) -> None:
    folder_store.data.put("jobs/job-1/outputs/000001/a/b.txt", b"old")
    folder_store.data.put("jobs/job-1/outputs/000001/weird name.txt", b"old")
    write(os.fsencode(tmp_path / "outputs"), b"weird name.txt", b"new")
    folder_store.outputs("job-1").keep(2, tmp_path / "outputs", lambda: True)
    outputs = folder_store.outputs("job-1")
    assert [(output.path, output.epoch) for output in outputs.list()] == [("a/b.txt", 1), ("weird name.txt", 2)]
    assert content(pull(folder_store, tmp_path / "pulled"))[b"weird name.txt"] == b"new"
    assert [output.path for output in outputs.list("a")] == ["a/b.txt"]


@pytest.mark.parametrize(
    "entry",
    [
        TreeEntry(path="../out"),
        TreeEntry(path="/etc/out"),
        TreeEntry(path="a/../../out"),
        TreeEntry(path="door/out"),
        TreeEntry(path="link", kind=EntryKind.LINK, target="/etc/passwd"),
        TreeEntry(path="link", kind=EntryKind.LINK, target="a/../../x"),
    ],
)
def test_nothing_is_written_outside_the_folder(tmp_path: Path, entry: TreeEntry) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "door").symlink_to(tmp_path)
    (tmp_path / "content").write_text("x")
    with pytest.raises(UnsafeArchive):
        put_foreign_entry(entry, tmp_path / "in", lambda _: tmp_path / "content")
    assert not (tmp_path / "out").exists()


def test_the_order_of_changes_is_kept_for_programs_that_look_for_the_newest(tmp_path: Path) -> None:
    entries = [
        TreeEntry(path=f"checkpoint-{step}/model", mtime_ns=1, ctime_ns=step, content=str(step))
        for step in (110, 90, 20)
    ]
    entries += [
        TreeEntry(path=f"checkpoint-{step}", kind=EntryKind.DIRECTORY, mode=0o755, mtime_ns=step, ctime_ns=step)
        for step in (20, 90, 110)
    ]

    def write_content(entry: TreeEntry) -> Path:
        (tmp_path / "part").write_text(entry.content)
        return tmp_path / "part"

    assert put_back(entries, tmp_path / "in", write_content) == {}
    for names in ("checkpoint-*", "checkpoint-*/model"):
        for clock in (os.path.getctime, os.path.getmtime):
            places = sorted((tmp_path / "in").glob(names))
            assert "110" in str(max(places, key=clock)) or (clock is os.path.getmtime and names.endswith("model"))


def test_a_dataset_keeps_every_name(folder_store: Store, tmp_path: Path) -> None:
    for name in [*ODD, b"plain.txt"]:
        write(os.fsencode(tmp_path / "data"), b"sub\xe9/" + name)
    dataset = folder_store.datasets.put("odd", tmp_path / "data")
    folder_store.datasets.fetch(folder_store.datasets.find("odd", dataset.digest), tmp_path / "fetched")
    fetched = content(os.fsencode(tmp_path / "fetched"))
    assert fetched == {b"sub\xe9/" + name: b"sub\xe9/" + name for name in [*ODD, b"plain.txt"]}


def test_code_keeps_every_name(tmp_path: Path) -> None:
    names = [b"sub\xe9/" + name for name in [*ODD, b"plain.txt"]]
    for name in names:
        write(os.fsencode(tmp_path / "code"), name)
    pack(tmp_path / "code", tmp_path / "code.tar.gz")
    unpack(tmp_path / "code.tar.gz", tmp_path / "unpacked")
    assert content(os.fsencode(tmp_path / "unpacked")) == {name: name for name in names}


def test_what_a_restarted_attempt_writes_replaces_what_an_earlier_agent_uploaded(
    folder_store: Store, tmp_path: Path
) -> None:
    folder, outputs = os.fsencode(tmp_path / "outputs"), folder_store.outputs("job-1")
    for text in (b"half", b"all!", b"all of it"):
        write(folder, b"result", text)
        if text == b"half":
            os.link(os.path.join(folder, b"result"), os.path.join(folder, b"second name"))
            write(folder, b"settled", b"the same in all attempts")
        for _ in range(2):  # an agent repeats a failed upload
            assert outputs.keep(1, tmp_path / "outputs", lambda: True) == (3, {})
    objects = [entry.key for entry in folder_store.data.list("jobs/job-1/outputs/000001/") if "tree-" not in entry.key]
    assert len(objects) == 4, "two versions of a file, or the settled one, were uploaded twice"
    pulled = pull(folder_store, tmp_path / "pulled")
    for name, text in (
        (b"result", b"all of it"),
        (b"second name", b"all of it"),
        (b"settled", b"the same in all attempts"),
    ):
        with open(os.path.join(pulled, name), "rb") as file:
            assert file.read() == text
    assert outputs.is_complete()
