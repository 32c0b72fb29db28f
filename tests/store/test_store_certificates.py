"""A server whose certificate only a variable of the cloud's own clients makes trusted, as behind a proxy that inspects
TLS."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from everspot_cli.errors import of_store
from everspot_store import Bucket, ManualClock, StoreError, StoreUntrusted
from everspot_store.cloud import open_cloud
from loopback import Loopback

DAY = timedelta(days=1)
VARIABLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


class _ObjectServer(BaseHTTPRequestHandler):
    """An object store in whose every bucket all keys have one byte, and whose buckets lie in us-west-2."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("x-amz-bucket-region", "us-west-2")
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 02 Mar 2026 12:00:00 GMT")
        self.send_header("x-goog-generation", "1")
        self.send_header("Content-Length", "1")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"1")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


def _certify(name: str, issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None, *extensions: x509.ExtensionType):
    """Return a certificate and its key, issued by itself if nobody else does."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer_name, issuer_key = issuer or (subject, key)
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        issuer_name, subject, key.public_key(), x509.random_serial_number(), now - DAY, now + DAY
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(issuer_key, SHA256()), key


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the certificate of an authority that this machine does not trust. The environment leads both clouds'
    stores to a server that it has certified."""
    root, root_key = _certify("proxy", None, x509.BasicConstraints(ca=True, path_length=0))
    (tmp_path / "proxy.pem").write_bytes(root.public_bytes(Encoding.PEM))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    leaf, key = _certify("server", (root.subject, root_key), names, x509.BasicConstraints(ca=False, path_length=None))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "server.pem").write_bytes(private + leaf.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ObjectServer)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with Loopback(server):
        url = f"https://localhost:{server.server_port}"
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "GOOGLE_BASE_URL": url,
            "GOOGLE_BEARER_TOKEN": "test",
        }.items():
            monkeypatch.setenv(name, value)
        yield tmp_path / "proxy.pem"


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://bucket?region=us-west-2", "AWS_CA_BUNDLE"),
        ("s3://bucket?region=us-west-2", "REQUESTS_CA_BUNDLE"),
        ("s3://bucket", "AWS_CA_BUNDLE"),
        ("gs://bucket", "REQUESTS_CA_BUNDLE"),
    ],
)
def test_a_store_trusts_what_the_cloud_s_own_clients_trust(
    url: str, variable: str, authority: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreUntrusted, match=r"the certificate of \S+ is refused .*_CA_BUNDLE has to name"):
        Bucket.open(url, clock=clock).get("k")
    monkeypatch.setenv(variable, str(authority))
    document = Bucket.open(url, clock=clock).get("k")
    assert document is not None
    assert document.value == b"1"


def test_a_person_is_not_told_to_wait_for_another_certificate(authority: Path) -> None:
    with pytest.raises(StoreUntrusted) as refused:
        open_cloud("s3://bucket", region="us-west-2").get("k")
    error = of_store(refused.value, "s3://bucket")
    assert "AWS_CA_BUNDLE" in str(error)
    assert "try again" not in error.hint


def test_a_bundle_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "bundle.pem"))
    with pytest.raises(StoreError, match=r"AWS_CA_BUNDLE names .*bundle\.pem, which cannot be read"):
        open_cloud("s3://bucket", region="us-west-2")


ODD = "-----BEGIN CERTIFICATE-----\nMIIBAA==\n-----END CERTIFICATE-----\n"
TRUSTED = ODD.replace("CERTIFICATE", "TRUSTED CERTIFICATE")


@pytest.mark.parametrize("odd", [ODD, TRUSTED, "no certificate\n"])
def test_a_certificate_that_cannot_be_loaded_makes_the_others_of_its_file_not_useless(
    odd: str,
    authority: Path,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bundle of a company may have one that only OpenSSL reads. Nothing but the proxy's own is needed."""
    authority.write_text(odd + authority.read_text())
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    assert open_cloud("s3://bucket", region="us-west-2").get("k") is not None
    assert Bucket.open("s3://bucket", clock=clock).get("k") is not None  # the region's lookup has a client of its own
    authority.write_text(odd)
    caplog.clear()
    with pytest.raises(StoreUntrusted):
        open_cloud("s3://bucket", region="us-west-2").get("k")
    assert f"AWS_CA_BUNDLE names {authority}: 0 of its" in caplog.text
