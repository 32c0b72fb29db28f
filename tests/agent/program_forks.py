"""Jobs' programs that start with torch and the frameworks imported: a server imports them once and forks for each.

The imports take 2 to 6 s of a processor, which is most of what a short training program needs. An agent starts this
file in place of `python` (`EVERSPOT_LAUNCHER`). It hands its streams, environment and folder to the server, passes on
signals, and ends as the fork does, or the fork with it. All workers of a test run share the server, which ends with the
last of them. A fork has the environment of the server in /proc: tests that read it, or that measure a program's memory
or processor time, start their programs by `python`.
"""

import contextlib
import fcntl
import functools
import importlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

MODULES = (
    "everspot_train.trainer", "everspot_train.launcher", "torch._dynamo", "torch.nn.parallel.distributed",
    "everspot_train.frameworks.transformers", "everspot_train.frameworks.lightning",
    "everspot_train.frameworks.accelerate", "lightning", "transformers.trainer",
)  # fmt: skip
START_SECONDS = 600.0
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def _locked(place: str) -> Iterator[None]:
    """Let nobody else join or end the server meanwhile."""
    lock = os.open(f"{place.rpartition('-')[0]}.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@functools.cache
def join() -> "tuple[str, socket.socket]":
    """Return the server's address and a connection that lasts as long as this process. Start the server if there is
    none."""
    import tempfile  # what is not imported above, the start of a program does not need

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    place = f"{tempfile.gettempdir()}/everspot-forks-{os.getuid()}-{run}"
    line = socket.socket(socket.AF_UNIX)
    with _locked(place):
        try:
            line.connect(place)
        except (FileNotFoundError, ConnectionRefusedError):
            environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
            server = subprocess.Popen(
                [sys.executable, __file__, "serve", place], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "the server of forked programs has not started"
            server.stdout.close()
            server.returncode = 0  # it outlives this process where another one has joined
            line.connect(place)
        line.sendall(b"m")
    return place, line


def command() -> list[str]:
    """Return the command that replaces `python`, and start the server with the first one."""
    return [sys.executable, "-I", "-S", __file__, "start", join()[0]]


def close() -> None:
    """Leave the server if this process has joined it."""
    if join.cache_info().currsize:
        join()[1].close()
        join.cache_clear()


def launcher(processes: int = 1) -> str:
    """Return the command as an agent takes it. For several processes it is torchrun, and they are forks, too."""
    if processes == 1:
        return shlex.join(command())
    python = f"{join()[0]}.python"  # torchrun takes one word
    torchrun = ["-m", "everspot_train.launcher", "--standalone", f"--nproc-per-node={processes}"]
    return shlex.join(["env", f"PYTHON_EXEC={python}", *command(), *torchrun])


def _start(place: str, arguments: list[str]) -> int:
    """Have the server fork a program with the streams of this process. Return its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(place)
        socket.send_fds(line, [b"p"], [0, 1, 2, os.open(".", os.O_RDONLY)])
        request = {"arguments": arguments, "environment": dict(os.environ)}
        line.sendall(json.dumps(request).encode() + b"\n")
        with line.makefile() as answers:
            child = int(answers.readline())
            for number in FORWARDED:
                signal.signal(number, lambda number, _: _forward(child, number))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
            return int(answers.readline())


def _forward(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _serve(place: str) -> None:
    """Fork until the last member has gone."""
    import gc
    from pathlib import Path

    import trainer_writers

    answer = os.dup(1)
    os.dup2(2, 1)
    gc.disable()
    writers = trainer_writers.command()
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy what all of them share
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    Path(place).unlink(missing_ok=True)
    python = Path(f"{place}.python")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {__file__} start {place} "$@"\n')
    python.chmod(0o700)
    members: set[socket.socket] = set()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen()
        os.write(answer, b"ready\n")
        os.close(answer)
        began = False
        while True:
            if began and not members:
                with _locked(place):
                    if not select.select([listener], [], [], 0)[0]:
                        Path(place).unlink()
                        python.unlink()
                        break
            ready, _, _ = select.select([listener, *members], [], [], None if began else START_SECONDS)
            began = began or not ready  # who started it has ended
            for member in members.intersection(ready):
                members.discard(member)
                member.close()
            if listener in ready:
                line, _ = listener.accept()
                kind, streams, _, _ = socket.recv_fds(line, 1, 4)
                if kind == b"m":
                    members.add(line)
                    began = True
                    continue
                if os.fork() == 0:
                    for each in (listener, *members):
                        each.close()
                    _attend(line, streams, writers)
                for stream in streams:
                    os.close(stream)
                line.close()
    trainer_writers.close()
    os._exit(0)  # without what torch's libraries have to say about their own leaks


def _attend(line: socket.socket, streams: list[int], writers: tuple[str, ...]) -> None:
    """Fork the program and say how it ended. It ends with the process that asked for it."""
    import trainer_writers

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answers = line.makefile("r")
    request = json.loads(answers.readline())
    child = os.fork()
    if child == 0:
        answers.close()
        line.close()
        if request.get("forked_writers", True):
            trainer_writers.fork_writers(writers)
        _become(request["arguments"], request["environment"], streams)
    for stream in streams:
        os.close(stream)
    with contextlib.suppress(BrokenPipeError):
        line.sendall(f"{child}\n".encode())
    trainer_writers.report_end(child, line, os.killpg)  # its session, with the workers of its loaders


def _become(arguments: list[str], environment: dict[str, str], streams: list[int]) -> None:
    """Run the program as `python` would."""
    import atexit
    import io
    import runpy
    import threading
    from pathlib import Path

    import trainer_writers
    from everspot_train.trainer import variables

    os.setsid()
    *standard, folder = streams
    trainer_writers.take_surroundings(environment, folder, standard)
    for file in (sys.stdout, sys.stderr):
        assert isinstance(file, io.TextIOWrapper)
        file.reconfigure(line_buffering=True, write_through=True)
    variables._CODE = f"{Path.cwd()}/"  # which it reads when it is imported
    variables.is_own.cache_clear()
    code = 1
    try:
        if arguments[0] == "-u":  # as it is anyway
            del arguments[0]
        if arguments[0] == "-m":
            sys.argv, sys.path[0] = arguments[1:], str(Path.cwd())
            sys.modules.pop(arguments[1], None)
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).resolve().parent)
            runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    role, where, *words = sys.argv[1:]
    if role == "serve":
        sys.path.insert(0, f"{__file__.rpartition('/agent/')[0]}/trainer")
        _serve(where)
    code = _start(where, words)
    if code < 0:  # it was ended by a signal
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
