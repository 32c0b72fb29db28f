"""Measures this machine's hardware, and states it as the catalogue does where the machine's type is known.

A job asks for the 16 GiB and the model that its type is sold with. Compared with the 15.4 GiB that the kernel reports,
or with the driver's name of the GPU, it would not fit.
"""

import os
import re
import subprocess
from pathlib import Path

from everspot_core.capacity.catalogue import InstanceType
from everspot_core.capacity.gpus import CAPABILITIES
from everspot_core.documents import Frozen

NVIDIA_SMI_SECONDS = 20
SIZES_GIB = (
    *(0.5, 1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 40, 48, 61, 64, 72, 80, 94, 96, 122, 128, 141, 144),
    *(160, 180, 192, 244, 256, 288, 384, 488, 512, 576, 768, 976, 1024, 1152, 1536, 1952, 2048, 3072, 4096),
)
"""Sizes of memory that are sold, of machines and of GPUs, for types that are not known."""
RESERVED = 0.09
"""The largest share of a size that kernel and driver reserve."""
_CGROUP_LIMIT = Path("sys/fs/cgroup/memory.max")
"""The limit of a container's own control group, or `max`. A machine's root group has no such file (Linux,
Documentation/admin-guide/cgroup-v2.rst: "exists on non-root cgroups")."""
_MODELS = sorted(CAPABILITIES, key=len, reverse=True)
_LARGE_MEMORY_VARIANTS = {("A100", 80): "A100-80GB", ("V100", 32): "V100-32GB"}


class Hardware(Frozen):
    """The hardware of a machine. `gpu_memory_gib`: of each GPU; the smallest if they differ."""

    vcpus: int
    memory_gib: float
    gpus: int = 0
    gpu: str | None = None
    gpu_memory_gib: float = 0


def measure(kind: InstanceType | None = None, root: Path = Path("/")) -> Hardware:
    """Return this machine's hardware. A machine without a working `nvidia-smi` counts as one without GPUs.

    Args:
        kind: the machine's type; None if it is not known.
        root: the folder with `proc` and `sys`.
    """
    gpus = _gpus()
    model = gpus[0][0] if gpus else None
    gpu_memory = min((memory for _, memory in gpus), default=0.0)
    if kind is not None and len(gpus) == kind.gpus and _is_near(gpu_memory, kind.gpu_memory_gib):
        model, gpu_memory = kind.gpu, kind.gpu_memory_gib
    return Hardware(
        vcpus=len(os.sched_getaffinity(0)),
        memory_gib=_memory_gib(kind, root),
        gpus=len(gpus),
        gpu=model,
        gpu_memory_gib=gpu_memory,
    )


def _memory_gib(kind: InstanceType | None, root: Path) -> float:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            measured = int(line.split()[1]) / 2**20
            break
    else:
        raise ValueError("/proc/meminfo has no MemTotal")
    whole = kind.memory_gib if kind is not None and _is_near(measured, kind.memory_gib) else nominal(measured)
    limit = root / _CGROUP_LIMIT
    text = limit.read_text().strip() if limit.exists() else "max"
    return whole if text == "max" else min(whole, round(int(text) / 2**30, 2))


def _is_near(measured_gib: float, sold_gib: float) -> bool:
    return sold_gib * (1 - RESERVED) <= measured_gib <= sold_gib * (1 + RESERVED)


def _gpus() -> list[tuple[str, float]]:
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=NVIDIA_SMI_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_gpus(answer.stdout)


def parse_gpus(text: str) -> list[tuple[str, float]]:
    """Return the model (as the catalogue spells it) and the memory in GiB of each GPU, from the CSV of `nvidia-smi`."""
    gpus = []
    for line in text.splitlines():
        name, _, memory = line.rpartition(",")
        if name and memory.strip().isdigit():
            model, size = _model(name), nominal(int(memory) / 1024)
            gpus.append((_LARGE_MEMORY_VARIANTS.get((model, round(size)), model), size))
    return gpus


def _model(name: str) -> str:
    """Return the longest model of the catalogue in the driver's name of a GPU; for an unknown one its first word."""
    for model in _MODELS:
        if re.search(rf"\b{re.escape(model)}\b", name):
            return model
    return re.split(r"[ -]", name.strip().removeprefix("NVIDIA ").removeprefix("Tesla "))[0]


def nominal(measured_gib: float) -> float:
    """Return the size that is sold: the measured size plus the memory that kernel and driver reserve."""
    for size in SIZES_GIB:
        if size * (1 - RESERVED) <= measured_gib <= size:
            return float(size)
    return round(measured_gib, 2)
