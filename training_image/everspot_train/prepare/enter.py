"""Becomes a program in the container of a job's image: `python -I -m everspot_train.prepare.enter CONTAINER`.

CONTAINER is a `Container` as JSON. The container is a user namespace and a mount namespace of an ordinary user, and
needs no privileged program. Its only user is the job's, with the same id. All other limits of a job are set by its
unit, with or without a container.

The kernel's interface: user_namespaces(7), mount_namespaces(7), mount(2).
"""

import ctypes
import errno
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from everspot_train.worker import record

# linux/sched.h, linux/mount.h
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _MOST_CAPABILITIES = 24, 38, 64  # linux/prctl.h, linux/capability.h
# Flags that must be kept when a mount is made read-only, because a user namespace may not clear them
# (mount_namespaces(7)).
_LOCKED_FLAGS = 2 | 4 | 8 | 1024 | 2048 | (1 << 21)  # nosuid, nodev, noexec, noatime, nodiratime, relatime
_ST_RELATIME = 4096
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of an image that does not set it."""
OF_MACHINE = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "LANG")
"""Variables that describe the machine and not the job."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Container:
    """A container, and the program in it.

    Attributes:
        root: of the unpacked image.
        folders: folders of the machine that are shown under their own paths and may be written to.
        temporary: the folder that is shown as /tmp.
        files: files of the machine that are shown under their own paths.
        directory: the working directory.
        environment: the variables of the image.
        own_variables: names of the variables that the job sets.
        command: of the program.
    """

    root: str
    folders: Sequence[str]
    temporary: str
    files: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    own_variables: Sequence[str]
    command: Sequence[str]

    def enter_command(self) -> list[str]:
        """Return the command that enters the container and becomes the program."""
        return [sys.executable, "-I", "-m", "everspot_train.prepare.enter", json.dumps(asdict(self))]


def main(text: str) -> None:
    """Enter the container and become its program. Returns only by an exception."""
    container = Container(**json.loads(text))
    try:
        _enter(container)
    except OSError as error:
        place = f", {error.filename}" if error.filename else ""
        _fail(f"image: this machine makes no container: {error.strerror}{place}")
    environment = merge_environment(container, os.environ)
    program = container.command[0]
    try:
        os.execvpe(program, list(container.command), environment)  # noqa: S606  the job's own program
    except OSError as error:
        _fail(f"image: {program} cannot be started in it: {error.strerror}")


def merge_environment(container: Container, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program: the job's variables and, unless the job sets them, the image's. Variables
    that describe the machine are left out."""
    job_names = set(container.own_variables)
    job_variables = {name: value for name, value in environment.items() if name in job_names or name not in OF_MACHINE}
    # torch calls Python's getpass, which needs a name, and the user has no name in the image.
    return {"PATH": DEFAULT_PATH, "USER": "everspot", **container.environment, **job_variables}


def _enter(container: Container) -> None:
    user, group, root = os.getuid(), os.getgid(), container.root
    _unshare(_CLONE_NEWUSER | _CLONE_NEWNS)
    _map_ids(0, user, 0, group)
    _mount(None, "/", _REC | _PRIVATE)
    _mount(root, root, _BIND | _REC)
    for place in ("/proc", "/sys", "/dev"):
        _mount(place, f"{root}{place}", _BIND | _REC)
    _mount(container.temporary, f"{root}/tmp", _BIND | _REC)  # noqa: S108  of the image
    for folder in container.folders:
        if not Path(f"{root}{folder}").is_dir():
            Path(f"{root}{folder}").mkdir(parents=True)
        _mount(folder, f"{root}{folder}", _BIND | _REC)
    for file in container.files:
        if Path(file).is_file():
            _mount(file, f"{root}{file}", _BIND)
    flags = os.statvfs(root).f_flag
    locked = flags & _LOCKED_FLAGS | (1 << 21 if flags & _ST_RELATIME else 0)
    _mount(None, root, _REMOUNT | _BIND | _RDONLY | locked)
    _unshare(_CLONE_NEWUSER)
    _map_ids(user, 0, group, 0)
    os.chroot(root)
    os.chdir(container.directory)
    _drop_capabilities()


def _drop_capabilities() -> None:
    """Drop the capabilities of all programs in the container, even if the job's user is root."""
    for capability in range(_MOST_CAPABILITIES):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # unknown capabilities are refused
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _map_ids(user: int, outer_user: int, group: int, outer_group: int) -> None:
    """Map the user and the group of this process into its new user namespace."""
    Path("/proc/self/uid_map").write_text(f"{user} {outer_user} 1\n")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"{group} {outer_group} 1\n")


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        # Use the symbol: at the limit of namespaces the error is ENOSPC, whose text suggests a full disk.
        raise OSError(number, f"the kernel gives no namespaces, {errno.errorcode.get(number, number)}")


def _mount(source: str | None, target: str, flags: int) -> None:
    origin = os.fsencode(source) if source is not None else None
    if _libc.mount(origin, os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _fail(message: str) -> None:
    sys.stdout.write(f"everspot: {message}\n")
    sys.stdout.flush()
    record(message, "")
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
