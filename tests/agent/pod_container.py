"""Starts agents as a node starts the container of their pod: by runc, with what the declared pod may do.

The specification of the container is made of the PodTemplate and of the node's user data, as containerd makes it. Files
and network are this machine's.
"""

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any

from agent_helpers import Cluster, Proc
from everspot.kubernetes import documents
from everspot_clouds.kubernetes import rules
from everspot_core.capacity.catalogue import builtin

Document = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
PLACE = documents.ObjectPlace("test", "test", "us-east-1")
NODES = {"role": "r", "ami_alias": "al2023@v20260115", "subnet_tags": {}, "security_group_tags": {}, "volume_gib": 20}
_MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
)  # fmt: skip
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""containerd, pkg/oci/spec.go, of a container with the default `procMount`."""
_MOUNTS = (
    ("/proc", "proc", ()),
    ("/dev", "tmpfs", ("nosuid", "strictatime", "mode=755")),
    ("/dev/pts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5")),
    ("/dev/shm", "tmpfs", ("nosuid", "noexec", "nodev", "mode=1777")),
    ("/sys", "sysfs", ("nosuid", "noexec", "nodev", "ro")),
    ("/tmp", "tmpfs", ("mode=1777",)),  # the writable layer of a container, which this root has not
)


def why_not() -> str:
    """The reason why no container is started here; empty if one is."""
    if os.geteuid() != 0:
        return "only root starts a container as containerd does"
    return "" if shutil.which("runc") else "there is no runc: apt install runc"


def agents_pod(*, job_images: bool) -> Document:
    """The pod of an agent."""
    pod = documents.build_pod(PLACE, "everspot", "{}", builtin().types["m6i.large"], job_images=job_images)
    return dict(pod["spec"])


def node_profile(name: str) -> Document:
    """The seccomp profile that cloud-init writes for the kubelet of a node."""
    user_data = documents.build_node_class(PLACE, NODES, {}, job_images=True)["spec"]["userData"]
    parts = message_from_string(user_data).get_payload()
    assert isinstance(parts, list)
    (part,) = parts
    assert isinstance(part, Message) and part.get_content_type() == "text/cloud-config"
    header, _, text = str(part.get_payload()).partition("\n")
    assert header == "#cloud-config"
    (file,) = json.loads(text)["write_files"]
    assert file["path"] == f"{rules.SECCOMP_FOLDER}/{name}"
    return dict(json.loads(file["content"]))


def usual_profile() -> Document:
    """containerd's profile of a container without capabilities: the calls of a container of a job are added to it."""
    profile = node_profile(agents_pod(job_images=True)["securityContext"]["seccompProfile"]["localhostProfile"])
    added = ("unshare", "mount", "chroot")
    profile["syscalls"] = [rule for rule in profile["syscalls"] if not set(rule["names"]) & set(added)]
    return profile


def build_specification(pod: Document, command: list[str], directory: Path, env: dict[str, str]) -> Document:
    """The container's specification (OCI runtime specification, config.md)."""
    security = {**pod["securityContext"], **pod["containers"][0]["securityContext"]}
    profile = security["seccompProfile"]
    filters = usual_profile() if profile["type"] == "RuntimeDefault" else node_profile(profile["localhostProfile"])
    assert security["capabilities"] == {"drop": ["ALL"]} and security["runAsNonRoot"]
    kinds = ("mount", "pid", "ipc", "uts", "cgroup", *(() if pod.get("hostUsers", True) else ("user",)))
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "root", "readonly": True},
        "process": {
            "user": {"uid": documents.USER, "gid": documents.USER, "additionalGids": [security["fsGroup"]]},
            "args": command,
            "cwd": str(directory),
            "env": [f"{name}={value}" for name, value in env.items()],
            "capabilities": {},
            "noNewPrivileges": not security["allowPrivilegeEscalation"],
        },
        "mounts": [{"destination": place, "type": kind, "source": kind, "options": list(options)}
                   for place, kind, options in _MOUNTS],
        "linux": {
            "namespaces": [{"type": kind} for kind in kinds],
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READ_ONLY),
            "seccomp": filters,
        },
    }  # fmt: skip


def open_programs() -> str:
    """Return the commands that show Python and Everspot to the container's user, if a folder above them is closed."""
    commands = ""
    for path in sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT}):
        closed = next((p for p in reversed(path.parents) if not p.stat().st_mode & stat.S_IXOTH), None)
        if closed is not None:
            commands += f" && mount -t tmpfs -o mode=755 tmpfs root{closed} && mkdir -p root{path}"
            commands += f" && mount --bind {path} root{path}"
    return commands


@dataclass
class PodCluster(Cluster):
    """A cluster whose agents are containers. `pod`: of the agents."""

    pod: Document = field(default_factory=dict)

    def _spawn(self, command: list[str], home: Path, log: Path, env: dict[str, str]) -> Proc:
        bundle = home / "bundle"
        (bundle / "root").mkdir(parents=True)
        specification = build_specification(self.pod, command, home, env)
        (bundle / "config.json").write_text(json.dumps(specification))
        writable = " ".join(str(self.root / name) for name in ("control", "data", "instances", "work"))
        show = f'mount --bind / root{open_programs()} && for p in {writable}; do mount --bind "$p" "root$p"; done'
        show += ' && exec "$@"'
        (self.root / "work").mkdir(exist_ok=True)
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f"cd {bundle} && {show}", "sh"]
        words += ["runc", "--root", str(bundle / "state"), "run", f"everspot-{os.getpid()}-{home.name}"]
        return super()._spawn(words, home, log, {"PATH": os.environ["PATH"]})


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the container's user may use: he and this process write into the same store."""
    folder, mask = Path(tempfile.mkdtemp(prefix="everspot-pod-", dir="/var/tmp")), os.umask(0)
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        os.umask(mask)
        shutil.rmtree(folder)
