"""The messages between the agent and the broker: one JSON object a line, in both directions.

The broker accepts five kinds of requests. Requests contain names of folders and no paths: each name is one component
below a folder that the broker knows.
"""

import json
import re
import select
import socket
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

SOCKET_VARIABLE = "EVERSPOT_BROKER"
"""The variable with the path of the broker's socket. Without it the agent starts jobs as its own user."""
HOME = Path("/var/lib/everspot")
"""The agent's folder in the image."""
MEMORY = Path("/dev/shm")  # noqa: S108  private directories in it
PLACES = {"run": "runs", "work": "work", "temporary": "tmp", "cache": "cache"}
"""The parent, below the agent's folder, of each kind of a job's folders."""
WORK = HOME / PLACES["work"]
PROGRAM = "program.json"
"""The file of the run directory with the job's command, its environment and its working directory. The job's first
process reads it, and the broker does not."""
LONGEST_REQUEST = 1 << 16
LONGEST_ANSWER = 1 << 24
MOST_PIDS = 4096
MOST_VCPUS = 4096
MOST_MEMORY_MIB = 1 << 26
"""64 TiB."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,199}")
"""No separator, no leading dot, and no character with a meaning for systemd (`%`, `:`, `$`, a space)."""


class BadRequest(ValueError):
    """An invalid message."""


class ConnectionLost(OSError):
    """The other side has closed the connection, or did not answer in time."""


@dataclass(frozen=True)
class StartRequest:
    """Start the job whose program is described in its run directory.

    Attributes:
        run: name of the run directory.
        work: name of the working directory.
        temporary: name of the temporary directory.
        cache: name of the folder with datasets and packages.
        memory: the two names of the folder in memory, below /dev/shm; None for a job without one.
        vcpus: the number of processors that it may use.
        memory_mib: the memory that it may use; None, without limits, for a job that has the machine alone.
        metadata: whether it may reach the machine's metadata service, and so the machine's credentials.
        container: whether it may create a user namespace and a mount namespace, with its image as the root.
    """

    run: str
    work: str
    temporary: str
    cache: str
    memory: tuple[str, str] | None
    vcpus: int
    memory_mib: int | None
    metadata: bool
    container: bool

    def folders(self) -> dict[str, tuple[Path, tuple[str, ...]]]:
        """Return for each kind of folder the parent that the broker knows, and the names below it."""
        places: dict[str, tuple[Path, tuple[str, ...]]] = {
            kind: (HOME, (place, getattr(self, kind))) for kind, place in PLACES.items()
        }
        if self.memory is not None:
            places["memory"] = (MEMORY, self.memory)
        return places


@dataclass(frozen=True)
class SignalRequest:
    """Send SIGTERM to those of these processes that belong to the job."""

    pids: tuple[int, ...]


@dataclass(frozen=True)
class FilesRequest:
    """Return which files below a folder the job's processes may be writing to.

    Attributes:
        root: the folder, without symbolic links.
        mapped: return the files that are mapped instead of those that are open.
    """

    root: str
    mapped: bool


@dataclass(frozen=True)
class KillRequest:
    """Kill all processes of the job, and remove its files."""


@dataclass(frozen=True)
class ClearRequest:
    """Kill the jobs of earlier agents."""


Request = StartRequest | SignalRequest | FilesRequest | KillRequest | ClearRequest
_KINDS: dict[str, type[Request]] = {
    "start": StartRequest,
    "signal": SignalRequest,
    "files": FilesRequest,
    "kill": KillRequest,
    "clear": ClearRequest,
}


def render_request(request: Request) -> dict[str, Any]:
    """Return a request as an object for `parse_request`."""
    kind = next(name for name, cls in _KINDS.items() if isinstance(request, cls))
    return {"kind": kind, **asdict(request)}


def parse_request(message: dict[str, Any]) -> Request:
    """Parse and check a request.

    Raises:
        BadRequest: if its kind, a field or a value is not allowed.
    """
    fields = dict(message)
    kind = fields.pop("kind", None)
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise BadRequest(f"there is no request {kind!r}; there are {', '.join(_KINDS)}")
    if set(fields) != set(cls.__dataclass_fields__):
        raise BadRequest(f"{kind} has the fields {', '.join(cls.__dataclass_fields__) or 'none'}")
    if cls is StartRequest:
        names = {place: _name(place, fields[place]) for place in PLACES}
        return StartRequest(
            **names,
            memory=_memory(fields["memory"]),
            vcpus=_whole("vcpus", fields["vcpus"], MOST_VCPUS),
            memory_mib=None
            if fields["memory_mib"] is None
            else _whole("memory_mib", fields["memory_mib"], MOST_MEMORY_MIB),
            metadata=_flag("metadata", fields["metadata"]),
            container=_flag("container", fields["container"]),
        )
    if cls is SignalRequest:
        pids = fields["pids"]
        if not isinstance(pids, list) or len(pids) > MOST_PIDS:
            raise BadRequest(f"pids is a list of at most {MOST_PIDS} numbers")
        return SignalRequest(tuple(_whole("pids", pid, 1 << 22) for pid in pids))
    if cls is FilesRequest:
        root = fields["root"]
        if not isinstance(root, str) or not root.startswith(f"{WORK}/"):
            raise BadRequest(f"root is a path below {WORK}")
        return FilesRequest(root, _flag("mapped", fields["mapped"]))
    return KillRequest() if cls is KillRequest else ClearRequest()


def _name(place: str, value: object) -> str:
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise BadRequest(f"{place} is the name of a folder, not {value!r}")
    return value


def _memory(value: object) -> tuple[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise BadRequest("memory is two names of folders, or null")
    return _name("memory", value[0]), _name("memory", value[1])


def _whole(field: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise BadRequest(f"{field} is a whole number from 1 to {most}, not {value!r}")
    return value


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadRequest(f"{field} is true or false, not {value!r}")
    return value


class Channel:
    """One end of a connection. Not thread-safe.

    Args:
        connection: a connected stream socket.
        longest: the most bytes of a message that this end accepts.
    """

    def __init__(self, connection: socket.socket, longest: int) -> None:
        self._connection = connection
        self._longest = longest
        self._waiting = b""

    def fileno(self) -> int:
        """Return the socket's descriptor, for waiting."""
        return self._connection.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send an object.

        Raises:
            OSError: if it cannot be sent.
        """
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout: timedelta) -> dict[str, Any] | None:
        """Return the next object; None if none arrives in time.

        Raises:
            BadRequest: if the message is no object, or too long.
            ConnectionLost: if the other side has closed the connection.
        """
        end = time.monotonic() + timeout.total_seconds()
        while b"\n" not in self._waiting:
            if len(self._waiting) > self._longest:
                raise BadRequest(f"a message has at most {self._longest} bytes")
            ready, _, _ = select.select([self._connection], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            try:
                data = self._connection.recv(1 << 16)
            except ConnectionError as error:
                raise ConnectionLost(f"the connection is lost: {error}") from error
            if not data:
                raise ConnectionLost("the other side has closed the connection")
            self._waiting += data
        line, _, self._waiting = self._waiting.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise BadRequest("a message is one JSON object")
        return message

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
