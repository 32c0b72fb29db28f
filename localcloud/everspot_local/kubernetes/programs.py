"""The programs of the local Kubernetes. The module imports nothing that takes time to be imported."""

import sys
from pathlib import Path

PROGRAM, KARPENTER, DEFINITIONS = "control-plane", "karpenter", "definitions"
"""What set-up makes in the folder of programs."""
STANDING = "standing"
"""The name of the node that the Kubernetes cluster has beside Karpenter's."""


def have_programs(folder: Path) -> bool:
    """Return whether a folder has all programs of the local Kubernetes."""
    return all((folder / name).exists() for name in (PROGRAM, KARPENTER, DEFINITIONS))


def node_command(folder: Path) -> tuple[str, ...]:
    """Return what the machines of the nodes run. `folder`: of the running Kubernetes."""
    return (sys.executable, "-m", "everspot_local.kubernetes.machine", "--kubeconfig", str(folder / "kubeconfig"))


def standing_command(folder: Path) -> tuple[str, ...]:
    """Return the program of the node that the Kubernetes cluster has beside Karpenter's."""
    return (*node_command(folder), "--standing", STANDING)
