"""The store against Cloud Storage's rules: generations, one write a second per name, and refusals."""

import http.client
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import obstore
import pytest
from everspot_core.jobs.records import Request
from everspot_store import (
    Bucket,
    KeyTaken,
    ManualClock,
    Store,
    StoreBusy,
    StoreDenied,
    StoreMissing,
    StoreUnavailable,
    Table,
    Version,
    WriteOutcome,
)
from everspot_store.bucket import ATTEMPTS, BUSY_BACKOFF
from everspot_store.document_cache import DocumentCache
from gcs_helpers import Door

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def bucket(gs_store: Store) -> Bucket:
    return gs_store.control


def _status(door: Door, method: str, path: str, headers: dict[str, str]) -> int:
    """The status of a request that obstore would not make."""
    connection = http.client.HTTPConnection(door.environment["GOOGLE_BASE_URL"].removeprefix("http://"))
    try:
        connection.request(method, path, b"x" if method == "PUT" else None, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def _later(clock: ManualClock) -> None:
    clock.advance(timedelta(seconds=2))


def test_the_outcomes_of_conditional_writes(bucket: Bucket, clock: ManualClock) -> None:
    done = bucket.create("k", b"1")
    assert done.outcome is WriteOutcome.DONE and done.version is not None and done.version.generation.isdigit()
    assert bucket.create("k", b"2").outcome is WriteOutcome.LOST
    assert bucket.replace("k", b"2", done.version).outcome is WriteOutcome.BUSY
    _later(clock)
    second = bucket.replace("k", b"2", done.version)
    assert second.outcome is WriteOutcome.DONE and second.version is not None
    _later(clock)
    assert bucket.replace("k", b"3", done.version).outcome is WriteOutcome.LOST
    assert bucket.replace("absent", b"3", done.version).outcome is WriteOutcome.LOST
    current = bucket.get("k")
    assert current is not None and (current.value, current.version) == (b"2", second.version)


def test_a_version_that_only_a_listing_told_is_looked_up(bucket: Bucket, gcs_door: Door, clock: ManualClock) -> None:
    old = bucket.put("k", b"1")
    [listed] = [entry for entry in bucket.list() if entry.key == "k"]
    _later(clock)
    gcs_door.requests.clear()
    done = bucket.replace("k", b"2", Version(listed.etag))
    assert done.outcome is WriteOutcome.DONE
    assert gcs_door.requests == [("HEAD", "/everspot-control/k"), ("PUT", "/everspot-control/k")]
    _later(clock)
    assert bucket.replace("k", b"3", Version(old.etag)).outcome is WriteOutcome.LOST
    assert bucket.replace("absent", b"3", Version(old.etag)).outcome is WriteOutcome.LOST
    assert done.version is not None
    gcs_door.requests.clear()
    assert bucket.replace("k", b"3", done.version).outcome is WriteOutcome.DONE
    assert gcs_door.requests == [("PUT", "/everspot-control/k")], "a version that was read needs no question"


def test_a_document_from_this_machines_memory_can_be_replaced(
    gs_store: Store, clock: ManualClock, tmp_path: Path
) -> None:
    memo = DocumentCache(tmp_path / "memo", gs_store.control.url)
    writer = Table(gs_store.control, "cancels", Request, memo)
    assert writer.create("job-1", Request(at=AT)) is not None
    Table(gs_store.control, "cancels", Request, memo).scan()
    again = Table(gs_store.control, "cancels", Request, memo)
    remembered = again.scan()["job-1"]
    assert remembered.version.generation == ""
    _later(clock)
    assert again.replace("job-1", remembered, Request(at=AT, by="us")) is not None
    _later(clock)
    assert again.replace("job-1", remembered, Request(at=AT, by="late")) is None


def test_writes_that_come_too_fast_wait_for_a_second_and_more(gs_store: Store, clock: ManualClock) -> None:
    document = gs_store.cancels.create("job-1", Request(at=AT))
    for number in range(3):
        assert document is not None
        document = gs_store.cancels.replace("job-1", document, Request(at=AT, by=str(number)))
    assert document is not None and document.value.by == "2"
    gs_store.control.put("k", b"1")
    gs_store.control.put("k", b"2")
    gs_store.control.delete("k")
    assert clock.slept == [BUSY_BACKOFF] * 5 and timedelta(seconds=1) < BUSY_BACKOFF


def test_a_store_that_stays_busy_is_told_apart_and_nothing_is_written(
    bucket: Bucket, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("cancels/job-1.json", b"{}")
    monkeypatch.setattr(clock, "sleep", clock.slept.append)
    with pytest.raises(StoreBusy, match="429"):
        bucket.put("cancels/job-1.json", b"2")
    waits = [BUSY_BACKOFF * 2**n for n in range(ATTEMPTS - 1)]
    assert clock.slept == waits
    table = Table(bucket, "cancels", Request)
    stored = bucket.get("cancels/job-1.json")
    assert stored is not None
    with pytest.raises(StoreUnavailable, match="busy"):
        table.replace(
            "job-1", table.put("other", Request(at=AT)).__class__(Request(at=AT), stored.version), Request(at=AT)
        )
    assert clock.slept == [*waits, *waits] and bucket.get("cancels/job-1.json") == stored


def test_files_of_several_pieces_come_back_whole(bucket: Bucket, clock: ManualClock, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(range(256)) * (40 << 12))
    stored = bucket.upload("large", tmp_path / "large")
    assert bucket.download("large", tmp_path / "back", stored.sha256) == stored.sha256
    with pytest.raises(KeyTaken):
        bucket.upload("large", tmp_path / "large")
    (tmp_path / "small").write_bytes(b"small")
    assert bucket.upload("small", tmp_path / "small").size == 5
    _later(clock)
    assert bucket.upload("small", tmp_path / "small").size == 5, "the same content is no other"
    (tmp_path / "small").write_bytes(b"other")
    with pytest.raises(KeyTaken):
        bucket.upload("small", tmp_path / "small")


def test_listings_of_many_pages_are_whole(bucket: Bucket, gcs_door: Door) -> None:
    names = sorted([f"many/{n:05d}.json" for n in range(2100)] + ["many/ö.json", "many/a b&c.json"])
    for name in names:
        gcs_door.objects.put("everspot-control", name, b"{}", 0)
    assert [entry.key for entry in bucket.list("many/")] == names
    assert [method for method, path in gcs_door.requests if path == "/everspot-control"].count("GET") == 3


def test_refusals_are_told_apart(
    bucket: Bucket, gcs_door: Door, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Bucket.open("gs://everspot-none", clock=clock)
    for call in (lambda: missing.get("k"), lambda: missing.list(), lambda: missing.put("k", b""),
                 lambda: missing.create("k", b""), lambda: missing.delete("k")):  # fmt: skip
        with pytest.raises(StoreMissing, match="everspot-none"):
            call()
    bucket.delete("never-there")
    assert clock.slept == []
    app = gcs_door._app
    for status, kind in (("401 Unauthorized", StoreDenied), ("403 Forbidden", StoreDenied),
                         ("503 Service Unavailable", StoreUnavailable)):  # fmt: skip

        def refuse(environ: dict[str, Any], start_response: Any, status: str = status) -> list[bytes]:
            start_response(status, [("Content-Length", "0")])
            return []

        monkeypatch.setattr(gcs_door, "_app", refuse)
        with pytest.raises(kind):
            bucket.get("k")
    monkeypatch.setattr(gcs_door, "_app", app)


def test_what_cloud_storage_does_not_take_is_refused_here_too(gs_store: Store, gcs_door: Door) -> None:
    """A PUT with If-Match, a multipart upload with a condition, and requests that nobody here makes."""
    raw = obstore.store.GCSStore.from_url("gs://everspot-control", client_options={"allow_http": True},
                                          retry_config={"max_retries": 0})  # fmt: skip
    tag = obstore.put(raw, "k", b"1", use_multipart=False)["e_tag"]
    with pytest.raises(Exception, match="Version required"):
        obstore.put(raw, "k", b"2", mode={"e_tag": tag})
    door, token = partial(_status, gcs_door), {"Authorization": "Bearer token"}
    assert door("PUT", "/everspot-control/k", token | {"If-Match": str(tag)}) == 501
    assert door("PUT", "/everspot-control/k", token | {"x-goog-if-generation-match": "one"}) == 400
    assert door("POST", "/everspot-control/large?uploads", token | {"x-goog-if-generation-match": "0"}) == 400
    assert door("GET", "/everspot-control/k?acl", token) == 501
    assert door("GET", "/everspot-control/k", {}) == 401
    for name in ("goog-x", "my-google-x", "Upper", "ab", "x" * 64):
        with pytest.raises(Exception, match="not valid"):
            gcs_door.objects.make_bucket(name)
    with pytest.raises(Exception, match="Invalid argument"):
        gcs_door.objects.put("everspot-control", "x" * 1025, b"", None)
