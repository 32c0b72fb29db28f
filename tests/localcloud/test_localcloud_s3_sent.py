"""S3's answers to bodies that do not match their declared digests, or that have no length."""

import base64
import hashlib
import http.client
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

DATA = b"0123456789"
MD5 = base64.b64encode(hashlib.md5(DATA).digest()).decode()
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=test/20261101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
)  # fmt: skip
Call = Callable[..., tuple[int, bytes]]


@pytest.fixture
def call(kit: Any) -> Call:
    """A request as it is written; a bucket with an object is there."""
    url = urlsplit(kit.cloud.endpoint)

    def done(method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        line = http.client.HTTPConnection(url.hostname or "", url.port or 80, timeout=60)
        all_headers = {"Authorization": SIGNED} | {name.replace("_", "-"): value for name, value in headers.items()}
        line.request(method, path, body, all_headers)
        answer = line.getresponse()
        answered = answer.status, answer.read()
        line.close()
        return answered

    assert done("PUT", "/everspot-sent")[0] == 200
    assert done("PUT", "/everspot-sent/it", b"first")[0] == 200
    return done


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content_MD5": MD5}, 200, ""),
        ({"Content_MD5": "AAAAAAAAAAAAAAAAAAAAAA=="}, 400, "BadDigest"),
        ({"Content_MD5": "x"}, 400, "InvalidDigest"), ({"Content_MD5": "AAAA"}, 400, "InvalidDigest"),
        ({"x_amz_content_sha256": hashlib.sha256(DATA).hexdigest()}, 200, ""),
        ({"x_amz_content_sha256": "0" * 64}, 400, "XAmzContentSHA256Mismatch"),
        ({"x_amz_content_sha256": "UNSIGNED-PAYLOAD"}, 200, ""),
        ({"x_amz_checksum_crc32": "poTHxg=="}, 200, ""), ({"x_amz_checksum_crc32": "AAAAAA=="}, 400, "BadDigest"),
        ({"x_amz_checksum_crc32": "abc"}, 400, "InvalidRequest"),
        ({"x_amz_checksum_crc32": "AAAA"}, 400, "InvalidRequest"),
        ({"x_amz_checksum_crc32c": "KAwGng=="}, 200, ""), ({"x_amz_checksum_crc32c": "pmhMaA=="}, 400, "BadDigest"),
        ({"x_amz_checksum_sha1": base64.b64encode(hashlib.sha1(DATA).digest()).decode()}, 200, ""),
        ({"x_amz_checksum_sha256": base64.b64encode(hashlib.sha256(b"").digest()).decode()}, 400, "BadDigest"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("part", [False, True])
def test_a_body_that_is_not_what_its_sender_says_is_not_kept(
    call: Call, headers: dict[str, str], status: int, code: str, part: bool
) -> None:
    path = "/everspot-sent/it"
    if part:
        _, answer = call("POST", f"{path}?uploads")
        path += f"?partNumber=1&uploadId={answer.partition(b'<UploadId>')[2].partition(b'<')[0].decode()}"
    answered_status, answer = call("PUT", path, DATA, **headers)
    assert (answered_status, f"<Code>{code}</Code>" in answer.decode() if code else True) == (status, True)
    assert call("GET", "/everspot-sent/it")[1] == (DATA if status == 200 and not part else b"first")


@pytest.mark.parametrize(
    ("length", "status"), [("", 411), ("Content-Length: abc\r\n", 400), ("Content-Length: -1\r\n", 400)]
)
def test_a_body_of_which_nobody_says_how_long_it_is_writes_nothing(
    kit: Any, call: Call, length: str, status: int
) -> None:
    url = urlsplit(kit.cloud.endpoint)
    with socket.create_connection((url.hostname or "", url.port or 80), timeout=60) as line:
        line.sendall(
            f"PUT /everspot-sent/it HTTP/1.1\r\nHost: local\r\nAuthorization: {SIGNED}\r\n{length}\r\n".encode()
        )
        answer = line.recv(1 << 16)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert call("GET", "/everspot-sent/it")[1] == b"first"


def test_a_body_that_ends_too_soon_is_its_sender_s_fault_and_writes_nothing(
    kit: Any, call: Call, capfd: pytest.CaptureFixture[str]
) -> None:
    url = urlsplit(kit.cloud.endpoint)
    with socket.create_connection((url.hostname or "", url.port or 80), timeout=60) as line:
        head = f"PUT /everspot-sent/it HTTP/1.1\r\nHost: local\r\nAuthorization: {SIGNED}\r\nContent-Length: 99"
        line.sendall(f"{head}\r\n\r\n".encode() + DATA)
        line.shutdown(socket.SHUT_WR)
        answer = line.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert call("GET", "/everspot-sent/it")[1] == b"first"
    assert "Traceback" not in capfd.readouterr().err
