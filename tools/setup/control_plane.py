"""The control plane of the local Kubernetes: etcd, API server, controllers and scheduler in one program, built from Go
modules."""

import re

import engine
from problems import GIB, disk
from steps import ROOT, TOOLCHAIN, Step, print_progress

SOURCES = ROOT / "tools" / "kube"
PROGRAM = TOOLCHAIN / "kubernetes" / "control-plane"
BYTES = 4 * GIB
"""Measured: Go's caches with what it is made of (2.8 GB), and the program."""


def version() -> str:
    """Return the version of Kubernetes, as its module is pinned."""
    match = re.search(r"k8s\.io/kubernetes v(\S+)", (SOURCES / "go.mod").read_text())
    if match is None:
        raise RuntimeError(f"{SOURCES}/go.mod does not require k8s.io/kubernetes")
    return match[1]


def make() -> str:
    """Build the program.

    Raises:
        Missing: there is no Go, no room, or no module source.
    """
    disk(TOOLCHAIN, BYTES if not PROGRAM.exists() else 0, "building Kubernetes (Go's caches)")
    print_progress("kubernetes: building its control plane, about 15 minutes on two cores the first time")
    engine.build(SOURCES, ".", PROGRAM, "kubernetes")
    return f"Kubernetes {version()}, built from its Go modules"


_FILES = tuple(SOURCES / name for name in ("go.mod", "go.sum", "main.go"))
step = Step("kubernetes", _FILES, lambda: [PROGRAM], make)
