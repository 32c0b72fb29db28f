"""The monitor of an emulated machine: QEMU's machine protocol (QMP), as far as a power button needs it."""

import contextlib
import json
import socket
import threading
from typing import Any


class Monitor:
    """One connection to a machine's monitor, which answers once the machine has all of its devices, or has ended.

    Attributes:
        ending: why the machine ended, in QEMU's words (`ShutdownCause` of qapi/run-state.json); empty before.

    Args:
        connection: to the monitor.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.ending = ""
        self._connection = connection
        self._lines = connection.makefile("r", encoding="utf-8")
        self._lock = threading.Lock()
        self._lines.readline()  # its greeting, which comes before the machine has any device
        with contextlib.suppress(OSError):
            self._send("qmp_capabilities")
            self._lines.readline()

    def press_power(self) -> None:
        """Press the machine's power button. A machine that is off has none."""
        with contextlib.suppress(OSError):
            self._send("system_powerdown")

    def read(self) -> None:
        """Read the machine's events until it has ended."""
        with contextlib.suppress(OSError):
            for line in self._lines:
                message: dict[str, Any] = json.loads(line)
                if message.get("event") == "SHUTDOWN":
                    self.ending = str(message["data"].get("reason", ""))

    def _send(self, command: str) -> None:
        with self._lock:
            self._connection.sendall(json.dumps({"execute": command}).encode() + b"\n")
