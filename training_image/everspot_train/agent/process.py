"""The training process in the agent's hands: launched in a session of its own, signalled, made sure to be dead."""

import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from everspot_core.job import JobSpec

from everspot_train.rundir import RUN_DIR_VARIABLE

LAUNCHER_VARIABLE = "EVERSPOT_LAUNCHER"
"""Replaces `python -m torch.distributed.run …`, for programs that need no process group: debugging, tests."""

_log = logging.getLogger(__name__)


class TrainingProcess(Protocol):
    """A running or ended training process."""

    def exit_code(self) -> int | None:
        """None while it runs; negative for the number of the signal that ended it."""
        ...

    def terminate(self) -> None:
        """SIGTERM: end, by your own ways."""
        ...

    def kill(self) -> None:
        """SIGKILL to every process of it; they are gone when this returns."""
        ...


class Launcher(Protocol):
    """Starts training processes."""

    def launch(self, command: list[str], run_dir: Path, cwd: Path, env: Mapping[str, str]) -> TrainingProcess:
        """Start `command`; what it prints goes to `output.log` of the run directory."""
        ...


class LocalProcess:
    """A process tree of this machine. torchrun puts its workers into sessions of their own, so a process group does not
    hold all of it; the run directory in the environment does."""

    def __init__(self, process: "subprocess.Popen[bytes]", run_dir: Path) -> None:
        self._process = process
        self._run_dir = run_dir

    def exit_code(self) -> int | None:
        """Of the first process; its children are made an end of once it is over."""
        return self._process.poll()

    def terminate(self) -> None:
        """SIGTERM to the first process, which hands it on."""
        if self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL to all that runs with this run directory in its environment."""
        if self._process.poll() is None:
            self._process.kill()
        kill_all_of(self._run_dir)
        self._process.wait()


class LocalLauncher:
    """Launches on this machine, leashed to the agent: it must be called by a thread that lives as long as the agent."""

    def launch(self, command: list[str], run_dir: Path, cwd: Path, env: Mapping[str, str]) -> TrainingProcess:
        """Start `command` in a session of its own."""
        leash = Path(__file__).with_name("leash.py")
        with (run_dir / "output.log").open("ab") as output:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", str(leash), str(os.getpid()), *command],
                cwd=cwd,
                env={**env, RUN_DIR_VARIABLE: str(run_dir)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        _log.info("training process %d: %s", process.pid, shlex.join(command))
        return LocalProcess(process, run_dir)


def command_for(spec: JobSpec, processes: int, launcher: str | None) -> list[str]:
    """The command line of a job on one machine with `processes` workers (one per GPU, or one)."""
    if launcher:
        head = shlex.split(launcher)
    else:
        head = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    if spec.recipe is not None:
        return [*head, "-m", f"everspot_train.recipes.{spec.recipe.replace('-', '_')}"]
    assert spec.entrypoint is not None  # noqa: S101  JobSpec demands one of the two
    return [*head, *spec.entrypoint]


def environment_for(spec: JobSpec, base: Mapping[str, str], vcpus: int, processes: int) -> dict[str, str]:
    """The agent's own environment, the job's over it, and ours over both where the two sides rely on it."""
    threads = {"OMP_NUM_THREADS": str(max(1, vcpus // processes)), "PYTHONUNBUFFERED": "1"}
    ours = {name: value for name, value in base.items() if name.startswith(("EVERSPOT_", "AWS_"))}
    return {**base, **threads, **spec.env, **ours}


def kill_all_of(path: Path) -> int:
    """SIGKILL every process of this user whose run directory is `path` or lies under it, until none is left.

    Returns how many were found. A process that the kernel does not let go of (in an uninterruptible wait) is left.
    """
    found: set[int] = set()
    for _ in range(50):
        alive = [pid for pid in _processes_of(path) if pid != os.getpid()]
        if not alive:
            break
        for pid in alive:
            found.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    return len(found)


def _processes_of(path: Path) -> Iterator[int]:
    own = f"{RUN_DIR_VARIABLE}={path}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX" and any(
            value == own or value.startswith(own + b"/") for value in environment.split(b"\0")
        ):
            yield int(entry.name)
