"""The endpoint's HTTP behaviour, below the SDKs: answers without chunks, and "100 Continue" before a body."""

import socket
from typing import Any
from urllib.parse import urlsplit

CALL = b"Action=GetUser&Version=2010-05-08"
HEAD = (
    "POST / HTTP/1.1\r\nHost: local\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    "Authorization: AWS4-HMAC-SHA256 Credential=test/20261101/us-east-1/iam/aws4_request, SignedHeaders=host, "
    f"Signature=none\r\nContent-Length: {len(CALL)}\r\n"
)


def connected(endpoint: str) -> socket.socket:
    url = urlsplit(endpoint)
    assert url.hostname is not None
    return socket.create_connection((url.hostname, url.port or 80), timeout=60)


def test_an_answer_comes_in_one_piece(kit: Any) -> None:
    """A client that has the headers alone may drop what follows, and make the call again (see `cloud.Handler`)."""
    for _ in range(40):
        with connected(kit.cloud.endpoint) as caller:
            caller.sendall(f"{HEAD}\r\n".encode() + CALL)
            piece = caller.recv(1 << 16)
        headers, _, body = piece.partition(b"\r\n\r\n")
        (length,) = [int(line.split(b":")[1]) for line in headers.splitlines() if line.startswith(b"Content-Length:")]
        assert headers.startswith(b"HTTP/1.1 200 ")
        assert len(body) == length > 0


def test_who_waits_for_a_100_continue_gets_it_before_the_body(kit: Any) -> None:
    with connected(kit.cloud.endpoint) as caller:
        caller.sendall(f"{HEAD}Expect: 100-continue\r\n\r\n".encode())
        assert caller.recv(1 << 16).startswith(b"HTTP/1.1 100 Continue\r\n")
        caller.sendall(CALL)
        answer = caller.makefile("rb").read()
    assert b"HTTP/1.1 200 " in answer
    assert answer.endswith(b"</GetUserResponse>")
