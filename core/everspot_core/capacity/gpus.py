"""Which GPUs a build of torch runs on, so that instance types with other GPUs are refused before they cost anything.

A build holds machine code for some architectures. By the CUDA C++ Programming Guide (binary compatibility), code for
sm_XY runs on a GPU of compute capability X.Z with Z >= Y and on no other. PTX, which later GPUs could compile, is not
counted: the image's wheel has none (its list has no `compute_…`), though some of torch's builds do
(pytorch/pytorch, .ci/manywheel/build_cuda.sh: `+PTX` for CUDA 12.9).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

from everspot_core.capacity.catalogue import InstanceType

_ARCH = re.compile(r"^sm_(\d+)(\d)a?\Z")


@dataclass(frozen=True)
class Build:
    """A build of torch. `arches`: as `torch.cuda.get_arch_list()` returns them."""

    version: str
    arches: tuple[str, ...]
    source: str
    as_of: date


IMAGE_BUILD = Build(
    version="2.15.0+cu132",
    arches=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"),
    source="torch.cuda.get_arch_list() of the wheel that the image installs; a test compares them",
    as_of=date(2026, 11, 22),
)
"""The build that the baked image has. CUDA 13 dropped Maxwell, Pascal and Volta (CUDA 13.0 release notes)."""

CAPABILITIES_SOURCES = ("https://developer.nvidia.com/cuda-gpus", "https://developer.nvidia.com/cuda-legacy-gpus")
CAPABILITIES: Mapping[str, str] = MappingProxyType(
    {
        "K80": "3.7", "M60": "5.2", "P100": "6.0", "P4": "6.1", "V100": "7.0", "V100-32GB": "7.0",
        "T4": "7.5", "T4G": "7.5", "A100": "8.0", "A100-80GB": "8.0", "A10G": "8.6", "A10": "8.6",
        "L4": "8.9", "L40S": "8.9", "H100": "9.0", "H100-80GB": "9.0", "H200": "9.0",
        "B200": "10.0", "B300": "10.3", "GB200": "10.0", "RTX PRO 4500": "12.0", "RTX PRO 6000": "12.0",
    }
)  # fmt: skip
"""Compute capability by GPU model, as catalogues and settings call it. Source: NVIDIA's two tables, read from stored
copies and not from the live pages. T4G and A10G, which only one cloud has, are in neither table: they get the values of
T4 and A10, whose chips they use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """The facts of a cloud's families of types, for types that are declared in place without them. A family is the part
    of a type's name before the first separator.

    - `models`: GPU model.
    - `without_cuda`: accelerators that are no NVIDIA GPUs.
    """

    models: Mapping[str, str]
    without_cuda: Mapping[str, str]
    separator: str = "."


def runs_on(capability: str, arches: Sequence[str]) -> bool:
    """Return whether a build with machine code for these architectures runs on a GPU of this compute capability."""
    major, minor = (int(part) for part in capability.split("."))
    return any(
        int(match[1]) == major and int(match[2]) <= minor for arch in arches if (match := _ARCH.match(arch)) is not None
    )


def is_arch(name: str) -> bool:
    """Return whether this is the name of an architecture, such as sm_80."""
    return _ARCH.match(name) is not None


def unfit(kind: InstanceType, arches: Sequence[str], families: Families) -> str | None:
    """Return why a build with these architectures does not run on a type's GPUs; None if it does, or if that is
    unknown."""
    family = kind.name.partition(families.separator)[0]
    if family in families.without_cuda:
        return f"{kind.name} has {families.without_cuda[family]}, and no GPU that CUDA runs on"
    model = kind.gpu or families.models.get(family)
    if model is None or (kind.gpus == 0 and family not in families.models):
        return None
    capability = CAPABILITIES.get(model)
    if capability is None or runs_on(capability, arches):
        return None
    return f"{kind.name} has {model}, compute capability {capability}; this torch has code for {', '.join(arches)}"
