"""The users of jobs. Each user has one job at a time."""

import fcntl
import logging
import os
import pwd
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from everspot_train.broker import mounts
from everspot_train.broker.mounts import Owner
from everspot_train.broker.unit import JobUnit

PREFIX = "everspot-job-"
STATE = Path("/run/everspot-broker")
"""Root's folder with the locks of the users, and the mount points of a job's folders until systemd has bind-mounted
them."""
CLEAR_TIMEOUT = timedelta(seconds=60)
"""The time for the brokers of earlier agents to end their jobs."""
_AGAIN_SECONDS = 0.05


_log = logging.getLogger(__name__)


class NoFreeUser(OSError):
    """All users for jobs are in use."""


class JobUser:
    """A user that no other job has, for as long as this process holds its lock.

    Attributes:
        name: of the user.
        owner: its user and group ids.
        unit: the unit of its job.
    """

    def __init__(self, number: int, lock: int, owner_unit: str | None) -> None:
        self.name = f"{PREFIX}{number}"
        entry = pwd.getpwnam(self.name)
        self.owner = Owner(entry.pw_uid, entry.pw_gid)
        self.unit = JobUnit(f"{self.name}.service", self.name, owner_unit)
        self._folder = STATE / str(number)
        self._lock = lock

    def stage(self, folders: dict[str, int], agent: Owner) -> dict[str, Path]:
        """Mount open folders of the agent as this user's, and return the mount points by kind. `unstage` unmounts them.

        Raises:
            OSError: if the kernel refuses.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        staged = {kind: self._folder / kind for kind in folders}
        with mounts.user_map(agent, self.owner) as namespace:
            for kind, folder in folders.items():
                staged[kind].mkdir(mode=0o700, exist_ok=True)
                mounts.attach(folder, staged[kind], namespace)
        return staged

    def unstage(self) -> None:
        """Unmount the folders that `stage` or an earlier broker has mounted. Raises `OSError`."""
        for target in self._folder.iterdir() if self._folder.is_dir() else ():
            mounts.detach(target)

    def clear(self) -> None:
        """End the remains of an earlier job of this user. Raises `OSError`."""
        self.unit.end()
        self.unstage()

    def release(self) -> None:
        """Make the user available to other jobs."""
        os.close(self._lock)


def take_user(owner_unit: str | None) -> JobUser:
    """Return the first free user, after clearing the remains of its last job.

    Raises:
        NoFreeUser: if each user has a job, or remains of one.
    """
    for number in _numbers():
        lock = _lock(number)
        if lock is None:
            continue
        user = JobUser(number, lock, owner_unit)
        try:
            user.clear()
        except OSError as error:  # a process in an uninterruptible wait, as on a broken GPU, may never end
            _log.error("%s is not used: %s", user.name, error)
            user.release()
            continue
        return user
    raise NoFreeUser(f"all users {PREFIX}N of this machine have a job")


def clear_users() -> int:
    """Wait until no other broker has a job, end all remains, and return the number of jobs. A job that does not end
    within `CLEAR_TIMEOUT` is logged, and its user not used again."""
    end = time.monotonic() + CLEAR_TIMEOUT.total_seconds()
    count = 0
    for number in (number for number in _numbers() if _lock_file(number).exists()):
        lock = _lock(number)
        count += lock is None
        while lock is None and time.monotonic() < end:
            time.sleep(_AGAIN_SECONDS)
            lock = _lock(number)
        if lock is None:
            _log.error("the broker of %s%d does not end its job", PREFIX, number)
            continue
        user = JobUser(number, lock, None)
        try:
            user.clear()
        except OSError as error:
            _log.error("%s: %s", user.name, error)
        finally:
            user.release()
    return count


def _numbers() -> Iterator[int]:
    """Yield the numbers of this machine's users for jobs."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    number = 0
    while f"{PREFIX}{number}" in names:
        yield number
        number += 1


def _lock_file(number: int) -> Path:
    return STATE / f"{number}.lock"


def _lock(number: int) -> int | None:
    """Return the lock of a user; None if another broker has it."""
    STATE.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(_lock_file(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
