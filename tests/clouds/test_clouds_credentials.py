"""Credentials of a person's tools that expire, renewed by the clouds' own client libraries."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from unittest import mock

import botocore.session
import pytest
from everspot_clouds.aws import credentials as aws
from everspot_clouds.gcp import credentials as gcp
from everspot_store import StoreUnavailable
from everspot_store.cloud import open_cloud

ASSUMED = """\
<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken>
<Expiration>{end:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""
LIFE = timedelta(minutes=8)
"""botocore renews keys that end within 10 minutes."""
TOKEN = json.dumps({"access_token": "token", "expires_in": 60, "token_type": "Bearer"})
CONFIG = """\
[profile laptop]
role_arn = arn:aws:iam::123456789012:role/research
source_profile = keys
region = us-east-2
[profile keys]
aws_access_key_id = AKIA
aws_secret_access_key = secret
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key = secret
"""
KEYS = {"AWS_ACCESS_KEY_ID": "AKIAOTHER", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token"}


@contextmanager
def renewal_service(render: Callable[[], str]) -> Iterator[str]:
    """Serve the service that renews credentials, and yield its URL. The block's end stops it. `render`: its answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = render()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a role's profile, and an environment without credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "GOOGLE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text(CONFIG)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
    return tmp_path


def test_a_role_whose_renewal_is_not_answered_is_an_outage_and_no_refusal(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with renewal_service(lambda: ASSUMED.format(end=datetime.now(UTC) + LIFE)) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        provider = aws.for_store("s3://everspot-dev-control", "laptop")
        assert provider is not None
    with pytest.raises(StoreUnavailable, match="cannot be renewed"):
        open_cloud("s3://everspot-dev-control", provider, "us-east-2").get("cluster.json")


def test_a_google_account_whose_renewal_is_not_answered_is_an_outage_and_no_refusal(home: Path) -> None:
    with renewal_service(lambda: TOKEN) as url:
        account = {"audience": "a", "client_id": "id", "client_secret": "s", "refresh_token": "r", "token_url": url}
        (home / "adc.json").write_text(json.dumps({**account, "type": "external_account_authorized_user"}))
        provider = gcp.for_store("gs://everspot-dev-control", None)
        assert provider is not None
    with pytest.raises(StoreUnavailable, match="cannot be renewed"):
        open_cloud("gs://everspot-dev-control", provider).get("cluster.json")


@pytest.mark.parametrize(
    "environment",
    [
        KEYS,
        {"AWS_DEFAULT_PROFILE": "default", "AWS_PROFILE": "default"},
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "/none", "AWS_ROLE_ARN": "arn:aws:iam::1:role/ci"},
    ],
    ids=["keys", "profiles", "web identity"],
)
def test_a_selected_profile_is_what_botocore_finds(
    environment: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    changed = dict(os.environ)
    aws.select_profile("keys", changed)
    with mock.patch.dict(os.environ, changed, clear=True):
        credentials = botocore.session.Session().get_credentials()
        assert credentials is not None
        assert (credentials.access_key, credentials.token) == ("AKIA", None)


@pytest.mark.parametrize("environment", [{}, KEYS], ids=["default profile", "keys"])
def test_stores_with_and_without_a_profile_do_not_share_credentials(
    environment: dict[str, str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    profiled = aws.for_store("s3://one-control", "keys")
    assert profiled is not None
    assert profiled()["access_key_id"] == "AKIA"
    other = aws.for_store("s3://two-control", None)
    assert (other()["access_key_id"] if other else os.environ["AWS_ACCESS_KEY_ID"]) == environment.get(
        "AWS_ACCESS_KEY_ID", "AKIADEFAULT"
    )
    assert dict(os.environ) == before


def test_a_configuration_of_gcloud_stays_with_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
    before = dict(os.environ)
    provider = gcp.for_store("gs://one-control", "research")
    assert provider is not None
    assert provider()["token"] == "token"
    assert dict(os.environ) == before
    changed = dict[str, str]()
    gcp.select_profile("research", changed)
    assert changed == {"CLOUDSDK_ACTIVE_CONFIG_NAME": "research"}
