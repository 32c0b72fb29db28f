"""Shows folders of the agent to a job as the job's own, by idmapped mounts.

These need Linux 5.12, for a tmpfs 6.3 (mount_setattr(2), MOUNT_ATTR_IDMAP). On the disk all files belong to the agent's
user, so that the agent can read, upload and remove a job's files. In the mount that the job sees, the same files belong
to the job's user.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everspot_train.safe_open import open_folder_below

# linux/fcntl.h, linux/mount.h, linux/sched.h
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC, _MOVE_MOUNT_F_EMPTY_PATH = 1, os.O_CLOEXEC, 4
_NOSUID, _NODEV, _IDMAP, _NOSYMFOLLOW = 0x2, 0x4, 0x100000, 0x200000
_CLONE_NEWUSER = 0x10000000
_MNT_DETACH = 2
# System calls since Linux 5.1 have one number on all architectures (asm-generic/unistd.h).
_SYS_OPEN_TREE, _SYS_MOVE_MOUNT, _SYS_MOUNT_SETATTR = 428, 429, 442

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Owner:
    """A user and its group, by number."""

    uid: int
    gid: int


class _MountAttributes(ctypes.Structure):
    """struct mount_attr of linux/mount.h."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def open_folder(root: Path, names: tuple[str, ...], owner: Owner) -> int:
    """Open a folder below another one; return the descriptor. No symbolic link is followed, so that no part of the path
    can be redirected.

    Raises:
        OSError: if it does not exist, or does not belong to `owner`.
    """
    folder = open_folder_below(root, names)
    if os.fstat(folder).st_uid != owner.uid:
        os.close(folder)
        raise PermissionError(f"{root.joinpath(*names)} is not the agent's")
    return folder


@contextmanager
def user_map(owner: Owner, shown: Owner) -> Iterator[int]:
    """Provide the descriptor of a user namespace that maps the files of `owner` to `shown`.

    Raises:
        OSError: if the kernel refuses.
    """
    is_ready, ready = os.pipe()
    ends, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(end)  # otherwise this process would hold open the pipe that it waits for
            if _libc.unshare(_CLONE_NEWUSER) == 0:
                os.write(ready, b"1")
                os.read(ends, 1)
        finally:
            os._exit(0)
    try:
        os.close(ready)
        if os.read(is_ready, 1) != b"1":
            raise OSError("the kernel gives no user namespace")
        process = Path("/proc", str(child))
        (process / "uid_map").write_text(f"{owner.uid} {shown.uid} 1\n")
        (process / "gid_map").write_text(f"{owner.gid} {shown.gid} 1\n")
        namespace = os.open(process / "ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for descriptor in (is_ready, ends, end):
            os.close(descriptor)
        os.waitpid(child, 0)
    try:
        yield namespace
    finally:
        os.close(namespace)


def attach(folder: int, target: Path, namespace: int) -> None:
    """Mount an open folder at `target`, with the owners of a user namespace. The job may follow symbolic links in it;
    the agent may not.

    Raises:
        OSError: if the kernel refuses, for example because the file system does not support such mounts.
    """
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_EMPTY_PATH
    tree = _call("open_tree", _SYS_OPEN_TREE, folder, b"", flags)
    try:
        attributes = _MountAttributes(
            attr_set=_IDMAP | _NOSUID | _NODEV, attr_clr=_NOSYMFOLLOW, propagation=0, userns_fd=namespace
        )
        size = ctypes.c_size_t(ctypes.sizeof(attributes))
        _call(
            "mount_setattr",
            _SYS_MOUNT_SETATTR,
            tree,
            b"",
            ctypes.c_uint(_AT_EMPTY_PATH),
            ctypes.byref(attributes),
            size,
        )
        _call("move_mount", _SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, bytes(target), _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def detach(target: Path) -> None:
    """Unmount `target`, if it is a mount point. Raises `OSError`."""
    while os.path.ismount(target):
        if _libc.umount2(bytes(target), _MNT_DETACH) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(target))


def _call(name: str, number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result
