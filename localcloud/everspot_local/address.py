"""The address of the local cloud of a state folder, and whether its process is alive.

The file contains none of the cloud's state, which is in the memory of its process.
"""

import json
import os
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

FILE = "state.json"


class NotRunning(RuntimeError):
    """There is no local cloud in this folder."""


class ControlRefused(RuntimeError):
    """The local cloud would not do it."""


@dataclass(frozen=True)
class Address:
    """The description that a running local cloud writes of itself.

    `clock`: of programs that keep its time. `kubeconfig`: of the Kubernetes beside it; empty for none.
    """

    pid: int
    endpoint: str
    region: str
    time_scale: float
    clock: str
    cloud: str = "aws"
    kubeconfig: str = ""

    def write(self, folder: Path) -> None:
        """Write the address down, whole or not at all."""
        temporary = folder / f"{FILE}.new"
        temporary.write_text(json.dumps(asdict(self), indent=2))
        temporary.rename(folder / FILE)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the address of the local cloud that runs here.

        Raises:
            NotRunning: if none does.
        """
        try:
            address = cls(**json.loads((folder / FILE).read_text()))
        except FileNotFoundError:
            raise NotRunning(f"no local cloud runs in {folder}; start it with: everspot-local up") from None
        if not alive(address.pid):
            raise NotRunning(f"the local cloud of {folder} has died; start it again with: everspot-local up")
        return address

    def send_control(self, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Carry out one market control, and return its answer.

        Raises:
            ControlRefused: with the local cloud's words.
            NotRunning: if it does not answer.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.endpoint}/_market/{name}", data=data)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
                return json.loads(answer.read())  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            with error:
                raise ControlRefused(str(json.loads(error.read()).get("error", error))) from None
        except OSError as error:
            raise NotRunning(f"the local cloud at {self.endpoint} does not answer: {error}") from None


def alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        return True
