"""The local Kubernetes: etcd, API server, controllers and scheduler in one program, built from Go modules, and
Karpenter."""

import re
from pathlib import Path

import engine
import karpenter
from problems import GIB, disk
from steps import ROOT, TOOLCHAIN, Step, print_progress

SOURCES = ROOT / "tools" / "kube"
PROGRAM = TOOLCHAIN / "kubernetes" / "control-plane"
BYTES = 6 * GIB
"""Measured: Go's caches with what the control plane is made of (2.8 GB) and what Karpenter is made of (2 GB), and the
programs."""


def version() -> str:
    """Return the version of Kubernetes, as its module is pinned."""
    match = re.search(r"k8s\.io/kubernetes v(\S+)", (SOURCES / "go.mod").read_text())
    if match is None:
        raise RuntimeError(f"{SOURCES}/go.mod does not require k8s.io/kubernetes")
    return match[1]


def make() -> str:
    """Build the programs.

    Raises:
        Missing: there is no Go, no room, or no module source.
    """
    disk(TOOLCHAIN, BYTES if not PROGRAM.exists() else 0, "building Kubernetes (Go's caches)")
    print_progress("kubernetes: building its control plane, about 15 minutes on two cores the first time")
    engine.build(SOURCES, ".", PROGRAM, "kubernetes")
    print_progress("kubernetes: building Karpenter, about 8 minutes more the first time")
    karpenter.make()
    return f"Kubernetes {version()} and Karpenter {karpenter.VERSION}, built from their Go modules"


_FILES = (*(SOURCES / name for name in ("go.mod", "go.sum", "main.go")), Path(karpenter.__file__))
_DEFINITIONS = tuple(karpenter.DEFINITIONS / name for name in karpenter.KINDS)
step = Step("kubernetes", _FILES, lambda: [PROGRAM, karpenter.PROGRAM, *_DEFINITIONS], make)
