"""Training processes that start with torch imported: a server imports torch once and forks for each script.

Importing torch, and what its first optimizer imports, takes far longer than the scripts of these tests. A fork has a
session, an environment and a stderr of its own, as the process has that an agent starts.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

import trainer_writers

_running: set[int] = set()  # those whose end nobody has waited for yet


class Forked:
    """One forked process, with what the tests ask of a `subprocess.Popen`. It appends to the file `stderr`."""

    def __init__(self, script: Path, environment: Mapping[str, str], stderr: Path) -> None:
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(str(_server()[0]))
        self._answers = self._line.makefile("r")
        request = {"script": str(script), "environment": dict(environment), "stderr": str(stderr)}
        self._line.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(self._answers.readline())
        _running.add(self.pid)

    def poll(self) -> int | None:
        """Its exit code once it has ended; to be asked until then."""
        return self.wait() if select.select([self._line], [], [], 0)[0] else None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as `subprocess` tells it. Raises TimeoutError."""
        self._line.settimeout(timeout)
        code = int(self._answers.readline())
        _running.discard(self.pid)
        self._answers.close()
        self._line.close()
        return code


@functools.cache
def _server() -> "tuple[Path, subprocess.Popen[bytes]]":
    place = Path(tempfile.mkdtemp()) / "forks"
    server = subprocess.Popen(
        [sys.executable, __file__, str(place), *trainer_writers.command()],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return place, server


def close() -> None:
    """End the server if one was started, and what a test that failed has left running."""
    if _server.cache_info().currsize:
        place, server = _server()
        for pid in _running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # the session of a fork, with the workers of its loaders
        _running.clear()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.close()
        server.wait()
        server.stdout.close()  # unread: the forks inherited its other end, and one may outlive the server
        place.unlink()
        place.parent.rmdir()
        _server.cache_clear()


def _serve(place: str) -> None:
    """Ends when its standard input does, and so with the process that started it."""
    gc.disable()
    for name in ("everspot_train.trainer", "torch._dynamo", "torch.nn.parallel.distributed"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy what all of them share
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(line)
            line.close()
    os._exit(0)  # without what torch's libraries have to say about their own leaks


def _attend(line: socket.socket) -> None:
    """Fork the script, say its pid, wait for its end and say how it ended: one process beside each."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = json.loads(line.makefile("r").readline())
    child = os.fork()
    if child == 0:
        line.close()
        _become(request["script"], request["environment"], request["stderr"])
    line.sendall(f"{child}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    line.sendall(f"{code}\n".encode())
    os._exit(0)


def _become(script: str, environment: dict[str, str], stderr: str) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    if "FORKED_WRITER" in environment:
        trainer_writers.fork_writers(tuple(sys.argv[2:]))
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv, sys.path[0] = [script], str(Path(script).parent)
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
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
