"""Cloud Storage: reads with conditions and ranges, and uploads with declared digests and lengths."""

import base64
import hashlib
import http.client
import random
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from everspot_local.crc32c import crc32c
from everspot_local.gcp.callers import OWNER_TOKEN
from test_localcloud_gcp_storage import BUCKETS, PRIVATE

DATA = b"0123456789"
MD5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
CRC32C = "KAwGng=="  # of the digits 0 to 9, by RFC 3720's polynomial
LATER, BEFORE = "Fri, 01 Jan 2100 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"
Call = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture
def call(kit: Any) -> Call:
    """A request as it is written, with the owner's token; a bucket and an object are there."""
    assert kit.call("POST", BUCKETS, PRIVATE).status == 200
    url = urlsplit(kit.cloud.endpoint)

    def done(method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        line = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=60)
        all_headers = {"Authorization": f"Bearer {OWNER_TOKEN}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        line.request(method, path, body, all_headers)
        answer = line.getresponse()
        answered = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        line.close()
        return answered

    assert done("PUT", "/xml/control/it", DATA)[0] == 200
    return done


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("If-Match", "{etag}", 200), ("If-Match", '"other"', 412), ("If-Match", "*", 200),
        ("If-None-Match", "{etag}", 304), ("If-None-Match", '"other"', 200), ("If-None-Match", "*", 304),
        ("If-Modified-Since", LATER, 304), ("If-Modified-Since", BEFORE, 200),
        ("If-Unmodified-Since", LATER, 200), ("If-Unmodified-Since", BEFORE, 412),
        ("x-goog-if-generation-match", "{generation}", 200), ("x-goog-if-generation-match", "7", 412),
        ("x-goog-if-metageneration-match", "1", 200), ("x-goog-if-metageneration-match", "2", 412),
    ],
)  # fmt: skip
def test_a_read_by_the_xml_api_holds_to_its_conditions(call: Call, name: str, value: str, status: int) -> None:
    _, head, _ = call("HEAD", "/xml/control/it")
    condition = value.format(etag=head["etag"], generation=head["x-goog-generation"])
    for method, body in (("GET", DATA), ("HEAD", b"")):
        answered_status, _, data = call(method, "/xml/control/it", **{name: condition})
        assert answered_status == status
        assert status == 412 or data == (body if status == 200 else b"")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("ifGenerationMatch={generation}", 200), ("ifGenerationMatch=7", 412),
        ("ifGenerationNotMatch={generation}", 304), ("ifGenerationNotMatch=7", 200),
        ("ifMetagenerationMatch=1", 200), ("ifMetagenerationMatch=2", 412),
        ("ifMetagenerationNotMatch=1", 304), ("ifMetagenerationNotMatch=2", 200),
    ],
)  # fmt: skip
def test_a_read_by_the_json_api_holds_to_its_conditions(call: Call, query: str, status: int) -> None:
    _, head, _ = call("HEAD", "/xml/control/it")
    for alt in ("", "&alt=media"):
        condition = query.format(generation=head["x-goog-generation"])
        assert call("GET", f"/storage/v1/b/control/o/it?{condition}{alt}")[0] == status


@pytest.mark.parametrize("path", ["/xml/control/it", "/storage/v1/b/control/o/it?alt=media"])
@pytest.mark.parametrize(
    ("range_header", "status", "data", "content_range"),
    [
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"), ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"), ("bytes=-99", 206, DATA, "bytes 0-9/10"),
        ("bytes=10-", 416, None, None), ("lines=1-2", 200, DATA, None), ("nonsense", 200, DATA, None),
        ("bytes=0-1,4-5", 501, None, None),
    ],
)  # fmt: skip
def test_a_range_is_answered_by_both_apis(
    call: Call, path: str, range_header: str, status: int, data: bytes | None, content_range: str | None
) -> None:
    answered_status, headers, body = call("GET", path, Range=range_header)
    assert (answered_status, headers.get("content-range")) == (status, content_range)
    assert data in (None, body)


UPLOAD = "/upload/storage/v1/b/control/o?uploadType=media&name=new"


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Content-MD5", MD5, 200), ("Content-MD5", MD5.replace("=", "A", 1), 400), ("Content-MD5", "x", 400),
        ("x-goog-hash", f"md5={MD5}", 200), ("x-goog-hash", f"crc32c={CRC32C},md5={MD5}", 200),
        ("x-goog-hash", "crc32c=AAAAAA==", 400), ("x-goog-hash", "sha9=x", 400),
    ],
)  # fmt: skip
def test_what_is_not_what_its_sender_says_is_not_kept(call: Call, header: str, value: str, status: int) -> None:
    for method, path in (("PUT", "/xml/control/old"), ("POST", UPLOAD)):
        assert call(method, path, DATA, **{header: value})[0] == status
        assert call("GET", f"/xml/control/{path[-3:]}")[0] == (200 if status == 200 else 404)


@pytest.mark.parametrize(("field", "value", "status"), [
    ("md5Hash", MD5, 200), ("md5Hash", "AAAAAAAAAAAAAAAAAAAAAA==", 400), ("crc32c", CRC32C, 200), ("crc32c", "x", 400),
])  # fmt: skip
def test_an_object_s_own_fields_are_held_to_its_data(call: Call, field: str, value: str, status: int) -> None:
    body = (
        (
            f'--B\r\nContent-Type: application/json\r\n\r\n{{"name": "new", "{field}": "{value}"}}\r\n'
            "--B\r\nContent-Type: text/plain\r\n\r\n"
        ).encode()
        + DATA
        + b"\r\n--B--\r\n"
    )
    path = "/upload/storage/v1/b/control/o?uploadType=multipart"
    assert call("POST", path, body, Content_Type="multipart/related; boundary=B")[0] == status


CHUNK = 256 << 10
BEGIN = "/upload/storage/v1/b/control/o?uploadType=resumable"


def test_a_resumable_upload_goes_on_where_it_stopped(kit: Any, call: Call) -> None:
    status, headers, _ = call("POST", BEGIN, b'{"name": "new", "contentType": "text/plain"}')
    session = headers["location"].removeprefix(kit.cloud.endpoint)
    assert status == 200 and "upload_id=" in session
    data = bytes(range(256)) * 1024 * 2 + b"end"

    def send(chunk: bytes, content_range: str) -> tuple[int, str | None]:
        status, headers, _ = call("PUT", session, chunk, Content_Range=content_range, Authorization="")
        return status, headers.get("range")

    whole = len(data)
    assert send(b"", "bytes */*") == (308, None)
    assert send(data[:CHUNK], f"bytes 0-{CHUNK - 1}/*") == (308, f"bytes=0-{CHUNK - 1}")
    assert send(data[:CHUNK], f"bytes 0-{CHUNK - 1}/*") == (308, f"bytes=0-{CHUNK - 1}")  # its answer was lost
    assert send(data[CHUNK : CHUNK + 7], f"bytes {CHUNK}-{CHUNK + 6}/*")[0] == 400  # no whole chunk, and not the last
    assert send(data[2 * CHUNK :], f"bytes {2 * CHUNK}-{whole - 1}/{whole}")[0] == 503  # what is before it is missing
    assert send(data[CHUNK:], f"bytes {CHUNK}-{whole}/{whole + 1}")[0] == 400
    assert call("GET", "/xml/control/new")[0] == 404
    assert send(data[CHUNK:], f"bytes {CHUNK}-{whole - 1}/{whole}")[0] == 200
    assert send(b"", f"bytes */{whole}")[0] == 200  # the answer is sent again
    assert call("GET", "/xml/control/new")[2] == data
    assert send(b"1", "bytes 0-0/1")[0] == 200 and call("GET", "/xml/control/new")[2] == data
    assert call("DELETE", session)[0] == 499
    assert send(b"1", "bytes 0-0/1")[0] == 404


@pytest.mark.usefixtures("call")
def test_an_answer_has_the_fields_that_are_asked_for(kit: Any) -> None:
    bucket, path = "/storage/v1/b/control/o", "/storage/v1/b/control/o/it"
    assert kit.get(f"{path}?fields=name,size") == {"name": "it", "size": str(len(DATA))}
    assert kit.get(f"{bucket}?fields=items/name,nextPageToken") == {"items": [{"name": "it"}]}
    assert kit.get(f"{bucket}?fields=kind,items(name,bucket)")["items"] == [{"name": "it", "bucket": "control"}]
    assert kit.get(f"{path}?fields=*") == kit.get(path)
    for fields in ("nothing", "items/nothing", "items(name", "name/size"):
        answer = kit.call("GET", f"{bucket}?fields={fields}")
        assert (answer.status, answer.reason) == (400, "invalidParameter"), fields


@pytest.mark.parametrize("size", [0, 9, 65_535, 65_536, 200_001])
def test_a_checksum_is_that_of_the_definition(size: int) -> None:
    data = random.Random(size).randbytes(size)
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0x82F63B78 if remainder & 1 else 0)
    assert base64.b64decode(crc32c(data)) == (remainder ^ 0xFFFFFFFF).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("length", "status"), [("", 411), ("Content-Length: abc\r\n", 400), ("Content-Length: -1\r\n", 400)]
)
def test_a_body_of_which_nobody_says_how_long_it_is_writes_nothing(
    kit: Any, call: Call, length: str, status: int
) -> None:
    url = urlsplit(kit.cloud.endpoint)
    with socket.create_connection((url.hostname or "", url.port or 80), timeout=60) as line:
        line.sendall(
            f"PUT /xml/control/it HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OWNER_TOKEN}\r\n{length}\r\n".encode()
        )
        answer = line.recv(1 << 16)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert call("GET", "/xml/control/it")[2] == DATA


def test_a_body_that_ends_too_soon_is_its_sender_s_fault_and_writes_nothing(
    kit: Any, call: Call, capfd: pytest.CaptureFixture[str]
) -> None:
    url = urlsplit(kit.cloud.endpoint)
    with socket.create_connection((url.hostname or "", url.port or 80), timeout=60) as line:
        head = f"PUT /xml/control/it HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OWNER_TOKEN}\r\nContent-Length: 99"
        line.sendall(f"{head}\r\n\r\n".encode() + DATA)
        line.shutdown(socket.SHUT_WR)
        answer = line.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert call("GET", "/xml/control/it")[2] == DATA
    assert "Traceback" not in capfd.readouterr().err
