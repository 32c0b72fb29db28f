"""The seccomp profiles of a node's pods: those that its user data writes, and the filter that they are for a process.

As a program (`python -m everspot_local.kubernetes.seccomp PROFILE COMMAND…`) it becomes a command that has the filter.
The fields of a profile are those of the OCI runtime specification (config-linux.md, Seccomp), and libseccomp makes the
filter, as it does for runc.
"""

import ctypes
import ctypes.util
import errno
import json
import os
import sys
from collections.abc import Sequence
from email import message_from_string
from email.message import Message
from pathlib import Path, PurePosixPath

import yaml
from everspot_clouds.kubernetes.rules import SECCOMP_FOLDER

from everspot_local.kubernetes.api import Document
from everspot_local.kubernetes.emulated_pods import NotEmulated

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # seccomp.h of libseccomp: SCMP_ACT_ALLOW, SCMP_ACT_ERRNO
_OPERATORS = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}


class MissingProfile(Exception):
    """A node lacks the profile of a pod."""


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def write_profiles(user_data: str, folder: Path) -> None:
    """Write what a node's user data writes into the kubelet's folder of profiles, as cloud-init does (write_files).
    Everything else in it is left out. `folder`: in place of the kubelet's."""
    for part in message_from_string(user_data).walk():
        if part.get_content_type() != "text/cloud-config":
            continue
        assert isinstance(part, Message)  # noqa: S101
        for file in yaml.safe_load(str(part.get_payload())).get("write_files", []):
            path = PurePosixPath(file["path"])
            if path.is_relative_to(SECCOMP_FOLDER):
                target = folder / path.relative_to(SECCOMP_FOLDER)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(file["content"])


def filter_command(pod: Document, folder: Path, command: Sequence[str]) -> list[str]:
    """Return the command of a pod's container, with the filter of the profile of its node that the pod names.

    Raises:
        MissingProfile: if the node has no such profile.
        NotEmulated: if nothing makes a filter here.
    """
    contexts = [pod["spec"].get("securityContext", {}), pod["spec"]["containers"][0].get("securityContext", {})]
    profiles = [context["seccompProfile"] for context in contexts if "seccompProfile" in context]
    if not profiles or profiles[-1]["type"] != "Localhost":
        return list(command)
    if ctypes.util.find_library("seccomp") is None:
        raise NotEmulated("a seccomp profile of the node: there is no libseccomp here")
    name = profiles[-1]["localhostProfile"]
    path, shown = folder / name, f"{SECCOMP_FOLDER}/{name}"
    if not path.is_file():
        # containerd, contrib/seccomp/seccomp.go, LoadProfile
        raise MissingProfile(f'cannot load seccomp profile "{shown}": open {shown}: no such file or directory')
    return [sys.executable, "-m", "everspot_local.kubernetes.seccomp", str(path), *command]


def load_filter(profile: Document) -> None:
    """Filter the system calls of this process and of those that it starts, from now on.

    Raises:
        OSError: if the kernel or libseccomp refuses it.
    """
    library = ctypes.CDLL(ctypes.util.find_library("seccomp"))
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_read_action(profile["defaultAction"], None)))
    for rule in profile["syscalls"]:
        action = _read_action(rule["action"], rule.get("errnoRet"))
        comparisons = [
            _Comparison(each["index"], _OPERATORS[each["op"]], each["value"], each.get("valueTwo", 0))
            for each in rule.get("args", [])
        ]
        array = (_Comparison * len(comparisons))(*comparisons)
        for name in rule["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:  # others are calls of other processors
                _check(library.seccomp_rule_add_array(context, action, number, len(comparisons), array))
    _check(library.seccomp_load(context))


def _read_action(name: str, number: int | None) -> int:
    return {"SCMP_ACT_ALLOW": _ALLOW, "SCMP_ACT_ERRNO": _ERRNO | (number or errno.EPERM)}[name]


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def main(profile: str, *command: str) -> None:
    """Become the command."""
    load_filter(json.loads(Path(profile).read_text()))
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])
