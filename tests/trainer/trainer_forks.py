"""Training processes that begin with torch imported: a server imports it once and forks the test loop when it is asked.

Importing torch, and what the first optimizer imports, takes ten times as long as the test loop. A fork has a session,
an environment and a stderr of its own, as the process has that an agent starts.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path


class Forked:
    """One forked process, with what the tests ask of a `subprocess.Popen`."""

    def __init__(self, server: Path, environment: Mapping[str, str], stderr: Path) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(str(server))
        self._answers = self._line.makefile("r")
        self._line.sendall(json.dumps({"environment": dict(environment), "stderr": str(stderr)}).encode() + b"\n")
        self.pid = int(self._answers.readline())

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as `subprocess` tells it. Raises TimeoutError."""
        self._line.settimeout(timeout)
        code = int(self._answers.readline())
        self._answers.close()
        self._line.close()
        return code


def start_server(place: Path) -> "subprocess.Popen[bytes]":
    """A server that listens at `place` and ends with this process."""
    server = subprocess.Popen([sys.executable, __file__, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return server


def _serve(place: str) -> None:
    import select

    import torch._dynamo  # what the first optimizer imports
    import trainer_loop

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(line, trainer_loop.main)
            line.close()


def _attend(line: socket.socket, run: object) -> None:
    """Fork the loop, say its pid and wait for its end: one process beside each."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wanted = json.loads(line.makefile("r").readline())
    child = os.fork()
    if child == 0:
        line.close()
        _become(wanted["environment"], wanted["stderr"])
    line.sendall(f"{child}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    line.sendall(f"{code}\n".encode())
    os._exit(0)


def _become(environment: dict[str, str], stderr: str) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    code = 0
    try:
        import trainer_loop

        trainer_loop.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
