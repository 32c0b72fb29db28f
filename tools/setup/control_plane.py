"""The control plane of the local Kubernetes: etcd, API server, controllers and scheduler in one program, built from Go
modules, and Karpenter's definitions of its objects."""

import re
import shutil

import engine
from problems import GIB, disk
from steps import ROOT, TOOLCHAIN, Step, print_progress

SOURCES = ROOT / "tools" / "kube"
PROGRAM = TOOLCHAIN / "kubernetes" / "control-plane"
DEFINITIONS = PROGRAM.parent / "definitions"
KARPENTER = "github.com/aws/karpenter-provider-aws@v1.14.0"
_KINDS = ("karpenter.k8s.aws_ec2nodeclasses.yaml", "karpenter.sh_nodeclaims.yaml", "karpenter.sh_nodepools.yaml")
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
    copy_definitions()
    return f"Kubernetes {version()}, built from its Go modules"


def copy_definitions() -> None:
    """Copy the definitions of Karpenter's objects from its Go module. None of its programs is built.

    Raises:
        Missing: there is no Go, or no module source.
    """
    folder = engine.module_folder(KARPENTER, "karpenter-source") / "pkg" / "apis" / "crds"
    DEFINITIONS.mkdir(parents=True, exist_ok=True)
    for name in _KINDS:
        shutil.copyfile(folder / name, DEFINITIONS / name)


_FILES = tuple(SOURCES / name for name in ("go.mod", "go.sum", "main.go"))
step = Step("kubernetes", _FILES, lambda: [PROGRAM, *(DEFINITIONS / name for name in _KINDS)], make)
