"""Stands in for the machines themselves: each instance is a process tree under a keeper.

It does not give instances a network, a disk or memory of their own, and does not look at their image.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from everspot_local.machines import keeper
from everspot_local.market.clock import CLOCK_VARIABLE
from everspot_local.world import World

if TYPE_CHECKING:
    from everspot_local.aws.ec2.instances import LocalInstance

log = logging.getLogger(__name__)
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
KILL_SECONDS = 10.0


class Machines:
    """The processes of all instances. Called with the world's lock held, except by its own waiting threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._keepers: dict[str, subprocess.Popen[bytes]] = {}
        self._waiters: list[threading.Thread] = []
        self._closing = False

    def folder(self, instance_id: str) -> Path:
        """The instance's home, with its console.log."""
        return self._world.options.state_dir / "instances" / instance_id

    def boot(self, instance: "LocalInstance") -> None:
        """Start the image's boot command in a session and an environment of its own."""
        command = self._world.options.boot_command
        if command is None or self._closing:
            return
        home = self.folder(instance.id)
        home.mkdir(parents=True, exist_ok=True)
        with (home / "console.log").open("ab") as console:
            process = subprocess.Popen(  # noqa: S603 - the operator's own boot command
                [sys.executable, "-I", "-S", keeper.__file__, *command],
                stdin=subprocess.PIPE,
                stdout=console,
                stderr=subprocess.STDOUT,
                env=self.environment(instance),
                cwd=home,
                start_new_session=True,
            )
        self._keepers[instance.id] = process
        waiter = threading.Thread(
            target=self._wait, args=(instance.id, process), name=f"everspot-{instance.id}", daemon=True
        )
        self._waiters.append(waiter)
        waiter.start()

    def environment(self, instance: "LocalInstance") -> dict[str, str]:
        """What its processes start with: nothing of this process's own environment."""
        world = self._world
        home = str(self.folder(instance.id))
        data = {"EVERSPOT_DATA": str(world.options.data_dir)} if world.options.data_dir else {}
        return {
            "PATH": f"{Path(sys.executable).parent}:{SYSTEM_PATH}",
            "HOME": home,
            "LANG": "C.UTF-8",
            "AWS_ENDPOINT_URL": world.endpoint,
            "AWS_REGION": world.region,
            "AWS_DEFAULT_REGION": world.region,
            "AWS_EC2_METADATA_DISABLED": "false",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": world.metadata.endpoint(instance.id),
            CLOCK_VARIABLE: world.clock.variable,
            "EVERSPOT_HOME": home,
            keeper.MARK: instance.id,
            **data,
        }

    def stop(self, instance_id: str, *, hard: bool) -> bool:
        """Begin to end an instance's processes, with SIGTERM or, if `hard`, with SIGKILL; False if it has none."""
        process = self._keepers.get(instance_id)
        if process is None or process.poll() is not None:
            return False
        self._order(process, b"K" if hard else b"T")
        return True

    def kill(self, instance_id: str) -> None:
        """End what is left of an instance's processes."""
        process = self._keepers.get(instance_id)
        if process is not None and process.poll() is None:
            self._order(process, b"K")

    def pid(self, instance_id: str) -> int | None:
        """Process id of the instance's keeper, above all of its processes."""
        process = self._keepers.get(instance_id)
        return None if process is None or process.poll() is not None else process.pid

    def processes(self, instance_id: str) -> list[int]:
        """Ids of the instance's processes, the keeper's not among them."""
        pid = self.pid(instance_id)
        return [] if pid is None else keeper.descendants(pid)

    def close(self) -> None:
        """Kill all instances' processes and wait until none is left."""
        self._closing = True
        for process in self._keepers.values():
            self._order(process, b"K")
        end = time.monotonic() + KILL_SECONDS
        for instance_id, process in self._keepers.items():
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.error("the keeper of %s does not end; killing it", instance_id)
            _kill_marked(instance_id)
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

    def _wait(self, instance_id: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        if code < 0:
            log.error("the keeper of %s was killed by signal %d", instance_id, -code)
        _kill_marked(instance_id)
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        if not self._closing:
            self._world.timeline.at(self._world.clock.now(), lambda: self._world.lifecycle.gone(instance_id))


def _kill_marked(instance_id: str) -> None:
    """Whatever escaped a keeper that was itself killed."""
    end = time.monotonic() + KILL_SECONDS
    while (pids := keeper.marked(instance_id)) and time.monotonic() < end:
        keeper.signal_all([p for p in pids if p != os.getpid()], signal.SIGKILL)
        time.sleep(0.01)
