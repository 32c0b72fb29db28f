"""The agent's endpoint for jobs: credentials and secrets for who knows the attempt's secret, while it lasts."""

import json
import os
import select
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from everspot_clouds.base import CloudError, JobAnswer, Trouble
from everspot_train.agent import job_endpoint
from everspot_train.agent.job_endpoint import MOST_CONNECTIONS, JobEndpoint, JobGrant
from everspot_train.prepare.errors import NotReady
from everspot_train.prepare.secrets import SECRETS_VARIABLE, read_secrets


class Vault:
    """A cloud with limited credentials, and secrets."""

    hidden = ("CLOUD_KEY",)

    def __init__(self) -> None:
        self.silent = False

    def variables(self, address: str, secret: str, secret_file: Path) -> dict[str, str]:
        return {"CLOUD_URL": f"http://{address}/{secret}/keys", "CLOUD_TOKEN_FILE": str(secret_file)}

    def renew(self) -> None:
        if self.silent:
            raise CloudError("the cloud does not answer", Trouble.TRANSIENT)

    def answer(self, path: str) -> JobAnswer | None:
        self.renew()
        return JobAnswer(200, '{"key": "limited"}') if path == "/keys" else None

    def read(self, reference: str) -> str:
        if reference == "vault:locked":
            raise CloudError("AccessDenied", Trouble.CREDENTIALS, "name it in the settings")
        return f"value of {reference}"


@pytest.fixture
def vault() -> Vault:
    return Vault()


@pytest.fixture
def endpoint() -> Iterator[JobEndpoint]:
    endpoint = JobEndpoint()
    yield endpoint
    endpoint.close()


def serve(endpoint: JobEndpoint, vault: Vault, folder: Path, **references: str) -> tuple[JobGrant, dict[str, str]]:
    grant = JobGrant(vault, references, vault.read)
    endpoint.serve(grant)
    return grant, grant.environment({"PATH": "/bin", "CLOUD_KEY": "wide"}, endpoint.address, folder)


def fetch(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_job_inherits_no_wider_credentials(endpoint: JobEndpoint, vault: Vault, tmp_path: Path) -> None:
    grant, environment = serve(endpoint, vault, tmp_path)
    assert "CLOUD_KEY" not in environment and environment["PATH"] == "/bin"
    assert Path(environment["CLOUD_TOKEN_FILE"]).read_text() == grant.secret


def test_the_secret_opens_by_path_or_by_header(endpoint: JobEndpoint, vault: Vault, tmp_path: Path) -> None:
    grant, environment = serve(endpoint, vault, tmp_path)
    assert fetch(environment["CLOUD_URL"]) == (200, '{"key": "limited"}')
    plain = f"http://{endpoint.address}/keys"
    assert fetch(plain, Authorization=grant.secret)[0] == 200
    for answer in (fetch(plain), fetch(plain, Authorization="~"), fetch(f"http://{endpoint.address}/~/keys")):
        assert answer[0] == 403 and "limited" not in answer[1]
    assert fetch(f"http://{endpoint.address}/{grant.secret}/more")[0] == 404


def test_two_jobs_have_a_secret_each(endpoint: JobEndpoint, vault: Vault, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, _ = serve(endpoint, vault, tmp_path / "first", KEY="vault:first")
    second, environment = serve(endpoint, vault, tmp_path / "second", KEY="vault:second")
    assert first.secret != second.secret
    assert json.loads(fetch(environment[SECRETS_VARIABLE])[1]) == {"values": {"KEY": "value of vault:second"}}


def test_nothing_is_served_once_the_attempt_has_ended(endpoint: JobEndpoint, vault: Vault, tmp_path: Path) -> None:
    grant, environment = serve(endpoint, vault, tmp_path, KEY="vault:a")
    grant.end()
    assert fetch(environment["CLOUD_URL"])[0] == fetch(environment[SECRETS_VARIABLE])[0] == 404
    serve(endpoint, vault, tmp_path)
    assert fetch(environment["CLOUD_URL"])[0] == 403


def test_a_silent_cloud_is_an_error_that_clients_try_again(endpoint: JobEndpoint, vault: Vault, tmp_path: Path) -> None:
    _, environment = serve(endpoint, vault, tmp_path)
    vault.silent = True
    assert fetch(environment["CLOUD_URL"])[0] == 503
    vault.silent = False
    assert fetch(environment["CLOUD_URL"])[0] == 200


def test_secrets_are_read_by_the_agent(endpoint: JobEndpoint, vault: Vault, tmp_path: Path) -> None:
    references = {"KEY": "vault:a", "OTHER": "vault:b"}
    _, environment = serve(endpoint, vault, tmp_path, **references)
    values = read_secrets(references, "aws", "eu-west-1", environment[SECRETS_VARIABLE])
    assert values == {"KEY": "value of vault:a", "OTHER": "value of vault:b"}


def test_a_secret_that_cannot_be_read_is_named(endpoint: JobEndpoint, vault: Vault, tmp_path: Path) -> None:
    references = {"KEY": "vault:locked"}
    _, environment = serve(endpoint, vault, tmp_path, **references)
    with pytest.raises(NotReady, match="secret vault:locked for KEY cannot be read: AccessDenied: name it in the"):
        read_secrets(references, "aws", "eu-west-1", environment[SECRETS_VARIABLE])
    endpoint.close()
    with pytest.raises(NotReady, match="the agent does not serve the job's secrets"):
        read_secrets(references, "aws", "eu-west-1", environment[SECRETS_VARIABLE])


@contextmanager
def slow_connections(endpoint: JobEndpoint, number: int) -> Iterator[list[socket.socket]]:
    """Hold connections that send the beginning of a request."""
    host, _, port = endpoint.address.partition(":")
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(number)]
        for connection in connections:
            try:
                connection.send(b"GET /")
            except ConnectionError:  # it is refused already
                continue
        yield connections


def await_events(connections: list[socket.socket], event: int, least: int) -> None:
    """Wait until an event has come on at least so many of the connections."""
    poll = select.poll()
    for connection in connections:
        poll.register(connection, event)
    while sum(bool(mask & event) for _, mask in poll.poll(100)) < least:
        time.sleep(0.05)


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.timeout(60)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can connect as two users")
def test_a_job_with_many_slow_connections_delays_no_other_user(
    endpoint: JobEndpoint, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_endpoint, "REQUEST_TIMEOUT", timedelta(hours=1))
    _, environment = serve(endpoint, vault, tmp_path)
    with ExitStack() as stack:
        with as_user(65534):
            connections = stack.enter_context(slow_connections(endpoint, 3 * MOST_CONNECTIONS))
        await_events(connections, select.POLLHUP, 2 * MOST_CONNECTIONS)  # reset: what is only silent is closed in order
        assert fetch(environment["CLOUD_URL"])[0] == 200


@pytest.mark.timeout(60)
def test_a_request_that_comes_byte_by_byte_is_closed_and_gives_its_place_back(
    endpoint: JobEndpoint, vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time for the limit on silence."""
    monkeypatch.setattr(job_endpoint, "REQUEST_TIMEOUT", timedelta(seconds=1))
    _, environment = serve(endpoint, vault, tmp_path)
    with slow_connections(endpoint, MOST_CONNECTIONS) as connections:
        with pytest.raises(ConnectionError):
            while True:
                connections[0].send(b"a")
                time.sleep(0.05)
        await_events(connections, select.POLLRDHUP, MOST_CONNECTIONS)
        assert fetch(environment["CLOUD_URL"])[0] == 200
