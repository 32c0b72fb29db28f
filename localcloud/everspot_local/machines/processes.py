"""The processes of machines: each machine is a process tree under a keeper.

Machines have no network, disk, memory or processors of their own here, and nobody looks at their image. They report the
processors of this machine, which may be more or fewer than their type has.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from everspot_local.machines import keeper
from everspot_local.market.clock import CLOCK_VARIABLE

log = logging.getLogger(__name__)
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
KILL_SECONDS = 10.0


@dataclass(frozen=True)
class Boot:
    """The programs and folders of machines.

    Attributes:
        folder: of the machines' homes.
        command: the boot command; None for no processes.
        data: folder of datasets that all machines read.
    """

    folder: Path
    command: tuple[str, ...] | None
    data: Path | None = None


class Processes:
    """The processes of all machines.

    Args:
        boot: what they run.
        clock: what their programs need to keep the market's time.
        ended: told of each machine whose last process ended, by a thread of this one's own.
    """

    def __init__(self, boot: Boot, clock: str, ended: Callable[[str], None]) -> None:
        self._boot = boot
        self._clock = clock
        self._ended = ended
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}
        self._waiters: list[threading.Thread] = []
        self._closing = False

    def folder(self, machine_id: str) -> Path:
        """Return the machine's home, with its console.log."""
        return self._boot.folder / machine_id

    def boot(self, machine_id: str, cloud_variables: dict[str, str]) -> None:
        """Start the image's boot command in a session and an environment of its own.

        `cloud_variables`: what its cloud puts into the environment.
        """
        if self._boot.command is None or self._closing:
            return
        home = self.folder(machine_id)
        home.mkdir(parents=True, exist_ok=True)
        with (home / "console.log").open("ab") as console:
            process = subprocess.Popen(  # noqa: S603 - the operator's own boot command
                [sys.executable, "-I", "-S", keeper.__file__, *self._boot.command],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=self._environment(machine_id) | cloud_variables,
                cwd=home,
                start_new_session=True,
            )
        self._keepers[machine_id] = process
        waiter = threading.Thread(
            target=self._wait, args=(machine_id, process), name=f"everspot-{machine_id}", daemon=True
        )
        self._waiters.append(waiter)
        waiter.start()

    def _environment(self, machine_id: str) -> dict[str, str]:
        """Return the variables of every machine's programs: nothing of this process's own environment."""
        home = str(self.folder(machine_id))
        data = {"EVERSPOT_DATA": str(self._boot.data)} if self._boot.data else {}
        return {
            "PATH": f"{Path(sys.executable).parent}:{SYSTEM_PATH}",
            "HOME": home,
            "LANG": "C.UTF-8",
            CLOCK_VARIABLE: self._clock,
            "EVERSPOT_HOME": home,
            # On real machines a job has one path in all its attempts, since they have one state folder.
            "EVERSPOT_WORK": str(self._boot.folder / "work"),
            keeper.MARK: machine_id,
            **data,
        }

    def stop(self, machine_id: str, *, hard: bool) -> bool:
        """Begin to end a machine's processes, with SIGTERM or, if `hard`, with SIGKILL; return False if it has none."""
        process = self._keepers.get(machine_id)
        if process is None or process.poll() is not None:
            return False
        self._order(process, b"K" if hard else b"T")
        return True

    def kill(self, machine_id: str) -> None:
        """Kill what is left of a machine's processes."""
        process = self._keepers.get(machine_id)
        if process is not None and process.poll() is None:
            self._order(process, b"K")

    def pid(self, machine_id: str) -> int | None:
        """Return the process id of the machine's keeper, above all of its processes."""
        process = self._keepers.get(machine_id)
        return None if process is None or process.poll() is not None else process.pid

    def processes(self, machine_id: str) -> list[int]:
        """Return the ids of the machine's processes, the keeper's not among them."""
        pid = self.pid(machine_id)
        return [] if pid is None else keeper.descendants(pid)

    def close(self) -> None:
        """Kill all machines' processes and wait until none is left."""
        self._closing = True
        for process in self._keepers.values():
            self._order(process, b"K")
        end = time.monotonic() + KILL_SECONDS
        for machine_id, process in self._keepers.items():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.error("the keeper of %s does not end; killing it", machine_id)
            _kill_marked(machine_id)
            process.wait()
        self._keepers.clear()
        for waiter in self._waiters:
            waiter.join(KILL_SECONDS)
        self._waiters.clear()
        self._closing = False

    def _order(self, process: subprocess.Popen[bytes], order: bytes) -> None:
        if process.stdin is None or process.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):  # it may have ended by itself
            process.stdin.write(order)
            process.stdin.flush()
            if order == b"K":
                process.stdin.close()

    def _wait(self, machine_id: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if code < 0:
            log.error("the keeper of %s was killed by signal %d", machine_id, -code)
        _kill_marked(machine_id)
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        if not self._closing:
            self._ended(machine_id)


def _kill_marked(machine_id: str) -> None:
    """Kill processes that are left over from a keeper that was itself killed."""
    end = time.monotonic() + KILL_SECONDS
    while (pids := keeper.marked(machine_id)) and time.monotonic() < end:
        keeper.signal_all([p for p in pids if p != os.getpid()], signal.SIGKILL)
        time.sleep(0.01)
