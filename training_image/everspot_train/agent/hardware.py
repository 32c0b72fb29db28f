"""Measures this machine's hardware, which need not be in the catalogue."""

import os
import re
import subprocess
from pathlib import Path

from everspot_core.documents import Frozen

NVIDIA_SMI_SECONDS = 20
SIZES_GIB = (
    *(0.5, 1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 40, 48, 61, 64, 72, 80, 94, 96, 122, 128, 141, 144),
    *(160, 180, 192, 244, 256, 288, 384, 488, 512, 576, 768, 976, 1024, 1152, 1536, 1952, 2048, 3072, 4096),
)
RESERVED = 0.09
_LARGE_MEMORY_VARIANTS = {("A100", 80): "A100-80GB", ("V100", 32): "V100-32GB"}


class Hardware(Frozen):
    """The hardware of a machine. `gpu_memory_gib`: of each GPU; the smallest if they differ."""

    vcpus: int
    memory_gib: float
    gpus: int = 0
    gpu: str | None = None
    gpu_memory_gib: float = 0


def measure() -> Hardware:
    """Return this machine's hardware. A machine without a working `nvidia-smi` counts as one without GPUs."""
    gpus = _gpus()
    return Hardware(
        vcpus=len(os.sched_getaffinity(0)),
        memory_gib=_memory_gib(Path("/proc/meminfo").read_text()),
        gpus=len(gpus),
        gpu=gpus[0][0] if gpus else None,
        gpu_memory_gib=min((memory for _, memory in gpus), default=0.0),
    )


def _memory_gib(meminfo: str) -> float:
    for line in meminfo.splitlines():
        if line.startswith("MemTotal:"):
            return nominal(int(line.split()[1]) / 2**20)
    raise ValueError("/proc/meminfo has no MemTotal")


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
            model = re.split(r"[ -]", name.strip().removeprefix("NVIDIA ").removeprefix("Tesla "))[0]
            size = nominal(int(memory) / 1024)
            gpus.append((_LARGE_MEMORY_VARIANTS.get((model, round(size)), model), size))
    return gpus


def nominal(measured_gib: float) -> float:
    """Return the advertised size: the measured size plus the memory that kernel and driver reserve.

    A job asks for the 16 GiB of a type whose kernel reports 15.4 GiB. Compared with 15.4 it would not fit.
    """
    for size in SIZES_GIB:
        if size * (1 - RESERVED) <= measured_gib <= size:
            return float(size)
    return round(measured_gib, 2)
