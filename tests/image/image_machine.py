"""A machine that has booted from the image, and a way to run commands in it."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from everspot_local.machines import keeper

T = TypeVar("T")
BOOT = (sys.executable, "-m", "everspot_local.machines.contained")
_RESOLVER = """
import socket, struct
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("{address}", 53))
while True:
    query, client = server.recvfrom(4096)
    end = query.index(b"\\0", 12) + 5
    asks_ipv4 = query[end - 4:end - 2] == b"\\0\\1"
    header = query[:2] + struct.pack("!HHHHH", 0x8180, 1, int(asks_ipv4), 0, 0)
    record = b"\\xc0\\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + bytes((10, 1, 2, 3)) if asks_ipv4 else b""
    server.sendto(header + query[12:end] + record, client)
"""
LOOK_UP = "import socket\nprint(socket.gethostbyname('storage.googleapis.com'))"


def until(condition: Callable[[], T | None], condition_name: str, seconds: float = 600.0) -> T:
    """Wait until a condition gives something."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {condition_name}"
        time.sleep(0.2)
    return value


def resolver(address: str) -> str:
    """Return the program of a resolver at an address, which knows 10.1.2.3 for every name."""
    return _RESOLVER.replace("{address}", address)


class BootedMachine:
    """A machine by the process of its keeper."""

    def __init__(self, keeper_pid: int) -> None:
        self._keeper_pid = keeper_pid

    @classmethod
    def from_instance(cls, cloud: Any, instance_id: str) -> "BootedMachine":
        """Return the machine of an instance of a local cloud."""
        pid = cloud.machines.processes.pid(instance_id)
        assert pid is not None, f"{instance_id} is off"
        return cls(pid)

    def init(self) -> int | None:
        """Return its process 1, as this machine counts it; None before it has booted."""
        parents = {pid: parent for pid, (parent, _) in keeper.processes().items()}
        booters = [pid for pid, parent in parents.items() if parent == self._keeper_pid]
        inits = [pid for pid, parent in parents.items() if parent in booters]
        return next((pid for pid in inits if _command(pid) in ("systemd", "init")), None)

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command as root in it; return what it prints."""
        pid = until(self.init, "the machine has a process 1")
        command = ["nsenter", "--target", str(pid), "--all", "--root", "--wd=/", *words]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert not check or answer.returncode == 0, f"{words}: {answer.stdout}{answer.stderr}"
        return answer.stdout

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--value", "--property", name, unit).strip()

    def await_boot(self) -> str:
        """Wait until systemd has started all there is to start; return its state."""
        states = ("running", "degraded")
        state = lambda: self.run("systemctl", "is-system-running", check=False).strip()  # noqa: E731
        return until(lambda: next((s for s in [state()] if s in states), None), "the machine has booted")


class LoneMachine(BootedMachine):
    """A machine without a cloud. `added`: a folder that lies above the image."""

    def __init__(self, home: Path, image: Path, added: Path) -> None:
        home.mkdir()
        self.log = home / "console.log"
        with self.log.open("w") as console:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, *BOOT, "--image", str(image), "--add", str(added)],
                stdin=subprocess.PIPE, stdout=console, stderr=console, cwd=home,
            )  # fmt: skip
        super().__init__(self.process.pid)

    def close(self) -> None:
        """Cut it off, if it is on."""
        self.process.communicate(timeout=60)


def _command(pid: int) -> str | None:
    """Return the name of a process's command; None once it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
