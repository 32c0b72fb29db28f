"""Mounts the volumes of a pod's claims at their paths, in a mount namespace of the pod's process alone.

Only volumes that are folders of this machine are known: `hostPath` and `local`. A path that this machine does not have
is created in an empty file system, which hides the nearest folder above it from the pod. See mount_namespaces(7) and
unshare(1).
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

from everspot_local.kubernetes.api import Document, KubeApi
from everspot_local.kubernetes.emulated_pods import NotEmulated

_ENTER = ("unshare", "--mount", "--propagation", "private", "--")
_SCRIPT = """
set -e
while [ "$1" != -- ]; do
    if [ ! -d "$2" ]; then
        above=$2
        while [ ! -d "$above" ]; do above=$(dirname "$above"); done
        mount -t tmpfs tmpfs "$above"
        mkdir -p "$2"
    fi
    mount --bind "$1" "$2"
    [ "$3" = rw ] || mount -o remount,bind,ro "$2"
    shift 3
done
shift
exec "$@"
"""
"""Mounts each triple of source, target and mode, and becomes the command after the two hyphens."""


@dataclass(frozen=True)
class ClaimMount:
    """A folder of this machine in a pod.

    Attributes:
        source: The folder.
        target: Its path in the pod.
        read_only: Whether the pod may only read it.
    """

    source: str
    target: str
    read_only: bool


def is_claim(volume: Document) -> bool:
    """Return whether a volume of a pod is a claim's."""
    return "persistentVolumeClaim" in volume


def find_claim_mounts(api: KubeApi, pod: Document) -> list[ClaimMount]:
    """Return the mounts of a pod's claims.

    Raises:
        NotEmulated: if a claim's volume is no folder of this machine, or nothing can be mounted here.
    """
    mounts = []
    for volume in filter(is_claim, pod["spec"].get("volumes", [])):
        claim = volume["persistentVolumeClaim"]
        source = _find_folder(api, pod["metadata"]["namespace"], claim["claimName"])
        for mount in pod["spec"]["containers"][0].get("volumeMounts", []):
            if mount["name"] == volume["name"]:
                read_only = bool(claim.get("readOnly") or mount.get("readOnly"))
                mounts.append(ClaimMount(source, mount["mountPath"], read_only))
    if mounts and not _may_mount():
        raise NotEmulated("volumes of claims: only root mounts them here")
    return mounts


def build_command(mounts: Sequence[ClaimMount], command: Sequence[str]) -> list[str]:
    """Return the command that mounts, and then becomes another command with the same process id."""
    if not mounts:
        return list(command)
    triples = [(mount.source, mount.target, "ro" if mount.read_only else "rw") for mount in mounts]
    return [*_ENTER, "sh", "-c", _SCRIPT, "sh", *chain.from_iterable(triples), "--", *command]


def _find_folder(api: KubeApi, namespace: str, claim: str) -> str:
    """Return the folder of the volume to which a claim is bound: kube-scheduler binds no pod before."""
    name = api.get(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")["spec"]["volumeName"]
    spec = api.get(f"/api/v1/persistentvolumes/{name}")["spec"]
    source = spec.get("hostPath") or spec.get("local")
    if source is None:
        raise NotEmulated(f"the volume {name}, which is no folder of this machine")
    return str(source["path"])


@cache
def _may_mount() -> bool:
    """Return whether this process may make mount namespaces."""
    try:
        return subprocess.run([*_ENTER, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0  # noqa: S603
    except OSError:
        return False
