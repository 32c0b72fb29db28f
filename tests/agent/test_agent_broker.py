"""The requests that the broker, which is root, accepts from the agent, and an agent without a broker."""

import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from everspot_train.agent.brokered import BrokerError, BrokerLauncher
from everspot_train.agent.process import JobLaunch
from everspot_train.broker import protocol, start
from everspot_train.broker.protocol import (
    BadRequest,
    Channel,
    ClearRequest,
    ConnectionLost,
    FilesRequest,
    KillRequest,
    SignalRequest,
    StartRequest,
    parse_request,
    render_request,
)

WORK = "/var/lib/everspot/work"
START = StartRequest(
    "job-1-000001", "job-1", "ab_c", "0f", ("everspot-x", "y"), 4, 2048, metadata=False, container=True
)
NOW = timedelta(seconds=5)


@pytest.mark.parametrize(
    "request_",
    [
        START,
        StartRequest("r", "w~2", "t", "c", None, 1, None, metadata=True, container=False),
        SignalRequest((1, 2)),
        FilesRequest(f"{WORK}/job-1/checkpoints", mapped=True),
        KillRequest(),
        ClearRequest(),
    ],
)
def test_requests_arrive_as_they_were_sent(request_: protocol.Request) -> None:
    with Connection() as (agent, broker):
        agent.send(render_request(request_))
        message = broker.receive(NOW)
    assert message is not None
    assert parse_request(message) == request_


@pytest.mark.parametrize(
    "changed",
    [
        {"run": "../../etc"},
        {"run": ".."},
        {"run": ".hidden"},
        {"run": "a/b"},
        {"run": ""},
        {"run": "a" * 201},
        {"run": "a:/etc"},
        {"run": "%h"},
        {"run": "a b"},
        {"run": "a\n"},
        {"run": None},
        {"work": ["w"]},
        {"memory": "everspot-x/y"},
        {"memory": ["everspot-x"]},
        {"memory": ["everspot-x", ".."]},
        {"vcpus": 0},
        {"vcpus": True},
        {"vcpus": 2.0},
        {"vcpus": 10**9},
        {"memory_mib": "1G"},
        {"memory_mib": -1},
        {"metadata": 1},
        {"container": None},
        {"user": "root"},
        {"kind": "run"},
        {"kind": None},
        {"kind": ["start"]},
    ],
)
def test_a_request_with_anything_else_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        parse_request({**render_request(START), **changed})


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "signal", "pids": [0]},
        {"kind": "signal", "pids": [-1]},
        {"kind": "signal", "pids": "1"},
        {"kind": "signal", "pids": [1] * 5000},
        {"kind": "signal"},
        {"kind": "files", "root": "/etc", "mapped": True},
        {"kind": "files", "root": f"{WORK}/x", "mapped": "yes"},
        {"kind": "kill", "pids": [1]},
    ],
)
def test_the_other_requests_are_as_strict(message: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        parse_request(message)


@pytest.mark.parametrize("data", [b"[]\n", b"kill\n", b"[" * 100_000 + b"\n", b"x" * 70_000])
def test_what_is_no_object_or_too_long_is_refused(data: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.sendall(data)
        with pytest.raises(BadRequest):
            Channel(far, 1 << 16).receive(NOW)


def test_a_connection_that_closes_is_noticed_and_one_that_is_silent_waited_for() -> None:
    near, far = socket.socketpair()
    channel = Channel(far, 1 << 16)
    near.sendall(b'{"kind": ')
    assert channel.receive(timedelta(milliseconds=10)) is None
    near.sendall(b'"kill"}\n')
    assert channel.receive(NOW) == {"kind": "kill"}
    near.close()
    with far, pytest.raises(ConnectionLost):
        channel.receive(NOW)


def test_without_a_broker_no_job_starts(tmp_path: Path) -> None:
    """Not as the agent's own user, either."""
    launcher = BrokerLauncher(tmp_path / "nothing")
    with pytest.raises(BrokerError, match="cannot be reached"):
        launcher.clear()
    with pytest.raises(BrokerError, match="serves no folder"):
        launcher.launch(JobLaunch(["true"], tmp_path, tmp_path, {}))


class Connection:
    """The two ends of a connection."""

    def __enter__(self) -> tuple[Channel, Channel]:
        self._sockets = socket.socketpair()
        agent, broker = (Channel(end, 1 << 16) for end in self._sockets)
        return agent, broker

    def __exit__(self, *_: object) -> None:
        for end in self._sockets:
            end.close()


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("nameserver 169.254.169.254\nsearch c.p.internal\n", False),
        ("nameserver 10.0.0.2\nnameserver fd20:ce::254\n", False),
        ("nameserver 127.0.0.53\noptions edns0\n# nameserver 169.254.169.254\n", True),
        ("nameserver 169.254.169.253\nnameserver\n", True),
        (None, True),
    ],
)
def test_a_job_does_not_start_where_its_names_could_not_be_resolved(
    tmp_path: Path, text: str | None, starts: bool
) -> None:
    file = tmp_path / "resolv.conf"
    if text is not None:
        file.write_text(text)
    if starts:
        start.check_resolvers(file, ["169.254.169.254", "fd20:ce::254"])
    else:
        with pytest.raises(SystemExit, match=r"closed to jobs: bake the image again.*resolver\.sh"):
            start.check_resolvers(file, ["169.254.169.254", "fd20:ce::254"])
    start.check_resolvers(file, [])
