"""The real upstream provider as a child process, spoken to over its plugin protocol (tfplugin5)."""

from __future__ import annotations

import importlib
import ipaddress
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import msgpack

from everspot_local.bridge.schema import Node, from_block
from everspot_local.bridge.stderr_log import StderrLog

log = logging.getLogger(__name__)

# Public constants of the plugin protocol: a provider binary refuses to start without the cookie.
HANDSHAKE = {
    "TF_PLUGIN_MAGIC_COOKIE": "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2",
    "PLUGIN_PROTOCOL_VERSIONS": "5",
}
START_LIMIT = timedelta(seconds=60)
STOP_LIMIT = timedelta(seconds=2)
MAX_MESSAGE_BYTES = 256 << 20
FOREVER_MS = (1 << 31) - 1
CHANNEL = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.client_idle_timeout_ms", FOREVER_MS),  # the one connection is kept: there is no second
)
DIE_WITH_PARENT = """
import ctypes, os, signal, sys
parent, binary = int(sys.argv[1]), sys.argv[2]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == parent:  # else the bridge ended before the kernel was asked
    os.execv(binary, [binary])
"""
UNKNOWN = msgpack.ExtType(0, b"\0")
ERROR = 1


class BridgeError(Exception):
    """Something that the user can act on; its text is shown by the engine as it is."""


@dataclass(frozen=True)
class Diagnostic:
    """A message of the upstream provider about one value (`path`: its steps by upstream's names)."""

    error: bool
    summary: str
    detail: str
    path: tuple[str | int, ...]

    @property
    def text(self) -> str:
        """The message in one piece."""
        return f"{self.summary}: {self.detail}" if self.detail and self.detail != self.summary else self.summary


def encode(value: Any) -> bytes:
    """Pack a value as the protocol wants it."""
    return bytes(msgpack.packb(value))


def decode(data: bytes) -> Any:
    """Unpack a value of the protocol; anything unknown becomes `UNKNOWN`."""
    if not data:
        return None
    return msgpack.unpackb(data, ext_hook=lambda code, payload: UNKNOWN, strict_map_key=False)


def is_unknown(value: Any) -> bool:
    """Return whether this value itself, not a part of it, is unknown."""
    return isinstance(value, msgpack.ExtType)


def path_steps(path: Any) -> tuple[str | int, ...]:
    """Return the steps of an attribute path message."""
    return tuple(getattr(step, step.WhichOneof("selector")) for step in path.steps if step.WhichOneof("selector"))


def diagnostics(messages: Iterable[Any]) -> list[Diagnostic]:
    """Return the protocol's diagnostics in readable form."""
    return [Diagnostic(m.severity == ERROR, m.summary, m.detail, path_steps(m.attribute)) for m in messages]


def raise_errors(messages: Iterable[Any]) -> list[Diagnostic]:
    """Raise `BridgeError` when there are errors among the diagnostics; return the warnings."""
    parsed = diagnostics(messages)
    errors = [d for d in parsed if d.error]
    if errors:
        raise BridgeError("\n".join(d.text for d in errors))
    for d in parsed:
        log.warning("%s", d.text)
    return parsed


def command(binary: Path) -> list[str]:
    """Return the command that starts the provider so that the kernel kills it when the bridge ends, however it ends
    (Linux only).

    A small program asks for that and then becomes the provider. A forked child of this process, which has gRPC's
    threads, is no safe place to ask: now and then a start failed there.
    """
    if sys.platform != "linux":
        return [str(binary)]
    return [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), str(binary)]


def environment(variables: Mapping[str, str], proxied: str) -> dict[str, str]:
    """Return the provider's environment: the given one, and what the protocol needs.

    An endpoint in the variable `proxied` that is an IP address is also made the proxy for plain HTTP, so that the
    provider finds host names below it.
    """
    out = {"TF_LOG": "WARN", **variables, **HANDSHAKE}
    endpoint = urlsplit(variables.get(proxied, ""))
    try:
        ipaddress.ip_address(endpoint.hostname or "")
    except ValueError:
        return out
    if endpoint.scheme == "http" and not {"HTTP_PROXY", "http_proxy"} & variables.keys():
        out["HTTP_PROXY"] = f"http://{endpoint.netloc}"
    return out


class Upstream:
    """One provider process. Construct it on the main thread: it lives as long as that thread."""

    def __init__(self, binary: Path, stubs: Path, proxied: str = "", made_by: str = "make setup") -> None:
        """Start `binary`; `stubs` holds the modules generated from the protocol's definition.
        `proxied`: environment variable of an endpoint that becomes a proxy, see `environment`. `made_by`: the command
        that makes both.

        Raises:
            BridgeError: one of the two is missing.
        """
        for needed in (binary, stubs / "tfplugin5_pb2.py"):
            if not needed.exists():
                raise BridgeError(f"{needed} is missing: run `{made_by}`")
        sys.path.insert(0, str(stubs))
        self.pb = importlib.import_module("tfplugin5_pb2")
        self._stub_type = importlib.import_module("tfplugin5_pb2_grpc").ProviderStub
        self._process = subprocess.Popen(  # noqa: S603 (set-up's own binary)
            command(binary),
            env=environment(os.environ, proxied),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._stderr = StderrLog(self._process, os.environ.get("EVERSPOT_BRIDGE_LOG"))
        self._lock = threading.Lock()
        self._stub: Any = None
        self._schema: Any = None
        self._nodes: dict[tuple[str, str], Node] = {}

    def call(self, method: str, **fields: Any) -> Any:
        """Call one method of the protocol and return its response.

        Raises:
            BridgeError: the provider process does not answer any more.
        """
        request = getattr(self.pb, {"GetSchema": "GetProviderSchema"}.get(method, method)).Request(**fields)
        try:
            return getattr(self._connected(), method)(request)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE and (exit_message := self._stderr.describe_exit(STOP_LIMIT)):
                raise BridgeError(exit_message) from error
            raise BridgeError(f"the upstream provider failed in {method}: {error.details()}") from error

    def value(self, value: Any) -> Any:
        """Wrap a value for a request."""
        return self.pb.DynamicValue(msgpack=encode(value))

    def resource(self, name: str) -> tuple[Node, int]:
        """Return the schema of a resource type and its version."""
        return self._node("resource", name), self.schema.resource_schemas[name].version

    def data_source(self, name: str) -> Node:
        """Return the schema of a data source."""
        return self._node("data", name)

    def provider(self) -> Node:
        """Return the schema of the provider's own configuration."""
        return self._node("provider", "")

    @property
    def schema(self) -> Any:
        """Everything that the provider serves, as the protocol's message."""
        with self._lock:
            schema = self._schema
        if schema is None:
            schema = self.call("GetSchema")
            raise_errors(schema.diagnostics)
            with self._lock:
                self._schema = schema
        return schema

    def cancel(self) -> None:
        """Ask the provider to give up what it waits for."""
        if self._stub is not None and self._process.poll() is None:
            try:
                self._stub.Stop(self.pb.Stop.Request(), timeout=STOP_LIMIT.total_seconds())
            except grpc.RpcError as error:
                log.info("stop: %s", error)

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT.total_seconds())
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._stderr.close()

    def _node(self, kind: str, name: str) -> Node:
        key = (kind, name)
        if key not in self._nodes:
            schema = self.schema
            tables = {"resource": schema.resource_schemas, "data": schema.data_source_schemas}
            source = schema.provider if kind == "provider" else tables[kind][name]
            self._nodes[key] = from_block(source.block)
        return self._nodes[key]

    def _connected(self) -> Any:
        with self._lock:
            if self._stub is None:
                self._stub = self._connect()
            return self._stub

    def _connect(self) -> Any:
        timer = threading.Timer(START_LIMIT.total_seconds(), self._process.kill)
        timer.start()
        stdout = self._process.stdout
        line = stdout.readline().decode() if stdout else ""
        timer.cancel()
        if line.count("|") < 4:
            ended = self._stderr.describe_exit(STOP_LIMIT)
            raise BridgeError(ended or f"the upstream provider did not start (it said {line.strip()!r})")
        _, _, network, address, _ = line.strip().split("|")[:5]
        target = f"unix:{address}" if network == "unix" else address
        channel = grpc.insecure_channel(target, options=CHANNEL)
        if network == "unix":
            # The socket's name is needed for one connection; a killed process could not remove it from /tmp later.
            try:
                grpc.channel_ready_future(channel).result(START_LIMIT.total_seconds())
            except grpc.FutureTimeoutError:
                raise BridgeError(f"the upstream provider does not answer at {address}") from None
            Path(address).unlink(missing_ok=True)
        return self._stub_type(channel)
