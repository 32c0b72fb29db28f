"""Checkpoint writers that start with their modules imported: a server imports them once and forks for each writer.

The imports take half a second of a processor, and a trainer that is interrupted once has two writers. A trainer starts
this file in place of `python -m everspot_train.writer`: it hands its standard streams, environment and folder to the
server, and ends as the fork does, or the fork with it.
"""

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable


@functools.cache
def _server() -> "tuple[str, subprocess.Popen[bytes]]":
    import tempfile  # what is not imported above, the start of a writer does not need

    place = f"{tempfile.mkdtemp()}/writers"
    server = subprocess.Popen([sys.executable, __file__, "serve", place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return place, server


def command() -> tuple[str, ...]:
    """Return the command that starts a writer, and start the server with the first one."""
    return (sys.executable, "-I", "-S", __file__, "start", _server()[0])


def fork_writers(words: tuple[str, ...]) -> None:
    """Have the trainers of this process start their writers by a command."""
    from everspot_train.trainer import agent_link

    agent_link.Publisher = functools.partial(agent_link.Publisher, command=words)  # type: ignore[misc, attr-defined]


def close() -> None:
    """End the server if one was started."""
    import shutil

    if _server.cache_info().currsize:
        place, server = _server()
        assert server.stdin is not None and server.stdout is not None
        server.stdin.close()
        server.wait()
        server.stdout.close()
        shutil.rmtree(place.removesuffix("/writers"))
        _server.cache_clear()


def _start(place: str) -> int:
    """Have the server fork a writer with the streams of this process. Return its exit code."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(place)
        socket.send_fds(line, [b"."], [0, 1, 2, os.open(".", os.O_RDONLY)])
        line.sendall(json.dumps(dict(os.environ)).encode() + b"\n")
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # the fork alone has the ends of the pipes
            os.dup2(nothing, stream)
        with line.makefile() as answers:
            return int(answers.readline())


def _serve(place: str) -> None:
    """Ends when its standard input does, and so with the process that started it."""
    import everspot_train.writer.__main__  # noqa: F401 - for the forks

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
    os._exit(0)


def _attend(line: socket.socket) -> None:
    """Fork the writer and say how it ended. It ends with the process that asked for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, (*streams, folder), _, _ = socket.recv_fds(line, 1, 4)
    with line.makefile() as requests:
        environment = json.loads(requests.readline())
    child = os.fork()
    if child == 0:
        line.close()
        _become(environment, folder, streams)
    for stream in (0, 1, folder, *streams):
        os.close(stream)
    report_end(child, line, os.kill)


def report_end(child: int, line: socket.socket, kill: Callable[[int, int], None]) -> None:
    """Wait for a fork, and send its exit code to the process that asked for it; kill it if that process ends first."""
    ended = os.pidfd_open(child)
    if ended not in select.select([line, ended], [], [])[0]:
        with contextlib.suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        line.sendall(f"{code}\n".encode())
    os._exit(0)


def take_surroundings(environment: dict[str, str], folder: int, streams: list[int]) -> None:
    """Give this process the environment, the folder and the streams of the one that asked for it."""
    os.environ.clear()
    os.environ.update(environment)
    os.fchdir(folder)
    os.close(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)


def _become(environment: dict[str, str], folder: int, streams: list[int]) -> None:
    take_surroundings(environment, folder, streams)
    code = 1
    try:
        from everspot_train.writer.__main__ import main

        main()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    role, where = sys.argv[1:]
    if role == "serve":
        _serve(where)
    code = _start(where)
    if code < 0:  # it was ended by a signal
        os.kill(os.getpid(), -code)
    sys.exit(code)
