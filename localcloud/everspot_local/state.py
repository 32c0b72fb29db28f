"""Stands in for an AWS account's address book: where the local cloud of a folder listens, and whether it lives.

It does not keep what the cloud holds; that is in the memory of its process.
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


class Refused(RuntimeError):
    """The local cloud would not do it."""


@dataclass(frozen=True)
class State:
    """What a running local cloud says of itself."""

    pid: int
    endpoint: str
    region: str
    time_scale: float
    clock: str

    def write(self, folder: Path) -> None:
        """Make it known, whole or not at all."""
        temporary = folder / f"{FILE}.new"
        temporary.write_text(json.dumps(asdict(self), indent=2))
        temporary.rename(folder / FILE)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The one that runs here.

        Raises:
            NotRunning: if none does.
        """
        try:
            state = cls(**json.loads((folder / FILE).read_text()))
        except FileNotFoundError:
            raise NotRunning(f"no local cloud runs in {folder}; start it with: everspot-local up") from None
        if not alive(state.pid):
            raise NotRunning(f"the local cloud of {folder} has died; start it again with: everspot-local up")
        return state

    def ask(self, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One market control.

        Raises:
            Refused: with its words.
            NotRunning: if it does not answer.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.endpoint}/_market/{name}", data=data)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
                return json.loads(answer.read())  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(str(json.loads(error.read()).get("error", error))) from None
        except OSError as error:
            raise NotRunning(f"the local cloud at {self.endpoint} does not answer: {error}") from None


def alive(pid: int) -> bool:
    """Whether a process exists and has not ended already."""
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        return True
