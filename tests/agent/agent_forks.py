"""Agents and schedulers that start with their modules imported: a server imports them once and forks for each.

The imports take most of a second of a processor, which is more than a short test makes an agent do. A fork runs the
module as `python -m` does. The differences: /proc/PID/environ is that of the server, what only the interpreter's start
reads has no effect (`is_possible`), and the parent is the server.
"""

import atexit
import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from everspot_train.agent import parent_death_signal

MODULES = ("everspot_train.agent.main", "everspot_scheduler.main")
AT_START = ("PYTHON", "LD_", "MALLOC_", "TZ")
"""First letters of variables that are read when an interpreter starts."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(MODULES))


def is_possible(env: Mapping[str, str]) -> bool:
    """Return whether a fork in an environment is like a process that has started in it."""
    return not any(name.startswith(AT_START) for name in env)


class Fork:
    """A fork, with what `subprocess.Popen` has of it."""

    def __init__(self, module: str, arguments: list[str], env: Mapping[str, str], folder: Path, log: Path) -> None:
        log.touch()
        # A daemon is ended with this process, which does not wait for it.
        self._process = ForkServerProcess(
            target=_become, args=(module, arguments, dict(env), str(folder), str(log)), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def _become(module: str, arguments: list[str], env: dict[str, str], folder: str, log: str) -> None:
    """Run a module as `python -m` does. The fork gets SIGTERM when the server ends, which ends with the test run."""
    import ctypes

    os.setsid()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # one of them would let the server outlive the test run
    ctypes.CDLL(None).prctl(parent_death_signal.PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    null, output = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_TRUNC)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)
    sys.argv = [module, *arguments]
    sys.path[0] = folder
    del sys.modules[module]  # it is run a second time, as `__main__`
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
