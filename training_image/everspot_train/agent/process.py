"""Launches a training process in a separate session, signals it, and ensures that it ends."""

import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from everspot_core.jobs.records import Seat

from everspot_train.agent import memory
from everspot_train.agent.artifacts.open_files import OpenFiles, OwnOpenFiles
from everspot_train.agent.containment import (
    ControlGroup,
    ControlGroups,
    become_subreaper,
    descendants,
    find_processes,
    kill_by_pid,
    kill_descendants,
    kill_processes,
    own_group,
    reap_orphans,
)
from everspot_train.agent.process_table import cpu_seconds, read_processes
from everspot_train.agent.termination import Termination
from everspot_train.agent.utilization.counters import JobCounters, read_job
from everspot_train.broker.unit import SHARED_NICENESS
from everspot_train.rundir import RUN_DIR_VARIABLE

LOOK_SECONDS = 0.25
"""Real time between two looks at the processes of a job that has to end."""

_log = logging.getLogger(__name__)


class TrainingProcess(Protocol):
    """A running or ended training process."""

    def exit_code(self) -> int | None:
        """Return the exit code: None while it runs, negative for the number of the signal that ended it."""
        ...

    def memory_gib(self) -> float | None:
        """Return the memory in GiB that all its processes hold now; None if that cannot be measured."""
        ...

    def cpu_seconds(self) -> float | None:
        """Return the processor time in seconds that its processes have used; None if that cannot be measured."""
        ...

    def counters(self) -> JobCounters:
        """Return the kernel's counters of its processes, as far as they can be read."""
        ...

    def limit_hit(self) -> float | None:
        """Return the memory limit in GiB at which it was killed, or None."""
        ...

    def terminate(self, *, final: bool = False) -> None:
        """Send SIGTERM, so that the program ends by itself. `final`: the repeated signal, shortly before SIGKILL."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to all of its processes, and wait until they are gone."""
        ...


@dataclass(frozen=True)
class JobLaunch:
    """The parameters of a job's first process.

    Attributes:
        command: program and arguments.
        run_dir: the run directory, whose `output.log` gets the output.
        cwd: the working directory.
        env: the environment, to which the run directory is added.
        seat: its part of a shared machine; None if it has the machine alone.
        folders: further folders that it may write to.
        metadata: whether it may reach the metadata service, which a job with its own credentials does not need.
        container: whether it may create the namespaces of a container.
    """

    command: list[str]
    run_dir: Path
    cwd: Path
    env: Mapping[str, str]
    seat: Seat | None = None
    folders: Sequence[Path] = ()
    metadata: bool = True
    container: bool = False

    @property
    def environment(self) -> dict[str, str]:
        """The environment, with the run directory."""
        return {**self.env, RUN_DIR_VARIABLE: str(self.run_dir)}


class ProgramLauncher(Protocol):
    """Starts training processes."""

    def launch(self, job: JobLaunch) -> TrainingProcess:
        """Start a job's first process."""
        ...

    def open_files(self, run_dir: Path) -> OpenFiles:
        """Return an object that finds the files that the job of a run directory may be writing to."""
        ...

    def clear(self) -> int:
        """Kill the processes that an earlier agent of this machine left running. Return how many were found by their
        environment variables."""
        ...


class OrderlyEnd:
    """The phase after SIGTERM in which a job ends by itself. It decides which processes get the signal, and when.

    Args:
        members: returns the processes of the job.
        send: sends SIGTERM to some of them.
    """

    def __init__(self, members: Callable[[], set[int]], send: Callable[[list[int]], None]) -> None:
        self._members = members
        self._send = send
        self._termination: Termination | None = None
        self._next_look = 0.0

    def begin(self, *, final: bool) -> None:
        """Send the first signals. `final`: shortly before SIGKILL."""
        if self._termination is None:
            self._termination, self._next_look = Termination(), 0.0
        self._look(self._termination, final=final)

    def goes_on(self) -> bool:
        """Send further signals if they are due, and return whether the job is still ending by itself. False before
        SIGTERM."""
        if self._termination is None:
            return False
        self._look(self._termination, final=False)
        return self._termination.ongoing

    def _look(self, termination: Termination, *, final: bool) -> None:
        now = time.monotonic()
        if now < self._next_look and not final:
            return
        self._next_look = now + LOOK_SECONDS
        self._send(termination.due(read_processes(self._members()), timedelta(seconds=now), final=final))


class LocalProcess:
    """A process tree of this machine.

    torchrun starts its workers in their own sessions, so a process group does not contain the whole tree. A control
    group, if available, does. Processes outside of it are found by the run directory in their environment and, if the
    agent adopts orphans, by their descent from the agent.
    """

    def __init__(
        self, process: "subprocess.Popen[bytes]", run_dir: Path, group: ControlGroup | None, living: "_Living | None"
    ) -> None:
        self._process = process
        self._run_dir = run_dir
        self._group = group
        self._living = living
        self._end = OrderlyEnd(self._members, _send_sigterm)
        self._killed = False

    def exit_code(self) -> int | None:
        """Return the exit code of the first process. Its children are killed once it has ended.

        If the job was told to end, return None also while another of its processes is still ending by itself.
        """
        code = self._process.poll()
        if self._living is not None:
            self._living.reap()
        return code if self._killed or not self._end.goes_on() else None

    def memory_gib(self) -> float | None:
        """Measured by the control group, or by its processes if the group does not count memory. Processes that left
        both the group and the run directory do not count."""
        counted = memory.of_group(self._group.path) if self._group is not None else None
        if counted is not None:
            return counted
        return memory.of_processes(find_processes(self._run_dir))

    def cpu_seconds(self) -> float | None:
        """Measured for its living processes and the children that they have waited for."""
        return cpu_seconds(self._members())

    def counters(self) -> JobCounters:
        """Read from its control group, or from its processes if the group has no counters."""
        group = self._group
        return read_job(group.path, group.processes) if group is not None else read_job(None, self._members)

    def limit_hit(self) -> float | None:
        """Read from its control group."""
        return self._group.limit_hit() if self._group is not None else None

    def terminate(self, *, final: bool = False) -> None:
        """Send SIGTERM to the processes that handle it, and later to the others: see `termination`. Calls of
        `exit_code` continue it."""
        self._end.begin(final=final)

    def _members(self) -> set[int]:
        """Return the processes that are known to belong to the job."""
        members = set(find_processes(self._run_dir))
        if self._group is not None:
            members.update(self._group.processes())
        if self._process.poll() is None:
            members.update((self._process.pid, *descendants(self._process.pid)))
        if self._living is not None and self._living.is_last(self._process.pid):
            members.update(descendants(os.getpid()))
        return members

    def kill(self) -> None:
        """Send SIGKILL to all processes of the job.

        While other jobs share the machine, an orphan that left its run directory, and whose first process has ended,
        cannot be distinguished from theirs. It is killed with the last of these jobs.
        """
        self._killed = True
        family = list(descendants(self._process.pid)) if self._process.poll() is None else []
        if self._process.poll() is None:
            self._process.kill()
        if self._group is not None:
            self._group.end()
        kill_processes(self._run_dir)
        if self._living is not None:
            self._living.end(self._process.pid, family)
        self._process.wait()
        if self._living is not None:
            self._living.waited_for(self._process.pid)


def _send_sigterm(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)


class _Living:
    """The first processes of the jobs of one agent that adopts orphans."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pids: set[int] = set()
        self._unreaped: set[int] = set()

    def add(self, pid: int) -> None:
        """Add the first process of a job. The caller has the lock."""
        self.pids.add(pid)
        self._unreaped.add(pid)

    def waited_for(self, pid: int) -> None:
        """The exit code of the first process of a job has been read."""
        with self.lock:
            self._unreaped.discard(pid)

    def reap(self) -> None:
        """Reap the dead orphans of the jobs."""
        with self.lock:
            reap_orphans(self._unreaped)

    def is_last(self, pid: int) -> bool:
        """Return whether no other job of the agent is left, so that all descendants of the agent belong to this job."""
        with self.lock:
            return self.pids <= {pid}

    def end(self, pid: int, family: list[int]) -> None:
        """Kill the remaining processes of the job of `pid`: its family and, if it is the last job, all descendants of
        the agent."""
        with self.lock:
            self.pids.discard(pid)
            if self.pids:
                kill_by_pid(family)
            else:
                kill_descendants(pid)


class LocalLauncher:
    """Launches on this machine, with a parent-death signal. The thread that calls it must live as long as the agent.

    Args:
        runs: the folder of the run directories.
        adopt: adopt the orphans of jobs. Then every descendant of this process belongs to a job.
        groups: use control groups if the machine has them.
    """

    def __init__(self, runs: Path, *, adopt: bool, groups: bool = True) -> None:
        self._runs = runs
        self._living = _Living() if adopt and become_subreaper() else None
        self._groups = ControlGroups(own_group() if groups else None, runs)
        self._unlimited = threading.Lock()  # acquired for ever by the first thread that logs it

    def launch(self, job: JobLaunch) -> TrainingProcess:
        """Start the job in its own session and, with a seat, under the limits that this machine can set. It runs as
        this user, with the agent's access to files and networks."""
        starter = Path(__file__).with_name("parent_death_signal.py")
        group = self._groups.make(job.run_dir.name)
        if job.seat is not None:
            self._limit(group, job.seat)
        niceness = str(SHARED_NICENESS if job.seat is not None else 0)
        tied = [str(starter), str(os.getpid()), str(group.path) if group is not None else "-", niceness]
        with self._living.lock if self._living is not None else nullcontext():
            process = self._start([sys.executable, "-I", *tied, *job.command], job)
            if self._living is not None:
                self._living.add(process.pid)
        _log.info("training process %d: %s", process.pid, shlex.join(job.command))
        return LocalProcess(process, job.run_dir, group, self._living)

    @staticmethod
    def _start(command: list[str], job: JobLaunch) -> "subprocess.Popen[bytes]":
        with (job.run_dir / "output.log").open("ab") as output:
            return subprocess.Popen(  # noqa: S603
                command,
                cwd=job.cwd,
                env=job.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _limit(self, group: ControlGroup | None, seat: Seat) -> None:
        if group is not None and self._groups.limit(group, seat.vcpus, seat.memory_gib):
            return
        if self._unlimited.acquire(blocking=False):
            _log.warning("this machine sets no limits: jobs that share it have as many threads as vCPUs, and no more")

    def open_files(self, run_dir: Path) -> OpenFiles:
        """Return an object that finds the files that any process of this user may be writing to."""
        return OwnOpenFiles()

    def clear(self) -> int:
        """Kill the processes that an earlier agent of this machine left running, in its groups or with its run
        directories."""
        self._groups.end_all()
        return kill_processes(self._runs)
