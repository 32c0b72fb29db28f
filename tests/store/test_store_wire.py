"""The store over the real S3 protocol, with faults of the network and of a busy S3."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import obstore
import pytest
from everspot_core.jobs.job import JobSubmission
from everspot_core.jobs.records import Request
from everspot_store import (
    Bucket,
    KeyTaken,
    ManualClock,
    Store,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    Table,
    Transfer,
    TransferCancelled,
    Version,
    WriteOutcome,
)
from loopback import Loopback
from wire import Wire

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def wire(aws: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with Wire(aws) as wire:
        monkeypatch.setenv("AWS_ENDPOINT_URL", wire.url)
        yield wire


@pytest.fixture
def bucket(aws: str, wire: Any, clock: ManualClock) -> Bucket:
    name = f"everspot-{uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=aws).create_bucket(Bucket=name)
    return Bucket.open(f"s3://{name}", clock=clock)


@pytest.fixture
def table(bucket: Bucket) -> Table[Request]:
    return Table(bucket, "cancels", Request)


@pytest.mark.parametrize(("mib", "timeout"), [(1, "10s"), (5, "2m"), (17, "4m")])
def test_the_time_for_a_document_grows_with_its_size(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, mib: int, timeout: str
) -> None:
    timeouts: list[str] = []

    def record(call: Callable[..., Any], client: Any, *args: Any, **options: Any) -> Any:
        timeouts.append(client.client_options["timeout"])
        return call(client, *args, **options)

    for name in ("put", "get"):
        monkeypatch.setattr(obstore, name, partial(record, getattr(obstore, name)))
    document = bytes(mib * 2**20)
    version = bucket.put("put", document)
    assert bucket.create("created", document).outcome is WriteOutcome.DONE
    assert bucket.replace("put", document, version).outcome is WriteOutcome.DONE
    assert timeouts == [timeout] * 3
    stored = bucket.get("put")
    assert stored is not None and (len(stored.value), timeouts[-1]) == (len(document), timeout)


def test_the_four_outcomes_on_the_wire(bucket: Bucket, wire: Any) -> None:
    done = bucket.create("k", b"1")
    assert done.outcome is WriteOutcome.DONE and done.version is not None
    assert bucket.create("k", b"2").outcome is WriteOutcome.LOST
    assert bucket.replace("k", b"2", Version('"other"')).outcome is WriteOutcome.LOST
    assert bucket.replace("absent", b"2", done.version).outcome is WriteOutcome.LOST
    wire.on("PUT", "/k", (409, "ConditionalRequestConflict"), times=2)
    assert bucket.create("k2", b"1").outcome is WriteOutcome.CONFLICT
    assert bucket.replace("k", b"2", done.version).outcome is WriteOutcome.CONFLICT
    wire.on("PUT", "/k", "cut")
    assert bucket.replace("k", b"2", done.version).outcome is WriteOutcome.UNKNOWN
    stored = bucket.get("k")
    assert stored is not None and stored.value == b"2"
    wire.on("PUT", "/k", "drop")
    assert bucket.replace("k", b"3", stored.version).outcome is WriteOutcome.UNKNOWN
    assert bucket.get("k") == stored
    wire.on("PUT", "/k", (503, "SlowDown"))
    assert bucket.replace("k", b"3", stored.version).outcome is WriteOutcome.UNKNOWN
    assert wire.spent


def test_one_attempt_is_one_request(bucket: Bucket, wire: Any) -> None:
    """A hidden retry of a conditional write would answer 412 to its own success."""
    wire.on("PUT", "/k", "cut")
    bucket.create("k", b"1")
    assert [method for method, path in wire.requests if path.endswith("/k")] == ["PUT"]


@pytest.mark.parametrize(
    "disturbance", [(409, "ConditionalRequestConflict"), "cut", "drop", (503, "SlowDown"), (500, "X")]
)
def test_a_document_is_written_once_through_every_disturbance(
    table: Table[Request], wire: Any, disturbance: Any
) -> None:
    wire.on("PUT", "/cancels/", disturbance)
    first = table.create("j", Request(at=AT))
    assert first is not None
    wire.on("PUT", "/cancels/", disturbance)
    second = table.replace("j", first, Request(at=AT, by="us"))
    assert second is not None and table.get("j") == second
    assert table.replace("j", first, Request(at=AT, by="late")) is None
    assert wire.spent


def test_a_large_document_has_the_time_of_a_file_and_its_creation_stays_conditional(
    bucket: Bucket, wire: Any, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, other = b"1" * (5 << 20), b"2" * (5 << 20)
    with monkeypatch.context() as patch:
        patch.setattr("everspot_store.cloud.REQUEST_TIMEOUT", timedelta(milliseconds=300))
        patient = Bucket.open(f"{bucket.url}?region=us-east-1", clock=clock)
    wire.on("PUT", "/list", "late", times=2)
    assert patient.create("list", document).outcome is WriteOutcome.DONE
    assert patient.create("list", other).outcome is WriteOutcome.LOST
    assert wire.spent
    wire.on("GET", "/list", "stall")
    stored = bucket.get("list")
    assert stored is not None and stored.value == document
    assert bucket.replace("list", other, Version('"another"')).outcome is WriteOutcome.LOST
    assert bucket.replace("list", other, stored.version).outcome is WriteOutcome.DONE
    assert wire.spent and clock.slept == []


def test_a_submission_is_created_through_every_disturbance(
    aws: str, wire: Any, clock: ManualClock, submission: Callable[..., JobSubmission]
) -> None:
    name = f"everspot-{uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=aws).create_bucket(Bucket=name)
    store = Store.open(f"s3://{name}", f"s3://{name}", clock=clock)
    for number, disturbance in enumerate(["cut", "drop", (409, "ConditionalRequestConflict"), (503, "SlowDown")]):
        wire.on("PUT", "/jobs/", disturbance)
        store.submit(submission(f"job-{number}"))
    assert len(store.jobs.scan()) == 4 and wire.spent


@pytest.mark.parametrize("disturbance", ["drop", "cut", (503, "SlowDown"), (500, "InternalError")])
def test_reads_writes_and_uploads_are_retried(bucket: Bucket, wire: Any, tmp_path: Path, disturbance: Any) -> None:
    wire.on("PUT", "/k", disturbance, times=2).on("GET", "/k", disturbance, times=2).on("GET", "list-type", disturbance)
    wire.on("DELETE", "/k", disturbance)
    bucket.put("k", b"1")
    assert [entry.key for entry in bucket.list()] == ["k"]
    content = bucket.get("k")
    assert content is not None and content.value == b"1"
    bucket.delete("k")
    (tmp_path / "small").write_bytes(b"small")
    wire.on("PUT", "/small", disturbance)
    bucket.upload("small", tmp_path / "small")
    (tmp_path / "large").write_bytes(b"x" * (40 << 20))
    wire.on("PUT", "/large", disturbance).on("POST", "/large", disturbance).on("GET", "/large", disturbance)
    stored = bucket.upload("large", tmp_path / "large")
    assert bucket.download("large", tmp_path / "back", stored.sha256) == stored.sha256
    assert wire.spent
    with pytest.raises(KeyTaken):
        bucket.upload("large", tmp_path / "large")
    with pytest.raises(KeyTaken):
        bucket.upload("small", tmp_path / "large")


def test_errors_are_told_apart(bucket: Bucket, wire: Any, clock: ManualClock) -> None:
    missing = Bucket.open("s3://everspot-none?region=eu-west-1", clock=clock)
    for call in (
        lambda: missing.get("k"),
        lambda: missing.list(),
        lambda: missing.put("k", b""),
        lambda: missing.create("k", b""),
        lambda: missing.delete("k"),
    ):
        with pytest.raises(StoreMissing, match="everspot-none"):
            call()
    for status, code in ((403, "AccessDenied"), (400, "ExpiredToken"), (403, "InvalidAccessKeyId")):
        wire.on("GET", "/k", (status, code)).on("PUT", "/k", (status, code))
        with pytest.raises(StoreDenied, match=code):
            bucket.get("k")
        with pytest.raises(StoreDenied, match=code):
            bucket.create("k", b"")
    wire.on("GET", "list-type", (403, "AccessDenied"))
    with pytest.raises(StoreDenied, match="AccessDenied"):
        bucket.list()
    assert clock.slept == [], "a refusal is not retried"
    wire.on("GET", "/k", "drop", times=4)
    with pytest.raises(StoreUnavailable):
        bucket.get("k")
    assert wire.spent and len(clock.slept) == 3


def test_a_download_that_is_denied_and_one_of_what_is_missing_are_told_apart(
    bucket: Bucket, wire: Any, clock: ManualClock, tmp_path: Path
) -> None:
    """The agent waits for a permission, and counts code that is gone as the job's own error."""
    with pytest.raises(FileNotFoundError, match=r"code/none\.tar\.gz"):
        bucket.download("code/none.tar.gz", tmp_path / "x")
    bucket.put("code/some.tar.gz", b"code")
    for method in ("HEAD", "GET"):  # S3 answers a HEAD without a body, so without a code
        wire.on(method, "code/some.tar.gz", (403, "AccessDenied"))
        with pytest.raises(StoreDenied):
            bucket.download("code/some.tar.gz", tmp_path / "x")
    assert wire.spent and clock.slept == []


def test_the_last_bytes_of_a_large_upload_count_when_the_object_exists(
    bucket: Bucket, clock: ManualClock, tmp_path: Path
) -> None:
    size = 20 << 20
    with (tmp_path / "large").open("wb") as file:
        file.truncate(size)
    for key in ("file", "memory"):
        transfer, arrived = Transfer(clock), list[str]()
        transfer.begin(size)

        def moved(size: int, transfer: Transfer = transfer, arrived: list[str] = arrived) -> None:
            transfer.moved(size)
            if transfer.remaining_bytes == 0:
                arrived.extend(entry.key for entry in bucket.list())

        if key == "file":
            bucket.upload(key, tmp_path / "large", moved)
        else:
            bucket.upload_view(key, memoryview(bytes(size)), moved)
        assert key in arrived


def test_an_upload_that_is_cancelled_leaves_nothing_behind(
    aws: str, bucket: Bucket, clock: ManualClock, tmp_path: Path
) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(128 << 20)
    transfer = Transfer(clock)
    transfer.begin(128 << 20)

    def moved(size: int) -> None:
        transfer.moved(size)
        if size:  # the first piece has surely arrived
            transfer.cancel()

    with pytest.raises(TransferCancelled):
        bucket.upload("large", tmp_path / "large", moved)
    assert transfer.remaining_bytes == (128 - 16) << 20
    assert bucket.list() == []
    unfinished = boto3.client("s3", endpoint_url=aws).list_multipart_uploads(Bucket=bucket.url.removeprefix("s3://"))
    assert unfinished.get("Uploads", []) == []


@pytest.mark.parametrize("url", ["/tmp/x", "s4://x", "ftp://x/y", "file://host/x", "s3://"])
def test_a_url_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(StoreError):
        Bucket.open(url)


def test_a_plain_endpoint_is_used_only_where_the_environment_names_one(
    aws: str, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    """The product never sends data unencrypted by itself: without the variable an http metadata answer changes
    nothing."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.replace("http://", "https://"))
    with pytest.raises(StoreUnavailable):
        Bucket.open("s3://everspot-none?region=eu-west-1", clock=clock).get("k")


class Metadata(Loopback):
    """The instance metadata service, version 2, with role credentials that change at every question."""

    def __init__(self, lifetime: timedelta) -> None:
        self.handed_out = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.answer(b"token" if self.path == "/latest/api/token" else None)

            def do_GET(self) -> None:
                if self.headers.get("X-aws-ec2-metadata-token") != "token":
                    self.send_error(401)
                    return
                path = self.path.rstrip("/")
                if path.endswith("/security-credentials"):
                    self.answer(b"everspot-agent")
                elif path.endswith("/security-credentials/everspot-agent"):
                    outer.handed_out += 1
                    expires = datetime.now(UTC) + lifetime
                    self.answer(
                        json.dumps(
                            {
                                "Code": "Success",
                                "LastUpdated": "2026-01-01T00:00:00Z",
                                "Type": "AWS-HMAC",
                                "AccessKeyId": f"ROLE{outer.handed_out}",
                                "SecretAccessKey": "secret",
                                "Token": "session",
                                "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
                            }
                        ).encode()
                    )
                else:
                    self.answer(None)

            def answer(self, data: bytes | None) -> None:
                self.send_response(404 if data is None else 200)
                self.send_header("Content-Length", str(len(data or b"")))
                self.end_headers()
                self.wfile.write(data or b"")

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))


@pytest.mark.parametrize(("lifetime", "refreshed"), [(timedelta(hours=6), False), (timedelta(minutes=2), True)])
def test_the_role_of_the_instance_is_used_and_refreshed_before_it_expires(
    bucket: Bucket, wire: Any, monkeypatch: pytest.MonkeyPatch, lifetime: timedelta, refreshed: bool
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    metadata = Metadata(lifetime)
    with metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{metadata.url}/")
        opened = Bucket.open(bucket.url)
        opened.put("k", b"1")
        for _ in range(3):
            time.sleep(0.15)  # obstore asks the service ten times a second at most
            opened.get("k")
    signed = [text.split("Credential=")[1].split("/")[0] for text in wire.authorizations[-4:]]
    assert signed[0].startswith("ROLE")
    assert (len(set(signed)) > 1) is refreshed
    assert (metadata.handed_out > 1) is refreshed


def test_a_silent_metadata_service_is_not_taken_for_a_refusal(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with Metadata(timedelta(hours=1)) as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
    with pytest.raises(StoreUnavailable):
        Bucket.open(bucket.url, clock=clock).get("k")


def test_a_caller_may_bring_its_own_credentials(bucket: Bucket, wire: Any) -> None:
    opened = Bucket.open(
        bucket.url,
        credentials=lambda: {
            "access_key_id": "PROFILE",
            "secret_access_key": "secret",
            "token": None,
            "expires_at": None,
        },
    )
    opened.put("k", b"1")
    assert "Credential=PROFILE/" in wire.authorizations[-1]
