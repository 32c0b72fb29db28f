"""A program for a container in a pod: it prints what the kernel answers to what no job needs."""

import ctypes
import errno
import json
import platform
import socket
from pathlib import Path

NEWNS, NEWUSER = 0x20000, 0x10000000
OTHERS = {"net": 0x40000000, "pid": 0x20000000, "ipc": 0x08000000, "uts": 0x04000000, "cgroup": 0x02000000}
CALLS = {
    "x86_64": {"clone": 56, "setns": 308, "keyctl": 250, "bpf": 321, "fsopen": 430, "open_tree": 428,
               "io_uring_setup": 425, "perf_event_open": 298, "umount2": 166},
    "aarch64": {"clone": 220, "setns": 268, "keyctl": 219, "bpf": 280, "fsopen": 430, "open_tree": 428,
                "io_uring_setup": 425, "perf_event_open": 241, "umount2": 39},
}[platform.machine()]  # fmt: skip
libc = ctypes.CDLL(None, use_errno=True)


def answer(result: int) -> str:
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]


def read(path: str) -> str:
    try:
        return f"{len(list(Path(path).iterdir()) if Path(path).is_dir() else Path(path).read_bytes())} read"
    except OSError as error:
        return errno.errorcode[error.errno or 0]


answers = {f"unshare {name}": answer(libc.unshare(NEWUSER | flag)) for name, flag in OTHERS.items()}
answers |= {name: answer(libc.syscall(number, -1, 0, 0, 0, 0)) for name, number in CALLS.items() if name != "clone"}
answers["clone user"] = answer(libc.syscall(CALLS["clone"], NEWUSER | 17, 0, 0, 0, 0))
answers["clone3"] = answer(libc.syscall(435, 0, 0))
try:
    socket.socket(40, socket.SOCK_STREAM)
    answers["vsock"] = "done"
except OSError as error:
    answers["vsock"] = errno.errorcode[error.errno or 0]
for name in ("environ", "root", "cwd", "fd/1", "mem"):
    answers[f"agent's {name}"] = read(f"/proc/1/{name}")
answers["unshare user and mount"] = answer(libc.unshare(NEWUSER | NEWNS))  # the kernel gives none in a chroot
answers["mount"] = answer(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None))
answers["bind"] = answer(libc.mount(b"/proc", b"/tmp", None, 4096, None))
print(json.dumps(answers), flush=True)
