"""What the `everspot` command asks of a cloud for a person: checks, access to an instance, the rest of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Protocol


class Verdict(StrEnum):
    """The result of a check. SKIP: it could not be made here."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True)
class Check:
    """One check. `group`: its subject: store, credentials, cluster, capacity, quota, clock or user."""

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
    """A program of the cloud that replaces this process. `needs`: programs that have to be installed, with their names
    for people; `install`: how to install them; `denied`: the likely cause if it fails."""

    command: tuple[str, ...]
    needs: tuple[tuple[str, str], ...]
    install: str
    denied: str


class Door(Protocol):
    """Access to instances, for a person."""

    def enter(self, instance_id: str, command: str) -> Handover:
        """Run a command line on an instance, in a terminal."""
        ...

    def forward(self, instance_id: str, port: int, local: int) -> Handover:
        """Forward a port of an instance to this machine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A resource of a cluster that its cloud still has. `kind` and `detail` are for people.

    `launched`: an instance that a scheduler launched. `ending`: it will disappear by itself, or with the resource that
    it belongs to. `kept`: it stays on purpose, such as a bucket with checkpoints.
    """

    kind: str
    name: str
    detail: str = ""
    launched: bool = False
    ending: bool = False
    kept: bool = False


class Site(Protocol):
    """The resources of a cluster in its cloud, for taking it down. Both methods raise `CloudError`."""

    def left(self) -> list[Left]:
        """Everything that costs money, found by the cluster's name and not by any record."""
        ...

    def end(self, instances: Iterable[str]) -> None:
        """Terminate instances of the cluster now, with the user's credentials."""
        ...
