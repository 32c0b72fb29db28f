"""Jobs of a booted image: the broker starts each job under its own user, and does for the agent what only root may do.

The agent itself reads the kernel's counters of a job and decides which of its processes get SIGTERM and when, as for
jobs of its own user. The connection to the broker lives as long as the job: if either side dies, the job ends.
"""

import json
import logging
import os
import shlex
import signal
import socket
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from everspot_train.agent import memory
from everspot_train.agent.artifacts.open_files import OpenFiles
from everspot_train.agent.containment import ControlGroup
from everspot_train.agent.process import JobLaunch, OrderlyEnd, TrainingProcess
from everspot_train.agent.process_table import cpu_seconds
from everspot_train.agent.utilization.counters import JobCounters, read_job
from everspot_train.broker import protocol
from everspot_train.broker.protocol import BadRequest, Channel, ConnectionLost, Request, StartRequest

ANSWER_TIMEOUT = timedelta(seconds=90)
"""Longer than the broker takes for any request, since the broker limits the time of systemd's calls."""
_MIB_PER_GIB = 1024

_log = logging.getLogger(__name__)


class BrokerError(OSError):
    """The broker refused a request, or does not run."""


class _Connection:
    """A connection to the broker. Any thread may use it.

    Attributes:
        ended: the exit code of the job's first process, negative for a signal; None while it runs.
        out_of_memory: whether the kernel has killed it at its memory limit.
    """

    def __init__(self, path: Path) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(ANSWER_TIMEOUT.total_seconds())
            connection.connect(str(path))
        except OSError as error:
            connection.close()
            raise BrokerError(f"the broker cannot be reached at {path}: {error}") from error
        self._channel: Channel | None = Channel(connection, protocol.LONGEST_ANSWER)
        self._lock = threading.Lock()
        self.ended: int | None = None
        self.out_of_memory = False

    def request(self, message: Request) -> dict[str, Any]:
        """Return the broker's answer.

        Raises:
            BrokerError: if the broker refuses, or the connection is lost.
        """
        with self._lock:
            if self._channel is None:
                raise BrokerError("the connection to the broker is lost")
            try:
                self._channel.send(protocol.render_request(message))
                while (answer := self._channel.receive(ANSWER_TIMEOUT)) is not None:
                    if not self._take_end(answer):
                        break
            except (OSError, BadRequest) as error:
                self._lose()
                raise BrokerError(f"the broker does not answer: {error}") from error
            if answer is None:
                self._lose()
                raise BrokerError("the broker does not answer")
        if "error" in answer:
            raise BrokerError(str(answer["error"]))
        return answer

    @property
    def lost(self) -> bool:
        """Whether the broker, and with it the job, is gone."""
        return self._channel is None

    def look(self) -> int | None:
        """Return the exit code of the first process; None while it runs. A job whose broker is gone counts as
        killed."""
        with self._lock:
            try:
                while self._channel is not None and (message := self._channel.receive(timedelta())) is not None:
                    self._take_end(message)
            except (ConnectionLost, BadRequest) as error:
                _log.error("the job's broker is gone: %s", error)
                self._lose()
            return self.ended

    def close(self) -> None:
        """Close the connection. The broker then kills the remaining processes of the job."""
        with self._lock:
            self._lose()

    def _take_end(self, message: dict[str, Any]) -> bool:
        if "ended" not in message:
            return False
        self.ended, self.out_of_memory = int(message["ended"]), bool(message["oom"])
        return True

    def _lose(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self.ended is None:
            self.ended = -signal.SIGKILL


class BrokeredProcess:
    """A job that runs under its own user."""

    def __init__(self, connection: _Connection, group: ControlGroup | None, memory_gib: float | None) -> None:
        self._connection = connection
        self._group = group
        self._memory_gib = memory_gib
        self._end = OrderlyEnd(self._members, self._signal)
        self._killed = False

    def exit_code(self) -> int | None:
        """See `TrainingProcess`. If the job was told to end, None also as long as one of its other processes uses its
        time to do so."""
        code = self._connection.look()
        return code if self._killed or not self._end.goes_on() else None

    def memory_gib(self) -> float | None:
        """Measured by its control group, or by its processes if the group does not count memory."""
        counted = memory.of_group(self._group.path) if self._group is not None else None
        return counted if counted is not None else memory.of_processes(self._members())

    def cpu_seconds(self) -> float | None:
        """Measured for its living processes and the children that they have waited for."""
        return cpu_seconds(self._members())

    def counters(self) -> JobCounters:
        """Read from its control group, or from its processes if the group has no counters."""
        return read_job(self._group.path if self._group is not None else None, self._members)

    def limit_hit(self) -> float | None:
        """Reported by systemd for the job's unit."""
        return self._memory_gib if self._connection.out_of_memory else None

    def terminate(self, *, final: bool = False) -> None:
        """Send SIGTERM to the processes that handle it, and later to the others: see `termination`."""
        self._end.begin(final=final)

    def kill(self) -> None:
        """Have the broker kill all processes of the job and remove its files."""
        if self._killed:
            return
        self._killed = True
        try:
            self._connection.request(protocol.KillRequest())
        except BrokerError as error:
            _log.error("the job was not killed in the usual way: %s", error)
        finally:
            self._connection.close()

    def find_files(self, root: bytes, *, mapped: bool) -> list[set[bytes]]:
        """Return the files below a folder that the job may be writing to: the mapped files, or the files that are open
        for writing, and for appending. Empty if the job has ended."""
        try:
            answer = self._connection.request(protocol.FilesRequest(os.fsdecode(os.path.realpath(root)), mapped))
        except BrokerError:
            if not self._connection.lost:
                raise
            return _no_files(mapped=mapped)
        return [{os.fsencode(path) for path in paths} for paths in answer["files"]]

    def _members(self) -> set[int]:
        return set(self._group.processes()) if self._group is not None else set()

    def _signal(self, pids: list[int]) -> None:
        if pids:
            try:
                self._connection.request(protocol.SignalRequest(tuple(pids[: protocol.MOST_PIDS])))
            except BrokerError as error:
                _log.error("SIGTERM was not sent: %s", error)


class BrokeredFiles:
    """Finds the files that the launched job of a run directory may be writing to."""

    def __init__(self, processes: Mapping[Path, BrokeredProcess], run_dir: Path) -> None:
        self._processes = processes
        self._run_dir = run_dir

    def opened(self, root: bytes) -> tuple[set[bytes], set[bytes]]:
        """See `OpenFiles`. Raises `BrokerError`."""
        opened, appending = self._find(root, mapped=False)
        return opened, appending

    def mapped(self, root: bytes) -> set[bytes]:
        """See `OpenFiles`. Raises `BrokerError`."""
        (files,) = self._find(root, mapped=True)
        return files

    def _find(self, root: bytes, *, mapped: bool) -> list[set[bytes]]:
        process = self._processes.get(self._run_dir)
        return process.find_files(root, mapped=mapped) if process is not None else _no_files(mapped=mapped)


def _no_files(*, mapped: bool) -> list[set[bytes]]:
    return [set()] if mapped else [set(), set()]


class BrokerLauncher:
    """Launches jobs through the broker. `path`: of its socket."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._processes: WeakValueDictionary[Path, BrokeredProcess] = WeakValueDictionary()

    def launch(self, job: JobLaunch) -> TrainingProcess:
        """Start the job under its own user, which sees only the named folders of the agent.

        Raises:
            BrokerError: if the broker does not run, or cannot start the job.
        """
        request = _start_request(job)
        program = {"command": job.command, "directory": str(job.cwd), "environment": job.environment}
        (job.run_dir / protocol.PROGRAM).write_text(json.dumps(program))
        connection = _Connection(self._path)
        try:
            started = connection.request(request)
        except BrokerError:
            connection.close()
            raise
        group = ControlGroup(Path(started["started"])) if started["started"] else None
        process = BrokeredProcess(connection, group, job.seat.memory_gib if job.seat is not None else None)
        self._processes[job.run_dir] = process
        _log.info("a job runs as %s: %s", started["user"], shlex.join(job.command))
        return process

    def open_files(self, run_dir: Path) -> OpenFiles:
        """Return an object that finds the files that the job of a run directory may be writing to."""
        return BrokeredFiles(self._processes, run_dir)

    def clear(self) -> int:
        """Have the broker kill the jobs of earlier agents. Raises `BrokerError`."""
        connection = _Connection(self._path)
        try:
            return int(connection.request(protocol.ClearRequest())["cleared"])
        finally:
            connection.close()


def _start_request(job: JobLaunch) -> StartRequest:
    """Return the broker's request for a job. Raises `BrokerError` for a folder that is not at its place in the
    image."""
    places = {protocol.HOME / place: kind for kind, place in protocol.PLACES.items()}
    names: dict[str, str] = {}
    in_memory: tuple[str, str] | None = None
    for folder in (job.run_dir, job.cwd, *job.folders):
        if folder.parent in places:
            names[places[folder.parent]] = folder.name
        elif folder.parent.parent == protocol.MEMORY:
            in_memory = folder.parent.name, folder.name
        else:
            raise BrokerError(f"the broker serves no folder {folder}")
    if missing := set(protocol.PLACES) - set(names):
        raise BrokerError(f"a job has a folder below each of {', '.join(sorted(missing))}")
    return StartRequest(
        **names,
        memory=in_memory,
        vcpus=job.seat.vcpus if job.seat is not None else os.cpu_count() or 1,
        memory_mib=int(job.seat.memory_gib * _MIB_PER_GIB) if job.seat is not None else None,
        metadata=job.metadata,
        container=job.container,
    )
