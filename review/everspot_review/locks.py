"""A stack's lock in a self-managed backend: who holds it since when, and whether its holder is gone.

The engine's lock is a file without lease or expiry (pulumi/pkg, backend/diy/lock.go); one that a killed job left blocks
every later update until `pulumi cancel`. It names process, user, machine and time, which is all that can be known.
"""

import getpass
import os
import re
import socket
from dataclasses import dataclass
from datetime import datetime

_HELD = re.compile(
    r"^\s*(?P<where>\S+): created by (?P<user>.+)@(?P<host>[^@\s]+) \(pid (?P<pid>\d+)\) at (?P<since>\S+)$",
    re.MULTILINE,
)
_LOCKED = re.compile(r"the stack is currently locked by \d+ lock")


@dataclass(frozen=True)
class Lock:
    """One lock. `where`: the address of its file; `since`: when it was taken, by its holder's clock."""

    where: str
    user: str
    host: str
    pid: int
    since: datetime

    @property
    def holder(self) -> str:
        """The holder of the lock and the time since when, for people."""
        return f"{self.user}@{self.host} (process {self.pid}) since {self.since:%Y-%m-%d %H:%M:%S %Z}"


@dataclass(frozen=True)
class Here:
    """The owner of this process, and whether another process of this machine lives."""

    user: str
    host: str

    @classmethod
    def own(cls) -> "Here":
        """Return the owner of this process."""
        return cls(getpass.getuser(), socket.gethostname())

    def ended(self, lock: Lock) -> bool:
        """Return whether a lock's holder was a process of this machine that is gone."""
        return lock.host == self.host and not _lives(lock.pid)


def locked(output: str) -> bool:
    """Return whether the engine's words say that another one holds the stack."""
    return _LOCKED.search(output) is not None


def parse_locks(output: str) -> list[Lock]:
    """Return the locks that the engine's words name."""
    return [
        Lock(m["where"], m["user"], m["host"], int(m["pid"]), datetime.fromisoformat(m["since"]))
        for m in _HELD.finditer(output)
    ]


def left_by_this_repository(locks: list[Lock], here: Here, began: datetime, others: list[int] | None) -> bool:
    """Return whether all locks remain from earlier runs of this repository's workflows, so that they may be removed:
    their processes were this user's on this machine, and have ended. Users of many machines have the same name
    (`runner`, `root`), and whether a process of another machine lives cannot be known.

    Args:
        locks: The present locks.
        here: This process.
        began: When this run of the workflow began, with its zone.
        others: Runs of the repository, of every workflow, that existed when the locks were taken and are in progress
            now, without this one; None if unknown.
    """
    return (
        bool(locks)
        and others == []
        and all(lock.user == here.user and here.ended(lock) and lock.since < began for lock in locks)
    )


def describe_locks(environment: str, locks: list[Lock], here: Here) -> str:
    """Return the message for a person who cannot update: the holder, and whether the holder is gone."""
    if not locks:
        return f"{environment}: another update holds the stack's lock; the engine does not say whose"
    holders = ", ".join(lock.holder for lock in locks)
    if all(here.ended(lock) for lock in locks):
        return (
            f"{environment}: the stack's lock is stale: held by {holders}, a process of this machine that has ended. "
            f"Free it: pulumi cancel --stack {environment}"
        )
    return (
        f"{environment}: the stack is locked by {holders}. If that run is over, free it: "
        f"pulumi cancel --stack {environment}"
    )


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
