"""Training processes that start with torch imported: forks of the server that `program_forks` has for all tests.

A fork has a session, an environment and a stderr of its own, as the process has that an agent starts. It ends with the
process that asked for it.
"""

import json
import os
import select
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import program_forks

_running: set["Forked"] = set()  # those whose end nobody has waited for yet


class Forked:
    """One forked process, with what the tests ask of a `subprocess.Popen`. It appends to the file `stderr`. Its writers
    are processes of their own, unless its environment has FORKED_WRITER."""

    def __init__(self, script: Path, environment: Mapping[str, str], stderr: Path) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(program_forks.join()[0])
        self._answers = self._line.makefile("r")
        streams = [
            os.open(os.devnull, os.O_RDWR), os.open(os.devnull, os.O_RDWR),
            os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.open(".", os.O_RDONLY),
        ]  # fmt: skip
        socket.send_fds(self._line, [b"p"], streams)
        for stream in streams:
            os.close(stream)
        forked_writers = "FORKED_WRITER" in environment
        request = {"arguments": [str(script)], "environment": dict(environment), "forked_writers": forked_writers}
        self._line.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(self._answers.readline())
        _running.add(self)

    def poll(self) -> int | None:
        """Its exit code once it has ended; to be asked until then."""
        return self.wait() if select.select([self._line], [], [], 0)[0] else None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as `subprocess` tells it. Raises TimeoutError."""
        self._line.settimeout(timeout)
        code = int(self._answers.readline())
        self.close()
        return code

    def close(self) -> None:
        """End it, if it has not ended."""
        _running.discard(self)
        self._answers.close()
        self._line.close()


def close() -> None:
    """End what a test that failed has left running."""
    for process in list(_running):
        process.send_signal(signal.SIGCONT)
        process.close()
