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

from everspot_core.catalogue import InstanceType

_ARCH = re.compile(r"^sm_(\d+)(\d)a?$")


@dataclass(frozen=True)
class Build:
    """A build of torch. `arches`: as `torch.cuda.get_arch_list()` tells them."""

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
        "B200": "10.0", "B300": "10.3", "RTX PRO 6000": "12.0",
    }
)  # fmt: skip
"""Compute capability by GPU model, as catalogues and settings call it. Source: NVIDIA's two tables, read from stored
copies and not from the live pages. T4G and A10G, which only AWS has, are in neither table: they get the values of T4
and A10, whose chips they use."""

FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "p2": "K80", "g3": "M60", "g3s": "M60", "p3": "V100", "p3dn": "V100-32GB", "g4dn": "T4", "g5g": "T4G",
        "p4d": "A100", "p4de": "A100-80GB", "g5": "A10G", "g6": "L4", "gr6": "L4", "g6e": "L40S",
        "p5": "H100", "p5e": "H200", "p5en": "H200", "p6-b200": "B200", "p6-b300": "B300",
    }
)  # fmt: skip
"""GPU model by family of EC2 types (EC2 instance types guide), for types declared in place without one."""

NO_CUDA: Mapping[str, str] = MappingProxyType(
    {"g4ad": "AMD Radeon Pro V520", "trn1": "Trainium", "trn1n": "Trainium", "trn2": "Trainium", "inf1": "Inferentia",
     "inf2": "Inferentia", "dl1": "Gaudi", "dl2q": "Qualcomm AI 100", "vt1": "Xilinx U30"}
)  # fmt: skip
"""Families of EC2 types whose accelerators are no NVIDIA GPUs."""


def runs_on(capability: str, arches: Sequence[str]) -> bool:
    """Whether a build with machine code for these architectures runs on a GPU of this compute capability."""
    major, minor = (int(part) for part in capability.split("."))
    return any(
        int(found[1]) == major and int(found[2]) <= minor for arch in arches if (found := _ARCH.match(arch)) is not None
    )


def is_arch(word: str) -> bool:
    """Whether this is the name of an architecture, such as sm_80."""
    return _ARCH.match(word) is not None


def unfit(kind: InstanceType, arches: Sequence[str]) -> str | None:
    """Why a build with these architectures does not run on a type's GPUs; None if it does, or if that is unknown."""
    family = kind.name.partition(".")[0]
    if family in NO_CUDA:
        return f"{kind.name} has {NO_CUDA[family]}, and no GPU that CUDA runs on"
    model = kind.gpu or FAMILIES.get(family)
    if model is None or (kind.gpus == 0 and family not in FAMILIES):
        return None
    capability = CAPABILITIES.get(model)
    if capability is None or runs_on(capability, arches):
        return None
    return f"{kind.name} has {model}, compute capability {capability}; this torch has code for {', '.join(arches)}"
