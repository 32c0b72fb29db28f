"""Karpenter for AWS, built from its Go modules, and the definitions of its objects.

Karpenter's two ports, of metrics and of health, are open to every network. On the local Kubernetes they are of this
machine alone, so the program is built from copies of its two modules, in which the two addresses are changed.
"""

import shutil
from pathlib import Path

import engine
from steps import TOOLCHAIN

PROGRAM = TOOLCHAIN / "kubernetes" / "karpenter"
DEFINITIONS = PROGRAM.parent / "definitions"
VERSION = "v1.14.0"
PROVIDER, CORE = "github.com/aws/karpenter-provider-aws", "sigs.k8s.io/karpenter"
KINDS = ("karpenter.k8s.aws_ec2nodeclasses.yaml", "karpenter.sh_nodeclaims.yaml", "karpenter.sh_nodepools.yaml")
_OPERATOR = Path("pkg/operator/operator.go")
_PORTS = ("MetricsPort", "HealthProbePort")


def make() -> None:
    """Build the program and copy the definitions.

    Raises:
        Missing: there is no Go, or no module source.
    """
    copy_definitions()
    copies = TOOLCHAIN / "src" / "karpenter-aws", TOOLCHAIN / "src" / "karpenter"
    for module, copy in zip((PROVIDER, CORE), copies, strict=True):
        _copy(engine.module_folder(f"{module}@{VERSION}", "karpenter-source"), copy)
    operator = copies[1] / _OPERATOR
    operator.write_text(close_ports(operator.read_text()))
    requirements = copies[0] / "go.mod"
    requirements.write_text(f"{requirements.read_text()}\nreplace {CORE} => {copies[1]}\n")
    engine.build(copies[0], "./cmd/controller", PROGRAM, "karpenter")
    for copy in copies:
        shutil.rmtree(copy)


def close_ports(source: str) -> str:
    """Return Karpenter's source with its two ports on the loopback address.

    Raises:
        RuntimeError: the source looks different.
    """
    for port in _PORTS:
        address = f'fmt.Sprintf(":%d", options.FromContext(ctx).{port})'
        if source.count(address) != 1:
            raise RuntimeError(f"{_OPERATOR} of {CORE} {VERSION} does not open {port} as expected")
        source = source.replace(address, address.replace('":%d"', '"127.0.0.1:%d"'))
    return source


def copy_definitions() -> None:
    """Copy the definitions of Karpenter's objects.

    Raises:
        Missing: there is no Go, or no module source.
    """
    folder = engine.module_folder(f"{PROVIDER}@{VERSION}", "karpenter-source") / "pkg" / "apis" / "crds"
    DEFINITIONS.mkdir(parents=True, exist_ok=True)
    for name in KINDS:
        shutil.copyfile(folder / name, DEFINITIONS / name)


def _copy(module: Path, target: Path) -> None:
    """Copy a module, without the read-only modes of Go's module cache."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(module, target, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("test", "designs"))
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
