"""`everspot gc` lists garbage, and removes it only on request."""

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

KEY = "code/00ff.tar.gz"


def test_garbage_is_shown_by_size_and_removed_only_if_asked_to(past):
    past.store.data.put(KEY, b"x" * 1234)
    assert past.run("gc").out.strip() == "Nothing to remove."  # it is too young: a submission may be under way
    path = past.root / "data" / KEY
    os.utime(path, (0, 0))
    answer = past.run("gc")
    assert "code that no job names" in answer.out and "1.23 KB" in answer.out
    assert "Nothing was removed" in answer.out and path.exists()
    shown = past.run("--json", "gc", "--delete").json
    assert (shown["removed"], shown["bytes"]) == (True, 1234)
    assert shown["kinds"] == [{"kind": "code that no job names", "objects": 1, "bytes": 1234}]
    assert not path.exists()


@pytest.mark.parametrize("skew", [timedelta(days=-40), timedelta(days=40)], ids=str)
def test_ages_are_by_the_clock_of_the_store(past, monkeypatch, skew):
    """Given a wrong clock of this machine, when a job has just ended, then its log stays."""
    correct = time.time
    past.store.logs.append("moved", 1, 0, b"the only copy")
    record = past.record("moved")
    past.save(record.model_copy(update={"changed_at": datetime.now(UTC)}))
    for path in (past.root / "data").rglob("*"):
        os.utime(path, (correct() - 2 * 86400,) * 2)
    monkeypatch.setattr(time, "time", lambda: correct() + skew.total_seconds())
    kinds = [row["kind"] for row in past.run("--json", "gc", "--delete").json["kinds"]]
    assert not [kind for kind in kinds if "logs" in kind]
    assert [chunk.data for chunk in past.store.logs.read("moved")] == [b"the only copy"]


def test_a_duration_that_is_none_is_a_usage_error(past):
    assert past.run("gc", "--keep", "soon").code == 2


def test_what_cannot_be_read_is_named_and_nothing_is_removed(past):
    past.store.data.put(KEY, b"x")
    path = past.root / "data" / KEY
    os.utime(path, (0, 0))
    past.store.control.put("jobs/later.json", b'{"job_id": "later"}')
    answer = past.run("gc", "--delete")
    assert answer.code == 1 and "jobs/later.json" in answer.err
    assert path.exists()
