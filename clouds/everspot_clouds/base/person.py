"""What a person asks of a cloud by the command: its checks, the way into an instance, what is left of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol


class Verdict(StrEnum):
    """How a check ended. SKIP: it could not be made here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Check:
    """One check. `group`: what it is about: store, credentials, cluster, capacity, quota, clock or user."""

    group: str
    name: str
    verdict: Verdict
    detail: str
    fix: str = ""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A program of the cloud that replaces this process. `needs`: programs that have to be installed, and what people
    call them; `install`: how to install them; `denied`: what may be wrong when it fails."""

    command: tuple[str, ...]
    needs: tuple[tuple[str, str], ...]
    install: str
    denied: str


class Door(Protocol):
    """The way into instances, for a person."""

    def enter(self, instance_id: str, command: str) -> Handover:
        """Run a command line on an instance, in a terminal."""
        ...

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        """Make a port of an instance one of this machine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Something of a cluster that its cloud still has. `kind` and `detail` are for people.

    `launched`: an instance that a scheduler launched. `ending`: it goes by itself, or with what it belongs to. `kept`:
    it stays on purpose, such as a bucket with checkpoints.
    """

    kind: str
    name: str
    detail: str = ""
    launched: bool = False
    ending: bool = False
    kept: bool = False


class Site(Protocol):
    """What a cluster has in its cloud, for whoever takes it down. Both methods raise `CloudError`."""

    def left(self) -> list[Left]:
        """Everything that costs money, found by the cluster's name and not by what anybody remembers."""
        ...

    def end(self, instances: Iterable[str]) -> None:
        """Terminate instances of the cluster now, with the credentials of whoever asks."""
        ...
