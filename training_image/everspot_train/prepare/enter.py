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
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from everspot_train.device_edits import DeviceEdits, DeviceMount
from everspot_train.prepare.inside import resolve_inside
from everspot_train.worker import record

# linux/sched.h, linux/mount.h
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _REC, _PRIVATE = 32, 4096, 16384, 1 << 18
_OPTIONS = {"ro": _RDONLY, "nosuid": _NOSUID, "nodev": _NODEV, "noexec": _NOEXEC}
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _MOST_CAPABILITIES = 24, 38, 64  # linux/prctl.h, linux/capability.h
# Flags that must be kept when a mount is made read-only, because a user namespace may not clear them
# (mount_namespaces(7)).
_LOCKED_FLAGS = 2 | 4 | 8 | 1024 | 2048 | (1 << 21)  # nosuid, nodev, noexec, noatime, nodiratime, relatime
_ST_RELATIME = 4096
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of an image that does not set it."""
OF_MACHINE = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "LANG")
"""Variables that describe the machine and not the job."""

_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_FOLDERS = ("shm", "pts", "mqueue", "infiniband")  # the last one is for traffic between instances (EFA)
_LINKS = {
    "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}  # fmt: skip

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
        devices: the job's GPUs; None: it has none, and sees the machine's /dev.
    """

    root: str
    folders: Sequence[str]
    temporary: str
    files: Sequence[str]
    directory: str
    environment: Mapping[str, str]
    own_variables: Sequence[str]
    command: Sequence[str]
    devices: DeviceEdits | None = None

    def enter_command(self) -> list[str]:
        """Return the command that enters the container and becomes the program."""
        return [sys.executable, "-I", "-m", "everspot_train.prepare.enter", json.dumps(asdict(self))]


def main(text: str) -> None:
    """Enter the container and become its program. Returns only by an exception."""
    container = _parse(text)
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


def _parse(text: str) -> Container:
    fields = json.loads(text)
    if fields["devices"] is not None:
        mounts = [DeviceMount(**mount) for mount in fields["devices"].pop("mounts")]
        fields["devices"] = DeviceEdits(**fields["devices"], mounts=mounts)
    return Container(**fields)


def merge_environment(container: Container, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program: the job's variables and, unless the job sets them, those of its
    GPUs and of the image. Variables that describe the machine are left out."""
    job_names = set(container.own_variables)
    job_variables = {name: value for name, value in environment.items() if name in job_names or name not in OF_MACHINE}
    # torch calls Python's getpass, which needs a name, and the user has no name in the image.
    merged = {"PATH": DEFAULT_PATH, "USER": "everspot", **container.environment, **job_variables}
    if (devices := container.devices) is None:
        return merged
    merged |= {name: value for name, value in devices.environment.items() if name not in job_names}
    # The folder with the image's libc is searched anyway. Named here, it would come before a library's own RUNPATH.
    folders = [folder for folder in devices.library_folders if not Path(folder, "libc.so.6").exists()]
    search_path = [*filter(None, [merged.get("LD_LIBRARY_PATH")]), *folders]
    return {**merged, "LD_LIBRARY_PATH": ":".join(search_path)} if folders else merged


def _enter(container: Container) -> None:
    user, group, root = os.getuid(), os.getgid(), container.root
    _unshare(_CLONE_NEWUSER | _CLONE_NEWNS)
    _map_ids(0, user, 0, group)
    _mount(None, "/", _REC | _PRIVATE)
    _mount(root, root, _BIND | _REC)
    for place in ("/proc", "/sys", *(() if container.devices is not None else ("/dev",))):
        _mount(place, f"{root}{place}", _BIND | _REC)
    if container.devices is not None:
        _add_devices(Path(root), container.devices)
    _mount(container.temporary, f"{root}/tmp", _BIND | _REC)  # noqa: S108  of the image
    for folder in container.folders:
        if not Path(f"{root}{folder}").is_dir():
            Path(f"{root}{folder}").mkdir(parents=True)
        _mount(folder, f"{root}{folder}", _BIND | _REC)
    for file in container.files:
        if Path(file).is_file():
            _mount(file, f"{root}{file}", _BIND)
    _remount(root, _RDONLY)
    _unshare(_CLONE_NEWUSER)
    _map_ids(user, 0, group, 0)
    os.chroot(root)
    os.chdir(container.directory)
    _drop_capabilities()


def _add_devices(root: Path, devices: DeviceEdits) -> None:
    """Make a /dev with the devices of the job alone, and add the files of their driver."""
    folder = root / "dev"
    _mount("tmpfs", str(folder), _NOSUID | _NOEXEC, "tmpfs")  # in which this namespace cannot make nodes
    for name, pointer in _LINKS.items():
        (folder / name).symlink_to(pointer)
    usual = {f"/dev/{name}": f"/dev/{name}" for name in (*_NODES, *_FOLDERS)}
    for path, source in {**usual, **devices.nodes}.items():
        if path in devices.nodes or Path(source).exists():
            _show(source, _inside(root, path), _REC if Path(source).is_dir() else 0)
    _remount(str(folder), _RDONLY)
    for mount in devices.mounts:
        target = _inside(root, mount.target)
        _show(mount.source, target, _REC if "rbind" in mount.options else 0)
        _remount(str(target), sum(_OPTIONS.get(option, 0) for option in set(mount.options)))
    for name, pointer in devices.links.items():
        link = _inside(root, name)
        if not os.path.lexists(link):  # another job with this image may have made it
            link.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                link.symlink_to(pointer)


def _inside(root: Path, path: str) -> Path:
    """Return the place of a path in the image. Symbolic links are resolved relative to the image, except the last
    part."""
    pure = PurePosixPath(path)
    return resolve_inside(root, pure.parts[1:-1]) / pure.name


def _show(source: str, target: Path, flags: int) -> None:
    """Show a file or folder of the machine. Create its mount point if the image lacks it."""
    if target.is_symlink():  # such as a library of the image's own
        target.unlink()
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(exist_ok=True)
    _mount(source, str(target), _BIND | flags)


def _remount(target: str, flags: int) -> None:
    """Set flags of a bind mount, in addition to those that must be kept."""
    present = os.statvfs(target).f_flag
    locked = present & _LOCKED_FLAGS | (1 << 21 if present & _ST_RELATIME else 0)
    _mount(None, target, _REMOUNT | _BIND | flags | locked)


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


def _mount(source: str | None, target: str, flags: int, kind: str | None = None) -> None:
    origin, file_system = (os.fsencode(name) if name is not None else None for name in (source, kind))
    if _libc.mount(origin, os.fsencode(target), file_system, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _fail(message: str) -> None:
    sys.stdout.write(f"everspot: {message}\n")
    sys.stdout.flush()
    record(message, "")
    sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
