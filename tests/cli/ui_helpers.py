"""`everspot ui` as a separate process, and a client with its token."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CLOCK = "1e-6@1772539200"  # two days after the world's T0, where it stays


@dataclass
class Reply:
    """An answer of the web UI."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Served:
    """A page that is served. `cookie`: what a browser holds that came with the token."""

    process: subprocess.Popen[str]
    answer: dict[str, Any]
    cookie: str = field(default="")

    @property
    def port(self) -> int:
        return int(self.answer["port"])

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(self, path: str, method: str = "GET", *, host: str | None = None, **headers: str) -> Reply:
        """A request without a cookie of its own."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            header_names = {name.replace("_", "-"): value for name, value in headers.items()}
            line.request(method, path, headers={"Host": host or f"127.0.0.1:{self.port}", **header_names})
            answer = line.getresponse()
            response_headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, response_headers, answer.read().decode())
        finally:
            line.close()

    def enter(self) -> None:
        """Open the printed address, and store its cookie."""
        address = urlsplit(self.answer["url"])
        self.cookie = self.request(f"/?{address.query}").headers["set-cookie"].partition(";")[0]

    def get(self, path: str, **headers: str) -> Reply:
        """A page, with the cookie."""
        return self.request(path, **{"Cookie": self.cookie, **headers})

    def post(self, path: str, **headers: str) -> Reply:
        """Send a form of the web UI."""
        return self.request(path, "POST", **{"Cookie": self.cookie, "Origin": self.origin, **headers})

    def until(self, path: str, condition: Callable[[str], bool], limit: float = 120) -> str:
        """Return a page once its text meets the condition."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            text = self.get(path).text
            if condition(text):
                return text
            time.sleep(0.2)
        raise AssertionError(f"{path} did not come to tell it; at last: {text}")

    def end(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


@contextmanager
def served(
    store: str, *options: str, env: dict[str, str] | None = None, within: tuple[str, ...] = ()
) -> Iterator[Served]:
    """Run the web UI over a store and log in. `within`: a command that wraps it."""
    process = subprocess.Popen(
        [*within, sys.executable, "-m", "everspot_cli.main", "--store", store, "ui", "--json", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        lines = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        page = Served(process, json.loads("".join(lines)))
        page.enter()
        yield page
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
