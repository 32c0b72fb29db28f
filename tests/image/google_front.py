"""Stands in for Google's front end at *.googleapis.com: TLS by a certificate made on the spot, before the local cloud.

Packer's builder has no setting for another endpoint. It finds this one as its proxy (`HTTPS_PROXY`), believes its
certificate (`SSL_CERT_FILE`), and signs in as a person does who ran `gcloud auth application-default login`: the answer
is a token of the local project's owner. Only Compute Engine and the sign-in are there, and no connection leads further.
"""

import datetime
import json
import socket
import ssl
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from builder_image import read_head
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from everspot_local.gcp.callers import OWNER_TOKEN

BROKEN_LINK, LINK = (
    f'"https://compute.googleapis.com/compute/v1/{p}everspot-local/'.encode() for p in ("", "projects/")
)
SIGN_IN, COMPUTE = "oauth2.googleapis.com", "compute.googleapis.com"
LOGIN = {"type": "authorized_user", "client_id": "packer", "client_secret": "none", "refresh_token": "none"}
_LIFE = datetime.timedelta(hours=6)


class GoogleFront:
    """The front end, as a proxy.

    Args:
        listener: where it takes connections.
        endpoint: of the local cloud.
        folder: gets its certificate and what its clients need.
    """

    def __init__(self, listener: socket.socket, endpoint: tuple[str, int], folder: Path) -> None:
        self._listener, self._endpoint, self._folder = listener, endpoint, folder
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(make_certificate(folder))
        (folder / "login.json").write_text(json.dumps(LOGIN))
        command = f"#!/bin/sh\nexec '{sys.executable}' '{Path(__file__).with_name('gcloud_tunnel.py')}' \"$@\"\n"
        (folder / "gcloud").write_text(command)
        (folder / "gcloud").chmod(0o755)

    def variables(self) -> dict[str, str]:
        """Return the variables that point programs to this server in place of Google."""
        host, port = self._listener.getsockname()
        return {
            "HTTPS_PROXY": f"http://{host}:{port}",
            "SSL_CERT_FILE": str(self._folder / "authority.pem"),
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._folder / "login.json"),
        }

    def serve(self) -> None:
        """Answer each connection on a thread of its own."""
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            _, target, _ = read_head(client).split(" ", 2)
            host = target.partition(":")[0]
            if host not in (SIGN_IN, COMPUTE):
                client.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
                return
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            with self._context.wrap_socket(client, server_side=True) as encrypted:
                if host == SIGN_IN:
                    _sign_in(encrypted)
                else:
                    self._forward(encrypted)

    def _forward(self, client: socket.socket) -> None:
        """Forward one request, the only one of its connection.

        Debian's build of Packer 1.6.6 names the disk of an image by a URL without `projects/`, which Google refuses:
        it joins the project to the base of its library's URLs, and Debian has built it with a library that has another
        one. Nothing else is changed.
        """
        head, body = _read_request(client)
        body = body.replace(BROKEN_LINK, LINK)
        lines = [line for line in head.split("\r\n") if not line.lower().startswith(("content-length:", "connection:"))]
        lines += [f"Content-Length: {len(body)}", "Connection: close"]
        with socket.create_connection(self._endpoint) as cloud:
            cloud.sendall("\r\n".join((*lines, "", "")).encode() + body)
            while data := cloud.recv(1 << 16):
                client.sendall(data)


def _read_request(client: socket.socket) -> tuple[str, bytes]:
    """Return the head of a request and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(1 << 16) or _cut_off()
    text, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in text.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += client.recv(1 << 16) or _cut_off()
    return text.decode(), body


def _cut_off() -> NoReturn:
    raise ConnectionError("there is no whole request")


def _sign_in(client: socket.socket) -> None:
    """Answer the request for a token, which the head alone tells."""
    assert read_head(client).startswith("POST /token ")
    body = json.dumps({"access_token": OWNER_TOKEN, "expires_in": 3599, "token_type": "Bearer"})
    head = ("HTTP/1.1 200 OK", "Content-Type: application/json", "Connection: close", f"Content-Length: {len(body)}")
    client.sendall("\r\n".join((*head, "", body)).encode())


def make_certificate(folder: Path) -> Path:
    """Make an authority and its certificate for *.googleapis.com; return the file with the latter and its key."""
    now = datetime.datetime.now(datetime.UTC)
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Tests")])

    def certificate(subject: x509.Name, public: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number(), now, now + _LIFE)
        signed = builder.add_extension(extension, critical=True).sign(authority, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    own = x509.BasicConstraints(ca=True, path_length=0)
    (folder / "authority.pem").write_bytes(certificate(issuer, authority.public_key(), own))
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, COMPUTE)])
    names = x509.SubjectAlternativeName([x509.DNSName("*.googleapis.com")])
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "front.pem"
    path.write_bytes(private + certificate(subject, key.public_key(), names))
    return path
