"""A real MLflow server on SQLite, in an environment of its own: its packages conflict with those of the tests."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGE = "mlflow==3.17.2"
ENVIRONMENT = Path(__file__).parents[2] / ".everspot" / "mlflow"


def install() -> Path:
    """The environment, made at its first use, which takes some seconds where packages can be downloaded."""
    program = ENVIRONMENT / "bin" / "mlflow"
    if program.exists():
        return program
    uv = [sys.executable, "-m", "uv"]
    for command in (
        [*uv, "venv", "-q", "--clear", "--python", sys.executable, str(ENVIRONMENT)],
        [*uv, "pip", "install", "-q", "--python", str(ENVIRONMENT / "bin" / "python"), PACKAGE],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            pytest.skip(f"{PACKAGE} cannot be installed: {done.stderr[-300:]}")
    return program


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Gate:
    """A port of this machine that leads to another one while it is open, and refuses connections while it is closed."""

    def __init__(self, inner: int) -> None:
        self.port, self._inner = free_port(), inner
        self._sockets: list[socket.socket] = []

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self._sockets.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections, and end those that there are."""
        while self._sockets:
            with contextlib.suppress(OSError):  # the other end has closed it
                self._sockets[-1].shutdown(socket.SHUT_RDWR)
            self._sockets.pop().close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                outer, _ = listener.accept()
                inner = socket.create_connection(("127.0.0.1", self._inner))
                self._sockets += [outer, inner]
                for pair in ((outer, inner), (inner, outer)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


class MlflowServer:
    """One server behind a gate, by which it goes away and comes back: it takes ten seconds of a processor to start."""

    def __init__(self, root: Path) -> None:
        self.root, self.program = root, install()
        self._port = free_port()
        self._gate = Gate(self._port)
        self.url = f"http://127.0.0.1:{self._gate.port}"
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._popen is None:
            self._begin()
        self._gate.open()

    def stop(self) -> None:
        """Be away for everybody."""
        self._gate.close()

    def _begin(self) -> None:
        store = f"sqlite:///{self.root}/mlflow.db"
        command = [str(self.program), "server", "--host", "127.0.0.1", "--port", str(self._port), "--workers", "1",
                   "--backend-store-uri", store, "--default-artifact-root", str(self.root / "artifacts")]  # fmt: skip
        env = {
            "PATH": f"{self.program.parent}:{os.environ['PATH']}",
            "HOME": str(self.root),
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        with (self.root / "mlflow.log").open("ab") as log:
            self._popen = subprocess.Popen(
                command, cwd=self.root, env=env, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=5):
                    return
            except OSError:
                assert time.monotonic() < end and self._popen.poll() is None, (self.root / "mlflow.log").read_text()
                time.sleep(0.2)

    def end(self) -> None:
        self._gate.close()
        popen, self._popen = self._popen, None
        if popen is not None:
            os.killpg(popen.pid, signal.SIGKILL)
            popen.wait(30)

    def call(self, path: str, **fields: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}/api/2.0/mlflow/{path}", json.dumps(fields).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def runs(self) -> list[dict[str, Any]]:
        """All runs, with parameters and tags as dictionaries."""
        experiments = self.call("experiments/search", max_results=100)["experiments"]
        all_runs = self.call("runs/search", experiment_ids=[e["experiment_id"] for e in experiments]).get("runs", [])
        for run in all_runs:
            for part in ("params", "tags"):
                run["data"][part] = {pair["key"]: pair["value"] for pair in run["data"].get(part, [])}
        return all_runs

    def history(self, run_id: str, name: str) -> list[tuple[int, float]]:
        """The values of a metric with their steps, in order of steps."""
        query = urllib.parse.urlencode({"run_id": run_id, "metric_key": name, "max_results": 10_000})
        url = f"{self.url}/api/2.0/mlflow/metrics/get-history?{query}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            metrics = json.load(answer).get("metrics", [])
        return sorted((int(metric["step"]), float(metric["value"])) for metric in metrics)


@contextlib.contextmanager
def serving(root: Path) -> Iterator[MlflowServer]:
    root.mkdir(exist_ok=True)
    server = MlflowServer(root)
    try:
        yield server
    finally:
        server.end()
