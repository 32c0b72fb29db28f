"""Chooses which processes of a job get SIGTERM, and when.

A job is a tree: a shell or a launcher, the training processes, their DataLoader workers. The signal goes to the
processes that handle it (`SigCgt` in /proc/PID/status):

1. The first process with a handler on each path down from the root gets the signal, and no process below it: a training
   process ends its own workers. If a DataLoader worker gets it, the training process fails with "DataLoader worker is
   killed by signal" in the middle of its last save (torch/utils/data/_utils/signal_handling.py).
2. Shells and launchers do not count as handlers while one runs below them. A shell runs its trap only after the
   command in the foreground has ended (bash(1), Signals), and torchrun signals whole process groups, workers included
   (torch/distributed/elastic/multiprocessing/subprocess_handler). They end when the training process has ended. A shell
   that still runs `SETTLE` later gets the signal: earlier, its exit code would be that of the signal, and the last save
   would count as one that was broken off.
3. Once no handler is left, all others get the signal, parents first. A job without any handler gets it immediately.
4. Near the deadline the signal goes to handlers that did not get it yet, because a process above did not pass it on.
   Workers never get it.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

SETTLE = timedelta(seconds=3)
"""Real time between the end of the last handler and the signal to the remaining processes. A shell or a launcher ends
by itself in this time, with the program's exit code."""

_SHELLS = frozenset({"sh", "ash", "bash", "busybox", "dash", "fish", "ksh", "mksh", "zsh"})
_LAUNCHERS = frozenset({
    "timeout", "tini", "dumb-init", "catatonit", "docker-init", "mpirun", "mpiexec", "mpiexec.hydra", "orterun",
    "prterun", "hydra_pmi_proxy", "srun", "torchrun", "accelerate", "deepspeed", "torch.distributed.run",
    "torch.distributed.launch", "accelerate.commands.launch", "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.runner", "deepspeed.launcher.launch", "everspot_train.launcher", "everspot_train.prepare",
})  # fmt: skip
"""Launchers, by the name of their file or module. Shells are not among them, because a shell may be the program
itself."""
_WORKER = "everspot_train.worker"
_TAKES_VALUE = ("-W", "-X")
_MULTIPROCESSING = ("multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing.resource_tracker")


@dataclass(frozen=True)
class ProcessInfo:
    """A living process.

    Attributes:
        pid: its id.
        parent: the id of its parent.
        arguments: its command line.
        handles: whether it has a handler for SIGTERM, or blocks it to wait for it.
        data_worker: whether it is a worker of torch's DataLoader, which ends immediately on SIGTERM.
    """

    pid: int
    parent: int
    arguments: tuple[str, ...] = ()
    handles: bool = False
    data_worker: bool = False

    @property
    def forwards(self) -> bool:
        """Whether it is a shell or a launcher."""
        return program_name(self.arguments) in _SHELLS | _LAUNCHERS

    @property
    def only_launches(self) -> bool:
        """Whether it is a launcher, which has nothing to save itself."""
        return program_name(self.arguments) in _LAUNCHERS

    @property
    def multiprocessing(self) -> bool:
        """Whether Python's multiprocessing has started it as a new interpreter."""
        return any(mark in argument for argument in self.arguments for mark in _MULTIPROCESSING)


def program_name(arguments: Collection[str]) -> str:
    """Return the program that a command line runs: the name of its file or, with an interpreter, of its script or
    module."""
    remaining = list(arguments)
    name = os.path.basename(remaining.pop(0)).lstrip("-") if remaining else ""  # noqa: PTH119  no path of this machine
    if not name.startswith(("python", "pypy")):
        return name
    while remaining:
        argument = remaining.pop(0)
        if argument == "-m":
            module = remaining.pop(0) if remaining else ""
            if module != _WORKER:
                return module
        elif argument == "-c":
            return argument
        elif argument in _TAKES_VALUE and remaining:
            remaining.pop(0)
        elif not argument.startswith("-"):
            return os.path.basename(argument)  # noqa: PTH119
    return name


class Termination:
    """The signals to one job. Moments are of CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self._signalled: dict[int, ProcessInfo] = {}
        self._family: dict[int, ProcessInfo] = {}  # signalled processes, and the processes below them at that time
        self._above: set[int] = set()  # the processes above a signalled process at that time
        self._quiet_since: timedelta | None = None
        self.ongoing = True

    def due(self, processes: Mapping[int, ProcessInfo], now: timedelta, *, final: bool = False) -> list[int]:
        """Return the processes that get SIGTERM now, in this order. `processes`: all living processes of the job, by
        id.

        Afterwards `ongoing` is True while the job is still ending by itself.
        """
        settled = self._quiet_since is not None and now - self._quiet_since >= SETTLE
        handlers = [pid for root in _roots(processes) for pid in self._handlers(processes, root, settled=settled)]
        if final:
            handlers += [p.pid for p in processes.values() if p.handles and not p.forwards and not self._is_helper(p)]
        if handlers:
            self._quiet_since = None
            self.ongoing = True
            return self._sign(processes, [pid for pid in dict.fromkeys(handlers) if pid not in self._signalled])
        if self._quiet_since is None:
            self._quiet_since = now
        # A program that stop.json has asked to stop may have ended by itself: give its launcher a moment.
        is_ending = self._signalled or all(process.only_launches for process in processes.values())
        if is_ending and now - self._quiet_since < SETTLE:
            self.ongoing = bool(processes)
            return []
        self.ongoing = False
        order = [pid for root in _roots(processes) for pid in _down(processes, root)]
        return self._sign(processes, [pid for pid in order if pid not in self._signalled])

    def _handlers(self, processes: Mapping[int, ProcessInfo], root: int, *, settled: bool) -> list[int]:
        """Return the first handler on each path down from `root`. `settled`: no handler has run for `SETTLE`."""
        process = processes[root]
        direct = process.handles and not self._is_helper(process)
        if direct and not process.forwards:
            return [root]
        children = _children(processes, root)
        below = [pid for child in children for pid in self._handlers(processes, child, settled=settled)]
        if below or not direct:
            return below
        if root in self._above and root not in self._signalled and not settled:
            return []
        down = _down(processes, root)
        # A shell's trap runs after the process that it waits for, and that process has no handler to save anything.
        return [] if all(processes[pid].only_launches for pid in down) else down

    def _is_helper(self, process: ProcessInfo) -> bool:
        """Return whether the process belongs to another process that got the signal: a worker, or a fork, which
        inherits the handler but must not save in its place."""
        owner = self._family.get(process.pid)
        copied = owner is not None and (process.multiprocessing or process.arguments == owner.arguments)
        return process.data_worker or copied

    def _sign(self, processes: Mapping[int, ProcessInfo], pids: list[int]) -> list[int]:
        for pid in pids:
            self._signalled[pid] = processes[pid]
            for below in _down(processes, pid)[1:]:
                self._family.setdefault(below, processes[pid])
            while (pid := processes[pid].parent) in processes:
                self._above.add(pid)
        return pids


def _roots(processes: Mapping[int, ProcessInfo]) -> list[int]:
    return sorted(pid for pid, process in processes.items() if process.parent not in processes)


def _children(processes: Mapping[int, ProcessInfo], parent: int) -> list[int]:
    return sorted(pid for pid, process in processes.items() if process.parent == parent and pid != parent)


def _down(processes: Mapping[int, ProcessInfo], root: int) -> list[int]:
    """`root` and all below it, parents first."""
    return [root, *(pid for child in _children(processes, root) for pid in _down(processes, child))]
