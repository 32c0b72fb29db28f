"""The cache of documents by ETag in the user's own file: never stale, never an obstacle, never another user's."""

import os
import sqlite3
import stat
import subprocess
import sys

import pytest
from everspot_core.jobs.records import Request
from everspot_store import Bucket, ManualClock
from everspot_store.document_cache import DocumentCache
from everspot_store.table import Table
from everspot_store.testing import MemoryBackend

from .conftest import AT


class Counting(MemoryBackend):
    """A bucket that knows which keys were read."""

    def __init__(self):
        super().__init__()
        self.read = []

    def get(self, key):
        self.read.append(key)
        return super().get(key)


@pytest.fixture
def backend():
    return Counting()


def table(backend, path, **limit):
    """A table of a new process: it remembers nothing but what is in the file."""
    return Table(Bucket("s3://b", backend, ManualClock(AT)), "cancels", Request, DocumentCache(path, "s3://b", **limit))


def fill(backend, count, by="me"):
    for n in range(count):
        Table(Bucket("s3://b", backend, ManualClock(AT)), "cancels", Request).put(f"j{n}", Request(at=AT, by=by))
    backend.read.clear()


def test_what_was_read_once_is_not_read_again_and_what_changed_is(backend, tmp_path):
    path = tmp_path / "cache" / "documents.db"
    fill(backend, 5)
    first = table(backend, path).scan()
    assert len(backend.read) == 5
    backend.read.clear()
    assert table(backend, path).scan() == first
    assert backend.read == []
    table(backend, path).put("j3", Request(at=AT, by="somebody else"))
    table(backend, path).delete("j4")
    documents = table(backend, path).scan()
    assert backend.read == ["cancels/j3.json"]
    assert documents["j3"].value.by == "somebody else"
    assert set(documents) == {"j0", "j1", "j2", "j3"}


def test_many_prefixes_are_answered_each_for_itself(backend, tmp_path):
    plain = Table(Bucket("s3://b", backend, ManualClock(AT)), "cancels", Request)
    for name in ("a/1", "a/2", "b/1", "ab/1"):
        plain.put(name, Request(at=AT, by=name))
    documents = table(backend, tmp_path / "db").scan_all(["a/", "b/", "c/"], lambda id: not id.endswith("2"))
    assert {prefix: sorted(docs) for prefix, docs in documents.items()} == {"a/": ["a/1"], "b/": ["b/1"], "c/": []}


def test_the_file_is_private_and_one_that_is_not_is_left_alone(backend, tmp_path):
    path = tmp_path / "cache" / "documents.db"
    fill(backend, 2)
    table(backend, path).scan()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    backend.read.clear()
    assert len(table(backend, path).scan()) == 2
    assert len(backend.read) == 2


@pytest.mark.parametrize("damage", ["garbage", "folder", "nowhere"])
def test_a_file_that_cannot_be_used_is_no_hindrance(backend, tmp_path, damage):
    path = tmp_path / "documents.db"
    if damage == "garbage":
        path.write_bytes(b"this is no database" * 100)
        path.chmod(0o600)
    elif damage == "folder":
        path.mkdir()
    else:
        path = tmp_path / "file" / "documents.db"
        (tmp_path / "file").write_text("in the way")
    fill(backend, 2)
    assert len(table(backend, path).scan()) == len(table(backend, path).scan()) == 2


def test_a_body_that_cannot_be_read_is_read_from_the_bucket(backend, tmp_path):
    path = tmp_path / "documents.db"
    fill(backend, 1)
    table(backend, path).scan()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE documents SET body = ?", (b"not JSON",))
    backend.read.clear()
    assert table(backend, path).scan()["j0"].value.by == "me"
    assert backend.read == ["cancels/j0.json"]


def test_it_stays_within_its_limit(backend, tmp_path):
    path = tmp_path / "documents.db"
    fill(backend, 40, by="x" * 1000)
    table(backend, path, limit=20_000).scan()
    with sqlite3.connect(path) as database:
        (total, count) = database.execute("SELECT sum(size), count(*) FROM documents").fetchone()
    assert 0 < total <= 20_000 and count > 5
    assert len(table(backend, path, limit=20_000).scan()) == 40


def test_two_buckets_do_not_know_each_others_documents(tmp_path):
    first, second = DocumentCache(tmp_path / "db", "s3://one"), DocumentCache(tmp_path / "db", "s3://two")
    first.put({"k": ("e", b"one")})
    second.put({"k": ("e", b"two")})
    assert (first.get({"k": "e"}), second.get({"k": "e"}), first.get({"k": "f"})) == ({"k": b"one"}, {"k": b"two"}, {})


def test_several_processes_share_it(tmp_path):
    script = (
        "import sys\nfrom pathlib import Path\nfrom everspot_store.document_cache import DocumentCache\n"
        "memo = DocumentCache(Path(sys.argv[1]), 's3://b')\n"
        "for n in range(20):\n    memo.put({f'{sys.argv[2]}-{n}': ('e', b'x' * 100)})\n"
    )
    path = str(tmp_path / "db")
    running = [subprocess.Popen([sys.executable, "-c", script, path, str(n)], env=os.environ) for n in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    memo = DocumentCache(tmp_path / "db", "s3://b")
    assert len(memo.get({f"{p}-{n}": "e" for p in range(3) for n in range(20)})) == 60
